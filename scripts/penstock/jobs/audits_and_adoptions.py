"""The folders of a dataset's audits, `.penstock/audits/<id>/`, and of comparisons with a tree that penstock
did not write, `.penstock/adoptions/<id>/`. Both have the layout of a run, for the same elements.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain
from os import fsencode
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from penstock.core import findings as audit_documents
from penstock.core import typed_json
from penstock.core.dataset_documents import ADOPTION
from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.findings import (
    Audit,
    AuditSelection,
    Finding,
    SoonFirst,
    difference_from_json,
    finding_from_json,
)
from penstock.core.grades import STORAGE_GRADES, storage_rank
from penstock.core.layout import RunLayout
from penstock.dataset import documents, seals
from penstock.fs import capabilities, small_files
from penstock.fs.capabilities import BOUND
from penstock.jobs import array_job
from penstock.tables import json_files
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from penstock.config.settings import PlanConfig
    from penstock.core.dataset_documents import Adoption
    from penstock.core.findings import Difference, SkippedFile
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import AdoptionResult
    from penstock.fs.path_walk import WalkedPath


# The audits of a dataset: their folders, `.penstock/audits/<id>/`, and the files that an audit's selection
# draws. Also decides when an audit counts as a reading, so that its files need no reading back for the next
# release.

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
# continues an open audit, unless that was idle for a week: old readings prove little. The newest AUDITS_KEPT
# audits stay. A look of `gate --mend` is never continued, and is removed when a later look ended well.

AUDITS_KEPT = 400  # newest audits of a dataset that stay
_LASTING = frozenset({"audit.json", "result.json", "findings.jsonl", "skipped.jsonl"})


def findings(run: RunLayout) -> Path:
    return run.folder / "findings.jsonl"


def skipped(run: RunLayout) -> Path:
    """The list of files that were not opened; absent if all files were opened."""
    return run.folder / "skipped.jsonl"


def shape(run: RunLayout) -> Path:
    """Findings about the tree's shape, until all findings are written."""
    return run.folder / "shape.jsonl"


def keep_findings(path: Path, new_findings: Iterable[Finding]) -> None:
    """Write findings as they come, durably, in bounded memory."""
    json_files.write_lines(path, new_findings)


def kept_findings(path: Path) -> Iterator[Finding]:
    """Read what `keep_findings` wrote. Raises FailedError if the file is missing or damaged."""
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


def begin_audit(
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


def described_audit(run: RunLayout) -> Audit:
    """Read what `begin_audit` wrote. Raises FailedError if it is missing or damaged."""
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
        audit = described_audit(run)
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


def tidy_audits(layout: DatasetLayout) -> None:
    """Remove working files of audits that have ended or were given up, and all files of the oldest audits.

    Keeps findings. Also removes audits that were killed before they had an `audit.json`. The caller holds the
    lock of audits.
    """
    for name in os.listdir(layout.audits):
        if not (layout.audits / name / "audit.json").exists():
            tree_removal.remove_tree(layout.audits / name)
    for number, (audit, ended) in enumerate(list(audits_of(layout))):
        run = audit.layout(layout)
        if number >= AUDITS_KEPT:
            tree_removal.remove_tree(run.folder)
        elif ended or _stale(run):
            for name in os.listdir(run.folder):
                path = run.folder / name
                if path.is_dir():
                    tree_removal.remove_tree(path)
                elif name not in _LASTING:
                    path.unlink()


def forget_audits(layout: DatasetLayout, release: str) -> None:
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
    # (`begin_audit`).
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


def _audit_touched(run: RunLayout) -> float:
    paths = [run.folder / "audit.json", *(run.folder / "seen").glob("*.json")]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def _stale(run: RunLayout) -> bool:
    return capabilities.now(run.folder) - _audit_touched(run) >= array_job.STALE


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


def counted_readings(layout: DatasetLayout, release: str) -> CountedReadings | None:
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


# The folder of a comparison, `.penstock/adoptions/<id>/`. It has the layout of a run, so that a run's
# elements (the processes of its job arrays) can work on it.
#
#     adoption.json      the tree, the listing and the options of the comparison
#     listing.parquet, stated.parquet, empty-folders.json, run.json, plan.json, shards/, receipts/adopt/,
#                        arrays.jsonl: as in a run
#     survey/NNNNN/      the elements' findings on a shard's rows
#     differences.jsonl, result.json: written at the end; a comparison without result.json is not finished
#
# `penstock adopt` compares a tree that penstock did not write with a source. If a later call has the same
# tree and listing, it continues the comparison: unchanged files that were read within a week are not read
# again.

NEW = ".new-"  # prefix of a listing's folder while it is being made
ADOPTIONS_KEPT = 5  # number of a dataset's newest comparisons that are kept, including the current one


def description(run: RunLayout) -> Path:
    return run.folder / "adoption.json"


def differences(run: RunLayout) -> Path:
    return run.folder / "differences.jsonl"


def folders(run: RunLayout) -> Path:
    """The tree's folders as they were when the tree was last walked, one in each line."""
    return run.folder / "folders.jsonl"


def undo(run: RunLayout) -> Path:
    """The changes to a tree that became a release; absent for other trees."""
    return run.folder / "undo"


def adoption_identity(tree: Path, status: os.stat_result, listing: str, plan: PlanConfig) -> str:
    """Return the id of the comparison of this tree, whose top folder has this `status`, with this listing."""
    decides = [str(tree), status.st_dev, status.st_ino, listing, plan.giant_bytes, plan.part_bytes]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]


