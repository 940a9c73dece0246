"""What is written about a dataset's releases: the history, a line for each publication, rollback, removal,
repair and later signing; and the verdict of each, with the results of its last audits and repairs and the
findings that stand.
"""

from __future__ import annotations

import contextlib
import getpass
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core import findings as document
from penstock.core.dataset_documents import Author, CtimeInterval, Publication, Signing
from penstock.core.errors import FailedError, FindingsError, NewerFormatError
from penstock.core.findings import (
    NONE_FIRST,
    AuditShown,
    LastRepair,
    Overruling,
    ReadBack,
    StandingFindings,
    Verdict,
)
from penstock.core.human import brief
from penstock.fs import small_files
from penstock.host.kernel_facts import host_name
from penstock.tables import json_files
from penstock.tables.json_files import LINES, CtimeIntervals, CtimeRecorder, merged_intervals
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.core.dataset_documents import HistoryLine
    from penstock.core.findings import AuditSelection, LastAudit
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal


# `history.jsonl`: the history of a dataset's releases. It has a line for each publication, rollback,
# removal, repair and later signing, and for each reader's pin that the owner withdrew.
#
# Publish and the commands of `keep` append lines under the dataset's lock. `look.details` reads the file with
# its own code. Lines also record when penstock moved the ctime of hard-linked files (`json_files`), so
# that audits do not mistake that for a change from outside.

MOST_DAMAGED = 1000  # most damaged lines: a crash damages one line, so a file with more is no history


def history_lines(layout: DatasetLayout) -> Iterator[HistoryLine]:
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


def append_history(layout: DatasetLayout, line: HistoryLine) -> None:
    """Append a line durably. The caller holds the dataset's lock. Raises OSError."""
    small_files.append_line(layout.history, dataset_documents.line_to_json(line))


def intervals(layout: DatasetLayout) -> CtimeIntervals:
    """Return when penstock moved ctimes of files that releases share, from the history and from processes'
    files. Intervals that cannot be read are left out, so their changes count as changes from outside."""
    recorded: list[HistoryLine] = list(json_files.pending_intervals(layout.intervals).values())
    with contextlib.suppress(OSError, NewerFormatError):
        recorded += history_lines(layout)
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
            append_history(layout, replace(last, first_ns=first_ns, last_ns=last_ns))
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
    as `history_lines`."""
    sealing = (line for line in history_lines(layout) if isinstance(line, Publication | Signing))
    return next((line.seal for line in sealing if line.release == release and line.seal), None)


def claim_of(layout: DatasetLayout, run: str) -> int:
    """Return the number of the claim under which the run was last published; 0 if no line has it. Raises as
    `history_lines`."""
    publications = (line for line in _publications(layout) if line.run == run)
    return next((line.claim or 0 for line in publications), 0)


def last_claim(layout: DatasetLayout) -> int:
    """Return the highest claim number in any line; 0 if no line has one. Raises as `history_lines`."""
    return max((line.claim or 0 for line in history_lines(layout)), default=0)


def _publications(layout: DatasetLayout) -> Iterator[Publication]:
    return (line for line in history_lines(layout) if isinstance(line, Publication))


# The verdict of a release, `audits/<release>.json`: the results of its last audits and repairs, and the
# findings that stand. The dataset's owner writes it; everybody may read it, and `dataset.gate` does.
#
# A finding is a deviation that an audit found, such as a missing, changed or unread file. It *stands* until
# an
# audit that checked the file finds nothing, a repair restores the file, or the owner overrules it. Then it
# *falls*:
#
# | event                             | earlier findings of bytes   | earlier findings of shape, | its own   |
# |                                   | (changed, unread)           | permissions, manifest      |           |
# |-----------------------------------|-----------------------------|----------------------------|-----------|
# | an audit of everything            | fall                        | fall                       | stand     |
# | an audit of everything, not all   | stand if found by an audit  | fall                       | stand     |
# | read from the servers' disks      | with `disk`; else fall      |                            |           |
# | an audit of a sample or a slice   | stand                       | fall: all were compared    | stand     |
# | an audit that could compare       | stand                       | those of the manifest fall | stand     |
# | nothing (manifest or data gone)   |                             |                            |           |
# | any audit that skipped files,     | stand                       | fall                       | stand     |
# | since their data is not here      |                             |                            |           |
# | a repair                          | fall                        | fall                       | stand, if |
# |                                   |                             |                            | any left  |
# | overruled                         | fall                        | fall                       |           |

# kinds of findings that only reading finds; every audit checks all files for the other kinds
BYTES = frozenset({"changed", "unread"})
DAMAGED_MANIFEST = "manifest"  # the kind of a damaged manifest


def read_verdict(layout: DatasetLayout, release: str) -> Verdict | None:
    """Return the verdict; None if the release was never audited. Raises FindingsError if it is damaged,
    NewerFormatError, PermissionError if this account may not read it, FailedError if the file system
    hangs."""
    path = layout.verdict(release)
    try:
        return document.VERDICT.from_json(notices.read_notice(path), path)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise FailedError(
            "what the last audit said cannot be read",
            where=str(path),
            why=str(error),
            hint="`penstock audit` writes it anew",
        ) from error
    except (FailedError, ValueError) as error:
        raise FindingsError(
            "what the last audit said is damaged",
            where=str(path),
            why=error.why if isinstance(error, FailedError) else str(error),
            hint=f"nobody knows which findings stand: move it away, then `penstock audit {layout.dataset}`",
        ) from error


def write_verdict(layout: DatasetLayout, verdict: Verdict) -> None:
    """Write the verdict durably. Requires the audits' lock. Raises as `write_notice`."""
    notices.write_notice(layout.verdict(verdict.release), document.VERDICT.to_json(verdict))


