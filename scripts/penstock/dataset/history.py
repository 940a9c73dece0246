"""`history.jsonl`: the history of a dataset's releases. It has a line for each publication, rollback,
removal, repair and later signing, and for each reader's pin that the owner withdrew.

Publish and the commands of `keep` append lines under the dataset's lock. `look.details` reads the file with
its own code. Lines also record when penstock moved the ctime of hard-linked files (`json_files`), so
that audits do not mistake that for a change from outside.
"""

from __future__ import annotations

import contextlib
import getpass
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import (
    Author,
    CtimeInterval,
    Publication,
    Signing,
)
from penstock.core.errors import NewerFormatError
from penstock.fs import small_files
from penstock.host.kernel_facts import host_name
from penstock.tables import json_files
from penstock.tables.json_files import (
    LINES,
    CtimeIntervals,
    CtimeRecorder,
    merged_intervals,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.dataset_documents import HistoryLine
    from penstock.core.layout import DatasetLayout


MOST_DAMAGED = 1000  # most damaged lines: a crash damages one line, so a file with more is no history


def lines(layout: DatasetLayout) -> Iterator[HistoryLine]:
    """Yield the lines, newest first; nothing if the dataset has no history. Damaged lines are skipped. During
    iteration it raises NewerFormatError, or OSError if the file cannot be read or is no history."""
    try:
        content = small_files.read(layout.history)
    except (FileNotFoundError, NotADirectoryError):  # the state may be below another `target.state_root`
        return
    damaged = 0
    for raw in small_files.backwards(content):
        try:
            line = dataset_documents.line_from_json(raw, layout.history)
        except ValueError:
            damaged += 1
            if damaged > MOST_DAMAGED:
                raise small_files.NotPlainError(
                    f"more than {MOST_DAMAGED} of its lines are damaged", layout.history
                ) from None
            continue
        yield line


def append(layout: DatasetLayout, line: HistoryLine) -> None:
    """Append a line durably. The caller holds the dataset's lock. Raises OSError."""
    small_files.append_line(layout.history, dataset_documents.line_to_json(line))


def intervals(layout: DatasetLayout) -> CtimeIntervals:
    """Return when penstock moved ctimes of files that releases share, from the history and from processes'
    files. Intervals that cannot be read are left out, so their changes count as changes from outside."""
    recorded: list[HistoryLine] = list(json_files.pending_intervals(layout.intervals).values())
    with contextlib.suppress(OSError, NewerFormatError):
        recorded += lines(layout)
    return CtimeIntervals(
        (line.first_ns, line.last_ns) for line in recorded if isinstance(line, CtimeInterval)
    )


@contextlib.contextmanager
def moving(layout: DatasetLayout, release: str) -> Iterator[CtimeRecorder]:
    """Yield a recorder. The body calls it with each ctime (nanoseconds) that it moves on files that releases
    share. `release`: the release into which these are linked or from which they are removed. The recorder
    needs no lock, since it writes its own file. If that fails, nothing is recorded, and nothing raised."""
    moved = CtimeRecorder(layout.intervals, moves_of(layout, release))
    try:
        yield moved
    finally:
        moved.close()


def moves_of(layout: DatasetLayout, release: str) -> CtimeInterval:
    """Return the line for an interval in which this process moves ctimes, without the interval's times."""
    return CtimeInterval(dataset=layout.dataset, release=release, author=this_author())


def note_intervals(layout: DatasetLayout) -> None:
    """Turn the recorded intervals into a few lines for each release, and remove their files. Raises OSError.
    The caller holds the dataset's lock. The call may be repeated after a kill: a repeated line is
    harmless."""
    pending = json_files.pending_intervals(layout.intervals)
    for release in dict.fromkeys(line.release for line in pending.values()):
        of_release = {path: line for path, line in pending.items() if line.release == release}
        last = next(reversed(of_release.values()))
        ends = [(line.first_ns, line.last_ns) for line in of_release.values()]
        for first_ns, last_ns in merged_intervals(ends, LINES):
            append(layout, replace(last, first_ns=first_ns, last_ns=last_ns))
        for path in of_release:
            path.unlink(missing_ok=True)


def this_author() -> Author:
    """Return the account and node of this process."""
    return Author(user(), os.geteuid(), host_name())


def user() -> str:
    """Return the account's name, or its number if it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.geteuid()}"


def published_seal(layout: DatasetLayout, release: str) -> str | None:
    """Return `sha256:<hex>` of the release's seal as last published or signed; None if no line has it. Raises
    as `lines`."""
    sealing = (line for line in lines(layout) if isinstance(line, Publication | Signing))
    return next((line.seal for line in sealing if line.release == release and line.seal), None)


def claim_of(layout: DatasetLayout, run: str) -> int:
    """Return the number of the claim under which the run was last published; 0 if no line has it. Raises as
    `lines`."""
    publications = (line for line in _publications(layout) if line.run == run)
    return next((line.claim or 0 for line in publications), 0)


def last_claim(layout: DatasetLayout) -> int:
    """Return the highest claim number in any line; 0 if no line has one. Raises as `lines`."""
    return max((line.claim or 0 for line in lines(layout)), default=0)


def _publications(layout: DatasetLayout) -> Iterator[Publication]:
    return (line for line in lines(layout) if isinstance(line, Publication))
