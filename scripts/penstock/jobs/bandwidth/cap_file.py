"""The file in which an administrator sets the cap on a network link: read while elements run, trusted by its
owner and mode.

The cap is what all elements that copy over that link may read together. `share` follows the file in each
element (`CapFile`), `overview` and preflight read it, `penstock limit` writes it (`write`). Nothing else is
touched; `parse`, `render` and `judged` are pure.

```
limit: 40Gbit/s
requests: 2000
```

`limit` is a rate, or `none`; `requests` a number a second, or `none`, and may be left out. Lines that begin
with `#` are comments.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import quantities
from penstock.core.checks import CheckResult
from penstock.core.text import in_quotes, printable
from penstock.fs import durable

if TYPE_CHECKING:
    from pathlib import Path

NAME = "cap"
"""The file's name in `bandwidth.folder`."""
LONGEST = 4096
"""Bytes of the file that are read; a page of this machine's memory where that is more."""
_WIDTH = 128
"""Bytes of the file as `write` leaves it: one write, which no reader sees half of."""
_MODE = 0o644
ANEW = "its owner writes it anew: penstock limit RATE"
_COUNT = re.compile("[1-9][0-9]{0,8}", re.ASCII)
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Cap(NamedTuple):
    """What all elements may do together; None: no cap."""

    rate: int | None = None
    """Bytes a second."""
    requests: int | None = None
    """A second."""

    def lower(self, other: Cap) -> Cap:
        """The lower rate and the lower number of requests of the two; None only where both are None."""
        return Cap(_least(self.rate, other.rate), _least(self.requests, other.requests))


def _least(one: int | None, other: int | None) -> int | None:
    given = [value for value in (one, other) if value is not None]
    return min(given, default=None)


def parse(content: bytes) -> Cap:
    """The cap that a file's content says. Raises ValueError, with a phrase that says what would be
    accepted."""
    limits: dict[str, int | None] = {}
    for line in content.decode("ascii", "replace").splitlines():
        if not (text := line.strip()) or text.startswith("#"):
            continue
        key, colon, value = (side.strip() for side in text.partition(":"))
        if not colon or key not in ("limit", "requests") or key in limits:
            raise ValueError(f"{in_quotes(text)} is not `limit: RATE` or `requests: NUMBER`")
        if value == "none":
            limits[key] = None
        elif key == "limit":
            try:
                limits[key] = quantities.rate(value)
            except ValueError as error:
                raise ValueError(f"limit: {in_quotes(value)} {error}") from None
        elif _COUNT.fullmatch(value):
            limits[key] = int(value)
        else:
            raise ValueError(f"requests: {in_quotes(value)} must be a number a second, or none")
    if "limit" not in limits:
        raise ValueError("it has no line `limit: RATE`")
    return Cap(limits["limit"], limits.get("requests"))


def render(limit: str, requests: int | None) -> bytes:
    """The file's content for a limit as people write it, such as 40Gbit/s or none, and for so many requests a
    second; None: the file does not name them, which is no cap."""
    text = f"# penstock limit RATE writes this file\nlimit: {limit}\n"
    text += f"requests: {requests}\n" if requests is not None else ""
    return text.encode().ljust(_WIDTH - 1) + b"\n"


def judged(path: Path, status: os.stat_result, owner: int) -> list[CheckResult]:
    """Whether a cap file may be believed: [] for yes, else one result that says what is wrong and what its
    owner can do. `status`: of the file, not of what a link points to; `owner`: uid of its folder's owner.

    | it is                                              | then    |
    |----------------------------------------------------|---------|
    | no plain file, or has a second name                | stop    |
    | of an account that is neither root nor the folder's| stop    |
    | writable by its group or others                    | stop    |
    | else                                               | nothing |
    """
    where, fault, mend = printable(str(path)), "", ""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        fault, mend = "is no plain file of one name", f"remove it; {ANEW}"
    elif status.st_uid not in (0, owner):
        fault = f"belongs to uid {status.st_uid}; the folder's owner is uid {owner}"
        mend = f"chown {owner} {where}, as root"
    elif status.st_mode & _OTHERS:
        fault = f"has mode {stat.S_IMODE(status.st_mode):04o}: others than its owner may write it"
        mend = f"chmod {_MODE:o} {where}, as its owner"
    if not fault:
        return []
    return [CheckResult("bandwidth cap", f"{where} {fault}", "stop", "the administrator's alone", mend)]


