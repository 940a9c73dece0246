"""Hard links to unchanged files of a published release: only where the two cannot differ."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from penstock.storage.beneath import Folders, folders_kept
from penstock.storage.failures import storage_error
from penstock.storage.place import FOLDER, Place, split

if TYPE_CHECKING:
    from pathlib import Path

_UNLINKABLE = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTDIR}
)


_GRAINS = (1, 100, 10**3, 10**6, 10**9)
"""Nanoseconds that file systems keep times in: most, NTFS and SMB, some of FUSE and NFS, Lustre and BeeGFS
and small inodes of ext4."""


def keeps(seen_ns: int, wanted_ns: int) -> bool:
    """Whether a file system that was given the time `wanted_ns` may show `seen_ns`: all of it, or as much as
    it keeps of one."""
    return any(seen_ns == wanted_ns - wanted_ns % grain for grain in _GRAINS)


class Links(Place):
    """Links files of published releases into staging."""

    def link(self, base_data: Path, path: str, size: int, mtime_ns: int) -> bool:
        """Hard-link an unchanged file of a published release. False: copy it instead.

        Only a regular file with exactly this size, time (as far as the target keeps it), mode and group is
        linked: what another release shares must never be changed here. (A link moves the inode's ctime in
        both.)
        """
        self._look()
        parent, name = split(path)
        try:
            base = self._base(base_data).get(parent)
            seen = os.stat(name, dir_fd=base, follow_symlinks=False)
            if not self._linkable(seen, size, mtime_ns):
                return False
            folder = self._enter(parent, make=True)
            self._count += 1
            temporary = f"{self._prefix}{self._count:08x}"
            os.link(name, temporary, src_dir_fd=base, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in _UNLINKABLE or error.errno == errno.ELOOP:
                return False
            raise storage_error(error, "cannot link", path) from None
        try:
            made = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
            # BeeGFS can be set to make symbolic links instead, silently.
            same = (made.st_dev, made.st_ino) == (seen.st_dev, seen.st_ino)
            if same:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                if self._fsync:
                    self._touched.add(parent)
            return same
        except OSError as error:
            raise storage_error(error, "cannot link", path) from None
        finally:
            # A rename between two names of one file leaves both.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)

    def _linkable(self, seen: os.stat_result, size: int, mtime_ns: int) -> bool:
        return (
            stat.S_ISREG(seen.st_mode)
            and seen.st_size == size
            and (not self._keep_mtime or keeps(seen.st_mtime_ns, mtime_ns))
            and stat.S_IMODE(seen.st_mode) == self._file_mode
            and (self._gid is None or seen.st_gid == self._gid)
        )

    def _base(self, base_data: Path) -> Folders:
        known = self._bases.get(base_data)
        if known is None:
            fd = os.open(base_data, FOLDER)
            known = self._bases[base_data] = (fd, Folders(fd, min(64, folders_kept())))
        return known[1]
