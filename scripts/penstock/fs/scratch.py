"""Folders in TMPDIR for the duration of a command. The next command removes a killed process's folders.

A process keeps a kernel lock (flock) on its folder, which is released when the process ends in any way. So
whoever gets the lock of another process's folder may remove it. Looking for the process instead would fail in
containers that share TMPDIR. File systems of several machines may keep such a lock on a single machine
(BeeGFS does), so a folder's name contains the machine's name.

| a folder of this account, by its name | its lock is                    | then       |
|---------------------------------------|--------------------------------|------------|
| of this module and this machine       | held, or impossible there      | left alone |
| of this module and this machine       | free                           | removed    |
| any other                             |                                | left alone |
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fs.safe_open import OPEN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = f"penstock-list-{re.sub('[^A-Za-z0-9.]', '.', os.uname().nodename)[:40]}-"
_NAME = re.compile(rf"{re.escape(_PREFIX)}[a-z0-9_]{{8}}")


@contextlib.contextmanager
def folder(above: Path | None = None) -> Iterator[Path]:
    """Make a folder in `above`, by default TMPDIR, after a `sweep` of TMPDIR, and remove it at the end.
    Raises OSError."""
    if above is None:
        sweep()
    with contextlib.ExitStack() as stack:
        while True:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=above))
            try:
                stack.callback(os.close, _locked(path))
            except (BlockingIOError, FileNotFoundError):
                continue  # another process has just removed the folder in its sweep
            except OSError:
                pass  # locks are impossible there, so no sweep removes the folder either
            break
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        yield path


def sweep() -> None:
    """Remove folders that killed processes of this account left in TMPDIR."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not _NAME.fullmatch(entry.name) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            with contextlib.suppress(OSError):
                fd = _locked(Path(entry.path))
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(fd)


def _locked(path: Path) -> int:
    """Open and lock the folder. Raises BlockingIOError if another process has the lock, FileNotFoundError if
    the folder is gone, or OSError if locks are impossible."""
    fd = os.open(path, OPEN_FOLDER)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.lstat(path)  # fails if the previous holder of the lock has removed the folder
    except BaseException:
        os.close(fd)
        raise
    return fd
