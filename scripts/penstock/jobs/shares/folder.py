"""The folder in which holders of shares post small files. Their names say everything (`rule`)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.capabilities import facts

if TYPE_CHECKING:
    from pathlib import Path

LONGEST = 4096  # bytes of a file that counts
NOBODY = -1  # the owner of files that no process of penstock made
_MODE = 0o644


def run_digits(*words: object) -> str:
    """Return the digits by which processes of a run, or of a command that works alone, find its holder."""
    text = "\0".join(map(str, words))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def late_of(folder: Path) -> float:
    """Return the seconds by which listings of this folder may be old. Raises OSError."""
    return facts(folder).traits.names_late


class FileState(NamedTuple):
    uid: int  # of its owner, or NOBODY
    changed: float  # when it was last made or renamed, in seconds by the file system's clock


class SharesFolder:
    """The folder, as one process reaches it. Each call may raise OSError; its effect may happen all the same,
    at any later time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return os.listdir(self._path)

    def make(self, name: str, content: bytes) -> None:
        """Make a file; an existing one stays."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileExistsError):
            fd = os.open(self._path / name, flags, _MODE)
            # Over a quota of blocks a name can be made without content: the name is enough.
            with contextlib.suppress(OSError):
                try:
                    os.fchmod(fd, _MODE)
                    os.write(fd, content[:LONGEST])
                finally:
                    os.close(fd)

    def rename(self, old: str, new: str) -> bool:
        try:
            os.rename(self._path / old, self._path / new)
        except FileNotFoundError:
            return False
        return True

    def state(self, name: str) -> FileState | None:
        try:
            status = os.lstat(self._path / name)
        except FileNotFoundError:
            return None
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= LONGEST
        return FileState(status.st_uid if plain else NOBODY, status.st_ctime)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path / name)
