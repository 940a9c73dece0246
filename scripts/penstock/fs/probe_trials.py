"""Trials of a folder's file system (parts of the probe, `fs.probe`), each in its own folders. They try names,
files' bytes, and files' owners, modes, ACLs, xattrs, times and locks.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import posix_acl
from penstock.core.run_documents import NO, VALUE, YES, TrialOutcome
from penstock.fs import libc, owners
from penstock.host import kernel_facts
from penstock.host.kernel_facts import PROC

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class TrialFolders(NamedTuple):
    """The folders of a trial, which no other trial uses."""

    work: Path  # an empty folder
    # an empty folder below the argument `beside` of `probe.probe`; None if `beside` is not given
    beside: Path | None = None
    proc: str = PROC

    def file(self, name: str, content: bytes = b"") -> Path:
        """Make a file below `work`."""
        path = self.work / name
        path.write_bytes(content)
        return path

    def folder(self, name: str) -> Path:
        """Make a folder below `work`."""
        path = self.work / name
        path.mkdir()
        return path


def answered(does: bool, why: str = "") -> TrialOutcome:
    """Return the outcome `yes`, or `no` with `why`, a text on the observed behaviour."""
    return TrialOutcome(YES) if does else TrialOutcome(NO, why=why)


def valued(value: int, why: str = "") -> TrialOutcome:
    return TrialOutcome(VALUE, value, why=why)


def write_whole(fd: int, content: bytes, offset: int = 0) -> None:
    """Write all bytes, even if a single write takes only some of them."""
    view = memoryview(content)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


# Trials of names: renames, links, and allowed names.
#
# Each function has the name of the ability that it tries (`core.run_documents`). `probe.probe` calls it with
# new empty folders (`work`; some functions use `beside`, too). An OSError counts as an answer
# (`probe.seen_error`).

# lengths of names in bytes: the usual limit, then limits of encrypting and of older file systems
_LENGTHS = (255, 250, 200, 143, 100)
_TOO_LONG = frozenset({errno.ENAMETOOLONG, errno.EINVAL})
_ALONE = TrialOutcome(why="no folder beside was given")


def rename_over_file(place: TrialFolders) -> TrialOutcome:
    old, new = place.file("old", b"new"), place.file("new", b"old")
    os.rename(old, new)
    return answered(new.read_bytes() == b"new" and not os.path.lexists(old), "the name kept its old content")


def rename_over_symlink(place: TrialFolders) -> TrialOutcome:
    """Try the rename with which publish moves `current`."""
    for name in ("one", "two"):
        place.folder(name)
    old, new = place.work / "old", place.work / "new"
    os.symlink("one", new)
    os.symlink("two", old)
    os.rename(old, new)
    return answered(os.readlink(new) == "two", "the link still leads where it led")


def rename_over_empty_folder(place: TrialFolders) -> TrialOutcome:
    old, new = place.folder("old"), place.folder("new")
    (old / "file").touch()
    os.rename(old, new)
    return answered((new / "file").exists(), "the folder is as it was")


def rename_noreplace(place: TrialFolders) -> TrialOutcome:
    old, new = place.file("old", b"new"), place.file("new", b"old")
    try:
        libc.renameat2(old, new, libc.RENAME_NOREPLACE)
    except FileExistsError:
        libc.renameat2(old, place.work / "free", libc.RENAME_NOREPLACE)
        return answered(new.read_bytes() == b"old", "the existing file was changed")
    return answered(False, "it replaced the existing file")


def rename_exchange(place: TrialFolders) -> TrialOutcome:
    first, second = place.file("one", b"1"), place.file("two", b"2")
    libc.renameat2(first, second, libc.RENAME_EXCHANGE)
    return answered((first.read_bytes(), second.read_bytes()) == (b"2", b"1"), "the files were not exchanged")


def rename_between_folders(place: TrialFolders) -> TrialOutcome:
    return _moved(place.file("file", b"x"), place.folder("to") / "file")


def rename_open_between_folders(place: TrialFolders) -> TrialOutcome:
    """Try to rename an open file. BeeGFS keeps a small open file in its folder's metadata, and refuses its
    rename with EBUSY."""
    old = place.file("file", b"x")
    with old.open("rb"):
        return _moved(old, place.folder("to") / "file")


def rename_between_trees(place: TrialFolders) -> TrialOutcome:
    return _ALONE if place.beside is None else _moved(place.file("file", b"x"), place.beside / "renamed")


def _moved(old: Path, new: Path) -> TrialOutcome:
    os.rename(old, new)
    if os.path.lexists(old):
        return answered(False, "the old name stayed")
    return answered(new.read_bytes() == b"x", "the content is another one")


def link(place: TrialFolders) -> TrialOutcome:
    return _linked(place.file("file"), place.work / "second")


def link_between_folders(place: TrialFolders) -> TrialOutcome:
    return _linked(place.file("file"), place.folder("to") / "second")


def link_between_trees(place: TrialFolders) -> TrialOutcome:
    return _ALONE if place.beside is None else _linked(place.file("file"), place.beside / "linked")


def _linked(old: Path, new: Path) -> TrialOutcome:
    """Make a link, and check the new name, since BeeGFS with sysCreateHardlinksAsSymlinks silently makes a
    symbolic link."""
    os.link(old, new, follow_symlinks=False)
    if new.is_symlink():
        return answered(False, "a symbolic link was made in its place")
    first, second = os.lstat(old), os.lstat(new)
    if not os.path.samestat(first, second):
        return answered(False, "the two names have different inode numbers")
    return answered(second.st_nlink == 2, f"two names of one file, and st_nlink is {second.st_nlink}")


def exclusive_create(place: TrialFolders) -> TrialOutcome:
    path = place.work / "file"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    os.close(os.open(path, flags, 0o600))
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return answered(True)
    return answered(False, "a second one was created under the same name")


def open_unlink(place: TrialFolders) -> TrialOutcome:
    path = place.file("file", b"x")
    with path.open("rb") as stream:
        path.unlink()
        if stream.read() != b"x":
            return answered(False, "its content was gone")
        left = os.listdir(place.work)
        return answered(not left, f"the file got another name: {', '.join(left)}")


def inode_stable(place: TrialFolders) -> TrialOutcome:
    path, renamed = place.file("file"), place.work / "renamed"
    with path.open("rb") as stream:
        numbers = {os.fstat(stream.fileno()).st_ino}
    numbers.add(os.lstat(path).st_ino)
    os.rename(path, renamed)
    numbers.add(os.lstat(renamed).st_ino)
    return answered(len(numbers) == 1, "a file showed several inode numbers")


def name_bytes(place: TrialFolders) -> TrialOutcome:
    """Return the largest length in `_LENGTHS` (bytes of a name) with which a file can be created."""
    for length in _LENGTHS:
        try:
            place.file("n" * length)
        except OSError as error:
            if error.errno not in _TOO_LONG:
                raise
            continue
        return valued(length)
    return answered(False, f"no name of {_LENGTHS[-1]} bytes can be created")


def name_not_utf8(place: TrialFolders) -> TrialOutcome:
    name = b"\xff\xfe\xe9"
    place.file(os.fsdecode(name))
    listed = os.listdir(os.fsencode(place.work))
    return answered(listed == [name], f"the name was changed, to {listed}")


def case_sensitive(place: TrialFolders) -> TrialOutcome:
    place.file("Name", b"1")
    return answered(
        not (place.work / "name").exists(), "a name in small letters leads to the file in capitals"
    )


# Trials of files' bytes: durability, direct reads, reservations, holes. `probe.probe` calls these functions
# in the same way as the trials of names.

RESERVED = 1 << 20
DIRECT = 64 << 10
ALIGNMENTS = (1, 512, 4096, DIRECT)
SYNCFS_WITHIN = 0.2  # seconds that syncfs, which waits for the writes of all users, may take


def fsync_file(place: TrialFolders) -> TrialOutcome:
    with place.file("file", b"x").open("rb") as stream:
        os.fsync(stream.fileno())
    return answered(True)


def fsync_folder(place: TrialFolders) -> TrialOutcome:
    """Try to sync a folder. On BeeGFS the call succeeds without doing anything, since the servers already
    have the names."""
    place.file("file")
    fd = os.open(place.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return answered(True)


def syncfs(place: TrialFolders) -> TrialOutcome:
    """Try whether syncfs succeeds. Whether it makes data durable cannot be tried; the table of file systems
    (`fs.kinds`) states it."""
    place.file("file", b"x")
    fd = os.open(place.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    failed: list[OSError] = []

    def call() -> None:
        try:
            libc.syncfs(fd)
        except OSError as error:
            failed.append(error)
        finally:
            os.close(fd)

    caller = threading.Thread(target=call, name="syncfs", daemon=True)
    caller.start()
    caller.join(SYNCFS_WITHIN)
    if caller.is_alive():
        return TrialOutcome(why=f"it had not returned after {SYNCFS_WITHIN:g} s: others write, too")
    if failed:
        raise failed[0]
    return answered(True)


def direct_alignment(place: TrialFolders) -> TrialOutcome:
    """Return the smallest of `ALIGNMENTS` with which a direct read returns the file's bytes.

    | a read fails                         | with                                  | then                   |
    |--------------------------------------|---------------------------------------|------------------------|
    | with a smaller alignment             | any errno: EINVAL from the kernel, or | the next larger        |
    |                                      | EREMOTEIO from BeeGFS' servers        | alignment is tried     |
    | with the largest alignment, also of  | any errno                             | that errno is the      |
    | offset, length and memory            |                                       | outcome                |
    """
    content = os.urandom(DIRECT)
    path = place.file("file", content)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    buffer = mmap.mmap(-1, 2 * DIRECT)
    view = memoryview(buffer)
    try:
        for step in ALIGNMENTS:
            # Offset, length and place in memory are multiples of `step`, but not of the next alignment.
            offset = step if step < DIRECT else 0
            target = view[step : 2 * step] if step < DIRECT else view[:step]
            try:
                count = os.preadv(fd, [target], offset)
            except OSError:
                if step == ALIGNMENTS[-1]:
                    raise
                continue
            finally:
                got = bytes(target)
                target.release()
            if got[:count] != content[offset : offset + count] or count != step:
                return answered(False, f"a read of {step} bytes brought others than were written")
            return valued(step)
        raise AssertionError("the last try returns or raises")
    finally:
        view.release()
        buffer.close()
        os.close(fd)


def fallocate(place: TrialFolders) -> TrialOutcome:
    with place.file("file").open("r+b") as stream:
        libc.fallocate(stream.fileno(), RESERVED)
        status = os.fstat(stream.fileno())
    if status.st_size != RESERVED:
        return answered(False, f"it succeeded, and the file has {status.st_size} bytes")
    taken = status.st_blocks * 512
    return answered(taken >= RESERVED, f"it succeeded, and {taken} of {RESERVED} bytes are reserved")


def reflink(place: TrialFolders) -> TrialOutcome:
    """Try a reflink between two folders, as it is made from one release to the next."""
    old, new = place.file("file", b"x" * DIRECT), place.folder("to") / "file"
    with old.open("rb") as first, new.open("xb") as second:
        libc.reflink(second.fileno(), first.fileno())
    if old.stat().st_ino == new.stat().st_ino:
        return answered(False, "the two files are one inode")
    return answered(new.read_bytes() == b"x" * DIRECT, "the content is another one")


def tmpfile(place: TrialFolders) -> TrialOutcome:
    fd = os.open(place.work, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    named = place.work / "named"
    try:
        write_whole(fd, b"x")
        # The source's path is relative to a folder's descriptor, since without one Python calls link(2),
        # which follows no link.
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.link(f"{place.proc}/self/fd/{fd}", named, src_dir_fd=root, follow_symlinks=True)
        finally:
            os.close(root)
    finally:
        os.close(fd)
    return answered(named.read_bytes() == b"x", "the named file has other content")


def holes(place: TrialFolders) -> TrialOutcome:
    """Try whether a file of 1 MiB with only a block of data in its middle has holes on the disk."""
    fd = _holed(place)
    try:
        os.fsync(fd)
        taken = os.fstat(fd).st_blocks * 512
        if taken >= RESERVED:
            return answered(False, f"the file takes {taken} bytes")
        first = os.lseek(fd, 0, os.SEEK_DATA)
        return answered(0 < first <= RESERVED // 2, f"its data are said to begin at byte {first}")
    finally:
        os.close(fd)


def holes_before_writeback(place: TrialFolders) -> TrialOutcome:
    """Try whether written bytes are reported as data before write-back. If they were reported as a hole, a
    copy would omit them."""
    fd = _holed(place)
    try:
        first = os.lseek(fd, RESERVED // 2, os.SEEK_DATA)
        return answered(first == RESERVED // 2, f"the bytes written are said to begin at {first}")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return answered(False, "the bytes written are said to be a hole")
    finally:
        os.close(fd)


def _holed(place: TrialFolders) -> int:
    fd = os.open(place.work / "file", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, RESERVED)
        write_whole(fd, b"x" * 4096, RESERVED // 2)
    except BaseException:
        os.close(fd)
        raise
    return fd


# Trials of files' owners, modes, ACLs, xattrs, times and locks. `probe.probe` calls these functions in the
# same way as the trials of names. `flock` starts a process.

_XATTRS = (65536, 32000, 16000, 8000, 4000, 2000, 1000, 900, 500, 100)
_TOO_LARGE = frozenset({errno.E2BIG, errno.ENOSPC, errno.ERANGE, errno.EDQUOT, errno.EINVAL})
# a time with an odd number of seconds, and a digit other than 0 at each place of the fraction
_TIME_NS = 1_234_567_891_123_456_789
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
    """Try whether a new file belongs to this account. It belongs to another if the server squashes root, or
    the mount is id-mapped."""
    status = os.lstat(place.file("file"))
    return answered(status.st_uid == os.geteuid(), f"they belong to uid {status.st_uid}, not {os.geteuid()}")


def create_mode(place: TrialFolders) -> TrialOutcome:
    """Try whether new files and folders get the requested mode without the bits of this process's umask."""
    umask = kernel_facts.umask(place.proc)
    if umask is None:
        return TrialOutcome(why="the kernel does not say the umask")
    path, folder = place.work / "file", place.work / "folder"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o664))
    os.mkdir(folder, 0o775)
    return _modes_are({path: 0o664 & ~umask, folder: 0o775 & ~umask})


