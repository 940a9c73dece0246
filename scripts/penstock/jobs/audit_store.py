"""Where audits lie: `.penstock/audits/<id>/`, each laid out like a run, so that elements run the same code.

    audit.json       what is read of which release, and why: written once
    run.json, plan.json, shards/, receipts/audit/, arrays.jsonl: as in a run, gone when it ended
    skipped.jsonl    at the end: what was not opened, since its data is not here
    seen/NNNNN.json  what the elements saw so far, gone when it ended
    shape.jsonl      what the tree's comparison found, gone when it ended
    findings.jsonl, result.json: at the end; an audit without result.json is open

A finding is one file of the release that is not as it was published. The next audit with the same choice
continues an open audit, unless that lay idle for a week: readings so old prove little. The newest KEPT audits
stay. A look of `gate --mend` is never continued, and goes when a later one ended well.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from penstock.core import audit_documents
from penstock.core.audit_documents import Audit, AuditSelection, Finding, SoonFirst, finding_from_json
from penstock.core.layout import RunLayout
from penstock.dataset import documents
from penstock.fs import clock, small_files
from penstock.jobs import array_job
from penstock.tables import json_lines
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from penstock.core.audit_documents import SkippedFile
    from penstock.core.layout import DatasetLayout


KEPT = 400  # newest audits of a dataset that stay
_LASTING = frozenset({"audit.json", "result.json", "findings.jsonl", "skipped.jsonl"})


def findings(run: RunLayout) -> Path:
    return run.folder / "findings.jsonl"


def skipped(run: RunLayout) -> Path:
    """The list of files that were not opened; absent if all were."""
    return run.folder / "skipped.jsonl"


def shape(run: RunLayout) -> Path:
    """Findings about the tree's shape, until all findings are written."""
    return run.folder / "shape.jsonl"


def keep(path: Path, new_findings: Iterable[Finding]) -> None:
    """Write findings as they come, durably, in bounded memory."""
    json_lines.write(path, new_findings)


def kept(path: Path) -> Iterator[Finding]:
    """Read what `keep` wrote. Raises FailedError when the file is missing or damaged."""
    return json_lines.read(path, finding_from_json, "an audit's findings")


def shape_here(run: RunLayout) -> Path:
    """The findings of `shape` without stubs (files whose data lies elsewhere)."""
    return run.folder / "shape-here.jsonl"


def kept_skipped(path: Path) -> Iterator[SkippedFile]:
    """Read what `keep_skipped` wrote. Raises FailedError when the file is damaged."""
    if path.exists():
        yield from json_lines.read(path, audit_documents.skipped_from_json, "what an audit skipped")


def keep_skipped(path: Path, skipped_files: Iterable[SkippedFile]) -> None:
    """Write skipped files as they come, durably; no file if there are none."""
    waiting = iter(skipped_files)
    first = next(waiting, None)
    if first is not None:
        json_lines.write(path, chain((first,), waiting))


def begin(
    layout: DatasetLayout,
    release: str,
    seal: str,
    choice: AuditSelection,
    limit: int | None,
    *,
    recall: int = 0,
    filesystem: str = "auto",
    direct: str = "unshared",
    look: bool = False,
) -> Audit:
    """Make the folder of a new audit, durably.

    `seal`: the digest of the release's seal; `recall`: bytes of tiered files that reading may fetch back. Its
    name begins with the file system's time, so that audits sort by their beginning, whatever the hosts'
    clocks.
    """
    now = datetime.fromtimestamp(clock.now(layout.state), UTC)
    name = f"{now:%Y%m%dT%H%M%S.%fZ}-{release}-{secrets.token_hex(3)}"
    if choice.kind == "sample" and not choice.seed:
        choice = AuditSelection("sample", choice.share, secrets.token_hex(8))
    # The earliest of the clocks: the reading comes later, whichever clock is wrong.
    created = f"{datetime.fromtimestamp(clock.both(layout.state).earliest, UTC):%Y-%m-%dT%H:%M:%SZ}"
    audit = Audit(
        name, layout.dataset, release, seal, created, choice, limit, recall, filesystem, direct, look
    )
    run = audit.layout(layout)
    documents.write(audit_documents.AUDIT, run.folder / "audit.json", audit)
    return audit


def described(run: RunLayout) -> Audit:
    """Read what `begin` wrote. Raises FailedError when it is missing or damaged."""
    path = run.folder / "audit.json"
    hint = f"remove {run.folder}; other audits are not concerned"
    return documents.need(audit_documents.AUDIT, path, hint)


def audits(layout: DatasetLayout, release: str | None = None) -> Iterator[tuple[Audit, bool]]:
    """Yield all audits, or those of a release, newest first, each with whether it has ended."""
    try:
        names = sorted((p.name for p in layout.audits.iterdir()), reverse=True)
    except FileNotFoundError:
        return
    for name in names:
        if release not in (None, _release_of(name)):
            continue
        run = RunLayout(layout.audits / name)
        if not (run.folder / "audit.json").exists():
            continue
        audit = described(run)
        try:
            yield audit, isinstance(small_files.read_json(run.result), dict)
        except (OSError, ValueError):
            yield audit, False


