"""Small JSON files with which accounts that share a target inform each other: notices and postings.

| file                     | folder                 | written by  | a reader trusts              | mode |
|--------------------------|------------------------|-------------|------------------------------|------|
| a notice                 | only its owner may     | the owner   | its content, whichever       | 0644 |
|                          | write in it            |             | account the file belongs to  |      |
| a posting: a message of  | many accounts may      | any account | that its maker says so       | 0644 |
| one account to all       | write, sticky (1777)   |             |                              |      |

Notices report the last audit (`dataset.verdicts`) and who stages now (`dataset.staging_notice`). Postings are
readers' pins (`dataset.pins`). The mark of a removal (`keep.removals`) is a notice made like a posting, so
that only one process can make it. All functions except `touch` are durable on return.

A notice is trusted because only its folder's owner and root can make a file there. The file's account does
not count: a restore by root, or a partial chown, must neither close a gate nor forget the findings.

The kernel states who made a posting (`st_uid` of the open file); its name and content prove nothing. O_EXCL
gives a name to one account, and the sticky folder keeps others from changing the file. A file that is not
plain, is too long, or is a further name of a file in the folder is no posting. Such a file is only counted. A
hard link elsewhere, as backups make, does not matter. A posting is incomplete while its maker writes it, or
if its maker died. An incomplete posting keeps its name, and its `value` is None.

Postings are for people, and for decisions that cost little when wrong: quotas and modes enforce a rule, files
only ask. Another node's listing of a folder may be some seconds old, but O_EXCL never is.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core import typed_json
from penstock.core.errors import FailedError
from penstock.fs import owners, small_files
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
LONGEST = 1 << 16  # bytes in a posting, at most
# Errors after which a posting may still exist. EAGAIN is not among them, since an account can cause it for
# its own file by a lease.
UNANSWERED = (PASSING | EXHAUSTED) - {errno.EAGAIN, errno.EBUSY}
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Posting(NamedTuple):
    """A message of one account to all others."""

    name: str
    uid: int  # the account that made the posting
    made: float  # the file's modification time, in seconds since the epoch, by the file system's clock
    value: Any  # the message; None if the posting is incomplete


class Postings(NamedTuple):
    """The postings in a folder in which many accounts may write."""

    posted: list[Posting]  # the postings, sorted by name
    # number of names that are no postings: files not plain, too long, unreadable, or removed meanwhile
    others: int


def write_notice(path: Path, value: Any) -> None:
    """Make or replace a whole notice, and make its folder."""
    small_files.make_dirs(path.parent, FOLDER_OF_OWNER)
    small_files.write_json(path, value, mode=READABLE)


def read_notice(path: Path) -> bytes:
    """Read a notice of any account. Raises FailedError for a file that is not plain, or too large."""
    try:
        return small_files.read(path)
    except small_files.NotPlainError as error:
        raise FailedError(
            "a file for readers cannot be read",
            where=printable(str(path)),
            why=str(error),
            hint="move it away; the owner's next audit writes it anew",
        ) from None


def forget_notice(path: Path) -> None:
    """Remove a notice, if it exists. Raises OSError."""
    if os.path.lexists(path):
        path.unlink()
        small_files.fsync_dir(path.parent)


def make_folder_as_above(path: Path) -> None:
    """Make a folder for postings of all accounts that may write in the folder above.

    The new folder takes the mode and group of the folder above. If group or others may write, it is sticky
    (1777 in a folder like /tmp), so that each account can change only its own postings. Raises FailedError if
    the path is no folder, or others may remove files in it.
    """
    above = stat.S_IMODE(path.parent.stat().st_mode) & (stat.S_ISGID | FOLDER_OF_ALL)
    small_files.make_dirs(path, above | stat.S_ISVTX if above & OF_OTHERS else above)
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
    """Make or correct a sticky folder in which all accounts that may read the folder `like` may post.

    The modes and ACL of `like` say whether owner, group, everybody, and the ACL's users and groups may read
    it. Raises FailedError if the folder belongs to another account.
    """
    small_files.make_dirs(path, 0o700)
    status, acl = like.stat(), _acl(like)
    # With an ACL the group bits of the mode are its mask.
    mode = 0o1700 | sum(7 * bit for bit in (0o010, 0o001) if status.st_mode & (bit << 2))
    fd = os.open(path, OPEN_FOLDER)
    try:
        status_now = os.fstat(fd)
        if status_now.st_uid != os.geteuid():
            raise FailedError(
                "a folder for readers is another account's", where=printable(str(path)), hint="move it away"
            )
        if _give_rights(fd, mode, status.st_gid, status_now.st_mode & stat.S_ISGID, acl):
            os.fsync(fd)
    finally:
        os.close(fd)


def post(folder: Path, name: str, value: Any) -> bool:
    """Make a posting. Returns False if a posting has that name. On an error, the name is free again."""
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
        small_files.fsync_dir(folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / name)
        raise
    return True


def touch(folder: Path, name: str) -> None:
    """Set a posting's or notice's time to now, by the file system's clock, since its process still runs."""
    os.utime(folder / name, follow_symlinks=False)


def withdraw(folder: Path, name: str) -> None:
    """Remove a posting of this account, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / name)
    small_files.fsync_dir(folder)


def posting_names(folder: Path) -> list[str]:
    """Return the sorted names of all postings, without opening any file. Skips dot files."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []


def postings(folder: Path, names: Sequence[str] | None = None) -> Postings:
    """Read the postings of these names, or all. Raises OSError if the file system is unresponsive."""
    names = posting_names(folder) if names is None else names
    met: set[int] = set()
    read = [_posting(folder, name, met) for name in names]
    posted = [posting for posting in read if posting is not None]
    return Postings(posted, len(names) - len(posted))


def _acl(folder: Path) -> Acl | None:
    try:
        return owners.read_acl(folder)
    except OSError as error:
        if error.errno in owners.NONE_KEPT:
            return None
        raise


def _give_rights(fd: int, mode: int, gid: int, setgid: int, acl: Acl | None) -> bool:
    """Give a folder mode and group, and full rights to each ACL entry that may read. Returns whether it
    changed."""
    changed = set_owner_mode(fd, mode | setgid, gid)
    if acl is not None:
        wanted = tuple(entry._replace(bits=7 if entry.bits & 4 else 0) for entry in acl)
        if owners.read_acl(fd) != wanted:
            owners.write_acl(fd, wanted)
            set_owner_mode(fd, os.fstat(fd).st_mode & 0o777 | 0o1000 | setgid, None)
            changed = True
    return changed


def _posting(folder: Path, name: str, met: set[int]) -> Posting | None:
    """Read a posting, and add its inode to `met`. Returns None for no posting, or an inode in `met`."""
    try:
        fd = small_files.descriptor(folder / name)
    except OSError as error:
        if error.errno in UNANSWERED:
            raise
        # The posting was withdrawn, is no plain file, or has a mode that keeps readers out.
        return None
    status = os.fstat(fd)
    if status.st_ino in met or status.st_size > LONGEST:
        os.close(fd)
        return None
    met.add(status.st_ino)
    try:
        value = typed_json.bounded_loads(small_files.content(fd, LONGEST))
    except ValueError:
        value = None
    return Posting(name, status.st_uid, status.st_mtime, value)
