"""Changes which releases readers see. It removes a release: a mark, a rename, a line in the history, and
later the files. It moves `current` to an earlier or later release. It finishes either change after a kill.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Removal, RemovalMark, Rollback, RollbackIntent
from penstock.core.errors import FailedError, FindingsError
from penstock.dataset import (
    dataset_lock,
    documents,
    gate,
    pins,
    release_records,
    run_store,
)
from penstock.fs import capabilities, small_files
from penstock.fs.safe_open import storage_error
from penstock.jobs import audits_and_adoptions
from penstock.target import (
    dataset_folders,
    notices,
    reveal,
    tree_removal,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.keep.retention_decision import Known


# Removes a release: a mark, a rename, a line in the history; then its files without the lock.
#
#     releases/.removing-<release>              the mark: no reader pins it any more (`dataset.pins`)
#     releases/.removed-<release>-<nonce>       the release, without its name: nobody sees half of it
#     runs/.removed-<run>-<nonce>               the state of its run
#
# The staging of a run that did not end, and the run's state, are renamed in the same way, but without a mark,
# since nobody reads them. Under the dataset's lock a release is marked and renamed, then its run's state is
# renamed. The history gets a line, audits and verdict are removed, and last the mark. The files are removed
# without that lock, so that a run need not wait.
#
# | killed                     | the release | the next command under the lock                             |
# |----------------------------|-------------|-------------------------------------------------------------|
# | before the rename          | exists      | withdraws the mark; the release is then decided again       |
# | after it, mark remains     | is gone     | continues after the rename: state, line, verdict, mark      |
# | while files are removed    | is gone     | `gc` and `remove` remove the other files                    |
#
# A process frozen right before the rename may wake after its lock was taken over. So before a process
# withdraws the mark, it makes a file with the new name, to which no folder can be renamed. The file stays for
# a while.

_REMOVING = ".removing-"
_REMOVED = re.compile(r"\.removed-(.+)-[0-9a-f]{16}")
# seconds for which a file with the new name stays, to prevent a frozen process's rename
BARRED = 30 * 86400.0


def mark(layout: DatasetLayout, release_facts: Known, why: str) -> RemovalMark:
    """Mark a release for removal, durably, with the reason `why`. The caller holds the lock. Raises
    FailedError if it is marked already, and the errors of `safe_open.storage_error`."""
    author = release_records.this_author()
    at = capabilities.stamp(layout.releases)
    made = RemovalMark(
        release_facts.release,
        secrets.token_hex(8),
        at,
        author,
        release_facts.run,
        why,
        release_facts.files,
        release_facts.bytes,
    )
    path = layout.removing(release_facts.release)
    try:
        if not notices.post(layout.releases, path.name, dataset_documents.REMOVAL_MARK.to_json(made)):
            raise FailedError(
                "a release is marked for its removal already",
                where=str(path),
                hint="`penstock gc` goes on with a removal that was interrupted",
            )
    except OSError as error:
        raise storage_error(error, "a release cannot be marked for its removal", str(path)) from error
    return made


def unmark(layout: DatasetLayout, mark: RemovalMark) -> None:
    """Remove the mark, so that the release stays. The caller holds the lock."""
    notices.forget_notice(layout.removing(mark.release))


def give_up(layout: DatasetLayout, mark: RemovalMark) -> None:
    """Remove the mark unless the release was renamed: then `settle_removals` needs the mark."""
    if os.path.lexists(layout.release(mark.release)) and not os.path.lexists(_removed(layout, mark)):
        unmark(layout, mark)


def take_name(context: Context, layout: DatasetLayout, mark: RemovalMark) -> None:
    """Rename a marked release away. The caller holds the lock and checked pins and `current` since the mark.
    `conclude` must follow."""
    removed = _removed(layout, mark)
    try:
        context.assert_held()
        small_files.rename(layout.release(mark.release), removed)
    except OSError as error:
        context.assert_held()
        raise storage_error(
            error, "a release cannot be renamed", str(layout.release(mark.release))
        ) from error


def set_aside(context: Context, *folders: Path) -> None:
    """Rename a staging and its run's state, or a dataset and its state, so that `left` returns them. The
    caller holds the lock. Raises the errors of `safe_open.storage_error`."""
    nonce = secrets.token_hex(8)
    for path in folders:
        context.assert_held()
        try:
            small_files.rename(path, path.parent / f".removed-{path.name.lstrip('.')}-{nonce}")
        except OSError as error:
            raise storage_error(error, "a folder cannot be renamed", str(path)) from error


def settle_removals(context: Context, layout: DatasetLayout) -> None:
    """Finish a killed removal, except for its files, as the table above says. The caller holds the lock."""
    for path in _marks(layout):
        try:
            mark = documents.load(dataset_documents.REMOVAL_MARK, path)
        except FileNotFoundError:
            continue
        except ValueError:
            # A mark is written completely before the removal begins, so an unreadable file is not a mark.
            notices.forget_notice(path)
            continue
        context.assert_held()
        if _was_renamed(layout, mark):
            conclude(context, layout, mark)
        else:
            unmark(layout, mark)


def left(layout: DatasetLayout) -> list[Path]:
    """Return the renamed folders of releases and runs whose files are still to be removed, sorted by path."""
    folders = []
    for folder in (layout.releases, layout.runs):
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            folders += [
                folder / entry.name
                for entry in entries
                if _REMOVED.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    return sorted(folders)


def clear(context: Context, layout: DatasetLayout, folders: Sequence[Path]) -> None:
    """Remove these folders, seals first, so that no seal remains beside a partial tree. Also remove old files
    that prevented a rename."""
    for path in folders:
        context.stop.check()
        with release_records.moving(layout, _REMOVED.sub(r"\1", path.name)) as moved:
            tree_removal.remove_release(path, context.spend, moved=moved)
    before = capabilities.now(layout.releases) - BARRED
    with os.scandir(layout.releases) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False) if _REMOVED.fullmatch(entry.name) else None
            if status is not None and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                notices.forget_notice(layout.releases / entry.name)


def _was_renamed(layout: DatasetLayout, mark: RemovalMark) -> bool:
    """Whether the marked release was renamed, or even removed. If not, prevent its rename forever."""
    removed = _removed(layout, mark)
    if removed.is_dir() or _in_history(layout, mark) or not os.path.lexists(layout.release(mark.release)):
        return True
    value = {"release": mark.release, "why": "the removal was taken back"}
    # If there are two callers at once, only one of them makes the name, and both see the outcome.
    return not notices.post(layout.releases, removed.name, value) and removed.is_dir()


def conclude(context: Context, layout: DatasetLayout, mark: RemovalMark) -> None:
    """Do the steps that follow the rename, except for removing files. It may be repeated. Raises NoSpaceError
    if the history's line cannot be written. Then the mark stays, and `settle_removals` writes the line."""
    gone = not os.path.lexists(layout.release(mark.release)) and not os.path.lexists(
        layout.staging(mark.release)
    )
    state = layout.run(mark.run).folder
    if mark.run and gone and state.is_dir():
        # If the same content is being staged again, the state belongs to the new run.
        small_files.rename(state, layout.runs / f".removed-{mark.run}-{mark.nonce}")
    if gone:
        tree_removal.remove_tree(layout.repair(mark.release).folder, context.spend)
        tree_removal.remove_tree(layout.repair_staging(mark.release), context.spend)
        notices.forget_notice(layout.verdict(mark.release))
        audits_and_adoptions.forget_audits(layout, mark.release)
    if not _in_history(layout, mark):
        line = Removal(
            at=mark.at,
            dataset=layout.dataset,
            release=mark.release,
            run=mark.run,
            why=mark.why,
            files=mark.files,
            bytes=mark.bytes,
            nonce=mark.nonce,
            author=mark.author,
        )
        context.assert_held()
        try:
            release_records.append_history(layout, line)
            release_records.note_intervals(layout)
        except OSError as error:
            raise storage_error(error, "a removal cannot be noted", str(layout.history)) from error
    unmark(layout, mark)


