"""Brings files into staging that already are on the target. Files of a release are linked, files of abandoned
stagings are linked or moved.

In the release, only the file's link count and ctime change. Sizes are bytes, times are nanoseconds since the
epoch, and paths are relative to `data`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs import owners
from penstock.fs.safe_open import storage_error
from penstock.target.staging_folder import split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.target.staging_folder import StagingFolder

# Errors of linking after which the file is copied instead. Any other error is raised.
_UNLINKABLE = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTDIR}
)


# Units, in ns, in which file systems keep times. Most keep nanoseconds. NTFS and SMB keep units of 100 ns,
# and some of FUSE and NFS micro- or milliseconds. Lustre, BeeGFS and small inodes of ext4 keep seconds.
_GRAINS = (1, 100, 10**3, 10**6, 10**9)


class Abandoned(NamedTuple):
    """The tree of another run's staging."""

    data: Path
    # The inode of `data` when the run was planned. A folder with another inode is another tree, out of which
    # no file is moved. 0 means that the inode is unknown; files are then only linked.
    inode: int = 0


class Linked(NamedTuple):
    """A file that was linked."""

    inode: int
    before_ns: int  # the file's ctime before the link changed it; 0 if an earlier attempt made the link
    after_ns: int  # the file's ctime after the link


def keeps(seen_ns: int, wanted_ns: int) -> bool:
    """Return whether a file whose time was set to `wanted_ns` may show `seen_ns`, which is equal or rounded
    down to a unit of `_GRAINS`."""
    return any(seen_ns == wanted_ns - wanted_ns % grain for grain in _GRAINS)


_OF_A_LINK = 2  # number of metadata operations for a link: the link, and a rename
_STANDING = Linked(0, 0, 0)  # stands for a link whose name already exists