def describe_adoption(run: RunLayout, adoption: Adoption) -> None:
    documents.write(ADOPTION, description(run), adoption)


def described_adoption(run: RunLayout) -> Adoption:
    """Read `adoption.json`. Raises FailedError if it is missing or damaged."""
    hint = f"remove {run.folder}: the same command compares anew"
    return documents.need(ADOPTION, description(run), hint)


def bring_adoption(theirs: RunLayout, spool: RunLayout) -> bool:
    """Copy an ended comparison's state into `spool`; return False if the comparison has not ended."""
    if not theirs.result.exists():
        return False
    for name in ("shards", "survey"):
        if (theirs.folder / name).is_dir():
            shutil.copytree(theirs.folder / name, spool.folder / name)
    for path in (theirs.plan, theirs.result):
        shutil.copyfile(path, spool.folder / path.name)
    return True


def adoptions_of_tree(adoption: Adoption, places: Iterable[Path]) -> Iterator[RunLayout]:
    """Yield the comparisons in these folders that have a plan and the same tree (by device and inode), ended
    or not. Raises FailedError for a damaged `adoption.json`."""
    for place in places:
        for name in sorted(os.listdir(place)) if place.is_dir() else ():
            run = RunLayout(place / name)
            if not (description(run).exists() and run.plan.exists()):
                continue
            earlier = described_adoption(run)
            if (earlier.device, earlier.inode) == (adoption.device, adoption.inode):
                yield run


def adoption_of_result(result: AdoptionResult) -> RunLayout:
    return RunLayout(Path(result["all_differences"]).parent)


def keep_differences(run: RunLayout, found_differences: Iterable[Difference]) -> None:
    """Write differences as they come, durably, in bounded memory."""
    json_files.write_lines(differences(run), found_differences)


def kept_differences(run: RunLayout) -> Iterator[Difference]:
    """Read what `keep_differences` wrote. Raises FailedError if the file is missing or damaged."""
    return json_files.read_lines(differences(run), difference_from_json, "a comparison's differences")


def note_tree(run: RunLayout, tree: str, data: str, status: os.stat_result) -> None:
    """Begin an undo list, durably, before the tree, whose top folder has this `status`, is renamed. An
    existing note of the same rename stays unchanged."""
    path = undo(run) / "tree.json"
    small_files.make_dirs(undo(run))
    with contextlib.suppress(FileNotFoundError, ValueError):
        if typed_json.bounded_loads(small_files.read(path))["to"] == data:
            return
    top = {"mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}
    small_files.write_json(path, {"moved": tree, "to": data, **top, "mtime_ns": status.st_mtime_ns})


def note_aside(run: RunLayout, path: str, to: str) -> None:
    """Note in the undo list, durably, that a path of the tree is about to be moved."""
    small_files.append_line(undo(run) / "aside.jsonl", {"path": path, "to": to})


def note_files(run: RunLayout, name: str, before: Iterable[Mapping[str, object]]) -> None:
    """Note in the undo list, durably, modes and times of files about to change. An existing note stays."""
    path = undo(run) / f"{name}.jsonl"
    if not path.exists():
        small_files.write_file(
            path, "".join(json.dumps(file, sort_keys=True) + "\n" for file in before).encode()
        )


class FolderList:
    """`folders.jsonl` while the tree is walked. The file appears, complete, when this object is closed."""

    def __init__(self, run: RunLayout) -> None:
        self._file = small_files.Growing(folders(run))

    def add(self, folder: WalkedPath) -> None:
        line = {"path": folder.path, "mode": folder.mode, "uid": folder.uid, "gid": folder.gid}
        line["mtime_ns"] = folder.mtime_ns
        self._file.stream.write(json.dumps(line, sort_keys=True).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        self._file.abandon()


def kept_folders(run: RunLayout) -> Iterator[tuple[str, int, int]]:
    """Yield each kept folder's path, uid and gid. Raises FailedError if the file is missing or damaged."""

    def parse(line: bytes) -> tuple[str, int, int]:
        raw = typed_json.loads(line)
        return str(raw["path"]), int(str(raw["uid"])), int(str(raw["gid"]))

    return json_files.read_lines(folders(run), parse, "a comparison's folders")


def tidy_adoptions(layout: DatasetLayout, but: str) -> None:
    """Remove the oldest comparisons, and listings without a comparison. The comparison `but` stays, as does
    every comparison whose tree became a release."""
    ended = []
    for name in os.listdir(layout.adoptions):
        run = RunLayout(layout.adoptions / name)
        if name == but:
            continue
        if name.startswith(NEW) or not description(run).exists():
            tree_removal.remove_tree(run.folder)
        elif not undo(run).exists():
            ended.append((_adoption_touched(run), run))
    for _, run in sorted(ended, key=lambda item: item[0], reverse=True)[ADOPTIONS_KEPT - 1 :]:
        tree_removal.remove_tree(run.folder)


def _adoption_touched(run: RunLayout) -> float:
    paths = [path for path in (run.result, run.run_file, description(run)) if path.exists()]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def too_old(seen_ns: int) -> bool:
    """Return whether a row read at `seen_ns` (nanoseconds since the epoch) must be read again. It must after
    a week, or if `seen_ns` is in the future, for example because a clock was wrong."""
    return not -BOUND <= time.time() - seen_ns / 1e9 <= array_job.STALE
