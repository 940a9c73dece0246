"""The audits of a dataset: their folders, `.penstock/audits/<id>/`, and the files that an audit's selection
draws. Also decides when an audit counts as a reading, so that its files need no reading back for the next
release.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain
from os import fsencode
from typing import TYPE_CHECKING

import xxhash

from penstock.core import findings as audit_documents
from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.findings import (
    Audit,
    AuditSelection,
    Finding,
    SoonFirst,
    finding_from_json,
)
from penstock.core.grades import STORAGE_GRADES, storage_rank
from penstock.core.layout import RunLayout
from penstock.dataset import documents, seals
from penstock.fs import capabilities, small_files
from penstock.jobs import array_job
from penstock.tables import json_files
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.findings import SkippedFile
    from penstock.core.layout import DatasetLayout


# The draw of an audit: which files an `AuditSelection` reads.
#
# The unit is a file, or a part of a giant (an object copied in parts over several shards). The draw depends
# only on path and part, so a killed audit continues with the same files.
#
# A rotation may first take files that were read back soon after their writing. Its slices are then pieces of
# equal size of one order of all files:
#
# | the file was read back | its place in the order, from 0 to 1                                     |
# |------------------------|-------------------------------------------------------------------------|
# | soon                   | its path's number (a hash), within the first `share`                    |
# | later                  | its path's number, counted from `start` on, within the rest             |


def takes(choice: AuditSelection, path: str, part: int = -1, *, soon: bool = False) -> bool:
    """Return whether this file (or this part of it; -1: the whole file) is read."""
    return bool(drawn(choice, [fsencode(path)], [soon], part))


def drawn(choice: AuditSelection, paths: Sequence[bytes], soon: Sequence[bool], part: int = -1) -> list[int]:
    """Return the ascending indices in `paths` of the files (or their parts of number `part`) to read.

    Paths are encoded by `os.fsencode`. `soon` marks files that were read back soon after their writing. It is
    used only if `choice.soon_first` has a share.
    """
    if choice.kind == "whole" or (choice.kind == "sample" and choice.share >= 1):
        return list(range(len(paths)))
    seed = choice.seed if choice.kind == "sample" else "rotation"
    head = b"%b\x00%d\x00" % (seed.encode(), part)
    if choice.kind == "sample":
        # XXH3 costs a seventh of BLAKE2, which took 1 s of CPU for a million paths. The seed is unknown
        # before the audit begins, so nobody can choose paths that escape the audit.
        number, key = xxhash.xxh3_64_intdigest, int.from_bytes(blake2b(head, digest_size=8).digest())
        limit = math.ceil(choice.share * 2.0**64)
        return [i for i, path in enumerate(paths) if number(path, key) < limit]
    # BLAKE2 stays, since rotations outlive versions of penstock, and a rotation covers everything only if all
    # its slices are cut by the same numbers.
    value, turn, turns = int.from_bytes, choice.turn, choice.turns
    numbers = (value(blake2b(head + path, digest_size=8).digest()) for path in paths)
    if not (share := choice.soon_first.share):
        return [i for i, number in enumerate(numbers) if number % turns == turn]
    start, left = choice.soon_first.start, 1 - share
    fractions = zip(soon, (number / 2.0**64 for number in numbers), strict=True)
    places = (share * at if first else share + left * ((at - start) % 1) for first, at in fractions)
    return [i for i, place in enumerate(places) if min(int(place * turns), turns - 1) == turn]


# An audit's folder, `.penstock/audits/<id>/`, has the layout of a run, so that elements run the same code.
#
#     audit.json       the release, the files to read and the reason; written once
#     run.json, plan.json, shards/, receipts/audit/, arrays.jsonl: as in a run, until the audit ends
#     skipped.jsonl    the files that were not opened, since their data is not here; written at the end
#     seen/NNNNN.json  the elements' readings so far, until the audit ends
#     shape.jsonl      the findings of the tree's comparison, until the audit ends
#     findings.jsonl, result.json: written at the end; an audit without result.json is open
#
# A finding is one file of the release that is not as it was published. The next audit with the same choice
# continues an open audit, unless that was idle for a week: old readings prove little. The newest KEPT audits
# stay. A look of `gate --mend` is never continued, and is removed when a later look ended well.

KEPT = 400  # newest audits of a dataset that stay
_LASTING = frozenset({"audit.json", "result.json", "findings.jsonl", "skipped.jsonl"})


def findings(run: RunLayout) -> Path:
    return run.folder / "findings.jsonl"


def skipped(run: RunLayout) -> Path:
    """The list of files that were not opened; absent if all files were opened."""
    return run.folder / "skipped.jsonl"


def shape(run: RunLayout) -> Path:
    """Findings about the tree's shape, until all findings are written."""
    return run.folder / "shape.jsonl"