class Linker:
    """Links files of published releases into staging, and takes over files of abandoned stagings. For one
    thread.

    Methods raise FailedError if this attempt is fenced (`StagingFolder.look`), and errors according to
    `safe_open.storage_error`.
    """

    def __init__(self, staging: StagingFolder) -> None:
        self._staging = staging

    def link(self, base_data: Path, path: str, size: int, mtime_ns: int, held_as: str = "") -> bool:
        """Hard-link an unchanged file of a release, in which its path is `held_as`, or `path` if that is "".

        Returns False if it must be copied. A file shared with another release must never be changed. So its
        size, time (as far as the target keeps it), mode, group and ACL must be exactly those wanted. A link
        changes the inode's ctime in both releases.
        """
        self._staging.before(path, _OF_A_LINK)
        return self._link(base_data, path, size, mtime_ns, held_as)

    def _link(self, base_data: Path, path: str, size: int, mtime_ns: int, held_as: str = "") -> bool:
        self._staging.look()
        parent, name = split(path)
        old_parent, old = split(held_as or path)
        try:
            base = self._staging.base(base_data)[1].get(old_parent)
            status = os.stat(old, dir_fd=base, follow_symlinks=False)
            if not self._linkable(status, path, size, mtime_ns) or not self._same_acl(base, old, path):
                return False
            folder = self._staging.enter(parent, make=True)
            temporary = self._staging.temporary()
            os.link(old, temporary, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return False
            raise storage_error(error, "cannot link", path) from None
        try:
            made = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
            # BeeGFS can be configured to make symbolic links instead, without an error.
            same = (made.st_dev, made.st_ino) == (status.st_dev, status.st_ino)
            if same:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                if self._staging.fsync:
                    self._staging.touched.add(parent)
            return same
        except OSError as error:
            raise storage_error(error, "cannot link", path) from None
        finally:
            # If both names already were one file, rename does nothing and leaves the temporary name.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

    def held(self, base_data: Path, path: str, size: int, mtime_ns: int | None) -> int | None:
        """Open an unchanged file of a release for reading. The caller closes the descriptor.

        Returns None if there is no readable regular file of this size and, if given, this time.
        """
        self._staging.look()
        parent, name = split(path)
        try:
            base = self._staging.base(base_data)[1].get(parent)
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=base)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return None
            raise storage_error(error, "cannot open", path) from None
        status = os.fstat(fd)
        timed = mtime_ns is None or keeps(status.st_mtime_ns, mtime_ns)
        if stat.S_ISREG(status.st_mode) and status.st_size == size and timed:
            return fd
        os.close(fd)
        return None

    def link_many(self, base_data: Path, files: Sequence[tuple[str, int, int]]) -> list[Linked | None]:
        """As `link`, for many files, given by path, size and time. The result has None for a file to copy.

        A folder is entered once for consecutive files. Each file is linked straight to its final name, since
        a link is atomic; this takes three calls a file. If a dead attempt left that name, `link` is used.
        """
        for path, _, _ in files:
            self._staging.before(path, _OF_A_LINK)
        made: list[Linked | None] = []
        at = 0
        while at < len(files):
            parent, _ = split(files[at][0])
            start, at = at, at + 1
            while at < len(files) and files[at][0].rpartition("/")[0] == parent:
                at += 1
            made += self._link_folder(base_data, parent, files[start:at])
        return made

    def _link_folder(
        self, base_data: Path, parent: str, files: Sequence[tuple[str, int, int]]
    ) -> list[Linked | None]:
        self._staging.look()
        try:
            base = self._staging.base(base_data)[1].get(parent)
            folder = self._staging.enter(parent, make=True)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return [None] * len(files)
            raise storage_error(error, "cannot link", parent) from None
        made = [self._link_one(base, folder, *file) for file in files]
        if self._staging.fsync:
            self._staging.touched.add(parent)
        existing = [place for place, link in enumerate(made) if link is _STANDING]
        for place in existing:
            made[place] = self._link_again(base_data, *files[place])
        return made

    def _link_one(self, base: int, folder: int, path: str, size: int, mtime_ns: int) -> Linked | None:
        """Link a file. Returns None if it cannot be linked, `_STANDING` if its name already exists."""
        name = path.rpartition("/")[2]
        try:
            status = os.stat(name, dir_fd=base, follow_symlinks=False)
            if not self._linkable(status, path, size, mtime_ns) or not self._same_acl(base, name, path):
                return None
            os.link(name, name, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
            after = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (after.st_dev, after.st_ino) == (status.st_dev, status.st_ino):
                return Linked(status.st_ino, status.st_ctime_ns, after.st_ctime_ns)
            # BeeGFS can be configured to make symbolic links instead, without an error.
            os.unlink(name, dir_fd=folder)
        except FileExistsError:
            return _STANDING
        except OSError as error:
            if error.errno not in _UNLINKABLE and error.errno != errno.ELOOP:
                raise storage_error(error, "cannot link", path) from None
        return None

    def _link_again(self, base_data: Path, path: str, size: int, mtime_ns: int) -> Linked | None:
        """Link a file whose name existed. Its ctime before the first link is then unknown."""
        if not self._link(base_data, path, size, mtime_ns):
            return None
        parent, name = split(path)
        status = os.stat(name, dir_fd=self._staging.enter(parent, make=False), follow_symlinks=False)
        return Linked(status.st_ino, 0, status.st_ctime_ns)

    def take_over(self, stagings: Sequence[Abandoned], path: str, size: int, mtime_ns: int) -> bool:
        """Bring a file of an abandoned staging into staging. Returns False if it must be copied.

        | mode, group and ACL in the      | hard      | result                                      |
        | abandoned staging               | links     |                                             |
        |---------------------------------|-----------|---------------------------------------------|
        | final                           | allowed   | linked                                      |
        | final                           | refused   | moved with one rename                       |
        | not final; the file has 1 name  | any       | gets the final ones, and is moved           |
        | not final; a release shares it  | any       | left: shared files are never changed        |
        | no file of this size and time   |           | left                                        |

        The other run's journal shows that the file's bytes are durable. A file that already has its final
        name in this staging counts as moved: an attempt may have died before it wrote the journal line.
        Verify reads every such file back.
        """
        self._staging.before(path, _OF_A_LINK)
        return any(
            self._link(staging.data, path, size, mtime_ns) or self._move(staging, path, size, mtime_ns)
            for staging in stagings
        ) or self.holds(path, size, mtime_ns)

    def holds(self, path: str, size: int, mtime_ns: int | None) -> bool:
        """Return whether a regular file of this size and, if given, this time has this name."""
        parent, name = split(path)
        try:
            status = os.stat(name, dir_fd=self._staging.enter(parent, make=False), follow_symlinks=False)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return False
            raise storage_error(error, "cannot look at", path) from None
        return (
            stat.S_ISREG(status.st_mode)
            and status.st_size == size
            and (mtime_ns is None or not self._staging.keep_mtime or keeps(status.st_mtime_ns, mtime_ns))
        )

    def move(self, staging: Abandoned, path: str, size: int, mtime_ns: int | None) -> bool:
        """Rename a file from an abandoned staging to this staging, over any file of the same name.

        Returns False if the table of `take_over` says "left". Without a time, only the size is compared.
        """
        self._staging.before(path, 1)
        return self._move(staging, path, size, mtime_ns)

    def _move(self, staging: Abandoned, path: str, size: int, mtime_ns: int | None) -> bool:
        self._staging.look()
        parent, name = split(path)
        try:
            root, folders = self._staging.base(staging.data)
            base = folders.get(parent)
            status = os.stat(name, dir_fd=base, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                return False
            if mtime_ns is not None and self._staging.keep_mtime and not keeps(status.st_mtime_ns, mtime_ns):
                return False
            right = self._alike(status, path) and self._same_acl(base, name, path)
            if status.st_nlink != 1 and not right:
                return False
            folder = self._staging.enter(parent, make=True)
            # A staging that was renamed since it was planned or opened is now a release, or belongs to
            # another run.
            opened = os.fstat(root)
            if opened.st_ino != staging.inode or not os.path.samestat(
                os.stat(staging.data, follow_symlinks=False), opened
            ):
                return False
            if not right:
                self._staging.put_named_right(base, name, path)
            try:
                os.rename(name, name, src_dir_fd=base, dst_dir_fd=folder)
            except PermissionError:
                # The other run's permissions step removed the write bit of its folders.
                os.fchmod(base, stat.S_IMODE(os.fstat(base).st_mode) | 0o700)
                os.rename(name, name, src_dir_fd=base, dst_dir_fd=folder)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return False
            raise storage_error(error, "cannot take over", path) from None
        if self._staging.fsync:
            self._staging.touched.add(parent)
        return True

    def _alike(self, status: os.stat_result, path: str) -> bool:
        """Return whether a file has the mode and group that it should have in this staging."""
        return stat.S_IMODE(status.st_mode) == self._staging.file_mode(path) and (
            self._staging.gid is None or status.st_gid == self._staging.gid
        )

    def _same_acl(self, folder: int, name: str, path: str) -> bool:
        """Return whether a file has the ACL that it should have in this staging."""
        wanted = self._staging.access(path).acl
        held = f"/proc/self/fd/{folder}/{name}"
        return wanted is None or owners.acl_allows(owners.read_acl(held, follow=False), wanted)

    def _linkable(self, status: os.stat_result, path: str, size: int, mtime_ns: int) -> bool:
        return (
            stat.S_ISREG(status.st_mode)
            and status.st_size == size
            and (not self._staging.keep_mtime or keeps(status.st_mtime_ns, mtime_ns))
            and self._alike(status, path)
        )
