"""Reserves space for a full file system or quota: files that can be removed to make room for small writes.

A removal writes before it frees space: a lock, a mark, a line of the history. A pin is a write, too. On a
full file system neither removals nor pins could start. So reserve files are removed to make room for these,
and made again later.

| folder                  | who removes its files               | once it is empty                       |
|-------------------------|-------------------------------------|----------------------------------------|
| `.penstock/reserve/`    | gc, remove                          | the dataset's reserve is used instead  |
| `<dataset>/.reserve/`   | pins: a file each; rollback, audit, | NoSpaceError; a job starts without its |
|                         | repair: all files except KEPT       | pin, with a warning                    |

Both folders belong to the dataset's owner and have mode 0700, since other accounts could empty or fill them.
List, publish, gc and remove fill the folders and remove foreign files. Another process may take the freed
space first, so the work is retried while files are left.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, TypeVar

from penstock.core import run_steps
from penstock.core.errors import NoSpaceError, PenstockError
from penstock.fs import small_files
from penstock.fs.safe_open import NO_SPACE
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

T = TypeVar("T")

# (number of files, bytes of each file). XFS makes a file if some 200 KiB are free; an audit makes 30 files.
OF_REMOVALS, OF_DATASET = (16, 32 << 10), (64, 8 << 10)
AT_ONCE = 4  # files removed before each retry
KEPT = 16  # number of files that audit and repair leave for pins and rollback
_MODE = 0o700


def fill(layout: DatasetLayout) -> None:
    """Create the missing files of both reserves, as space permits, and remove foreign files. The dataset's
    owner calls it. Raises nothing, since reserves only matter on a full file system."""
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
            # Another account's folder that has files remains: only its owner can empty it.
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
    """Remove up to `most` files of a reserve (None: all), leaving `keep`. Return whether any was removed. An
    account that may not remove them gets False. Raises no OSError."""
    removed = 0
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        for name in names[: max(0, len(names) - keep)][:most]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(folder / name)
                removed += 1
        # The blocks may not be free until the removal is durable.
        small_files.fsync_dir(folder)
    return removed > 0


def is_full(error: BaseException) -> bool:
    """Whether the error means that a file system or quota is full."""
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
    """Return the result of `work`. If space is lacking, remove some reserve files, except the last `keep`,
    and call `work` again. It must continue where it stopped. Only the dataset's owner may use reserves; a
    `removal` may use both. Used reserves are filled at the end. A removal raises NoSpaceError once no files
    are left."""
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
                context.emit(run_steps.Noted(layout.dataset, step, text))
                used = True
    finally:
        if used or removal:
            fill(layout)
