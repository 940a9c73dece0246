"""Stagings of other runs of a dataset: runs that did not end, were overtaken, or whose source changed.

| what is known of the other run                 | its rows             | its staging is removed        |
|------------------------------------------------|----------------------|-------------------------------|
| elements of it may live, here or elsewhere     | stay, and it is told | no                            |
| no plan, a damaged one, or no source in common | are of no use        | once a newer run is published |
| else                                           | may be taken over    | once a newer run is published |
| its run's state is gone                        | are of no use        | by a person: it is told       |

A run whose staging another one was planned with is never gone on with, since files of it may be the other
one's by now (`taken.json`). Met again it is begun anew, and its former self (`runs/<run>.<n>`) is one of the
other runs. Where releases have a configured name, a staging that is in the way is set aside.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cluster.abilities import abilities_of
from penstock.config.settings import dataset_config
from penstock.core import events
from penstock.core.layout import DATA
from penstock.errors import FailedError, InterruptedRunError, LockedError, NewerFormatError, PenstockError
from penstock.filesystem.errno_map import storage_error
from penstock.ownership import liveness
from penstock.ownership.invalid_runs import damage
from penstock.state import receipts, run_claims, run_store, seals
from penstock.state.element_progress import Progress
from penstock.state.submission_log import ArrayBook
from penstock.storage import durable, tree_removal
from penstock.storage.port import Abandoned
from penstock.views import human

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.run_documents import PlanInfo, RunInfo
    from penstock.state.context import Context

_SUFFIX = ".staging"


@dataclass(frozen=True)
class Staging:
    """What another run staged, and what of it may be used."""

    key: str
    """The name of the run's folder below `runs/`."""
    name: str
    """Of the staging, below `releases/`."""
    data: Path
    inode: int
    """Of `data`."""
    folder: RunLayout
    info: RunInfo
    plan: PlanInfo
    sources: dict[int, int]
    """Index of its sources to the index of the same source now."""
    certain: bool
    """Whether all that wrote there is known to have ended, not only believed."""


def find(context: Context, layout: DatasetLayout, info: RunInfo) -> list[Staging]:
    """The stagings whose rows the run may take over, the newest first; to be called by one who holds the
    lock. Of what must stay since it may live a note is told."""
    found = []
    for key, folder, theirs in _runs(layout, info):
        name = _name(layout, theirs, folder)
        data = layout.releases / name / DATA
        inode = _own(data)
        if name == layout.staging(info.release).name or not inode:
            continue
        with contextlib.suppress(PenstockError):
            sources = common(theirs, info)
            if sources and not damage(folder):
                plan = run_store.read_plan(folder)
                certain = all(
                    one.by is not None or not abilities_of(one.kind).elements_end_with_controller
                    for one in _open(folder)
                )
                if alive := _alive(context, layout, folder):
                    text = f"the staging of run {key} is not taken over: {alive}"
                    context.emit(events.Noted(info.dataset, "plan", text))
                    continue
                found.append(Staging(key, name, data, inode, folder, theirs, plan, sources, certain))
    return found[::-1]


def common(theirs: RunInfo, now: RunInfo) -> dict[int, int]:
    """Index of another run's sources to the index of the same source of this one: the same URL, folder in
    the release, and store or file system (by its options, where a version did not note which it was).
    Raises FailedError for a damaged description."""
    noted = len(theirs.origins) == len(theirs.sources) and len(now.origins) == len(now.sources)

    def identities(info: RunInfo) -> list[tuple[str, str, str]]:
        try:
            sources = dataset_config(info.config["dataset"]).sources
        except (KeyError, TypeError, AttributeError) as error:
            raise FailedError("a run's description is damaged", where=info.run, why=repr(error)) from None
        options = [str(sorted(source.storage_options.items())) for source in sources]
        which = list(info.origins) if noted else options
        return list(zip(info.sources, [source.into for source in sources], which, strict=True))

    mine = {identity: index for index, identity in enumerate(identities(now))}
    return {index: mine[one] for index, one in enumerate(identities(theirs)) if one in mine}


