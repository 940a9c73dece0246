"""Brings files into staging that lie on the target already: files of a published release are linked, where
the new release may share them; files of abandoned stagings are linked or moved.

For copy's workers and plan, by `staging_writer.StagingWriter`, which has these functions as methods. Changes
the staging, and an abandoned staging from which a file is moved; of a release only a file's link count and
ctime. Sizes are in bytes, times in nanoseconds since the epoch, paths relative to `data`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs import acl_xattrs
from penstock.fs.errno_map import storage_error
from penstock.target.staging_folder import split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.target.staging_folder import StagingFolder

_UNLINKABLE = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTDIR}
)
"""Errors after which a file is copied instead; any other is raised."""


_GRAINS = (1, 100, 10**3, 10**6, 10**9)
"""Units, in nanoseconds, in which file systems keep times: 1 for most; 100 for NTFS and SMB; micro- and
milliseconds for some of FUSE and NFS; seconds for Lustre, BeeGFS and small inodes of ext4."""


class Abandoned(NamedTuple):
    """The tree of another run's staging."""

    data: Path
    inode: int = 0
    """The inode of `data` when the run was planned: a folder that got this name later is another tree, and
    nothing is moved out of it. 0: not noted, and files are linked only."""


class Linked(NamedTuple):
    """A file that was linked."""

    inode: int
    before_ns: int
    """Its ctime before the link, which changes it; 0 where an earlier attempt made the link."""
    after_ns: int
    """Its ctime after the link."""


def keeps(seen_ns: int, wanted_ns: int) -> bool:
    """Whether a file whose time was set to `wanted_ns` may show `seen_ns`: the same, or the same rounded down
    to a unit of `_GRAINS`."""
    return any(seen_ns == wanted_ns - wanted_ns % grain for grain in _GRAINS)


_OF_A_LINK = 2
"""Metadata operations: a link, and a rename."""
_STANDING = Linked(0, 0, 0)
"""In place of a link: the name is there already."""