def forget_verdict(layout: DatasetLayout, release: str) -> None:
    """Remove the verdict of an earlier release of the same name, before the new one is published."""
    notices.forget_notice(layout.verdict(release))


def standing_findings(verdict: Verdict | None) -> dict[str, int]:
    """Return the number of standing findings by kind."""
    counts: Counter[str] = Counter()
    for findings in verdict.stands if verdict else ():
        counts.update(findings.counts)
    return dict(counts)


def last_audit_of(verdict: Verdict | None) -> AuditShown | None:
    """Return the last audit, for views. `closed` is set if its findings no longer stand."""
    if verdict is None or verdict.last is None:
        return None
    closed, repair, overruled = "", verdict.repair, verdict.overruled
    if verdict.last.counts and not standing_findings(verdict) and (repair or overruled):
        repaired_at, overruled_at = repair.at if repair else "", overruled.at if overruled else ""
        by_repair = repaired_at >= overruled_at
        closed = f"repaired {repaired_at}" if by_repair else f"overruled {overruled_at}"
    return AuditShown(verdict.last, closed)


def advice_on(dataset: str, counts: Iterable[str]) -> str:
    """Return advice about findings of the kinds `counts`.

    | kinds                          | advice                                              |
    |--------------------------------|-----------------------------------------------------|
    | "manifest" is among them       | a repair of text manifests, an audit of what was    |
    |                                | signed since; else a new release                    |
    | any that a repair fixes        | a repair                                            |
    | extra alone                    | nothing is deleted that penstock did not write      |
    """
    if DAMAGED_MANIFEST in counts:
        return (
            f"`penstock repair {dataset}` makes text manifests again; after `penstock sign`, audit again; "
            "nothing can be repaired by a manifest.parquet or a seal that is damaged: stage the same content "
            f"as a new release, `penstock run --new-release {dataset}`"
        )
    if set(counts) - {"extra"}:
        return f"`penstock repair {dataset}` restores what is damaged"
    return "what was not published is left to you: remove it by hand, then audit again"


def counts_text(counts: Mapping[str, int]) -> str:
    """Format counts: `3 changed, 1 missing`. Kinds are escaped, since another account may have written
    them."""
    return ", ".join(f"{count} {brief(kind)}" for kind, count in sorted(counts.items()))


