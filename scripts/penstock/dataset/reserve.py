"""Room that each dataset keeps for a full file system or quota: files that give way to something small.

A removal writes before it frees: a lock, a mark, a line of the history. A pin writes too. On a full file
system neither could start. So files lie ready to be removed in their place, and are made again later.

| folder                  | is given up by                      | once it is empty                       |
|-------------------------|-------------------------------------|----------------------------------------|
| `.penstock/reserve/`    | gc, remove                          | they use the dataset's reserve         |
| `<dataset>/.reserve/`   | pins, a file each; rollback, audit, | NoSpaceError; a job starts without its |
|                         | repair: all of it (but KEPT)        | pin, with a warning                    |

Both belong to the dataset's owner, mode 0700: readers who may remove files could also empty or fill the
folder. List, publish, gc and remove fill the folders and remove foreign files. Another process may take the
freed room first, so the work is retried while files are left.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, TypeVar

from penstock.core import events
from penstock.core.errors import NoSpaceError, PenstockError
from penstock.fs import small_files
from penstock.fs.errno_map import NO_SPACE
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

T = TypeVar("T")

# Number of files and bytes of each. XFS makes a file if some 200 KiB are free; an audit makes 30 files.
OF_REMOVALS, OF_DATASET = (16, 32 << 10), (64, 8 << 10)
AT_ONCE = 4  # files given up before each retry
KEPT = 16  # files that audit and repair leave to pins and rollback
_MODE = 0o700


def fill(layout: DatasetLayout) -> None:
    """Create what is missing of both reserves, as room permits, and remove foreign files. By the dataset's
    owner. Raises nothing: the reserve matters only without room."""
    with contextlib.suppress(OSError):
        _fill(layout.reserve, *OF_REMOVALS)
    # Before the first publish there is nothing to pin, audit or repair.
    if layout.pins.is_dir():
        with contextlib.suppress(OSError):
            _fill(layout.dataset_reserve, *OF_DATASET)


def _fill(folder: Path, files: int, size: int) -> None:
    small_files.make_dirs(folder, _MODE)
    if stat.S_IMODE(folder.stat().st_mode) & 0o777 != _MODE:
        os.chmod(folder, _MODE)
    missing = {f"{number:02d}" for number in range(files)}
    for name in os.listdir(folder):
        status = os.lstat(folder / name)
        if stat.S_ISDIR(status.st_mode):
            # A folder of another account with files in it stays: only its owner can empty it.
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
            # No file system omits, compresses or shares random bytes.
            os.write(fd, os.urandom(size))
        except OSError:
            os.unlink(folder / name)
            raise
        finally:
            os.close(fd)


def _is_whole(status: os.stat_result, size: int) -> bool:
    """Whether removing the file frees its full size."""
    own = status.st_uid == os.geteuid() and status.st_nlink == 1
    return stat.S_ISREG(status.st_mode) and own and status.st_size == size


def give(folder: Path, most: int | None = None, *, keep: int = 0) -> bool:
    """Remove up to `most` files of a reserve (None: all), leaving `keep`; return whether any was removed.
    False for an account that may not. Raises no OSError."""
    removed = 0
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        for name in names[: max(0, len(names) - keep)][:most]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / name)
                removed += 1
        # Blocks may not be free before the removal is durable.
        small_files.fsync_dir(folder)
    return removed > 0


def is_full(error: BaseException) -> bool:
    """Whether the error says that a file system or quota is full."""
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
    """Return what `work` returns; without space, give up some of the reserve and call `work` again, which
    must continue where it stopped. `keep` files stay. Only the dataset's owner gives up reserves; a `removal`
    may use both. Used reserves are filled at the end. A removal raises NoSpaceError once nothing is left."""
    folders = [layout.reserve, layout.dataset_reserve] if removal else [layout.dataset_reserve]
    used = False
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
                used = True
    finally:
        if used or removal:
            fill(layout)