def keep(path: Path, new_findings: Iterable[Finding]) -> None:
    """Write findings as they come, durably, in bounded memory."""
    json_files.write_lines(path, new_findings)


def kept(path: Path) -> Iterator[Finding]:
    """Read what `keep` wrote. Raises FailedError if the file is missing or damaged."""
    return json_files.read_lines(path, finding_from_json, "an audit's findings")


def shape_here(run: RunLayout) -> Path:
    """The findings of `shape` without stubs (files whose data lies elsewhere)."""
    return run.folder / "shape-here.jsonl"


def kept_skipped(path: Path) -> Iterator[SkippedFile]:
    """Read what `keep_skipped` wrote. Raises FailedError if the file is damaged."""
    if path.exists():
        yield from json_files.read_lines(path, audit_documents.skipped_from_json, "what an audit skipped")


def keep_skipped(path: Path, skipped_files: Iterable[SkippedFile]) -> None:
    """Write skipped files as they come, durably; no file if there are none."""
    waiting = iter(skipped_files)
    first = next(waiting, None)
    if first is not None:
        json_files.write_lines(path, chain((first,), waiting))


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

    `seal` is the digest of the release's seal. `recall` is the number of bytes of tiered files that reading
    may fetch back. The folder's name begins with the file system's time: audits sort by their beginning,
    whatever the hosts' clocks.
    """
    now = datetime.fromtimestamp(capabilities.now(layout.state), UTC)
    name = f"{now:%Y%m%dT%H%M%S.%fZ}-{release}-{secrets.token_hex(3)}"
    if choice.kind == "sample" and not choice.seed:
        choice = AuditSelection("sample", choice.share, secrets.token_hex(8))
    # Use the earliest of the clocks: the files are read later, whichever clock is wrong.
    created = f"{datetime.fromtimestamp(capabilities.both(layout.state).earliest, UTC):%Y-%m-%dT%H:%M:%SZ}"
    audit = Audit(
        name, layout.dataset, release, seal, created, choice, limit, recall, filesystem, direct, look
    )
    run = audit.layout(layout)
    documents.write(audit_documents.AUDIT, run.folder / "audit.json", audit)
    return audit


def described(run: RunLayout) -> Audit:
    """Read what `begin` wrote. Raises FailedError if it is missing or damaged."""
    path = run.folder / "audit.json"
    hint = f"remove {run.folder}; other audits are not concerned"
    return documents.need(audit_documents.AUDIT, path, hint)


def audits_of(layout: DatasetLayout, release: str | None = None) -> Iterator[tuple[Audit, bool]]:
    """Yield all audits, or a release's audits, newest first, and whether each has ended."""
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
    for audit, ended in audits_of(layout):
        same = (audit.release, audit.seal) == (release, seal) and _alike(audit.choice, choice)
        if not ended and not audit.look and same and not _stale(audit.layout(layout)):
            return audit
    return None


