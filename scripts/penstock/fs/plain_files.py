"""The one reader of files that another account may have put on the target: documents, tables, journals.

| what stands there                           | read                                          |
|---------------------------------------------|-----------------------------------------------|
| a plain file of up to `most` bytes          | its bytes                                     |
| a larger or a growing one                   | nothing: NotPlainError, at once               |
| a link, FIFO, socket, device or folder      | nothing: NotPlainError, at once               |
| nothing; what this account may not read     | nothing: the kernel's OSError                 |

Opening never waits: a FIFO would block its reader until somebody writes, through SIGTERM too. No link is
followed, so no name leads to an endless device. The exception is BeeGFS's link in place of a hard link while
a document gets its name (`fs.durable.give_name`). It leads to the unfinished file beside it.
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

LONGEST = 32 << 20  # bytes of a document; a history of fifty thousand lines is smaller
LINE = 1 << 20  # bytes of a line of a journal or a history, at most
# Reads in a row that may fail by ESTALE. NFS reports it where another node replaced the file between open and
# read; the next open gets the new file. After so many the mount is stale.
STALE_LOOKS = 3
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.tmp")  # a file being written, or left by a killed process
# How kernels refuse a link (O_NOFOLLOW), a socket, a device without a driver, and a folder opened for
# writing.
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})


class NotPlainError(OSError, ValueError):
    """A document's place holds no plain file, or one too large to be that document."""

    def __init__(self, why: str, path: str | os.PathLike[str] = "") -> None:
        super().__init__(why)
        self.strerror = why
        self.filename = os.fspath(path) or None

    def __str__(self) -> str:
        return str(self.strerror)


def refused(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Convert the error of an open by `FLAGS`: NotPlainError where the kernel refused a file that is not
    plain."""
    return NotPlainError("it is no plain file", path) if error.errno in _NO_FILE else error


def descriptor(path: str | os.PathLike[str]) -> int:
    """Open a plain file of any size. Raises NotPlainError, OSError."""
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
    """Return the descriptor of a plain file; close any other. Raises NotPlainError, OSError."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotPlainError("it is no plain file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _unfinished(path: Path) -> int:
    """Open the unfinished file that a document's link leads to; -1 without such a link."""
    with contextlib.suppress(OSError):
        name = os.path.basename(os.readlink(path))
        if UNFINISHED.fullmatch(name):
            return os.open(path.with_name(name), FLAGS)
    return -1


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a plain file of any size, to read it in pieces. Raises as `descriptor`."""
    return open(descriptor(path), "rb")


def read(path: str | os.PathLike[str], most: int = LONGEST) -> bytes:
    """Read a document. Raises NotPlainError, OSError."""
    for _ in range(STALE_LOOKS - 1):
        try:
            return content(descriptor(path), most, path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return content(descriptor(path), most, path)


def content(fd: int, most: int = LONGEST, path: str | os.PathLike[str] = "") -> bytes:
    """Read and close a file that was opened by `FLAGS`. Raises NotPlainError, OSError."""
    with open(checked(fd, path), "rb") as file:
        size = os.fstat(fd).st_size
        held = b"" if size > most else file.read(size + 1)
        if len(held) > size:  # it grows
            held += file.read(most)
    if size > most or len(held) > most:
        raise NotPlainError(f"it has {max(size, len(held))} bytes, too many for such a file", path)
    return held


def backwards(text: bytes) -> Iterator[bytes]:
    """Iterate over the lines that are not empty, the last first."""
    end = len(text)
    while end > 0:
        begin = text.rfind(b"\n", 0, end) + 1
        if begin < end:
            yield text[begin:end]
        end = begin - 1


def lines(file: BufferedReader) -> Iterator[bytes]:
    """Iterate over a file's lines. A line of more than `LINE` bytes, which nobody wrote as such, comes in
    pieces."""
    return iter(partial(file.readline, LINE), b"")