def chmod_kept(place: TrialFolders) -> TrialOutcome:
    """Try whether the modes that the permissions step sets by chmod are kept."""
    path, folder = place.file("file"), place.folder("folder")
    os.chmod(path, 0o440)
    os.chmod(folder, 0o750)  # noqa: S103 (the mode of releases)
    return _modes_are({path: 0o440, folder: 0o750})


def _modes_are(wanted: Mapping[Path, int]) -> TrialOutcome:
    """Compare modes, except their setgid bits."""
    modes = {path: stat.S_IMODE(os.lstat(path).st_mode) for path in wanted}
    wrong = [
        f"{modes[path]:04o} in place of {mode:04o}"
        for path, mode in wanted.items()
        if (modes[path] ^ mode) & ~stat.S_ISGID
    ]
    return answered(not wrong, "; ".join(wrong))


def setgid_inherited(place: TrialFolders) -> TrialOutcome:
    """Try whether new files get a setgid folder's group. The trial uses another group of this account, if it
    has any."""
    folder = place.folder("folder")
    others = [gid for gid in os.getgroups() if gid != os.lstat(folder).st_gid]
    if others:
        os.chown(folder, -1, others[0])
    os.chmod(folder, 0o2770)  # noqa: S103 (below a folder that is closed to others)
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
    """Return the largest size in `_XATTRS` (bytes of an xattr) that is accepted and read back unchanged."""
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
    owners.write_acl(path, wanted)
    same = owners.acl_allows(owners.read_acl(path), wanted)
    return answered(same, "the ACL reads back as another")


def acl_inherited(place: TrialFolders) -> TrialOutcome:
    owners.write_acl(place.work, _acl(), owners.DEFAULT)
    named = (posix_acl.GROUP, os.getegid())
    path, folder = place.file("file"), place.folder("folder")
    if named not in _named(owners.read_acl(path)):
        return answered(False, "a new file does not get the named group")
    return answered(
        named in _named(owners.read_acl(folder, owners.DEFAULT)),
        "a new folder does not hand the named group on",
    )


def _acl() -> posix_acl.Acl:
    """Make an ACL with rwx for the owner and r for this account's own group, which every id mapping
    includes."""
    return posix_acl.made(0o740, {(posix_acl.GROUP, os.getegid()): 4})


def _named(acl: posix_acl.Acl | None) -> set[tuple[int, int]]:
    """Return the tag and number of each entry of the ACL."""
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
