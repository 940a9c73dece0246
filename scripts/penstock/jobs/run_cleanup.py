"""The state that runs leave behind: which state cannot be continued, and what a published run keeps. Also
the stagings of unpublished runs: what a later run takes over from them, and when they are removed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.port import abilities_of
from penstock.core import dataset_documents, human, run_steps
from penstock.core.dataset_documents import TakenMark
from penstock.core.errors import (
    STATE_ANEW,
    FailedError,
    InterruptedRunError,
    LockedError,
    NewerFormatError,
    PenstockError,
)
from penstock.core.layout import DATA
from penstock.core.run_documents import PLAN
from penstock.dataset import (
    dataset_lock,
    documents,
    receipts,
    release_records,
    run_store,
    seals,
)
from penstock.dataset.documents import load_run
from penstock.dataset.receipts import Progress
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.fs import capabilities, small_files
from penstock.jobs import dataset_state
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.layout import DatasetLayout, RunLayout
    from penstock.core.step_results import StagingStatus
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.target.links import Abandoned


# Remove the state of a run that cannot be continued: its staging is gone, or its plan or a shard is damaged.
#
# Only files that plan and copy can make again from the frozen listing are removed. Nothing is removed while
# elements of the run may write, or if its release is published.


def drop_stale(context: Context, run: Run) -> str:
    """Remove the run's plan, journals and receipts by this table. Return the reason, or "" if none applies.

    The caller holds the lock. Raises FailedError while elements of the run may write, and LockedError if
    another run took over the dataset.

    | release | staging | plan and shards | removed                    |
    |---------|---------|-----------------|----------------------------|
    | exists  | any     | any             | no                         |
    | none    | none    | any             | yes                        |
    | none    | exists  | sound, or none  | no                         |
    | none    | exists  | damaged         | yes: the step plan clears  |
    |         |         |                 | the staging as well        |
    """
    if os.path.lexists(run.layout.release(run.release)):
        return ""
    gone = not os.path.lexists(run.data)
    why = f"the tree of release {run.release} is gone" if gone else damage(run.folder)
    if not why:
        return ""
    if alive := dataset_state.arrays_of(context, run.dataset, run.folder):
        raise FailedError(
            "a run cannot be continued, and elements of it may still write",
            where=str(run.folder.folder),
            why=f"{why}; {alive}",
            hint=f"wait for them, or `penstock cancel {run.dataset}`: then the same command plans again",
        )
    context.assert_held()
    return why if run_store.drop_derived(run.folder) else ""


def damage(folder: RunLayout) -> str:
    """Return what is wrong with a run's plan or shards; "" if they are sound, or nothing was planned. Raises
    FailedError if they cannot be read, since that proves no damage."""
    path = folder.plan
    try:
        plan = documents.load(PLAN, path)
        for shard in plan.shards:
            path = folder.shard(shard.index)
            if not path.exists() or receipts.file_digest(path) != shard.digest:
                return f"{path} is not the shard that was planned"
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FailedError(
            "a run's plan cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from error
    except ValueError as error:
        return f"{path} is damaged ({error})"
    return ""


# Stagings of other runs of a dataset: what a run may take from them, and when they are removed.
#
# A staging is the tree in which a release grows. A run leaves its staging behind if it does not finish, if
# another run takes over the dataset, or if its source changes. Callers hold the dataset's lock, except those
# of `described` and `abandoned`. Nothing published ever changes.
#
# | the other run                                  | its rows             | its staging is removed        |
# |------------------------------------------------|----------------------|-------------------------------|
# | may have live elements, here or elsewhere      | stay, with a note    | no                            |
# | has no sound plan, or no source in common      | are of no use        | once a newer run is published |
# | any other with its state                       | may be taken over    | once a newer run is published |
# | has lost its state                             | are of no use        | by a person, after a note     |
#
# A staging has no plan if the step plan was killed, or plan.json was damaged. It is removed, with a note,
# before the step plan makes a new plan (`clear_own`).
#
# If another run's plan uses a run's staging, the staging's run is marked (`taken.json`) and never continued:
# files may have moved out. If the same listing comes again, the run starts from the beginning, and its old
# state is kept as `runs/<run>.<n>`. If a release's name is configured, a staging of that name is renamed.

_SUFFIX = ".staging"


@dataclass(frozen=True)
class AbandonedStaging:
    key: str  # the run's folder below `runs/`
    name: str  # the staging's name below `releases/`
    data: Path
    inode: int  # the inode of `data`
    run: Run
    sources: dict[int, int]  # maps the other run's source indices to this run's
    certain: bool  # whether all its writers are known to have ended; False if that is only probable


def find(context: Context, run: Run) -> list[AbandonedStaging]:
    """Return the stagings whose rows the run may take over, newest first; change nothing.

    The caller holds the dataset's lock. A note reports a staging that must stay because its run may live.
    Skips runs with an unreadable plan or description.
    """
    stagings = []
    for key, theirs in _others(run):
        name = _name(theirs)
        data = run.layout.releases / name / DATA
        inode = _own(data)
        if name == run.staging.name or not inode:
            continue
        with contextlib.suppress(PenstockError):
            sources = common(theirs, run)
            if sources and not damage(theirs.folder):
                _ = theirs.plan  # raises if the plan is unreadable: its staging is of no use
                certain = all(
                    line.by is not None or not abilities_of(line.kind).elements_end_with_controller
                    for line in ArrayBook(theirs.folder.arrays).open()
                )
                if alive := _alive(context, theirs):
                    text = f"the staging of run {key} is not taken over: {alive}"
                    context.emit(run_steps.Noted(run.dataset, "plan", text=text))
                    continue
                stagings.append(AbandonedStaging(key, name, data, inode, theirs, sources, certain))
    return stagings[::-1]


def common(theirs: Run, now: Run) -> dict[int, int]:
    """Map the number of each shared source in `theirs` to its number in `now`.

    Two sources are the same if their URL, folder in the release, and store or file system are equal. Options
    replace the store if an older version did not record it. Raises FailedError for a damaged description.
    """
    noted = all(len(run.info.origins) == len(run.info.sources) for run in (theirs, now))

    def identities(run: Run) -> list[tuple[str, str, str]]:
        sources = run.config.dataset.sources
        options = [str(sorted(source.storage_options.items())) for source in sources]
        which = list(run.info.origins) if noted else options
        return list(zip(run.info.sources, [source.into for source in sources], which, strict=True))

    mine = {identity: index for index, identity in enumerate(identities(now))}
    return {index: mine[source] for index, source in enumerate(identities(theirs)) if source in mine}


def make_way(context: Context, run: Run) -> None:
    """Rename a staging that another run made under the name of this run's release.

    The caller holds the dataset's lock. Raises LockedError while elements of such a run may live, and if the
    lock was lost.
    """
    mine = run.staging
    others = [
        (key, theirs)
        for key, theirs in _others(run)
        if theirs.release == run.release and theirs.folder.plan.exists() and not _apart(theirs, mine)
    ]
    for _, theirs in others:
        if alive := dataset_state.arrays_of(context, run.dataset, theirs.folder):
            raise LockedError(
                f"another run of release {run.release} may still write",
                where=str(theirs.folder.folder),
                why=alive,
                hint=f"wait for them, or `penstock cancel {run.dataset}`: then the same command goes on",
            )
    context.assert_held()
    for key, theirs in others:
        _mark(theirs.folder, run.id, _aside(run.release, key))
    # This run has no plan yet, so the run with the newest plan was the last to stage under this name.
    if others and mine.exists():
        key, _ = max(others, key=lambda other: other[1].folder.plan.stat().st_mtime_ns)
        context.assert_held()
        small_files.rename(mine, mine.parent / _aside(run.release, key))


def clear_own(context: Context, run: Run) -> None:
    """Remove the files that an earlier attempt of this run left without a plan, with a note.

    An adopted tree goes back to its former path. Call it after `make_way`, so that no other run has a staging
    of this name. Raises LockedError if the caller does not hold the dataset's lock. Also raises the errors of
    `give_back` and `tree_removal.remove_tree`.
    """
    context.assert_held()
    # Journals go first, since they would name files that no longer exist.
    run_store.drop_derived(run.folder)
    if _holds_tree(run):
        give_back(context, run, "no plan says what of it is good")
    if run.staging.exists():
        text = f"staging {run.staging.name} is removed and made anew: no plan says what of it is good"
        context.emit(run_steps.Noted(run.dataset, "plan", text=text))
        # Check the lock after the note: a terminal that takes no more output blocks the note.
        context.assert_held()
        remove_noting(context, run.layout, run.staging)


def remove_noting(context: Context, layout: DatasetLayout, tree: Path) -> None:
    """Remove a staging or a release durably, and note the time in the dataset's history.

    Unlinking changes the ctime of files shared with other releases, and the note says that penstock did so.
    Raises the errors of `tree_removal.remove_tree`.
    """
    with release_records.moving(layout, tree.name.strip(".").removesuffix(_SUFFIX)) as moved:
        tree_removal.remove_tree(tree, context.spend, moved=moved)


def _holds_tree(run: Run, data: Path | None = None) -> bool:
    """Return whether the run's staging, or the folder `data`, is a tree that penstock adopted, not wrote."""
    mark = documents.read_adopted_tree(run.folder)
    return mark is not None and documents.stands_in(mark, data or run.data)


