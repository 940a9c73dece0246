"""The file in which an administrator sets the cap on a network link, for all elements of all runs.

It is read while elements run, and trusted by its owner and mode.

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
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.config import quantities
from penstock.core.human import in_quotes, printable
from penstock.fs import small_files

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import BandwidthConfig

NAME = "cap"
LONGEST = 4096  # bytes of the file that are read
_WIDTH = 128  # bytes of the file as `write` leaves it: one write, never seen half
_MODE = 0o644
ANEW = "its owner writes it anew: penstock limit RATE"
_COUNT = re.compile("[1-9][0-9]{0,8}", re.ASCII)
OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Cap(NamedTuple):
    """The limits for all elements together; None: no cap."""

    rate: int | None = None  # bytes a second
    requests: int | None = None  # a second

    @classmethod
    def configured(cls, link: BandwidthConfig) -> Cap:
        return cls(link.rate, link.requests)

    def lower(self, other: Cap) -> Cap:
        pairs = zip(self, other, strict=True)
        return Cap(*(min((n for n in pair if n is not None), default=None) for pair in pairs))


def parse(content: bytes) -> Cap:
    """Return the cap of a file's content. Raises ValueError with a phrase on what is accepted."""
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
    """Return the content for a limit as people write it (40Gbit/s, none) and requests a second."""
    text = f"# penstock limit RATE writes this file\nlimit: {limit}\n"
    text += f"requests: {requests}\n" if requests is not None else ""
    return text.encode().ljust(_WIDTH - 1) + b"\n"


def judged(path: Path, status: os.stat_result, owner: int) -> tuple[str, str]:
    """Return what is wrong with a cap file, and what its owner can do; "" and "" if it may be believed.

    `status`: of the file itself, not of a link's target; `owner`: uid of its folder's owner.

    | it is                                              | then    |
    |----------------------------------------------------|---------|
    | no plain file, or has a second name                | stop    |
    | of an account that is neither root nor the folder's| stop    |
    | writable by its group or others                    | stop    |
    | else                                               | nothing |
    """
    where = printable(str(path))
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return f"{where} is no plain file of one name", f"remove it; {ANEW}"
    if status.st_uid not in (0, owner):
        fault = f"{where} belongs to uid {status.st_uid}; the folder's owner is uid {owner}"
        return fault, f"chown {owner} {where}, as root"
    if status.st_mode & OTHERS:
        fault = f"{where} has mode {stat.S_IMODE(status.st_mode):04o}: others than its owner may write it"
        return fault, f"chmod {_MODE:o} {where}, as its owner"
    return "", ""


class CapFile:
    """The cap of a folder, followed while it changes: one thread looks, any may read attributes."""

    def __init__(self, folder: Path) -> None:
        """Read only the folder's owner. Raises OSError."""
        self._path, self._owner = folder / NAME, folder.stat().st_uid
        self._there = False  # a file was believed
        self.wrong = self.mend = ""  # why the last content was not believed, and what helps
        self.cap = Cap()  # the last cap that was believed; no cap without a file
        self.known = False  # whether `cap` counts: a file was believed, or seen to be absent

    def look(self) -> None:
        """Read the file anew; unbelievable content, such as a half-written file, leaves the cap as it is.
        Raises OSError where the folder does not answer."""
        where, wrong, mend = printable(str(self._path)), "", ANEW
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            self.known = True
            wrong = f"{where} is gone: what it said last still holds" if self._there else ""
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            wrong = f"{where} is a symbolic link, whose target others may choose"
        else:
            try:
                wrong, mend = judged(self._path, os.fstat(fd), self._owner)
                if not wrong:
                    self.cap, self.known, self._there = parse(os.read(fd, LONGEST)), True, True
            except ValueError as error:
                wrong, mend = f"{where}: {error}", ANEW
            finally:
                os.close(fd)
        self.wrong, self.mend = wrong, mend if wrong else ""


def write(folder: Path, content: bytes) -> None:
    """Set the cap to `render`'s `content`, durably, in the existing file: no node keeps an older name of it.
    A file that would not be believed (`judged`) is replaced. Raises OSError."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP, errno.EACCES):
            raise
        small_files.write_file(path, content, mode=_MODE)
        return
    try:
        status = os.fstat(fd)
        if judged(path, status, folder.stat().st_uid)[0]:
            small_files.write_file(path, content, mode=_MODE)
            return
        # In one write, at least as long as the old content; a longer rest is cut off after it.
        os.pwrite(fd, content[:-1].ljust(status.st_size - 1) + b"\n", 0)
        with contextlib.suppress(OSError):
            os.ftruncate(fd, len(content))
        os.fsync(fd)
    finally:
        os.close(fd)