class Linker:
    """Links files of published releases into staging, and takes over files of abandoned stagings. For one
    thread. Every method raises FailedError where this attempt was overtaken (`StagingFolder.look`), and by
    `errno_map.storage_error` for other errors of the file system than those it answers for."""

    def __init__(self, staging: StagingFolder) -> None:
        self._staging = staging

    def link(self, base_data: Path, path: str, size: int, mtime_ns: int, held_as: str = "") -> bool:
        """Hard-link an unchanged file of a published release to `path`. Its path there is `held_as`; "": the
        same path. False: it is to be copied instead.

        Only a regular file with exactly this size, time (as far as the target keeps it), mode, group and ACL
        is linked, since a file that another release shares must never be changed. (A link changes the inode's
        ctime in both releases.)
        """
        self._staging.before(path, _OF_A_LINK)
        return self._link(base_data, path, size, mtime_ns, held_as)

    def _link(self, base_data: Path, path: str, size: int, mtime_ns: int, held_as: str = "") -> bool:
        self._staging.look()
        parent, name = split(path)
        there, old = split(held_as or path)
        try:
            base = self._staging.base(base_data)[1].get(there)
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
            # BeeGFS can be set to make symbolic links instead, silently.
            same = (made.st_dev, made.st_ino) == (status.st_dev, status.st_ino)
            if same:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                if self._staging.fsync:
                    self._staging.touched.add(parent)
            return same
        except OSError as error:
            raise storage_error(error, "cannot link", path) from None
        finally:
            # Where both names were of one file already, rename does nothing and leaves the temporary name.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

    def held(self, base_data: Path, path: str, size: int, mtime_ns: int | None) -> int | None:
        """A descriptor of an unchanged file of a published release, to read; the caller closes it. None where
        there is no regular file of this size and, if one is given, time, or it may not be read."""
        self._staging.look()
        parent, name = split(path)
        try:
            base = self._staging.base(base_data)[1].get(parent)
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=base)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return None
            raise storage_error(error, "cannot open", path) from None
        seen = os.fstat(fd)
        timed = mtime_ns is None or keeps(seen.st_mtime_ns, mtime_ns)
        if stat.S_ISREG(seen.st_mode) and seen.st_size == size and timed:
            return fd
        os.close(fd)
        return None

    def link_many(self, base_data: Path, files: Sequence[tuple[str, int, int]]) -> list[Linked | None]:
        """As `link`, of many files: path, size and time of each. Answers in the order of the files; None:
        that file is to be copied instead.

        A folder is entered once for those of its files that follow one another. Each file is linked straight
        to its final name, which a link gives whole or not at all: three calls a file. A name that is there
        already, of an attempt that died, is linked by `link`.
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
        """`link_many` of files of one folder."""
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
        there = [place for place, one in enumerate(made) if one is _STANDING]
        for place in there:
            made[place] = self._link_again(base_data, *files[place])
        return made

    def _link_one(self, base: int, folder: int, path: str, size: int, mtime_ns: int) -> Linked | None:
        """None where it cannot be linked; `_STANDING` where its name is there already."""
        name = path.rpartition("/")[2]
        try:
            status = os.stat(name, dir_fd=base, follow_symlinks=False)
            if not self._linkable(status, path, size, mtime_ns) or not self._same_acl(base, name, path):
                return None
            os.link(name, name, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
            after = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if (after.st_dev, after.st_ino) == (status.st_dev, status.st_ino):
                return Linked(status.st_ino, status.st_ctime_ns, after.st_ctime_ns)
            # BeeGFS can be set to make symbolic links instead, silently.
            os.unlink(name, dir_fd=folder)
        except FileExistsError:
            return _STANDING
        except OSError as error:
            if error.errno not in _UNLINKABLE and error.errno != errno.ELOOP:
                raise storage_error(error, "cannot link", path) from None
        return None

    def _link_again(self, base_data: Path, path: str, size: int, mtime_ns: int) -> Linked | None:
        """Of a file whose name was there: how its ctime was moved before is not known."""
        if not self._link(base_data, path, size, mtime_ns):
            return None
        parent, name = split(path)
        seen = os.stat(name, dir_fd=self._staging.enter(parent, make=False), follow_symlinks=False)
        return Linked(seen.st_ino, 0, seen.st_ctime_ns)

    def take_over(self, stagings: Sequence[Abandoned], path: str, size: int, mtime_ns: int) -> bool:
        """Bring a file into staging that one of these abandoned stagings holds. False: it is to be copied
        instead.

        | the file there                  | links are | it is                                      |
        |---------------------------------|-----------|--------------------------------------------|
        | of the final mode, group, ACL   | made      | linked                                     |
        | the same                        | refused   | moved: one rename                          |
        | of others, one name             | any       | given the final ones, and moved            |
        | of others, a release's too      | any       | left: what a release shares is not changed |
        | none of this size and time      |           | left                                       |

        The file's bytes are durable: the other run's journal says so. A file that lies here already under its
        final name counts as moved, too: an attempt of this run may have died between the move and its journal
        line. Verify reads every such file back.
        """
        self._staging.before(path, _OF_A_LINK)
        return any(
            self._link(one.data, path, size, mtime_ns) or self._move(one, path, size, mtime_ns)
            for one in stagings
        ) or self.holds(path, size, mtime_ns)

    def holds(self, path: str, size: int, mtime_ns: int | None) -> bool:
        """Whether a regular file of this size, and of this time if one is given, stands under its name."""
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
        """Rename a file out of an abandoned staging; it replaces a file of that name here. False where the
        table of `take_over` says `left`. Without a time only the size is compared."""
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
            # A staging that was renamed since it was planned or opened is a release by now, or another run's.
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
                # The permissions step of that run closed its folders.
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
        """Whether it has the mode and the group that this file gets here."""
        return stat.S_IMODE(status.st_mode) == self._staging.file_mode(path) and (
            self._staging.gid is None or status.st_gid == self._staging.gid
        )

    def _same_acl(self, folder: int, name: str, path: str) -> bool:
        """Whether it has the ACL that this file gets here. Raises OSError."""
        wanted = self._staging.access(path).acl
        held = f"/proc/self/fd/{folder}/{name}"
        return wanted is None or acl_xattrs.allows(acl_xattrs.read(held, follow=False), wanted)

    def _linkable(self, status: os.stat_result, path: str, size: int, mtime_ns: int) -> bool:
        return (
            stat.S_ISREG(status.st_mode)
            and status.st_size == size
            and (not self._staging.keep_mtime or keeps(status.st_mtime_ns, mtime_ns))
            and self._alike(status, path)
        )