def next_slice(layout: DatasetLayout, release: str, seal: str, turns: int, soon: float) -> AuditSelection:
    """Return the next slice of a rotation that has `turns` slices.

    `soon` is the fraction of the release's files to read first.

    | finished slices of this rotation  | soon    | the next slice                                          |
    |-----------------------------------|---------|---------------------------------------------------------|
    | of the release, with soon files   | any     | the slice after the release's last slice, of its cut    |
    | first                             |         |                                                         |
    | of the release, any other         | any     | the slice after the last slice of any release           |
    | none of the release               | 0, or 1 | the slice after the last slice of any release: slices   |
    |                                   |         | are shares of the paths, so they also cover a dataset   |
    |                                   |         | that gets new releases often                            |
    | none of the release               | between | the first slice of a new cut, in which the other files  |
    |                                   |         | continue where the last slice of any release ended      |
    """
    finished = [
        audit
        for audit, ended in audits_of(layout)
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
    """Remove working files of audits that have ended or were given up, and all files of the oldest audits.

    Keeps findings. Also removes audits that were killed before they had an `audit.json`. The caller holds the
    lock of audits.
    """
    for name in os.listdir(layout.audits):
        if not (layout.audits / name / "audit.json").exists():
            tree_removal.remove_tree(layout.audits / name)
    for number, (audit, ended) in enumerate(list(audits_of(layout))):
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
    """Remove the audits of a removed release. Each rotation's newest slice stays, whatever its release, since
    `next_slice` continues from it."""
    newest = set[int]()
    for audit, ended in list(audits_of(layout)):
        turns = audit.choice.turns if audit.choice.kind == "slice" and ended else None
        if audit.release == release and (turns is None or turns in newest):
            tree_removal.remove_tree(audit.layout(layout).folder)
        if turns is not None:
            newest.add(turns)
    # A kill amid such a removal leaves a folder without `audit.json`, whose name also contains the release
    # (`begin`).
    with contextlib.suppress(FileNotFoundError):
        for path in layout.audits.iterdir():
            if _release_of(path.name) == release and not (path / "audit.json").exists():
                tree_removal.remove_tree(path)


def _release_of(name: str) -> str:
    return name.partition("Z-")[2].rpartition("-")[0]


def drop_looks(layout: DatasetLayout, release: str) -> None:
    """Remove the looks of a release that needs no more repair, and all killed looks. Only the caller makes
    looks meanwhile."""
    for audit, ended in list(audits_of(layout)):
        if audit.look and (audit.release == release or not ended):
            tree_removal.remove_tree(audit.layout(layout).folder)


def _touched(run: RunLayout) -> float:
    paths = [run.folder / "audit.json", *(run.folder / "seen").glob("*.json")]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def _stale(run: RunLayout) -> bool:
    return capabilities.now(run.folder) - _touched(run) >= array_job.STALE


def since_whole(layout: DatasetLayout, release: str, standing: Collection[str] = ()) -> list[Audit]:
    """Return the finished audits of a release, newest first, back to the last audit that read everything.

    An audit that skipped absent files did not read everything. Also returns earlier audits whose ids are in
    `standing`, since their findings still apply. All findings together are what is known of the release.
    """
    finished, whole = [], False
    for audit, ended in audits_of(layout):
        if ended and audit.release == release and (not whole or audit.id in standing):
            finished.append(audit)
            whole |= audit.choice.kind == "whole" and not skipped(audit.layout(layout)).exists()
        if whole and not standing:
            break
    return finished


def _alike(old: AuditSelection, new: AuditSelection) -> bool:
    if (old.kind, new.kind) == ("sample", "sample"):
        # The seeds may differ: the open audit keeps its own.
        return old.share == new.share
    return old == new


# Audits as readings: a file that an audit found as published need not be read back for the next release.
#
# `verify.linked` limits how long a reading counts.


@dataclass(frozen=True)
class CountedReadings:
    """The times at which audits read files."""

    audits: Sequence[tuple[int, AuditSelection]]  # each audit's begin (epoch seconds) and choice
    giant: int  # bytes above which a file is drawn by parts, so that only an audit of everything counts

    @property
    def whole(self) -> bool:
        return any(choice.kind == "whole" for _, choice in self.audits)

    def __call__(
        self, paths: Sequence[bytes], sizes: Sequence[int], soon: Sequence[bool], /
    ) -> Sequence[int]:
        """Return when each of these files was read last, in seconds since the epoch; 0 if no audit read it.
        `soon` marks files that were read back soon for the release (`core.grades.is_soon`)."""
        times = [0] * len(paths)
        for began, choice in self.audits:
            for place in drawn(choice, paths, soon):
                if choice.kind == "whole" or sizes[place] <= self.giant:
                    times[place] = max(times[place], began)
        return times


def of(layout: DatasetLayout, release: str) -> CountedReadings | None:
    """Return the readings of a release that count, by audits of the dataset's owner.

    Returns None if there are none, or if the release's seal or the audits are unreadable.

    | the audit                                              | counts |
    |--------------------------------------------------------|--------|
    | has not ended, or is of another release of that name   | no     |
    | found anything, or left files out                      | no     |
    | read from memory, while publish demanded a cold read   | no     |
    | any other                                              | yes    |
    """
    try:
        stored = seals.find(layout, release)
        audits = list(audits_of(layout, release))
    except (FailedError, NewerFormatError, OSError):
        return None
    if stored is None:
        return None
    seal = stored.seal
    required = seal.evidence.required_storage
    counted = []
    for audit, ended in audits:
        if not ended or audit.look or (audit.release, audit.seal) != (release, stored.digest):
            continue
        try:
            result = small_files.read_json(audit.layout(layout).result)
        except (OSError, ValueError):
            continue
        grade = str(result.get("grade", "")).partition(",")[0]
        enough = grade in STORAGE_GRADES and (
            required not in STORAGE_GRADES or storage_rank(grade) >= storage_rank(required)
        )
        if result.get("status") == "PASSED" and enough:
            began = datetime.strptime(audit.created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            counted.append((int(began.timestamp()), audit.choice))
    return CountedReadings(counted, seal.part_bytes or max(0, seal.bytes)) if counted else None
