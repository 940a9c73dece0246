"""Small JSON files by which accounts that share a target tell each other something: notices and postings.

| file                     | lies in                | written by  | a reader trusts              | mode |
|--------------------------|------------------------|-------------|------------------------------|------|
| a notice                 | a folder that its      | the owner   | its content, whichever       | 0644 |
|                          | owner alone may write  |             | account the file belongs to  |      |
| a posting: one account's | a folder that many may | any account | that its maker says so       | 0644 |
| word to all              | write, sticky (1777)   |             |                              |      |

What the last audit said (`dataset.verdicts`) and who stages now (`dataset.staging_notice`) are notices.
Readers' pins (`dataset.pins`) are postings. The mark of a removal (`keep.retention.removals`) is a notice
that is made as a posting is: one process has it.

This module makes, replaces and removes these files, and makes their folders with mode, group and ACL. What
was written or removed is durable when the function returns (but for `touch`).

A notice is trusted because nobody but its folder's owner and root can make one there. The account of the file
itself is not compared: after a restore by root, or a partial chown for a new owner, the gate of a release
must neither close nor forget the findings that the file holds.

Whose a posting is, the kernel says (`st_uid` of the open file), never its name or its content. It is made by
O_EXCL, so of several accounts one has a name; nobody but its maker can change, rename or remove it (the
folder is sticky). What is no plain file, or is too long, is none, and counted; so is a further name of a file
that has one in the folder. A name elsewhere, as a backup by hard links gives it, changes nothing: a reader's
pin still holds its release. A posting whose content is not whole (its maker is writing it, or died) still
holds its name: its `value` is None.

What these files say is for people, and for decisions that cost little when they are wrong: quota and modes
enforce, files ask. A folder's listing may be some seconds old on another node, O_EXCL never is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.documents import bounded_json
from penstock.core.errors import FailedError
from penstock.fs import acl_xattrs, durable, plain_files
from penstock.fs.errno_map import PASSING, printable
from penstock.fs.safe_open import EXHAUSTED, OPEN_FOLDER, set_owner_mode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.posix_acl import Acl

READABLE = 0o644
FOLDER_OF_OWNER = 0o755
FOLDER_OF_ALL = 0o1777
OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
LONGEST = 1 << 16
"""Bytes of a posting that is read; no posting is longer."""
UNANSWERED = (PASSING | EXHAUSTED) - {errno.EAGAIN, errno.EBUSY}
"""Errors after which a posting may be there all the same. EAGAIN is none of them: an account can have it
raised for its own file, by a lease."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Posting(NamedTuple):
    """One account's word to all others."""

    name: str
    uid: int
    """Who made it."""
    made: float
    """Its modification time, in seconds since the epoch, by the file system's clock."""
    value: Any
    """None: it is not whole."""


class Postings(NamedTuple):
    """What lies in a folder that many may write."""

    posted: list[Posting]
    """By name."""
    others: int
    """How many names had no posting: no plain file, too long, not readable, or removed meanwhile."""


def write_notice(path: Path, value: Any) -> None:
    """Make or replace a notice, whole; its folder is made where it is missing. By the owner alone. Raises
    OSError."""
    durable.make_dirs(path.parent, FOLDER_OF_OWNER)
    durable.write_json(path, value, mode=READABLE)


def read_notice(path: Path) -> bytes:
    """The content of a notice, whichever account wrote it. Raises FileNotFoundError, OSError; FailedError for
    what is no plain file, or too large."""
    try:
        return plain_files.read(path)
    except plain_files.NotPlainError as error:
        raise FailedError(
            "a file for readers cannot be read",
            where=printable(str(path)),
            why=str(error),
            hint="move it away; the owner's next audit writes it anew",
        ) from None


def forget_notice(path: Path) -> None:
    """Remove a notice, where there is one. Raises OSError."""
    if os.path.lexists(path):
        path.unlink()
        durable.fsync_dir(path.parent)


def make_folder_as_above(path: Path) -> None:
    """Make a folder in which every account may post that may write in the folder above, and change its own
    postings alone: with the mode and group of that one, and sticky where its group or others may write (so
    1777 in a folder like /tmp). Raises OSError; FailedError where something stands there that others may
    empty."""
    above = stat.S_IMODE(path.parent.stat().st_mode) & (stat.S_ISGID | FOLDER_OF_ALL)
    durable.make_dirs(path, above | stat.S_ISVTX if above & OF_OTHERS else above)
    status = path.lstat()
    alone = not status.st_mode & OF_OTHERS
    if not stat.S_ISDIR(status.st_mode) or not (alone or status.st_mode & stat.S_ISVTX):
        raise FailedError(
            "a folder of many accounts is not safe",
            where=printable(str(path)),
            why=f"mode {stat.S_IMODE(status.st_mode):04o}: others may remove what this account makes in it",
            hint=f"chmod {FOLDER_OF_ALL:o} {path}, as its owner",
        )