def give_back(context: Context, run: Run, why: str) -> None:
    """Rename the adopted tree in the run's staging back to its former path. No file of it is ever deleted.

    Call it under the dataset's lock, while no element of the run lives. Raises FailedError if something else
    is at the former path.
    """
    mark = documents.read_adopted_tree(run.folder)
    assert mark is not None
    if os.path.lexists(mark.tree):
        raise FailedError(
            "an adopted tree can neither stay nor go back",
            where=str(run.data),
            why=f"{why}, and something else stands at {mark.tree}",
            hint=f"move {mark.tree} away: then the same command goes on",
        )
    text = f"the adopted tree goes back to {mark.tree}: {why}"
    context.emit(run_steps.Warned(run.dataset, "plan", text=text))
    context.assert_held()
    from penstock.target.adopted_files import move_tree

    move_tree(run.data, Path(mark.tree), mark.inode)
    documents.write_adopted_tree(run.folder, mark._replace(settled=False))


def take(staging: AbandonedStaging, run: str) -> None:
    """Record durably that `run` may move files out of this staging from now on."""
    _mark(staging.run.folder, run, staging.name)


def retire(layout: DatasetLayout, folder: RunLayout) -> bool:
    """Rename the run's folder if `taken.json` marks its staging as used by another run; the run then starts
    from the beginning. Returns whether the folder was renamed."""
    if not folder.taken.exists():
        return False
    number = 1
    while os.path.lexists(layout.runs / f"{folder.folder.name}.{number}"):
        number += 1
    small_files.rename(folder.folder, layout.runs / f"{folder.folder.name}.{number}")
    return True


