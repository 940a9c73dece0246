"""The removal of a release: a mark, one rename, a line in the history; then its files, at leisure.

    releases/.removing-<release>              the mark: no reader pins it any more (`dataset.pins`)
    releases/.removed-<release>-<nonce>       the release, without its name: nobody meets half of one
    runs/.removed-<run>-<nonce>               the state of its run

The staging of a run that did not end loses its name, and its run's state, in the same way, without a mark:
nobody reads it.

Under the dataset's lock a release is marked, renamed, its run's state is renamed, the history gets a line,
its audits and their verdict are forgotten, and the mark goes. Its files are removed afterwards, without that
lock, so that a run of the dataset need not wait: what has such a name is nobody's any more.

| killed                     | the release | the next command under the lock                             |
|----------------------------|-------------|-------------------------------------------------------------|
| before the rename          | stands      | takes the mark back: it is decided anew                     |
| between rename and mark    | is gone     | goes on from the rename: state, line, verdict, mark         |
| while files are removed    | is gone     | `gc` and `remove` go on with the files                      |

A process that was frozen right before the rename, and wakes after its lock was taken over, must not rename:
whoever takes the mark back first makes a file of the name that the rename would give, and no folder can be
renamed to the name of a file. Such a file stays for a while.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.core.documents.history_line import Removal
from penstock.core.documents.marks import RemovalMark
from penstock.core.errors import FailedError
from penstock.dataset import documents, history
from penstock.fs import clock, durable
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
BARRED = 30 * 86400.0
"""Seconds for which the file stays that keeps a frozen process from a rename."""


def mark(layout: DatasetLayout, known: Known, why: str) -> RemovalMark:
    """Say that this release is about to be removed, and `why` in words. Durable on return. The caller
    holds the lock. Raises FailedError where it is marked already, and by `errno_map.storage_error`."""
    author = history.this_author()
    at = clock.stamp(layout.releases)
    made = RemovalMark(
        known.release, secrets.token_hex(8), at, author, known.run, why, known.files, known.bytes
    )
    path = layout.removing(known.release)
    try:
        if not cross_account_files.post(layout.releases, path.name, marks.REMOVAL_MARK.to_json(made)):
            raise FailedError(
                "a release is marked for its removal already",
                where=str(path),
                hint="`penstock gc` goes on with a removal that was interrupted",
            )
    except OSError as error:
        raise storage_error(error, "a release cannot be marked for its removal", str(path)) from error
    return made


def unmark(layout: DatasetLayout, mark: RemovalMark) -> None:
    """Remove the mark: the release stays, after all. The caller holds the lock."""
    cross_account_files.forget_notice(layout.removing(mark.release))


def give_up(layout: DatasetLayout, mark: RemovalMark) -> None:
    """As `unmark`, where it is not known whether the rename was made: then what follows it is left to
    `settle`."""
    if os.path.lexists(layout.release(mark.release)) and not os.path.lexists(_removed(layout, mark)):
        unmark(layout, mark)


def take_name(context: Context, layout: DatasetLayout, mark: RemovalMark) -> None:
    """Take a marked release's name away, by one rename. The caller holds the lock, and has looked at pins and
    `current` since the mark; `conclude` follows."""
    removed = _removed(layout, mark)
    try:
        context.assert_held()
        durable.rename(layout.release(mark.release), removed)
    except OSError as error:
        context.assert_held()
        raise storage_error(
            error, "a release cannot be renamed", str(layout.release(mark.release))
        ) from error


def set_aside(context: Context, *folders: Path) -> None:
    """Take the name of the staging of a run that did not end, then that of the run's state (or those of a
    dataset), by one rename each; `left` has them from then on. The caller holds the lock. Raises by
    `errno_map.storage_error`."""
    nonce = secrets.token_hex(8)
    for path in folders:
        context.assert_held()
        try:
            durable.rename(path, path.parent / f".removed-{path.name.lstrip('.')}-{nonce}")
        except OSError as error:
            raise storage_error(error, "a folder cannot be renamed", str(path)) from error


def settle(context: Context, layout: DatasetLayout) -> None:
    """Bring what a killed removal left to its end, but the files: by the table above. The caller holds the
    lock."""
    for path in _marks(layout):
        try:
            mark = documents.load(marks.REMOVAL_MARK, path)
        except FileNotFoundError:
            continue
        except ValueError:
            # Written in one piece before anything else was done.
            cross_account_files.forget_notice(path)
            continue
        context.assert_held()
        if _was_renamed(layout, mark):
            conclude(context, layout, mark)
        else:
            unmark(layout, mark)


def left(layout: DatasetLayout) -> list[Path]:
    """The folders of releases and runs that lost their name and are still to be removed, sorted by path."""
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
    """Remove these folders and all below, the seal first, so that no seal stands beside half a tree; and the
    files that kept frozen processes from a rename long ago."""
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
    """Whether the release of a mark has lost its name, and perhaps its files. Where it has not, nobody can
    take it any more by this mark."""
    removed = _removed(layout, mark)
    if removed.is_dir() or _in_history(layout, mark) or not os.path.lexists(layout.release(mark.release)):
        return True
    value = {"release": mark.release, "why": "the removal was taken back"}
    # Of two that meet here one makes the name, and both see which.
    return not cross_account_files.post(layout.releases, removed.name, value) and removed.is_dir()


def conclude(context: Context, layout: DatasetLayout, mark: RemovalMark) -> None:
    """What follows the rename: all but the files. May be done again. Raises NoSpaceError where the history's
    line cannot be written: the mark stays, and `settle` writes it."""
    gone = not os.path.lexists(layout.release(mark.release)) and not os.path.lexists(
        layout.staging(mark.release)
    )
    state = layout.run(mark.run).folder
    if mark.run and gone and state.is_dir():
        # Where the same content is being staged again, the state is that run's.
        durable.rename(state, layout.runs / f".removed-{mark.run}-{mark.nonce}")
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