def make_folder_for_readers(path: Path, like: Path) -> None:
    """Make a folder in which those may post who may read the folder `like`: its owner, its group, everybody,
    and the users and groups that its ACL names, each where that may read; or give the folder that stands
    there these rights. Sticky: each changes its own postings alone. Raises OSError; FailedError for what is
    no folder of this account."""
    durable.make_dirs(path, 0o700)
    status, acl = like.stat(), _acl(like)
    # With an ACL the group bits of the mode are its mask.
    mode = 0o1700 | sum(7 * bit for bit in (0o010, 0o001) if status.st_mode & (bit << 2))
    fd = os.open(path, OPEN_FOLDER)
    try:
        there = os.fstat(fd)
        if there.st_uid != os.geteuid():
            raise FailedError(
                "a folder for readers is another account's", where=printable(str(path)), hint="move it away"
            )
        if _give_rights(fd, mode, status.st_gid, there.st_mode & stat.S_ISGID, acl):
            os.fsync(fd)
    finally:
        os.close(fd)


def post(folder: Path, name: str, value: Any) -> bool:
    """Make a posting under a name that nobody has; False where an account has that name. On an error the name
    is free again. A `value` longer than LONGEST would be read by nobody. Raises OSError."""
    try:
        fd = os.open(folder / name, _NEW, READABLE)
    except FileExistsError:
        return False
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, READABLE)
            file.write(json.dumps(value, sort_keys=True, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(fd)
        durable.fsync_dir(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
        raise
    return True


def touch(folder: Path, name: str) -> None:
    """Set the time of a posting or notice to now, by the file system's clock: a sign that its process lives.
    Raises FileNotFoundError, OSError."""
    os.utime(folder / name, follow_symlinks=False)


def withdraw(folder: Path, name: str) -> None:
    """Remove a posting of this account, where there is one. Raises OSError, also for another account's."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / name)
    durable.fsync_dir(folder)


def posting_names(folder: Path) -> list[str]:
    """The names of all accounts' postings, in order, none of them opened; none where there is no such folder.
    Names with a leading dot are passed over. Raises OSError."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []


def postings(folder: Path, names: Sequence[str] | None = None) -> Postings:
    """Those of these names, of all accounts; None: all that `posting_names` names. Raises OSError, also where
    the file system did not answer for one of them."""
    names = posting_names(folder) if names is None else names
    met: set[int] = set()
    read = [_posting(folder, name, met) for name in names]
    posted = [posting for posting in read if posting is not None]
    return Postings(posted, len(names) - len(posted))


def _acl(folder: Path) -> Acl | None:
    try:
        return acl_xattrs.read(folder)
    except OSError as error:
        if error.errno in acl_xattrs.NONE_KEPT:
            return None
        raise


def _give_rights(fd: int, mode: int, gid: int, setgid: int, acl: Acl | None) -> bool:
    """Give a folder this mode and group, and to each entry of the ACL that may read all rights. Returns
    whether anything was changed."""
    changed = set_owner_mode(fd, mode | setgid, gid)
    if acl is not None:
        wanted = tuple(one._replace(bits=7 if one.bits & 4 else 0) for one in acl)
        if acl_xattrs.read(fd) != wanted:
            acl_xattrs.write(fd, wanted)
            set_owner_mode(fd, os.fstat(fd).st_mode & 0o777 | 0o1000 | setgid, None)
            changed = True
    return changed


def _posting(folder: Path, name: str, met: set[int]) -> Posting | None:
    """None where the name has no posting, or its file is one of those `met` before."""
    try:
        fd = plain_files.descriptor(folder / name)
    except OSError as error:
        if error.errno in UNANSWERED:
            raise
        # Withdrawn since, no plain file, or of a mode that keeps it from readers.
        return None
    status = os.fstat(fd)
    if status.st_ino in met or status.st_size > LONGEST:
        os.close(fd)
        return None
    met.add(status.st_ino)
    try:
        value = bounded_json.loads(plain_files.content(fd, LONGEST))
    except ValueError:
        value = None
    return Posting(name, status.st_uid, status.st_mtime, value)