def clean(
    context: Context,
    run: Run,
    before: int | None = None,
    *,
    step: str = "publish",
    remove: Callable[[Path, Path], None] | None = None,
) -> None:
    """Remove stagings and state of unfinished runs, after the newer run `run` was published.

    The caller holds the dataset's lock. Runs that may live, unknown runs' stagings, and adopted trees stay;
    events of `step` report them. `before` is the number of a claim: runs that claimed the dataset with this
    number or a later one also stay. `remove(staging, state)` removes the two folders, or has them removed. A
    failed removal, also after a lost lock, is a warning.
    """
    runs = {_name(theirs): (key, theirs) for key, theirs in _others(run)}
    for name in abandoned(run.layout, run.release):
        staging = run.layout.releases / name
        if name not in runs:
            text = f"staging {staging} belongs to no known run: remove it by hand"
            context.emit(run_steps.Warned(run.dataset, step, text=text))
            continue
        key, theirs = runs[name]
        if _holds_tree(theirs, staging / DATA):
            held = "it holds what is left of a tree that was adopted; move that away, or remove it by hand"
            text = f"{staging} stays: {held}"
            context.emit(run_steps.Warned(run.dataset, step, text=text))
            continue
        if before is not None and dataset_lock.last_claim_of(run.layout, theirs.id) >= before:
            text = f"the staging of run {key} stays: it may be newer than release {run.release}"
            context.emit(run_steps.Noted(run.dataset, step, text=text))
            continue
        if alive := _alive(context, theirs, patient=False):
            text = f"the staging of run {key} stays: {alive}"
            context.emit(run_steps.Warned(run.dataset, step, text=text))
            continue
        try:
            if remove is not None:
                remove(staging, theirs.folder.folder)
            else:
                context.assert_held()
                remove_noting(context, run.layout, staging)
                context.assert_held()
                tree_removal.remove_tree(theirs.folder.folder, context.spend)
        except PenstockError as error:
            # The release is published, so publish does not fail if an old staging stays.
            context.emit(run_steps.Warned(run.dataset, step, text=f"the staging of run {key} stays: {error}"))
            continue
        text = f"the staging of run {key}, which did not end, was removed"
        context.emit(run_steps.Noted(run.dataset, step, text=text))


