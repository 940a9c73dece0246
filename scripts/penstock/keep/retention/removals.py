"""Removes a release: a mark, one rename, a line in the history; then its files without the lock.

    releases/.removing-<release>              the mark: no reader pins it any more (`dataset.pins`)
    releases/.removed-<release>-<nonce>       the release, without its name: nobody sees half of it
    runs/.removed-<run>-<nonce>               the state of its run

The staging of a run that did not end, and its state, are renamed in the same way without a mark: nobody reads
them. Under the dataset's lock a release is marked and renamed, then its run's state. The history gets a line,
audits and verdict are removed, and last the mark. Its files go without that lock, so that a run need not
wait.

| killed                     | the release | the next command under the lock                             |
|----------------------------|-------------|-------------------------------------------------------------|
| before the rename          | stands      | takes the mark back: it is decided anew                     |
| between rename and mark    | is gone     | goes on from the rename: state, line, verdict, mark         |
| while files are removed    | is gone     | `gc` and `remove` go on with the files                      |

A process frozen right before the rename may wake after its lock was taken over. So whoever withdraws the mark
first makes a file with the new name, to which no folder can be renamed. The file stays for a while.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Removal, RemovalMark
from penstock.core.errors import FailedError
from penstock.dataset import documents, history
from penstock.fs import clock, small_files
from penstock.fs.errno_map import storage_error
from penstock.jobs import audit_store
from penstock.target import cross_account_files, tree_removal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.keep.retention.decision import Known

_REMOVING = ".removing-"
_REMOVED = re.compile(r"\.removed-(.+)-[0-9a-f]{16}")
BARRED = 30 * 86400.0  # seconds for which that file bars a frozen process's rename


def mark(layout: DatasetLayout, release_facts: Known, why: str) -> RemovalMark:
    """Mark a release for removal, durably, with the reason `why`. The caller holds the lock. Raises
    FailedError if it is marked already, and by `errno_map.storage_error`."""
    author = history.this_author()
    at = clock.stamp(layout.releases)
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
        if not cross_account_files.post(
            layout.releases, path.name, dataset_documents.REMOVAL_MARK.to_json(made)
        ):
            raise FailedError(
                "a release is marked for its removal already",
                where=str(path),
                hint="`penstock gc` goes on with a removal that was interrupted",
            )
    except OSError as error:
        raise storage_error(error, "a release cannot be marked for its removal", str(path)) from error
    return made


def unmark(layout: DatasetLayout, mark: RemovalMark) -> None:
    """Remove the mark: the release stays. The caller holds the lock."""
    cross_account_files.forget_notice(layout.removing(mark.release))


def give_up(layout: DatasetLayout, mark: RemovalMark) -> None:
    """As `unmark`, if the rename may have happened: then `settle` does what follows it."""
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
    """Rename a staging and its run's state, or those of a dataset; `left` lists them from then on. The caller
    holds the lock. Raises by `errno_map.storage_error`."""
    nonce = secrets.token_hex(8)
    for path in folders:
        context.assert_held()
        try:
            small_files.rename(path, path.parent / f".removed-{path.name.lstrip('.')}-{nonce}")
        except OSError as error:
            raise storage_error(error, "a folder cannot be renamed", str(path)) from error


def settle(context: Context, layout: DatasetLayout) -> None:
    """Finish a killed removal except for its files, by the module's table. The caller holds the lock."""
    for path in _marks(layout):
        try:
            mark = documents.load(dataset_documents.REMOVAL_MARK, path)
        except FileNotFoundError:
            continue
        except ValueError:
            # A mark is written in one piece before anything else happens.
            cross_account_files.forget_notice(path)
            continue
        context.assert_held()
        if _was_renamed(layout, mark):
            conclude(context, layout, mark)
        else:
            unmark(layout, mark)


def left(layout: DatasetLayout) -> list[Path]:
    """Return the renamed folders of releases and runs still to be removed, sorted by path."""
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
    """Remove these folders, seals first so that none stands beside half a tree, and old files that barred a
    rename."""
    for path in folders:
        context.stop.check()
        with history.moving(layout, _REMOVED.sub(r"\1", path.name)) as moved:
            tree_removal.remove_release(path, context.spend, moved=moved)
    before = clock.now(layout.releases) - BARRED
    with os.scandir(layout.releases) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False) if _REMOVED.fullmatch(entry.name) else None
            if status is not None and stat.S_ISREG(status.st_mode) and status.st_mtime < before:
                cross_account_files.forget_notice(layout.releases / entry.name)


def _was_renamed(layout: DatasetLayout, mark: RemovalMark) -> bool:
    """Whether the release of a mark lost its name, and perhaps its files. If not, this bars its rename for
    ever."""
    removed = _removed(layout, mark)
    if removed.is_dir() or _in_history(layout, mark) or not os.path.lexists(layout.release(mark.release)):
        return True
    value = {"release": mark.release, "why": "the removal was taken back"}
    # Of two concurrent callers one makes the name, and both see which.
    return not cross_account_files.post(layout.releases, removed.name, value) and removed.is_dir()


def conclude(context: Context, layout: DatasetLayout, mark: RemovalMark) -> None:
    """Do what follows the rename, except for removing files; may be repeated. Raises NoSpaceError if the
    history's line cannot be written: the mark stays, and `settle` writes the line."""
    gone = not os.path.lexists(layout.release(mark.release)) and not os.path.lexists(
        layout.staging(mark.release)
    )
    state = layout.run(mark.run).folder
    if mark.run and gone and state.is_dir():
        # If the same content is being staged again, the state is that run's.
        small_files.rename(state, layout.runs / f".removed-{mark.run}-{mark.nonce}")
    if gone:
        tree_removal.remove_tree(layout.repair(mark.release).folder, context.spend)
        tree_removal.remove_tree(layout.repair_staging(mark.release), context.spend)
        cross_account_files.forget_notice(layout.verdict(mark.release))
        audit_store.forget(layout, mark.release)
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
            history.append(layout, line)
            history.note_intervals(layout)
        except OSError as error:
            raise storage_error(error, "a removal cannot be noted", str(layout.history)) from error
    unmark(layout, mark)


def _in_history(layout: DatasetLayout, mark: RemovalMark) -> bool:
    return any(isinstance(line, Removal) and line.nonce == mark.nonce for line in history.lines(layout))


def _removed(layout: DatasetLayout, mark: RemovalMark) -> Path:
    return layout.releases / f".removed-{mark.release}-{mark.nonce}"


def _marks(layout: DatasetLayout) -> list[Path]:
    try:
        names = os.listdir(layout.releases)
    except FileNotFoundError:
        return []
    return [layout.releases / name for name in sorted(names) if name.startswith(_REMOVING)]