def make_way(context: Context, layout: DatasetLayout, info: RunInfo) -> None:
    """Set aside what another run staged under the name of this run's release: no run but this one has a
    staging of that name on return. Raises LockedError while elements of such a run may live."""
    mine = layout.staging(info.release)
    others = [
        (key, folder)
        for key, folder, theirs in _runs(layout, info)
        if theirs.release == info.release
        and folder.plan.exists()
        and not _apart(layout, theirs, folder, mine)
    ]
    for _, folder in others:
        if alive := liveness.arrays_of(context, info.dataset, folder):
            raise LockedError(
                f"another run of release {info.release} may still write",
                where=str(folder.folder),
                why=alive,
                hint=f"wait for them, or `penstock cancel {info.dataset}`: then the same command goes on",
            )
    context.assert_held()
    for key, folder in others:
        _mark(folder, info.run, _aside(info.release, key))
    # Whose plan is the newest was the last to stage under this name: there is none of our own.
    if others and mine.exists():
        key, _ = max(others, key=lambda one: one[1].plan.stat().st_mtime_ns)
        context.assert_held()
        os.rename(mine, layout.releases / _aside(info.release, key))
        durable.fsync_dir(layout.releases)


def take(staging: Staging, run: str) -> None:
    """Durably note that files of this staging may be those of `run` from now on."""
    _mark(staging.folder, run, staging.name)


def retire(layout: DatasetLayout, folder: RunLayout) -> bool:
    """Make room for the run of this folder to be begun anew, where its staging was another run's to use.
    Tells whether it was."""
    if not folder.taken.exists():
        return False
    number = 1
    while os.path.lexists(layout.runs / f"{folder.folder.name}.{number}"):
        number += 1
    durable.rename(folder.folder, layout.runs / f"{folder.folder.name}.{number}")
    return True


def clean(context: Context, layout: DatasetLayout, info: RunInfo, before: int | None = None) -> None:
    """Remove what runs left that did not end, now that a newer one is published; to be called by one who
    holds the lock. What may live, and what nothing is known of, stays and is told; so does, where a claim's
    number is given, a run that may have been claimed at this number or later."""
    known = {}
    for key, folder, theirs in _runs(layout, info):
        known[_name(layout, theirs, folder)] = (key, folder, theirs)
    for name in abandoned(layout, info.release):
        if name not in known:
            text = f"staging {layout.releases / name} is of no run that is known: remove it by hand"
            context.emit(events.Warned(info.dataset, "publish", text))
            continue
        key, folder, theirs = known[name]
        if before is not None and run_claims.last(layout, theirs.run) >= before:
            text = f"the staging of run {key} stays: it may be newer than release {info.release}"
            context.emit(events.Noted(info.dataset, "publish", text))
            continue
        if alive := _alive(context, layout, folder, patient=False):
            text = f"the staging of run {key} stays: {alive}"
            context.emit(events.Warned(info.dataset, "publish", text))
            continue
        try:
            context.assert_held()
            tree_removal.remove_tree(layout.releases / name)
            context.assert_held()
            tree_removal.remove_tree(folder.folder)
        except PenstockError as error:
            # The release stands: nothing of this is its failure.
            context.emit(events.Warned(info.dataset, "publish", f"the staging of run {key} stays: {error}"))
            continue
        text = f"the staging of run {key}, which did not end, was removed"
        context.emit(events.Noted(info.dataset, "publish", text))


def described(layout: DatasetLayout, info: RunInfo) -> list[dict[str, Any]]:
    """{staging, run, files, bytes, idle_seconds} of each staging of another run: what its journals' writers
    counted, and how long nobody has written there. What is not known is left out."""
    known = {_name(layout, theirs, folder): (key, folder) for key, folder, theirs in _runs(layout, info)}
    found = []
    for name in abandoned(layout, info.release):
        one: dict[str, Any] = {"staging": name}
        if name in known:
            key, folder = known[name]
            one["run"] = key
            with contextlib.suppress(PenstockError):
                plan = run_store.read_plan(folder)
                files, size, _ = Progress().total(folder, "copy", receipts.indices(plan))
                one |= {"files": files, "bytes": size}
            one["idle_seconds"] = round(time.time() - _touched(folder))
        found.append(one)
    return found