def new_verdict(layout: DatasetLayout, release: str, seal: str) -> Verdict:
    """Return the verdict of a release that was never audited; `seal` is the digest of its seal."""
    return Verdict(layout.dataset, release, seal)


def audited(verdict: Verdict, audit: LastAudit, choice: AuditSelection, *, compared: bool) -> Verdict:
    """Return the verdict after an audit, by the module's table. `compared`: the audit could compare the
    release's manifest and tree."""

    def falls(kind: str, from_disks: bool) -> bool:
        if not compared:
            return kind == DAMAGED_MANIFEST
        looked = choice.kind == "whole" and not audit.skipped and audit.from_disks >= from_disks
        return looked or kind not in BYTES

    stands = []
    for findings in verdict.stands:
        counts = {
            kind: count for kind, count in findings.counts.items() if not falls(kind, findings.from_disks)
        }
        if counts and findings.audit != audit.audit:
            stands.append(findings._replace(counts=counts))
    if audit.counts:
        stands.append(StandingFindings(audit.audit, audit.began, audit.counts, audit.from_disks))
    read = _read(verdict.read, audit, choice) if compared and not audit.skipped else verdict.read
    return verdict._replace(stands=stands, last=audit, read=read)


def _read(before: ReadBack, audit: LastAudit, choice: AuditSelection) -> ReadBack:
    """Add the files that an audit of this choice read."""
    if choice.kind == "whole":
        return before._replace(whole=audit.began)
    if choice.kind != "slice":
        return before
    turns, soon_first = choice.turns, dict(before.soon_first)
    same = soon_first.pop(turns, NONE_FIRST) == choice.soon_first
    turn = {**(before.slices.get(turns, {}) if same else {}), choice.turn: audit.began}
    if choice.soon_first.share:
        soon_first[turns] = choice.soon_first
    return before._replace(slices={**before.slices, turns: turn}, soon_first=soon_first)


def repaired(verdict: Verdict, audit: str, left: Iterable[str], repaired: int) -> Verdict:
    """Return the verdict after a repair of the findings of audit `audit`. `left`: the kind of each remaining
    finding. `repaired`: number of files."""
    counts = Counter(left)
    stands = [StandingFindings(audit, now(), counts)] if counts else []
    return verdict._replace(stands=stands, repair=LastRepair(now(), audit, repaired, counts.total()))


def mended(verdict: Verdict, audit: str, fell: Mapping[str, Mapping[str, int]], repaired: int) -> Verdict:
    """Return the verdict after a repair of another release restored files shared with this release. `audit`
    is the audit whose findings were repaired. `fell`: for each of this release's audits, how many findings of
    each kind were repaired."""
    stands = []
    for findings in verdict.stands:
        gone = fell.get(findings.audit, {})
        counts = {kind: left for kind, n in findings.counts.items() if (left := n - gone.get(kind, 0)) > 0}
        if counts:
            stands.append(findings._replace(counts=counts))
    left = sum(sum(findings.counts.values()) for findings in stands)
    return verdict._replace(stands=stands, repair=LastRepair(now(), audit, repaired, left))


def overruled(verdict: Verdict, why: str, by: str) -> Verdict:
    return verdict._replace(stands=(), overruled=Overruling(now(), by, why, standing_findings(verdict)))


def read_since(verdict: Verdict | None, seal: Seal) -> datetime | None:
    """Return a moment since which every byte of the release was read back and compared; None if never. A
    single audit, audits of all slices (fractions read in turn), or the check before publication may have done
    so. The latest of these counts, with the date of the file that it read first."""
    moments: list[datetime] = []
    if seal.evidence.oldest_read:
        moments.append(_time(seal.evidence.oldest_read))
    read = verdict.read if verdict else ReadBack()
    if read.whole:
        moments.append(_time(read.whole))
    for turns, audited_at in read.slices.items():
        if len(audited_at) == turns:
            moments.append(min(map(_time, audited_at.values())))
    return max(moments, default=None)


def now() -> str:
    """Return the time in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