def described(run: Run) -> list[StagingStatus]:
    """Describe each staging of another run: {staging, run, files, bytes, idle_seconds, holds_tree}.

    Files and bytes come from progress files. `idle_seconds` counts from the last write to the run's state.
    Unknown values are left out. Only an adopted tree has `holds_tree`, which is then true.
    """
    runs = {_name(theirs): (key, theirs) for key, theirs in _others(run)}
    stagings = []
    for name in abandoned(run.layout, run.release):
        status: StagingStatus = {"staging": name}
        if name in runs:
            key, theirs = runs[name]
            status["run"] = key
            if _holds_tree(theirs, run.layout.releases / name / DATA):
                status["holds_tree"] = True
            with contextlib.suppress(PenstockError):
                files, size, _ = Progress().total(theirs.folder, "copy", theirs.indices)
                status["files"], status["bytes"] = files, size
            status["idle_seconds"] = round(capabilities.now(theirs.folder.folder) - _touched(theirs.folder))
        stagings.append(status)
    return stagings


def sentence(status: StagingStatus) -> str:
    text = (
        f"{status['staging']} of run {status['run']}"
        if "run" in status
        else f"{status['staging']}, of no known run"
    )
    if "files" in status:
        text += f": {human.counted(status['files'], 'file')}, {human.size(status['bytes'])}"
    if "idle_seconds" in status:
        text += f", last written {human.duration(status['idle_seconds'])} ago"
    return text


def _aside(release: str, key: str) -> str:
    return f".{release}.{key}{_SUFFIX}"


def _apart(theirs: Run, mine: Path) -> bool:
    """Return whether the run's staging was already renamed. Its mark, written earlier, does not prove it."""
    name = _name(theirs)
    return name != mine.name and (mine.parent / name).is_dir()


def abandoned(layout: DatasetLayout, release: str) -> list[str]:
    """Return the staging folders of other releases than this one, in ascending order."""
    try:
        names = sorted(os.listdir(layout.releases))
    except FileNotFoundError:
        return []
    mine = layout.staging(release).name
    return [n for n in names if n.startswith(".") and n.endswith(_SUFFIX) and n != mine]


def _others(run: Run) -> Iterator[tuple[str, Run]]:
    """Yield the dataset's other unpublished runs, oldest listing first, with their folders' names."""
    layout, unpublished = run.layout, []
    for key in sorted(os.listdir(layout.runs) if layout.runs.is_dir() else ()):
        if key == run.id or key.startswith("."):
            continue
        try:
            theirs = load_run(layout, layout.run(key))
            if key != theirs.id or seals.of_run(theirs) is None:
                unpublished.append((_touched(theirs.folder), key, theirs))
        except (FailedError, NewerFormatError):
            continue
    for _, key, theirs in sorted(unpublished, key=lambda item: item[:2]):
        yield key, theirs


def _name(run: Run) -> str:
    marked = documents.find_whole(dataset_documents.TAKEN_MARK, run.folder.taken)
    return marked.staging if marked is not None and marked.staging else run.staging.name