def sentence(one: dict[str, Any]) -> str:
    """What `described` says of a staging, for people."""
    text = f"{one['staging']} of run {one['run']}" if "run" in one else f"{one['staging']}, of no known run"
    if "files" in one:
        text += f": {human.counted(one['files'], 'file')}, {human.size(one['bytes'])}"
    if "idle_seconds" in one:
        text += f", last written {human.duration(one['idle_seconds'])} ago"
    return text


def _aside(release: str, key: str) -> str:
    """The name of a staging that was in the way of another run of the same release's name."""
    return f".{release}.{key}{_SUFFIX}"


def _apart(layout: DatasetLayout, theirs: RunInfo, folder: RunLayout, mine: Path) -> bool:
    """Whether the run's staging has a place of its own already. Its mark alone does not say so: it is
    written before the rename."""
    name = _name(layout, theirs, folder)
    return name != mine.name and (layout.releases / name).is_dir()


def abandoned(layout: DatasetLayout, release: str) -> list[str]:
    """Names of staging folders of other releases than this one."""
    try:
        names = sorted(os.listdir(layout.releases))
    except FileNotFoundError:
        return []
    mine = layout.staging(release).name
    return [n for n in names if n.startswith(".") and n.endswith(_SUFFIX) and n != mine]


def _runs(layout: DatasetLayout, info: RunInfo) -> Iterator[tuple[str, RunLayout, RunInfo]]:
    """Other runs of the dataset that are not published, the oldest listing first."""
    found = []
    for key in sorted(os.listdir(layout.runs) if layout.runs.is_dir() else ()):
        folder = layout.run(key)
        if key == info.run or key.startswith("."):
            continue
        try:
            theirs = run_store.read_run(folder)
            if key != theirs.run or seals.of_run(layout, theirs) is None:
                found.append((_touched(folder), key, folder, theirs))
        except (FailedError, NewerFormatError):
            continue
    for _, key, folder, theirs in sorted(found, key=lambda one: one[:2]):
        yield key, folder, theirs


def _name(layout: DatasetLayout, info: RunInfo, folder: RunLayout) -> str:
    """Of the run's staging, whether it is there or not."""
    marked = receipts.read(folder.taken) or {}
    return str(marked.get("staging") or layout.staging(info.release).name)


def _mark(folder: RunLayout, run: str, staging: str) -> None:
    try:
        durable.write_json(folder.taken, {"by": run, "staging": staging})
    except OSError as error:
        raise storage_error(error, "a run cannot be marked", str(folder.taken)) from error


def _own(data: Path) -> int:
    """Its inode, if it is a plain folder of this account and so is the staging that holds it; else 0."""
    inode = 0
    for path in (data.parent, data):
        try:
            seen = os.lstat(path)
        except OSError:
            return 0
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & stat.S_IWOTH:
            return 0
        inode = seen.st_ino
    return inode


def planned(layout: DatasetLayout, plan: PlanInfo) -> dict[str, Abandoned]:
    """Runs to their stagings, as the plan found them."""
    return {
        run: Abandoned(layout.releases / name / DATA, plan.staging_inodes.get(run, 0))
        for run, name in plan.stagings.items()
    }


def _alive(context: Context, layout: DatasetLayout, folder: RunLayout, *, patient: bool = True) -> str:
    """Names what may still write there, "" when all is known to have ended."""
    try:
        return liveness.arrays_of(context, layout.dataset, folder, patient=patient)
    except InterruptedRunError:
        raise
    except PenstockError as error:
        return error.why or error.what


def _open(folder: RunLayout) -> list[Any]:
    return ArrayBook(folder.arrays).open()


def _touched(folder: RunLayout) -> float:
    """When somebody last worked on the run, in seconds since the epoch."""
    paths = [folder.run_file, folder.plan, *folder.folder.glob("progress/copy/*.json")]
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)
