"""Where comparisons lie: `.penstock/adoptions/<id>/`, each laid out like a run, so that its elements are run
by the code that runs those of copy and verify.

    adoption.json      which tree, which listing, how
    listing.parquet, stated.parquet, empty-folders.json, run.json, plan.json, shards/, receipts/adopt/,
                       arrays.jsonl: as in a run
    survey/NNNNN/      what the elements saw of a shard's rows
    differences.jsonl, result.json: at the end; a comparison without result.json is not finished

A comparison is what `penstock adopt` makes of a tree that penstock did not write and of a source. Adopt and
its elements call this module, which reads and writes these files alone.

The same tree and the same listing meet the same comparison again: rows of files that were not touched since,
and were read within a week, are not read again.
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

from penstock.core.documents import bounded_json, typed_json
from penstock.core.documents.adoption_description import ADOPTION
from penstock.core.documents.differences import from_json
from penstock.core.layout import RunLayout
from penstock.dataset import documents
from penstock.fs import durable, plain_files
from penstock.fs.clock import BOUND
from penstock.jobs import array_job
from penstock.tables import json_lines
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.config.settings import PlanConfig
    from penstock.core.documents.adoption_description import Adoption
    from penstock.core.documents.differences import Difference
    from penstock.core.documents.step_results import AdoptionResult
    from penstock.core.layout import DatasetLayout
    from penstock.fs.path_walk import WalkedPath

NEW = ".new-"
"""What the folder of a listing begins with that is still being made."""
KEPT = 5
"""How many comparisons of a dataset stay, the newest; the one at work is counted."""


def description(run: RunLayout) -> Path:
    return run.folder / "adoption.json"


def differences(run: RunLayout) -> Path:
    return run.folder / "differences.jsonl"


def folders(run: RunLayout) -> Path:
    """The tree's folders as they were when it was walked last: a line each."""
    return run.folder / "folders.jsonl"


def undo(run: RunLayout) -> Path:
    """What was changed of a tree that became a release; not there for others."""
    return run.folder / "undo"


def identity(tree: Path, seen: os.stat_result, listing: str, plan: PlanConfig) -> str:
    """The id of the comparison of this tree, of which `seen` is the top folder's stat, with this listing."""
    told = [str(tree), seen.st_dev, seen.st_ino, listing, plan.giant_bytes, plan.part_bytes]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def describe(run: RunLayout, adoption: Adoption) -> None:
    """Write `adoption.json`, durable on return."""
    documents.write(ADOPTION, description(run), adoption)


def described(run: RunLayout) -> Adoption:
    """What `describe` wrote. Raises FailedError when it is missing or damaged."""
    hint = f"remove {run.folder}: the same command compares anew"
    return documents.need(ADOPTION, description(run), hint)


def bring(theirs: RunLayout, spool: RunLayout) -> bool:
    """Copy the shards, the survey, the plan and the result of a comparison that has ended, from its folder
    `theirs` into `spool`. False, and nothing is copied, where it has not ended."""
    if not theirs.result.exists():
        return False
    for name in ("shards", "survey"):
        if (theirs.folder / name).is_dir():
            shutil.copytree(theirs.folder / name, spool.folder / name)
    for path in (theirs.plan, theirs.result):
        shutil.copyfile(path, spool.folder / path.name)
    return True


def of_tree(adoption: Adoption, places: Iterable[Path]) -> Iterator[RunLayout]:
    """Comparisons of the same tree (by device and inode) that have a plan, ended or not, in these folders.
    Raises FailedError for a damaged description."""
    for place in places:
        for name in sorted(os.listdir(place)) if place.is_dir() else ():
            run = RunLayout(place / name)
            if not (description(run).exists() and run.plan.exists()):
                continue
            earlier = described(run)
            if (earlier.device, earlier.inode) == (adoption.device, adoption.inode):
                yield run


