"""Small files on the target: the only reader for files that another account may have written, durable
writing, and the only durable rename.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.core import typed_json
from penstock.core.errors import ConfigError
from penstock.core.human import printable
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader


# The only reader for files that another account may have put on the target: documents, tables, journals.
#
# | the path leads to                           | result                                        |
# |---------------------------------------------|-----------------------------------------------|
# | a plain file of up to `most` bytes          | its bytes                                     |
# | a larger or a growing plain file            | NotPlainError, at once                        |
# | a link, FIFO, socket, device or folder      | NotPlainError, at once                        |
# | nothing, or an unreadable file              | the kernel's OSError                          |
#
# Opening never waits. A FIFO would block its reader until somebody writes, even despite SIGTERM. No link is
# followed, so no name leads to an endless device. The only exception is a link that BeeGFS makes instead of a
# hard link while a document gets its name (`fs.small_files.give_name`). That link leads to the unfinished
# file beside it.

LONGEST = 32 << 20  # bytes of a document, at most; a history of fifty thousand lines is smaller
LINE = 1 << 20  # bytes of a line in a journal or a history, at most
# Number of consecutive reads that may fail with ESTALE. NFS reports ESTALE if another node replaced the file
# between open and read; the next open gets the new file. After this number of reads, the mount itself counts
# as stale.
STALE_LOOKS = 3
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# name of a file that is being written, or that a killed process left
UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.tmp")
# Errors with which kernels refuse to open a link (O_NOFOLLOW), a socket, a device without a driver, and a
# folder opened for writing.
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})


class NotPlainError(OSError, ValueError):
    """The file at a document's path is no plain file, or is too large to be that document."""

    def __init__(self, why: str, path: str | os.PathLike[str] = "") -> None:
        super().__init__(why)
        self.strerror = why
        self.filename = os.fspath(path) or None

    def __str__(self) -> str:
        return str(self.strerror)


def refused(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Convert the error of an open with `FLAGS`, to NotPlainError if the kernel refused a file that is not
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
                fd = os.open(path, FLAGS)  # the link may be replaced by the file itself by now
    except OSError as error:
        raise refused(error, path) from None
    return checked(fd, path)


def checked(fd: int, path: str | os.PathLike[str] = "") -> int:
    """Return the descriptor of a plain file; close any other and raise NotPlainError, or OSError."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NotPlainError("it is no plain file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _unfinished(path: Path) -> int:
    """Open the unfinished file that a document's link leads to; return -1 if there is no such link."""
    with contextlib.suppress(OSError):
        name = os.path.basename(os.readlink(path))
        if UNFINISHED.fullmatch(name):
            return os.open(path.with_name(name), FLAGS)
    return -1


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a plain file of any size, to read it in pieces. Raises the errors of `descriptor`."""
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
    """Read and close a file that was opened with `FLAGS`. Raises NotPlainError, OSError."""
    with open(checked(fd, path), "rb") as file:
        size = os.fstat(fd).st_size
        held = b"" if size > most else file.read(size + 1)
        if len(held) > size:  # the file is growing
            held += file.read(most)
    if size > most or len(held) > most:
        raise NotPlainError(f"it has {max(size, len(held))} bytes, too many for such a file", path)
    return held


def backwards(text: bytes) -> Iterator[bytes]:
    """Iterate over the lines that are not empty, from the last to the first."""
    end = len(text)
    while end > 0:
        begin = text.rfind(b"\n", 0, end) + 1
        if begin < end:
            yield text[begin:end]
        end = begin - 1


def lines(file: BufferedReader) -> Iterator[bytes]:
    """Iterate over a file's lines. A line of more than `LINE` bytes (no writer makes any) comes in pieces."""
    return iter(partial(file.readline, LINE), b"")


# Durable small files and the only durable rename.
#
# When these functions return, their changes survive a power cut of this machine. On BeeGFS and NFS this
# machine is the client, whose fsync reaches the servers' disks. On an error the old content still exists, and
# the file system's OSError is raised unchanged. A killed process leaves a temporary file beside the path
# (`.<hex>.tmp`).

# errors with which a file system without hard links refuses to make a link
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})
# pattern of the names of a process's open files; `/dev/stdout` is a link to such a name
_STREAMS = re.compile(r"/proc/(self|[0-9]+)(/task/[0-9]+)?/fd(/|$)")


