"""The folder of a comparison, `.penstock/adoptions/<id>/`. It has the layout of a run, so that a run's
elements (the processes of its job arrays) can work on it.

    adoption.json      the tree, the listing and the options of the comparison
    listing.parquet, stated.parquet, empty-folders.json, run.json, plan.json, shards/, receipts/adopt/,
                       arrays.jsonl: as in a run
    survey/NNNNN/      the elements' findings on a shard's rows
    differences.jsonl, result.json: written at the end; a comparison without result.json is not finished

`penstock adopt` compares a tree that penstock did not write with a source. If a later call has the same tree
and listing, it continues the comparison: unchanged files that were read within a week are not read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import typed_json
from penstock.core.dataset_documents import ADOPTION
from penstock.core.findings import difference_from_json
from penstock.core.layout import RunLayout
from penstock.dataset import documents
from penstock.fs import small_files
from penstock.fs.capabilities import BOUND
from penstock.jobs import array_job
from penstock.tables import json_files
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.config.settings import PlanConfig
    from penstock.core.dataset_documents import Adoption
    from penstock.core.findings import Difference
    from penstock.core.layout import DatasetLayout
    from penstock.core.step_results import AdoptionResult
    from penstock.fs.path_walk import WalkedPath

NEW = ".new-"  # prefix of a listing's folder while it is being made
KEPT = 5  # number of a dataset's newest comparisons that are kept, including the current one


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


def identity(tree: Path, status: os.stat_result, listing: str, plan: PlanConfig) -> str:
    """Return the id of the comparison of this tree, whose top folder has this `status`, with this listing."""
    decides = [str(tree), status.st_dev, status.st_ino, listing, plan.giant_bytes, plan.part_bytes]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]


def describe(run: RunLayout, adoption: Adoption) -> None:
    documents.write(ADOPTION, description(run), adoption)


def described(run: RunLayout) -> Adoption:
    """Read `adoption.json`. Raises FailedError if it is missing or damaged."""
    hint = f"remove {run.folder}: the same command compares anew"
    return documents.need(ADOPTION, description(run), hint)


def bring(theirs: RunLayout, spool: RunLayout) -> bool:
    """Copy an ended comparison's state into `spool`; return False if the comparison has not ended."""
    if not theirs.result.exists():
        return False
    for name in ("shards", "survey"):
        if (theirs.folder / name).is_dir():
            shutil.copytree(theirs.folder / name, spool.folder / name)
    for path in (theirs.plan, theirs.result):
        shutil.copyfile(path, spool.folder / path.name)
    return True


def of_tree(adoption: Adoption, places: Iterable[Path]) -> Iterator[RunLayout]:
    """Yield the comparisons in these folders that have a plan and the same tree (by device and inode), ended
    or not. Raises FailedError for a damaged `adoption.json`."""
    for place in places:
        for name in sorted(os.listdir(place)) if place.is_dir() else ():
            run = RunLayout(place / name)
            if not (description(run).exists() and run.plan.exists()):
                continue
            earlier = described(run)
            if (earlier.device, earlier.inode) == (adoption.device, adoption.inode):
                yield run


def of_result(result: AdoptionResult) -> RunLayout:
    return RunLayout(Path(result["all_differences"]).parent)


def keep(run: RunLayout, found_differences: Iterable[Difference]) -> None:
    """Write differences as they come, durably, in bounded memory."""
    json_files.write_lines(differences(run), found_differences)


def kept(run: RunLayout) -> Iterator[Difference]:
    """Read what `keep` wrote. Raises FailedError if the file is missing or damaged."""
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


def tidy(layout: DatasetLayout, but: str) -> None:
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
            ended.append((_touched(run), run))
    for _, run in sorted(ended, key=lambda item: item[0], reverse=True)[KEPT - 1 :]:
        tree_removal.remove_tree(run.folder)


def _touched(run: RunLayout) -> float:
    paths = [path for path in (run.result, run.run_file, description(run)) if path.exists()]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def too_old(seen_ns: int) -> bool:
    """Return whether a row read at `seen_ns` (nanoseconds since the epoch) must be read again. It must after
    a week, or if `seen_ns` is in the future, for example because a clock was wrong."""
    return not -BOUND <= time.time() - seen_ns / 1e9 <= array_job.STALE
