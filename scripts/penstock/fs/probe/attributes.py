"""Trials of what files carry beside their bytes: owner, modes, ACLs, xattrs, times, locks.

`trials.probe` calls each function by the name of its ability (`core.run_documents`), in its own
empty folder. An OSError counts as an answer (`trials.seen_error`). `flock` starts a process.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from penstock.core import posix_acl
from penstock.core.run_documents import TrialOutcome
from penstock.fs import acl_xattrs
from penstock.fs.probe.place import answered, valued
from penstock.host import proc

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.fs.probe.place import TrialFolders

_XATTRS = (65536, 32000, 16000, 8000, 4000, 2000, 1000, 900, 500, 100)
_TOO_LARGE = frozenset({errno.E2BIG, errno.ENOSPC, errno.ERANGE, errno.EDQUOT, errno.EINVAL})
_TIME_NS = 1_234_567_891_123_456_789  # an odd second, and a digit in each place behind it
_GRAINS = (1, 10**2, 10**3, 10**6, 10**9, 2 * 10**9)

LOCK_WITHIN = 10.0
_BLOCKED, _TAKEN = 10, 11
_LOCK = f"""
import fcntl, os, sys
try:
    fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit({_BLOCKED})
sys.exit({_TAKEN})
"""


def owner_kept(place: TrialFolders) -> TrialOutcome:
    """Try whether a new file belongs to this account. A server that squashes root, and an id-mapped mount,
    show another number."""
    status = os.lstat(place.file("file"))
    return answered(status.st_uid == os.geteuid(), f"they belong to uid {status.st_uid}, not {os.geteuid()}")


def create_mode(place: TrialFolders) -> TrialOutcome:
    """Try whether new files and folders get the requested mode, less this process's umask."""
    umask = proc.umask(place.proc)
    if umask is None:
        return TrialOutcome(why="the kernel does not say the umask")
    path, folder = place.work / "file", place.work / "folder"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o664))
    os.mkdir(folder, 0o775)
    return _modes_are({path: 0o664 & ~umask, folder: 0o775 & ~umask})


def chmod_kept(place: TrialFolders) -> TrialOutcome:
    """Try whether modes stay as chmod set them, as the permissions step does."""
    path, folder = place.file("file"), place.folder("folder")
    os.chmod(path, 0o440)
    os.chmod(folder, 0o750)  # noqa: S103 (as releases are)
    return _modes_are({path: 0o440, folder: 0o750})


def _modes_are(wanted: Mapping[Path, int]) -> TrialOutcome:
    """Compare modes, without the setgid bit."""
    modes = {path: stat.S_IMODE(os.lstat(path).st_mode) for path in wanted}
    wrong = [
        f"{modes[path]:04o} in place of {mode:04o}"
        for path, mode in wanted.items()
        if (modes[path] ^ mode) & ~stat.S_ISGID
    ]
    return answered(not wrong, "; ".join(wrong))


def setgid_inherited(place: TrialFolders) -> TrialOutcome:
    """Try whether new files get a setgid folder's group: another group of this account, if it has one."""
    folder = place.folder("folder")
    others = [gid for gid in os.getgroups() if gid != os.lstat(folder).st_gid]
    if others:
        os.chown(folder, -1, others[0])
    os.chmod(folder, 0o2770)  # noqa: S103 (below a closed folder)
    above = os.lstat(folder)
    if not above.st_mode & stat.S_ISGID:
        return answered(False, "a folder does not keep its setgid bit")
    (folder / "folder").mkdir()
    (folder / "file").touch()
    below, file = os.lstat(folder / "folder"), os.lstat(folder / "file")
    if not below.st_mode & stat.S_ISGID:
        return answered(False, "a folder in a folder with setgid does not get it")
    groups = {below.st_gid, file.st_gid}
    return answered(groups == {above.st_gid}, f"files get group {groups}, their folder has {above.st_gid}")


def time_resolution(place: TrialFolders) -> TrialOutcome:
    path = place.file("file")
    os.utime(path, ns=(_TIME_NS, _TIME_NS))
    kept_ns = os.lstat(path).st_mtime_ns
    for grain in _GRAINS:
        if kept_ns == _TIME_NS - _TIME_NS % grain:
            return valued(grain)
    return answered(False, f"a time that was set is off by {kept_ns - _TIME_NS} ns")


def xattr_bytes(place: TrialFolders) -> TrialOutcome:
    """Return the largest of `_XATTRS`, in bytes, that is accepted and reads back."""
    path = place.file("file")
    for size in _XATTRS:
        content = b"x" * size
        try:
            os.setxattr(path, "user.penstock", content)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise
            continue
        return valued(size) if os.getxattr(path, "user.penstock") == content else _other("xattr")
    return answered(False, f"not even {_XATTRS[-1]} bytes")


def acl(place: TrialFolders) -> TrialOutcome:
    path, wanted = place.file("file"), _acl()
    acl_xattrs.write(path, wanted)
    same = acl_xattrs.allows(acl_xattrs.read(path), wanted)
    return answered(same, "the ACL reads back as another")


def acl_inherited(place: TrialFolders) -> TrialOutcome:
    acl_xattrs.write(place.work, _acl(), acl_xattrs.DEFAULT)
    named = (posix_acl.GROUP, os.getegid())
    path, folder = place.file("file"), place.folder("folder")
    if named not in _named(acl_xattrs.read(path)):
        return answered(False, "a new file does not get the named group")
    return answered(
        named in _named(acl_xattrs.read(folder, acl_xattrs.DEFAULT)),
        "a new folder does not hand the named group on",
    )


def _acl() -> posix_acl.Acl:
    """Make an ACL: owner rwx, and r for this account's own group, whose number every mapping knows."""
    return posix_acl.made(0o740, {(posix_acl.GROUP, os.getegid()): 4})


def _named(acl: posix_acl.Acl | None) -> set[tuple[int, int]]:
    """Return tag and number of each entry."""
    return {(entry.tag, entry.number) for entry in acl or ()}


def _other(what: str) -> TrialOutcome:
    return answered(False, f"the {what} reads back as another")


def flock(place: TrialFolders) -> TrialOutcome:
    import fcntl

    with place.file("file").open("r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        command = [sys.executable, "-I", "-S", "-c", _LOCK, str(place.work / "file")]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=LOCK_WITHIN)
        except subprocess.TimeoutExpired:
            return TrialOutcome(why=f"the second process did not end within {LOCK_WITHIN:g} s")
    if done.returncode not in (_BLOCKED, _TAKEN):
        return TrialOutcome(why=f"the second process ended with {done.returncode}")
    return answered(done.returncode == _BLOCKED, "a second process took the same lock")