def fsync_dir(path: Path | str, *, dir_fd: int | None = None) -> None:
    """Make the names in a folder durable. On BeeGFS the call succeeds without doing anything, since its
    metadata servers already have the names."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def rename(old: Path, new: Path) -> None:
    """Rename within one folder, durably. Files and symlinks replace an existing name; folders never do."""
    if old.parent != new.parent:
        raise ValueError(f"rename across folders: {old} -> {new}")
    os.rename(old, new)
    fsync_dir(new.parent)


def make_dirs(path: Path, mode: int = 0o700) -> None:
    """Make a folder and its missing parents durably, with exactly `mode`, whatever the umask."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode)
            os.chmod(folder, mode)
        fsync_dir(folder.parent)


class Growing:
    """A file written under a temporary name (`stream`). `close` makes it durable and gives it its own name.
    Leaving the context without `close` removes the temporary file, and keeps an older file with that name."""

    def __init__(self, path: Path, *, mode: int = 0o600) -> None:
        self._path = path
        self._temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._temporary, flags, 0o600)
        os.fchmod(fd, mode)
        self.stream = os.fdopen(fd, "wb", buffering=1 << 20)

    def close(self) -> None:
        try:
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.stream.close()
            rename(self._temporary, self._path)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.stream.closed:
            self.abandon()


def write_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file atomically: a reader sees either the old or the new content."""
    with Growing(path, mode=mode) as file:
        file.stream.write(content)
        file.close()


def writable(path: Path, how: int) -> int:
    """Open a file that a user chose for a result or a log. A FIFO without a reader raises OSError (ENXIO)
    instead of blocking."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | how
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(path).st_mode):
            raise OSError(errno.ENXIO, "no process reads this FIFO", str(path)) from None
        raise
    os.set_blocking(fd, True)
    return fd


class _Waiting(io.FileIO):
    """A raw stream whose writes may wait for a reader. A signal ends the wait."""

    def write(self, data: Any) -> int:
        with waits.interruptible():
            return super().write(data)


class _Passing:
    """The interface of `Growing` for a device or a stream, to which data is written directly."""

    def __init__(self, path: Path) -> None:
        self.stream = io.BufferedWriter(_Waiting(writable(path, os.O_TRUNC), "wb"), 1 << 20)

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.stream.raw.close()  # drops data that `close` has not written


def is_file(path: Path) -> bool:
    """Return whether a user's path for a result is, or can become, a file.

    | the path                                               | is a file |
    |--------------------------------------------------------|-----------|
    | a device, a FIFO, a socket: `/dev/null`                | no        |
    | a stream of a process: `/dev/stdout`, `/dev/fd/3`      | no        |
    | anything else, or nothing                              | yes       |

    A rename onto a device's name would replace the device for every process of the machine.
    """
    with contextlib.suppress(OSError):
        if path.is_symlink() and _STREAMS.match(os.readlink(path)):
            return False
        if _STREAMS.match(os.path.realpath(path.parent)):
            return False
        kind = os.stat(path).st_mode
        return stat.S_ISREG(kind) or stat.S_ISDIR(kind)
    return True


class Own(NamedTuple):
    """A kind of file that penstock writes to a path chosen by users, with the beginning of such a file. Files
    with another beginning are not replaced."""

    what: str
    begins: re.Pattern[bytes]


RECEIPT = Own("a receipt of penstock", re.compile(rb'\{\n "[a-z_]+": '))
METRICS = Own("a file of penstock's metrics", re.compile(b"# HELP penstock_"))
PAGE = Own("a report of penstock", re.compile(rb"\s*<!DOCTYPE html>.{0,2000} - penstock</title>", re.DOTALL))
ROWS = Own("a table of penstock", re.compile(b"PAR1"))
RATES = Own("a table or a plot of `rehearse`", re.compile(b"streams,|\\s*<svg xmlns="))
FIO_JOB = Own("a job for fio of `rehearse`", re.compile(b"; Sizes of files of "))
LOG = Own("a log of penstock", re.compile(rb"[0-9-]{10}T[0-9:]{8}Z [A-Z]+ "))
_BEGINNING = 4096  # number of a file's first bytes that are compared with the expected beginning