class CapFile:
    """The cap of a folder, followed while it changes. It only reads, and keeps the file open between reads.
    `look` and `read` are for one thread; other threads may read the attributes."""

    def __init__(self, folder: Path) -> None:
        """Nothing is read yet but the folder's owner. Raises OSError."""
        self._path, self._owner = folder / NAME, folder.stat().st_uid
        self._fd = -1
        # O_DIRECT wants a whole page of this machine, wherever it lies.
        self._page = mmap.mmap(-1, max(LONGEST, mmap.PAGESIZE))
        self.wrong = ""
        """Why the last content was not believed: a phrase for people; "" when it was."""
        self.mend = ""
        """What its owner can do about that."""
        self.cap = Cap()
        """The last one that could be believed; no cap where there is no file."""
        self.known = False
        """Whether `cap` may be gone by: false until a file was believed, or was seen not to be there."""

    def look(self) -> None:
        """Open the file by its name, which may be another's by now, and read it: a lookup, an open and a
        close. Raises OSError where the folder does not answer; the cap stays as it was."""
        try:
            fd = self._opened()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            self.wrong = f"{printable(str(self._path))} is a symbolic link, whose target others may choose"
            self.mend = ANEW
            return
        if fd < 0:
            if self._fd >= 0:
                self.wrong = f"{printable(str(self._path))} is gone: what it said last still holds"
                self.mend = ANEW
            else:
                self.wrong, self.mend, self.known = "", "", True
            return
        if results := judged(self._path, os.fstat(fd), self._owner):
            os.close(fd)
            self.wrong, self.mend = results[0].found, results[0].mend
            return
        self._close()
        self._fd = fd
        self.read()

    def _opened(self) -> int:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            # Past the caches of this node: the file is read again and again without being opened.
            return os.open(self._path, flags | os.O_DIRECT)
        except FileNotFoundError:
            return -1
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(self._path, flags)

    def read(self) -> None:
        """Read the open file again: no metadata operation. Content that makes no sense, such as half of
        what somebody is writing, changes nothing. Raises OSError."""
        if self._fd < 0:
            return
        try:
            read = os.preadv(self._fd, [self._page], 0)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # A file system that takes O_DIRECT when it opens, and not for so short a file.
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~os.O_DIRECT)
            read = os.preadv(self._fd, [self._page], 0)
        try:
            self.cap, self.wrong, self.mend, self.known = parse(self._page[:read]), "", "", True
        except ValueError as error:
            self.wrong, self.mend = f"{printable(str(self._path))}: {error}", ANEW

    def close(self) -> None:
        """Close the file and free the buffer: no call may follow."""
        self._close()
        self._page.close()

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def write(folder: Path, content: bytes) -> None:
    """Set the cap to `content`, as `render` gives it: durably, in the file that is there, so that all who
    have it open see it. A file that would not be believed (`judged`) is replaced. Raises OSError."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EACCES):
            raise
        durable.write_file(path, content, mode=_MODE)
        return
    try:
        status = os.fstat(fd)
        if status.st_mode & _OTHERS and status.st_uid == os.geteuid():
            os.fchmod(fd, _MODE)
            status = os.fstat(fd)
        if judged(path, status, folder.stat().st_uid):
            durable.write_file(path, content, mode=_MODE)
            return
        # In one write, as long as what stood there at least; what is longer is cut off after it.
        os.pwrite(fd, content[:-1].ljust(status.st_size - 1) + b"\n", 0)
        with contextlib.suppress(OSError):
            os.ftruncate(fd, len(content))
        os.fsync(fd)
    finally:
        os.close(fd)