def _in_history(layout: DatasetLayout, mark: RemovalMark) -> bool:
    return any(
        isinstance(line, Removal) and line.nonce == mark.nonce
        for line in release_records.history_lines(layout)
    )


def _removed(layout: DatasetLayout, mark: RemovalMark) -> Path:
    return layout.releases / f".removed-{mark.release}-{mark.nonce}"


def _marks(layout: DatasetLayout) -> list[Path]:
    try:
        names = os.listdir(layout.releases)
    except FileNotFoundError:
        return []
    return [layout.releases / name for name in sorted(names) if name.startswith(_REMOVING)]


# Moves `current` to an earlier release, or to a later one again: a rename, and a line in the history.
#
# | killed                      | `current` names | the next command under the lock                          |
# |-----------------------------|-----------------|----------------------------------------------------------|
# | before the intent           | the old release | finds no intent                                          |
# | before the rename           | the old release | removes the intent: nothing happened                     |
# | before the history's line   | the new release | writes the line, then removes the intent                 |
# | before the intent's removal | the new release | finds the line in the history, removes the intent        |
#
# Order: the intent (`rollback.json`) is durable before the rename, the rename before the line, the line
# before the intent is removed. `publish`, `rollback`, `remove` and `gc` finish an interrupted rollback first,
# so the history has the order in which `current` moved.
#
# A run frozen right before its own rename of `current` cannot undo a rollback. `point` makes a link and
# renames it; a rollback removes such links first, under the dataset's lock.


