"""Room that each dataset keeps for the day on which its file system, or its owner's quota, is full: files
that are removed when something small must be written. Touches those two folders alone.

A removal writes before it frees: a lock, a mark, a line of the history; so does a pin. Where no file can be
made any more nothing could make room, and no job could start. So files lie ready to be removed in their
place, and are made again when there is room.

| lies in                 | is given up by                      | when nothing is left of it             |
|-------------------------|-------------------------------------|----------------------------------------|
| `.penstock/reserve/`    | gc, remove                          | the dataset's reserve                  |
| `<dataset>/.reserve/`   | pins, a file each; rollback, audit, | NoSpaceError; a job starts without its |
|                         | repair: all of it (but KEPT)        | pin, and is warned                     |

Both are of the dataset's owner alone, mode 0700: where readers may remove a file that is not theirs, each may
also empty the folder, and leave files of its own there. So a reader of another account has no reserve, and
its job starts without a pin. Whatever does not belong there is removed where the folders are filled (list,
publish, gc, remove).

Between a file's removal and what takes its place another process may take the room: the work is tried again
as long as there is a file to give up.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, TypeVar

from penstock.core import events
from penstock.core.errors import NoSpaceError, PenstockError
from penstock.fs import durable
from penstock.fs.errno_map import NO_SPACE
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

T = TypeVar("T")

OF_REMOVALS, OF_DATASET = (16, 32 << 10), (64, 8 << 10)
"""Files of each, and bytes of a file. XFS makes a file where some 200 KiB are free; an audit makes 30."""
AT_ONCE = 4
"""Files that are given up before the work is tried again."""
KEPT = 16
"""Files that an audit and a repair leave of the dataset's reserve, to pins and rollback."""
_MODE = 0o700


def fill(layout: DatasetLayout) -> None:
    """Make what is missing of both, as far as there is room for it, and remove what does not belong there. By
    the dataset's owner. Raises nothing: without a reserve all works as long as there is room."""
    with contextlib.suppress(OSError):
        _fill(layout.reserve, *OF_REMOVALS)
    # Before the first publish there is nothing to pin, audit or repair.
    if layout.pins.is_dir():
        with contextlib.suppress(OSError):
            _fill(layout.dataset_reserve, *OF_DATASET)


def _fill(folder: Path, files: int, size: int) -> None:
    durable.make_dirs(folder, _MODE)
    if stat.S_IMODE(folder.stat().st_mode) & 0o777 != _MODE:
        os.chmod(folder, _MODE)
    missing = {f"{number:02d}" for number in range(files)}
    for name in os.listdir(folder):
        status = os.lstat(folder / name)
        if stat.S_ISDIR(status.st_mode):
            # One of another account that holds files stays: its owner alone can empty it.
            with contextlib.suppress(OSError):
                os.rmdir(folder / name)
        elif name in missing and _is_whole(status, size):
            missing.remove(name)
        else:
            os.unlink(folder / name)
    for name in sorted(missing):
        fd = os.open(
            folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            # Bytes that no file system leaves out, compresses or shares.
            os.write(fd, os.urandom(size))
        except OSError:
            os.unlink(folder / name)
            raise
        finally:
            os.close(fd)


def _is_whole(status: os.stat_result, size: int) -> bool:
    """Whether its removal frees what it is there for."""
    own = status.st_uid == os.geteuid() and status.st_nlink == 1
    return stat.S_ISREG(status.st_mode) and own and status.st_size == size


def give(folder: Path, most: int | None = None, *, keep: int = 0) -> bool:
    """Remove up to `most` files of a reserve (None: all), and leave `keep` of them. Returns whether any was
    removed; False also for an account that may not. Raises no OSError."""
    given = 0
    with contextlib.suppress(OSError):
        with os.scandir(folder) as there:
            names = sorted(entry.name for entry in there if entry.is_file(follow_symlinks=False))
        for name in names[: max(0, len(names) - keep)][:most]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / name)
                given += 1
        # Until the removal is durable, blocks may not be free.
        durable.fsync_dir(folder)
    return given > 0


def is_full(error: BaseException) -> bool:
    """Whether this is how a full file system, or a full quota, answers."""
    return isinstance(error, NoSpaceError) or (isinstance(error, OSError) and error.errno in NO_SPACE)


def sparing(
    context: Context,
    layout: DatasetLayout,
    step: str,
    work: Callable[[], T],
    *,
    removal: bool = False,
    keep: int = 0,
) -> T:
    """What `work` returns. Where there is no space for what it writes, some of the reserve is given up and
    `work` is called again: it must be able to go on where it stopped. `keep`: files of the reserve that are
    left. The reserve of another account's dataset is never given up. With `removal` both reserves may be
    given up. At the end the reserves are filled, if some of them was given up or it is a removal. Raises what
    `work` raises; a removal NoSpaceError once nothing is left."""
    folders = [layout.reserve, layout.dataset_reserve] if removal else [layout.dataset_reserve]
    given = False
    try:
        while True:
            try:
                return work()
            except (PenstockError, OSError) as error:
                if not is_full(error) or not dataset_folders.owns(layout):
                    raise
                while folders and not give(folders[0], AT_ONCE, keep=keep):
                    folders.pop(0)
                if not folders and removal:
                    raise NoSpaceError(
                        "no room is left, not even for what a removal has to write",
                        where=str(layout.folder),
                        why=str(error).partition("\n")[0],
                        hint="remove some files of your own there by hand, or have the quota raised: 1 MiB "
                        "and 20 files are enough; then the same command makes room",
                    ) from error
                if not folders:
                    raise
                text = "no space is left: the dataset's reserve is given up for what has to be written"
                context.emit(events.Noted(layout.dataset, step, text))
                given = True
    finally:
        if given or removal:
            fill(layout)
