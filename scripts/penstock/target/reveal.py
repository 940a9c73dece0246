"""Publishes a release under its name (`reveal`), and moves the link `current` to it. Also puts a small file,
such as a signature, beside the seal of a published release.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from penstock.core.errors import IMPOSSIBLE, FailedError
from penstock.core.layout import CURRENT, DATA, MANIFEST, SEAL
from penstock.fs import owners
from penstock.fs.safe_open import printable, set_owner_mode, storage_error
from penstock.fs.small_files import UNFINISHED, fsync_dir, rename
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.core.posix_acl import Acl


# Readers see only two changes: the release's name, and the move of `current`. Both are durable, and can be
# repeated after a crash at any point. A reader that resolves `current` always gets a complete release.


def reveal(layout: DatasetLayout, release: str, assert_held: Callable[[], None]) -> None:
    """Give a complete staging its release's name, with one rename within `releases/`.

    The top folder takes the mode, group and ACL of `data`, which are already final. Manifests and seal take
    its group and read bits. The name must be free, as rename(2) would replace an empty folder without an
    error. `assert_held` is called right before the rename, and raises an error if another run has taken over
    the dataset. Raises FailedError.
    """
    staging, final = layout.staging(release), layout.release(release)
    try:
        if _is_folder(final):
            if os.path.lexists(staging):
                raise FailedError(
                    "both a release and its staging are there",
                    where=str(final),
                    hint=f"a published release is never replaced: remove {staging}, or name another release",
                )
            fsync_dir(layout.releases)
            return
        if not _is_folder(staging):
            raise FailedError(
                "there is no staging to publish", where=str(staging), hint="`penstock run` stages it anew"
            )
        _sealed(staging)
        open_to_readers(staging)
        assert_held()
        rename(staging, final)
    except OSError as error:
        raise storage_error(error, "cannot publish", str(final)) from None


def point(layout: DatasetLayout, release: str, assert_held: Callable[[], None]) -> None:
    """Make `current` a relative link to the release, replacing the old link in one step.

    It makes a temporary link, calls `assert_held`, and renames the link. Another run that takes over the
    dataset claims it first, and then removes such links (`dataset_folders.sweep_pointers`). If this run was
    suspended between `assert_held` and the rename, it has no link left to rename. If it makes its link later,
    `assert_held` fails, and it removes the link itself.

    The caller must hold the dataset's lock. Raises the errors of `assert_held`, and FailedError if the
    release is missing or `current` is no link.
    """
    try:
        if not _is_folder(layout.release(release)):
            raise FailedError(
                "there is no such release",
                where=str(layout.release(release)),
                hint="`penstock releases` lists the names",
            )
        _sealed(layout.release(release))
        if dataset_folders.current(layout) != release:
            temporary = layout.folder / f".{CURRENT}.{secrets.token_hex(8)}"
            os.symlink(f"{layout.releases.name}/{release}", temporary)
            try:
                assert_held()
                rename(temporary, layout.current)
            except BaseException as error:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                if isinstance(error, FileNotFoundError):
                    assert_held()
                raise
        else:
            fsync_dir(layout.folder)
        dataset_folders.sweep_pointers(layout)
    except OSError as error:
        raise storage_error(error, "cannot move the pointer", str(layout.current)) from None


def _is_folder(path: Path) -> bool:
    """Return True if this path is a folder, False if it is missing. Raises FailedError for anything else."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(mode):
        raise FailedError(
            "a folder's name is taken by something else",
            where=printable(str(path)),
            hint="move it away; then the same command goes on",
        )
    return True


def _sealed(folder: Path) -> None:
    """Raise FailedError if a staging has no seal or manifest, and so is incomplete."""
    for name in (SEAL, MANIFEST):
        try:
            if stat.S_ISREG(os.lstat(folder / name).st_mode):
                continue
        except FileNotFoundError:
            pass
        raise FailedError(
            "the release is not sealed", where=str(folder), why=f"it holds no {name}", hint=IMPOSSIBLE
        )


def open_to_readers(staging: Path) -> None:
    """Give a release's folder, and all files beside its `data`, the group, ACL and read bits of `data`."""
    status = os.lstat(staging / DATA)
    if not stat.S_ISDIR(status.st_mode):
        raise FailedError(
            "the staging holds no data folder", where=str(staging), hint="`penstock run` stages it anew"
        )
    mode, acl = stat.S_IMODE(status.st_mode), _acl(staging / DATA)
    with os.scandir(staging) as entries:
        names = sorted(e.name for e in entries if e.name != DATA)
    for name in names:
        if UNFINISHED.fullmatch(name):  # the temporary file of a write that was killed
            os.unlink(staging / name)
            continue
        fd = os.open(staging / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FailedError(
                    "the staging holds something unknown",
                    where=printable(str(staging / name)),
                    hint="move it away; then the same command goes on",
                )
            set_owner_mode(fd, mode & 0o444, status.st_gid)
            if acl is not None:
                owners.write_acl(fd, tuple(entry._replace(bits=entry.bits & 4) for entry in acl))
            os.fsync(fd)
        finally:
            os.close(fd)
    fd = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        set_owner_mode(fd, mode, status.st_gid)
        if acl is not None:
            owners.write_acl(fd, acl)
            # An ACL can clear the setgid bit.
            set_owner_mode(fd, mode, status.st_gid)
        os.fsync(fd)
    finally:
        os.close(fd)


def _acl(data: Path) -> Acl | None:
    """Return the ACL, or None if there is none or the file system has no ACLs."""
    try:
        return owners.read_acl(data, follow=False)
    except OSError as error:
        if error.errno in owners.NONE_KEPT:
            return None
        raise


def put_beside(layout: DatasetLayout, release: str, name: str, write: Callable[[Path], None]) -> None:
    """Call `write`, which must make the whole file durably, and give the file the modes of the manifests.

    During the call, the owner may write in the release's top folder, but never in `data`. The call can be
    repeated after a crash. Raises FailedError.
    """
    folder = layout.release(release)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            os.fchmod(fd, mode | 0o300)
        finally:
            os.close(fd)
        try:
            write(folder / name)
        finally:
            open_to_readers(folder)
    except OSError as error:
        raise storage_error(error, f"{name} cannot be written beside the seal", str(folder)) from error
    if not (folder / name).is_file():
        raise FailedError(
            "a file that was written beside the seal is not there", where=str(folder / name), hint=IMPOSSIBLE
        )