class Led(NamedTuple):
    """The result of moving `current`."""

    release: str
    left: str  # the release that `current` named before; "" if nothing changed
    finished: bool  # whether an interrupted rollback was finished, and nothing else was requested


def lead_current(context: Context, layout: DatasetLayout, release: str | None) -> Led:
    """Make `release` current, durably; None: the release that was current before. The caller holds the lock.
    Raises ConfigError for an unknown release, FindingsError if the gate does not open for it."""
    dataset_folders.sweep_pointers(layout)
    finished = settle_rollback(context, layout)
    current = dataset_folders.current(layout)
    if finished is not None and release in (None, finished.release):
        return Led(finished.release, finished.left, True)
    wanted = _wanted(context, layout, release, current)
    target = context.config.target
    gate.passed(layout, owners=target.owners, release=wanted)
    if wanted == current:
        return Led(wanted, "", False)
    pins.make_folder(context, layout, wanted)
    author, claim = release_records.this_author(), dataset_lock.claim_number(layout)
    at = capabilities.stamp(layout.releases)
    intent = RollbackIntent(wanted, current or "", secrets.token_hex(8), at, author, claim)
    documents.write(dataset_documents.ROLLBACK_INTENT, layout.rollback, intent)
    reveal.point(layout, wanted, context.assert_held)
    _tell(context, layout, intent)
    return Led(wanted, intent.left, False)


def settle_rollback(context: Context, layout: DatasetLayout) -> RollbackIntent | None:
    """Finish an interrupted rollback as the table above says; return its intent if it moved `current`. The
    caller holds the dataset's lock. Raises FailedError if the intent cannot be read."""
    try:
        intent = documents.load(dataset_documents.ROLLBACK_INTENT, layout.rollback)
    except FileNotFoundError:
        return None
    except ValueError:
        # An intent is written completely before the rename, so a damaged file is not an intent.
        intent = None
    except OSError as error:
        raise FailedError(
            "the intent of a rollback cannot be read",
            where=str(layout.rollback),
            why=str(error),
            hint="remove that file: a rollback that was interrupted is then forgotten",
        ) from error
    if intent is None or dataset_folders.current(layout) != intent.release:
        context.assert_held()
        notices.forget_notice(layout.rollback)
        return None
    _tell(context, layout, intent)
    return intent


def _tell(context: Context, layout: DatasetLayout, intent: RollbackIntent) -> None:
    """Write the history's line once, then remove the intent."""
    line = Rollback(
        at=intent.at,
        dataset=layout.dataset,
        release=intent.release,
        left=intent.left,
        nonce=intent.nonce,
        claim=intent.claim,
        author=intent.author,
    )
    context.assert_held()
    if not any(
        isinstance(earlier, Rollback) and earlier.nonce == line.nonce
        for earlier in release_records.history_lines(layout)
    ):
        release_records.append_history(layout, line)
    notices.forget_notice(layout.rollback)


def _wanted(context: Context, layout: DatasetLayout, release: str | None, current: str | None) -> str:
    releases = dataset_folders.releases(layout)
    if release is not None:
        if release in releases:
            return release
        hint = "name one of them, or leave it out: the one before the current one is meant"
        raise gate.no_release(layout, [release], releases, hint)
    if releases == [current]:
        raise FindingsError(
            f"{current} is the only release",
            where=str(layout.releases),
            why="there is none before it to roll back to",
            hint="nothing was changed; what the source holds now is staged as a new release by "
            f"`{context.program} run {layout.dataset}`",
        )
    before = run_store.before(layout, current, set(releases)) if current else None
    if before is None:
        others = [name for name in releases if name != current]
        raise FindingsError(
            "the history names no release before the current one that is still there",
            where=str(layout.history),
            why=f"`current` names {current or 'no release'}; other releases: {', '.join(others) or 'none'}",
            hint=f"name the release: `{context.program} rollback {layout.dataset} RELEASE`" if others else "",
        )
    return before


def settle_interrupted(context: Context, layout: DatasetLayout) -> None:
    """Finish interrupted rollbacks, then interrupted removals, except for removed releases' files, which gc
    removes. The caller holds the dataset's lock. Raises as `settle_rollback` and `settle_removals`."""
    settle_rollback(context, layout)
    settle_removals(context, layout)
