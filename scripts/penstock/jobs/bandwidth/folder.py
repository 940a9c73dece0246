"""The folder of the cap on a network link, and the operations of the protocol on it.

The cap is divided among all elements that copy over the link; a slot is one of the equal parts that it is cut
into. `share` carries out operations here for one element; preflight and `penstock limit` check or make the
folder. This module makes, renames, reads and removes small files in `slots/`; it does not touch `cap`.

| in `bandwidth.folder` | is                                    | is written by                         |
|-----------------------|---------------------------------------|---------------------------------------|
| `cap`                 | the cap that holds now (`cap_file`)   | the folder's owner, the administrator |
| `slots/`              | who has which share (`slots`)         | every account that stages; sticky     |
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from itertools import chain, islice
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.text import printable
from penstock.fs import plain_files
from penstock.jobs.bandwidth.holder import ListFolder, LookForCap, Make, ReadFile, Remove, Rename, Tidy
from penstock.jobs.bandwidth.slots import parse_beat, superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.jobs.bandwidth.holder import Operation

SLOTS_FOLDER = "slots"
KEPT = 3600.0
"""Seconds for which older generations stay after a later one was made, by the file system's own times: a
listing that is that late, or an order that is held up for so long and then used, would give a slot to two."""
_STICKY = 0o1777
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MODE = 0o644
_MARK = re.compile("mark[.][0-9a-f]{16}", re.ASCII)


def _judge(folder: Path) -> None:
    """Raises PreflightError for a folder that is not there, or that others may write."""
    try:
        above = folder.stat()
    except FileNotFoundError:
        raise _unusable(folder, "there is no such folder") from None
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from None
    if above.st_mode & _OTHERS and not above.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(above.st_mode)
        raise PreflightError(
            "the bandwidth folder is not safe",
            where=printable(str(folder)),
            why=f"mode {mode:04o}: others than its owner may replace the cap file in it",
            hint=f"chmod 755 {printable(str(folder))}, as its owner",
        )


def prepared(folder: Path) -> Path:
    """The path of the folder of the slots, which is made where it is missing and this account may make it;
    any account may then make files there. Raises PreflightError for a folder that cannot be used, with what
    to do."""
    _judge(folder)
    slots = folder / SLOTS_FOLDER
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(slots, 0o700)
            os.chmod(slots, _STICKY)
        os.listdir(slots)
        if not os.access(slots, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(0, "this account may not write there")
    except OSError as error:
        raise _unusable(slots, error.strerror or str(error)) from None
    return slots


def looked_at(folder: Path) -> None:
    """Check the folder: raises as `prepared`, and changes nothing. A folder without `slots` passes where this
    account can make it."""
    _judge(folder)
    slots = folder / SLOTS_FOLDER
    try:
        slots.lstat()
    except FileNotFoundError:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _unusable(folder, "it has no folder `slots` yet") from None
        return
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from None
    prepared(folder)


@contextlib.contextmanager
def marked(folder: Path) -> Iterator[str]:
    """The name of a new file in `slots`, which stays within this context: another node that sees the file
    sees this folder, and not another one at the same path. "" where none could be made. Raises nothing of its
    own."""
    name, path = "", folder / SLOTS_FOLDER / f"mark.{secrets.token_hex(8)}"
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE))
        name = path.name
    try:
        yield name
    finally:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(path)


def has_mark(folder: Path, mark: str) -> bool:
    """Whether the folder, as this node sees it, is the one in which `marked` made the file `mark`."""
    return os.path.lexists(folder / SLOTS_FOLDER / mark)


def _unusable(path: Path, why: str) -> PreflightError:
    return PreflightError(
        "the bandwidth folder cannot be used",
        where=printable(str(path)),
        why=why,
        hint="the link's administrator makes it by `penstock limit RATE`; each account that stages must be "
        "able to list and write its folder `slots`, on each node",
    )


class SlotFolder:
    """Carries out the operations of `jobs.bandwidth.holder` in the folder `slots`. `look_for_cap` is called
    for a `LookForCap`."""

    def __init__(self, slots: Path, look_for_cap: Callable[[], None]) -> None:
        self._slots, self._look_for_cap = slots, look_for_cap

    def carry_out(self, operation: Operation) -> object:
        """Do one operation, and return its answer, as the operation's class says. A `Sleep` is not done here.
        Raises OSError."""
        match operation:
            case ListFolder():
                return os.listdir(self._slots)
            case Make(name, content):
                return self._make(name, content)
            case Rename(old, new):
                try:
                    os.rename(self._slots / old, self._slots / new)
                except FileNotFoundError:
                    return False
                return True
            case ReadFile(name):
                try:
                    return _content(self._slots / name)
                except FileNotFoundError:
                    return b""
            case Remove(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._slots / name)
            case LookForCap():
                self._look_for_cap()
            case Tidy(names, beat, most):
                self.tidy(names, beat, most)
        return None

    def _make(self, name: str, content: bytes) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self._slots / name, flags, _MODE)
        except FileExistsError:
            return False
        # Made it is, whatever becomes of the content: that only lets others say whose it is, and see sooner
        # that its process has ended. Over a quota of blocks a name can be made, and nothing be written.
        with contextlib.suppress(OSError):
            try:
                os.fchmod(fd, _MODE)
                if content:
                    os.write(fd, content)
            finally:
                os.close(fd)
        return True

    def tidy(self, names: list[str], beat: str, most: int) -> None:
        """Remove this account's files that mean nothing any more: generations below one that is older than
        KEPT, beats that stood still for as long, and marks. `beat` was just made or renamed: its time is now,
        by the file system's clock. At most `most` files are removed. Raises OSError where `beat` is gone."""
        now = (self._slots / beat).stat().st_ctime
        left = (name for name in names if name != beat and (_MARK.fullmatch(name) or parse_beat(name)))
        old = chain(
            superseded(names, lambda name: self._is_old(name, now)),
            (name for name in left if self._is_old(name, now)),
        )
        for name in islice(old, most):
            self._forget(name)

    def _is_old(self, name: str, now: float) -> bool:
        with contextlib.suppress(OSError):
            return now - (self._slots / name).stat().st_ctime > KEPT
        return False

    def _forget(self, name: str) -> None:
        # In a sticky folder another account's files stay: its own holders remove them.
        with contextlib.suppress(OSError):
            os.unlink(self._slots / name)


def _content(path: Path) -> bytes:
    with plain_files.opened(path) as file:
        return file.read(1 << 16)