def open_audit(layout: DatasetLayout, release: str, seal: str, choice: AuditSelection) -> Audit | None:
    for audit, ended in audits(layout):
        same = (audit.release, audit.seal) == (release, seal) and _alike(audit.choice, choice)
        if not ended and not audit.look and same and not _stale(audit.layout(layout)):
            return audit
    return None


def next_slice(layout: DatasetLayout, release: str, seal: str, turns: int, soon: float) -> AuditSelection:
    """Return the slice that follows in a rotation of so many.

    `soon`: the fraction of the release's files to read first.

    | finished slices of this rotation  | soon    | the next one                                            |
    |-----------------------------------|---------|---------------------------------------------------------|
    | the release's, with soon ones     | any     | the one after its last, of the same cut                 |
    | first                             |         |                                                         |
    | others of the release             | any     | as before: the one after the last, whatever its release |
    | none of the release               | 0, or 1 | the same: a slice is a share of the paths, so a dataset |
    |                                   |         | that gets new releases often is covered all the same    |
    | none of the release               | between | the first of a cut of its own, in which the other files |
    |                                   |         | go on where the last slice, whatever its release, ended |
    """
    finished = [
        audit
        for audit, ended in audits(layout)
        if ended and (audit.choice.kind, audit.choice.turns) == ("slice", turns)
    ]
    own = next((a.choice for a in finished if (a.release, a.seal) == (release, seal)), None)
    if own is not None and own.soon_first.share:
        return replace(own, turn=(own.turn + 1) % turns)
    end = finished[0].choice.end if finished else 0.0
    if own is None and 0 < soon < 1:
        return AuditSelection("slice", turns=turns, soon_first=SoonFirst(soon, end % 1))
    return AuditSelection("slice", turn=round(end * turns) % turns, turns=turns)


def tidy(layout: DatasetLayout) -> None:
    """Remove working files of audits that have ended or were given up, and all of the oldest audits.

    Findings are kept. Also removes audits killed before they were described. The caller holds the lock of
    audits.
    """
    for name in os.listdir(layout.audits):
        if not (layout.audits / name / "audit.json").exists():
            tree_removal.remove_tree(layout.audits / name)
    for number, (audit, ended) in enumerate(list(audits(layout))):
        run = audit.layout(layout)
        if number >= KEPT:
            tree_removal.remove_tree(run.folder)
        elif ended or _stale(run):
            for name in os.listdir(run.folder):
                path = run.folder / name
                if path.is_dir():
                    tree_removal.remove_tree(path)
                elif name not in _LASTING:
                    path.unlink()


def forget(layout: DatasetLayout, release: str) -> None:
    """Remove the audits of a removed release. The newest slice of each rotation stays: by it `next_slice`
    continues, whatever the release."""
    newest = set[int]()
    for audit, ended in list(audits(layout)):
        turns = audit.choice.turns if audit.choice.kind == "slice" and ended else None
        if audit.release == release and (turns is None or turns in newest):
            tree_removal.remove_tree(audit.layout(layout).folder)
        if turns is not None:
            newest.add(turns)
    # A kill amid such a removal leaves a folder without a description; its name has the release, too
    # (`begin`).
    with contextlib.suppress(FileNotFoundError):
        for path in layout.audits.iterdir():
            if _release_of(path.name) == release and not (path / "audit.json").exists():
                tree_removal.remove_tree(path)


def _release_of(name: str) -> str:
    return name.partition("Z-")[2].rpartition("-")[0]


def drop_looks(layout: DatasetLayout, release: str) -> None:
    """Remove the looks of a release that needs no more repair, and all killed looks. The caller makes looks,
    while nobody else does."""
    for audit, ended in list(audits(layout)):
        if audit.look and (audit.release == release or not ended):
            tree_removal.remove_tree(audit.layout(layout).folder)


def _touched(run: RunLayout) -> float:
    paths = [run.folder / "audit.json", *(run.folder / "seen").glob("*.json")]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def _stale(run: RunLayout) -> bool:
    return clock.now(run.folder) - _touched(run) >= array_job.STALE


def since_whole(layout: DatasetLayout, release: str, standing: Collection[str] = ()) -> list[Audit]:
    """Return the finished audits of a release, newest first, back to the last that read everything.

    An audit that skipped absent files did not read everything. Earlier audits in `standing` (ids), whose
    findings stand, are added. Their findings together are what is known of the release.
    """
    finished, whole = [], False
    for audit, ended in audits(layout):
        if ended and audit.release == release and (not whole or audit.id in standing):
            finished.append(audit)
            whole |= audit.choice.kind == "whole" and not skipped(audit.layout(layout)).exists()
        if whole and not standing:
            break
    return finished


def _alike(old: AuditSelection, new: AuditSelection) -> bool:
    if (old.kind, new.kind) == ("sample", "sample"):
        # The open audit keeps the seed that it drew.
        return old.share == new.share
    return old == new