def refuse_another(path: Path, own: Own) -> None:
    """Raise ConfigError if penstock would replace, or append to, a file that it did not write.

    | what exists at the path                                  | refused |
    |----------------------------------------------------------|---------|
    | nothing, a folder, a device or a stream (`is_file`)      | no      |
    | an empty file, or a file with the beginning of `own`     | no      |
    | a link to any of the above                               | no      |
    | a link that leads nowhere                                | yes     |
    | another file, or a file that cannot be read              | yes     |
    """
    if not is_file(path):
        return
    why = f"it is there, and is not {own.what}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        if not path.is_symlink():
            return
        why = "it is a link that leads nowhere"
    except OSError as error:
        why = f"it is there, and cannot be read: {error.strerror}"
    else:
        with open(fd, "rb", buffering=0) as file:
            begun = b"" if stat.S_ISDIR(os.fstat(fd).st_mode) else file.read(_BEGINNING)
        if not begun or own.begins.match(begun):
            return
    raise ConfigError(
        "a file that penstock did not write stays as it is",
        where=printable(str(path)),
        why=why,
        hint="name another file, or move that one away",
    )


Output = Growing | _Passing


def output(path: Path, own: Own, *, mode: int = 0o644) -> Output:
    """Open a user's path for a result. A file appears only when it is complete (`Growing`); a device or a
    stream is written directly. Raises OSError, and the errors of `refuse_another`."""
    refuse_another(path, own)
    return Growing(path, mode=mode) if is_file(path) else _Passing(path)


def give_name(temporary: Path, path: Path) -> None:
    """Give a complete file a new name in its folder. Of several processes, on any nodes, only the first
    succeeds.

    The temporary name may remain. Raises FileExistsError, or an error of `NO_LINKS` if the file system has no
    hard links. BeeGFS may silently make a symbolic link instead (sysCreateHardlinksAsSymlinks). Making it is
    just as exclusive, so its process may replace the link by the file. For a moment the name is a link.
    """
    os.link(temporary, path, follow_symlinks=False)
    try:
        target = os.readlink(path)
    except OSError:
        return  # the name is a hard link, so it is the file itself
    if os.path.basename(target) == temporary.name:
        os.rename(temporary, path)


def create_file(path: Path, content: bytes, *, mode: int = 0o600) -> bool:
    """Create a file atomically. Of several processes, on any nodes, only the first creates it. Returns False
    if a file with that name exists with other content; if its content is equal, returns True. If hard links
    are impossible, the name appears before the content."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        _write_new(temporary, content, mode)
        give_name(temporary, path)
    except FileExistsError:
        # NFS also reports that the file exists if it was made by this call, but the server's first answer was
        # lost.
        try:
            if read(path) != content:
                return False
        except OSError:
            return False  # a file that this process cannot read was not made by it
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            # No rename is used, since after a long halt of this process it could replace another process's
            # newer file.
            _write_new(path, content, mode)
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    fsync_dir(path.parent)
    return True


def _write_new(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        try:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.unlink(path)
            raise


def write_json(path: Path, value: Any, *, mode: int = 0o600) -> None:
    """Write canonical JSON (sorted keys, a line feed at the end) with `write_file`."""
    write_file(path, _json(value), mode=mode)


def write_result(path: Path, value: Any) -> None:
    """Write a receipt, canonical JSON that everybody may read, with `output`."""
    with output(path, RECEIPT) as file:
        file.stream.write(_json(value))
        file.close()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, indent=1).encode() + b"\n"


def read_json(path: Path) -> Any:
    """Read a file that `write_json` wrote. Raises FileNotFoundError, ValueError."""
    return typed_json.bounded_loads(read(path))


def json_line(value: Any) -> bytes:
    """Encode the line that `append_line` adds to a file whose last line is complete."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def append_line(path: Path, value: Any, *, mode: int = 0o600) -> None:
    """Append a JSON line durably. Only a single writer may do this at a time (the lock's holder). If a crash
    left a torn line, it is ended first, so that only the torn line is lost. Raises OSError, NotPlainError."""
    new = not path.exists()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = checked(os.open(path, flags, mode), path)
    except OSError as error:
        raise refused(error, path) from None
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        line = json_line(value)
        view = memoryview(b"\n" + line if torn else line)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    if new:
        fsync_dir(path.parent)