def _mark(folder: RunLayout, run: str, staging: str) -> None:
    documents.write(dataset_documents.TAKEN_MARK, folder.taken, TakenMark(run, staging))


def _own(data: Path) -> int:
    """Return the inode of a staging's `data`; 0 unless both are plain folders of this account."""
    inode = 0
    for path in (data.parent, data):
        try:
            status = os.lstat(path)
        except OSError:
            return 0
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
            return 0
        inode = status.st_ino
    return inode


def planned(run: Run) -> dict[str, Abandoned]:
    """Return, by run, the stagings from which this run's plan takes files. They may no longer exist."""
    from penstock.target.links import Abandoned

    inodes = run.plan.staging_inodes
    return {
        theirs: Abandoned(run.layout.releases / name / DATA, inodes.get(theirs, 0))
        for theirs, name in run.plan.stagings.items()
    }


def _alive(context: Context, run: Run, *, patient: bool = True) -> str:
    """Return a phrase naming this run's arrays that may still write, or why that is unknown; "" if none."""
    try:
        # Ask with the folder's dataset name: the run may have been listed before its dataset was renamed.
        return dataset_state.arrays_of(context, run.layout.dataset, run.folder, patient=patient)
    except InterruptedRunError:
        raise
    except PenstockError as error:
        return error.why or error.what


def _touched(folder: RunLayout) -> float:
    paths = [folder.run_file, folder.plan, *folder.folder.glob("progress/copy/*.json")]
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


# The state that a published run keeps, and the removal of the rest.
#
# | file of the run                      | after publication                                          |
# | ------------------------------------ | ---------------------------------------------------------- |
# | `run.json`, `probe.json`             | kept: the next run, audit and repair read them             |
# | `plan.json`, receipts, arrays, logs  | kept: report, status and the next run's estimate read them |
# | `listing.parquet`, `amended.parquet` | removed: the manifest has each of their rows               |
# | `shards/`, `journal/`, `records/`    | removed: the manifest has the rows made from them          |
#
# The removed state takes some 330 bytes for each file and release. The kept state takes some hundred bytes
# for each element.


def tidy(context: Context, run: Run) -> None:
    """Prune after a publication. Only warn if another run took over the dataset; it prunes later."""
    try:
        prune(context, run.layout)
    except LockedError as error:
        text = f"state that the manifest covers stays: {error}"
        context.emit(run_steps.Warned(run.dataset, "publish", text=text))


def prune(context: Context, layout: DatasetLayout) -> None:
    """Remove state that manifests cover from a dataset's published runs, also from killed runs.

    The caller holds the dataset's lock. Nothing reads this state once a run's receipt of publish is durable,
    so a kill is safe at any moment. A failed removal is a warning, since the release is published. Raises
    LockedError if another run took over the dataset.
    """
    for key in sorted(os.listdir(layout.runs)):
        folder = layout.run(key)
        rest = covered(folder)
        if not rest or not _published(layout, folder, key):
            continue
        try:
            for path in rest:
                context.assert_held()
                _remove(context, path)
            small_files.fsync_dir(folder.folder)
        except (PenstockError, OSError) as error:
            context.assert_held()
            text = f"state of run {key} that its manifest covers stays: {error}"
            context.emit(run_steps.Warned(layout.dataset, "publish", text=text))


def covered(folder: RunLayout) -> list[Path]:
    """Return the state that a published release's manifest covers, in the order of removal."""
    folders = (folder.journals(0).parent, folder.records(0).parent, folder.shard(0).parent)
    return [path for path in (*folders, folder.amended, folder.listing) if os.path.lexists(path)]


def _published(layout: DatasetLayout, folder: RunLayout, key: str) -> bool:
    if not folder.receipt("publish").exists():
        return False
    try:
        run = load_run(layout, folder)
        return run.id == key and seals.of_run(run) is not None
    except (FailedError, NewerFormatError):
        return False


def _remove(context: Context, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        tree_removal.remove_tree(path, context.spend)
    else:
        path.unlink(missing_ok=True)
