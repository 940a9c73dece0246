"""The one reader of files that another account may have put on the target: documents, tables, journals.

| what stands there                           | read                                          |
|---------------------------------------------|-----------------------------------------------|
| a plain file of up to `most` bytes          | its bytes                                     |
| a larger or a growing one                   | nothing: NotPlainError, at once               |
| a link, FIFO, socket, device or folder      | nothing: NotPlainError, at once               |
| nothing; what this account may not read     | nothing: the kernel's OSError                 |

Nothing waits: a FIFO would keep its reader until somebody writes to it, through SIGTERM too. No link is
followed, so a name leads to no endless device. The exception is the link that BeeGFS makes of a hard link
while a document gets its name (`fs.durable.give_name`): it is followed to the unfinished file beside
it. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

LONGEST = 32 << 20
"""Bytes of a document: a history of fifty thousand lines has less."""
LINE = 1 << 20
"""Bytes of a line: one of a journal or a history has less."""
STALE_LOOKS = 3
"""Reads in a row that may fail by ESTALE: NFS answers so where another node replaced the file between this
open and this read, and the next open finds what has the name by then. After so many the mount is stale."""
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.tmp")
"""The name of a file that is being written, or was when its process was killed."""
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})
"""How kernels refuse to open a link by O_NOFOLLOW, a socket, a device without a driver, and a folder for
writing."""


class NotPlainError(OSError, ValueError):
    """What stands in a document's place is no plain file, or too large to be that document."""

    def __init__(self, why: str, path: str | os.PathLike[str] = "") -> None:
        super().__init__(why)
        self.strerror = why
        self.filename = os.fspath(path) or None

    def __str__(self) -> str:
        return str(self.strerror)


def refused(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The error of an open by `FLAGS`: NotPlainError where the kernel refused what is no plain file."""
    return NotPlainError("it is no plain file", path) if error.errno in _NO_FILE else error


def descriptor(path: str | os.PathLike[str]) -> int:
    """An open plain file, of whatever size. Raises NotPlainError, OSError."""
    try:
        try:
            fd = os.open(path, FLAGS)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            fd = _unfinished(Path(path))
            if fd < 0:
                fd = os.open(path, FLAGS)  # by now it may be the file itself
    except OSError as error:
        raise refused(error, path) from None
    return checked(fd, path)


def checked(fd: int, path: str | os.PathLike[str] = "") -> int:
    """The descriptor of a plain file; any other is closed. Raises NotPlainError, OSError."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotPlainError("it is no plain file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _unfinished(path: Path) -> int:
    """The file that a document will be, by the link that stands there instead; -1 where there is none."""
    with contextlib.suppress(OSError):
        name = os.path.basename(os.readlink(path))
        if UNFINISHED.fullmatch(name):
            return os.open(path.with_name(name), FLAGS)
    return -1


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """A plain file of whatever size, to be read in pieces. Raises as `descriptor`."""
    return open(descriptor(path), "rb")


def read(path: str | os.PathLike[str], most: int = LONGEST) -> bytes:
    """The bytes of a document. Raises NotPlainError, OSError."""
    for _ in range(STALE_LOOKS - 1):
        try:
            return content(descriptor(path), most, path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return content(descriptor(path), most, path)


def content(fd: int, most: int = LONGEST, path: str | os.PathLike[str] = "") -> bytes:
    """What a file holds that was opened by `FLAGS`; it is closed. Raises NotPlainError, OSError."""
    with open(checked(fd, path), "rb") as file:
        size = os.fstat(fd).st_size
        held = b"" if size > most else file.read(size + 1)
        if len(held) > size:  # it grows
            held += file.read(most)
    if size > most or len(held) > most:
        raise NotPlainError(f"it has {max(size, len(held))} bytes, too many for such a file", path)
    return held


def backwards(text: bytes) -> Iterator[bytes]:
    """The lines that are not empty, the last one first."""
    end = len(text)
    while end > 0:
        begin = text.rfind(b"\n", 0, end) + 1
        if begin < end:
            yield text[begin:end]
        end = begin - 1


def lines(file: BufferedReader) -> Iterator[bytes]:
    """The lines of a file; one of more than `LINE` bytes, which nobody wrote as such, in pieces."""
    return iter(partial(file.readline, LINE), b"")