def of_result(result: AdoptionResult) -> RunLayout:
    """The folder of the comparison that gave this result."""
    return RunLayout(Path(result["all_differences"]).parent)


def keep(run: RunLayout, found: Iterable[Difference]) -> None:
    """Write differences as they come, durably. Memory does not grow with their number."""
    json_lines.write(differences(run), found)


def kept(run: RunLayout) -> Iterator[Difference]:
    """What `keep` wrote. Raises FailedError when the file is missing or damaged."""
    return json_lines.read(differences(run), from_json, "a comparison's differences")


def note_tree(run: RunLayout, tree: str, data: str, status: os.stat_result) -> None:
    """The beginning of an undo list, durable: the tree is to be renamed, whose top folder has this `status`.
    A note of the same rename stays as it is."""
    path = undo(run) / "tree.json"
    durable.make_dirs(undo(run))
    with contextlib.suppress(FileNotFoundError, ValueError):
        if bounded_json.loads(plain_files.read(path))["to"] == data:
            return
    top = {"mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}
    durable.write_json(path, {"moved": tree, "to": data, **top, "mtime_ns": status.st_mtime_ns})


def note_aside(run: RunLayout, path: str, to: str) -> None:
    """In the undo list, durable: what is at this path of the tree is to be moved to this place."""
    durable.append_line(undo(run) / "aside.jsonl", {"path": path, "to": to})


def note_files(run: RunLayout, name: str, before: Iterable[Mapping[str, object]]) -> None:
    """In the undo list, durable: modes and times of files that are to be changed. What is there stays."""
    path = undo(run) / f"{name}.jsonl"
    if not path.exists():
        durable.write_file(path, "".join(json.dumps(one, sort_keys=True) + "\n" for one in before).encode())


class FolderList:
    """`folders.jsonl`, while the tree is walked. It appears whole when it is closed."""

    def __init__(self, run: RunLayout) -> None:
        self._file = durable.Growing(folders(run))

    def add(self, one: WalkedPath) -> None:
        told = {"path": one.path, "mode": one.mode, "uid": one.uid, "gid": one.gid, "mtime_ns": one.mtime_ns}
        self._file.stream.write(json.dumps(told, sort_keys=True).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        self._file.abandon()


def kept_folders(run: RunLayout) -> Iterator[tuple[str, int, int]]:
    """Path, uid and gid of each folder that `FolderList` holds. Raises FailedError when the file is missing
    or damaged."""

    def parse(line: bytes) -> tuple[str, int, int]:
        raw = typed_json.loads(line)
        return str(raw["path"]), int(str(raw["uid"])), int(str(raw["gid"]))

    return json_lines.read(folders(run), parse, "a comparison's folders")


def tidy(layout: DatasetLayout, but: str) -> None:
    """Remove the oldest comparisons, and listings that no comparison was made of; never that of the id
    `but`, nor one whose tree became a release."""
    ended = []
    for name in os.listdir(layout.adoptions):
        run = RunLayout(layout.adoptions / name)
        if name == but:
            continue
        if name.startswith(NEW) or not description(run).exists():
            tree_removal.remove_tree(run.folder)
        elif not undo(run).exists():
            ended.append((_touched(run), run))
    for _, run in sorted(ended, key=lambda one: one[0], reverse=True)[KEPT - 1 :]:
        tree_removal.remove_tree(run.folder)


def _touched(run: RunLayout) -> float:
    """When the comparison last ended or began, in seconds since the epoch."""
    paths = [path for path in (run.result, run.run_file, description(run)) if path.exists()]
    return max((path.stat().st_mtime for path in paths), default=0.0)


def too_old(seen_ns: int) -> bool:
    """Whether a row that was read at `seen_ns` (nanoseconds since the epoch) has to be read again: after a
    week, or where that time lies in the future, as by a clock that is wrong."""
    return not -BOUND <= time.time() - seen_ns / 1e9 <= array_job.STALE
