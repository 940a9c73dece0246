"""Compares the tree of a published release with its manifest, its seal and the permissions with which it was
published. It reads no file's bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.config.access_rules import sealed_rules
from penstock.core.errors import FailedError
from penstock.core.findings import EMPTY_FOLDER, Finding
from penstock.core.layout import BESIDE_DATA, DATA, EMPTY_FOLDERS, MANIFEST
from penstock.core.posix_acl import in_words
from penstock.fs.owners import (
    ACCESS,
    DEFAULT,
    NONE_KEPT,
    acl_allows,
    acl_refusal,
    group_name,
    is_another,
    is_mapped,
    read_acl,
    user_name,
)
from penstock.fs.path_walk import Cursor, kind_of
from penstock.fs.safe_open import open_beneath
from penstock.fs.tree import Calls
from penstock.tables.json_files import KeptFolders
from penstock.tables.json_files import read_empty_folders as read_folders
from penstock.tables.manifest import read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.config.access_rules import Access
    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal, SealedPermissions
    from penstock.fs.path_walk import WalkedPath
    from penstock.fs.tree import Looked


class PublishedPermissions:
    """The permissions that the seal states, by path if the configuration gave some paths their own modes."""

    def __init__(
        self, published: SealedPermissions, *, owner: int | None = None, mapped: bool = False
    ) -> None:
        """`owner`: the dataset's present owner, which never counts as a deviation: root may have given the
        dataset to another account. `mapped`: the mount maps owners' numbers (`fs.owners`), so names are
        compared, and ACLs are not."""
        self._published, self._owner, self._mapped = published, owner, mapped
        self._rules = sealed_rules(published)
        self.by_path = self._rules.by_path  # whether any path has a mode of its own
        self.has_acl = self._rules.has_acl and not mapped  # whether there are ACLs to compare
        self.acl = ", ".join(published.acl)

    def deviates(self, kind: str, path: str, mode: int, uid: int, gid: int) -> str:
        """Describe how a `file` or `dir` deviates from the published permissions, except in its ACL; "" if it
        does not."""
        why = []
        published, wanted = self._published, self._wanted(kind, path)
        if mode != wanted.mode:
            why.append(f"mode {mode:04o}, published with {wanted.mode:04o}")
        if uid != self._owner:
            why += self._another("owner", uid, user_name, published.uid, published.user, "published by")
        why += self._another("group", gid, group_name, published.gid, published.group, "published with")
        return ", ".join(why)

    def acl_deviates(self, kind: str, path: str, place: str) -> str:
        """Describe how the ACLs at `place` deviate; "" if they do not, or for a link or missing file."""
        wanted = self._wanted(kind, path)
        deviations = []
        try:
            for name, acl in ((ACCESS, wanted.acl), (DEFAULT, wanted.default)):
                actual = None if acl is None else read_acl(place, name, follow=kind == "dir")
                if acl is not None and not acl_allows(actual, acl):
                    what = "default ACL" if name == DEFAULT else "ACL"
                    deviations.append(f"{what} {in_words(actual)}, published with {in_words(acl)}")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, *NONE_KEPT):
                return ""
            deviations.append(f"its ACL cannot be read: {error.strerror}")
        return ", ".join(deviations)

    def _wanted(self, kind: str, path: str) -> Access:
        published = self._published
        if kind == "dir":
            return self._rules.folder(path, published.dir_mode)
        return self._rules.file(path, published.file_mode)

    def _another(
        self,
        what: str,
        number: int,
        name: Callable[[int], str],
        wanted: int | None,
        published_name: str,
        how: str,
    ) -> Iterator[str]:
        """Describe an owner or group that differs from the published one."""
        if wanted is None or (number == wanted and not self._mapped):
            return
        here = name(number) if published_name else ""
        if is_another(number, here, wanted, published_name, mapped=self._mapped):
            yield f"{what} {_numbered(number, here)}, {how} {_numbered(wanted, published_name)}"


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)


# Finds the deviations of a release's tree.
#
# Findings name missing, extra and replaced files, and each size, mode, owner, group or ACL that differs. A
# pass over the manifest and a pass over the tree run side by side, so memory grows only with the findings.

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FILES_AT_ONCE = 64  # number of files in one folder whose ACLs a thread reads in one call


def tree_findings(
    layout: DatasetLayout,
    release: str,
    seal: Seal,
    stop: Callable[[], None],
    touched: Callable[[str, int], None] | None = None,
) -> Iterator[Finding]:
    """Yield all deviations: first those beside `data`, then `data` and its content in byte order of paths,
    then missing empty folders.

    It calls `stop` now and then, which may raise. It calls `touched(path, size)` for each file that has the
    published size but another modification time than verify saw. That is no deviation, but its bytes may
    differ. A folder that this account may not read is a finding. A file that vanishes meanwhile is an error.

    Raises FailedError for an unreadable manifest, OSError, and as `path_walk.Cursor`.
    """
    mapped = is_mapped(layout.release(release))
    # If the mount maps numbers, names are compared.
    owner = None if mapped else layout.folder.lstat().st_uid
    permissions = PublishedPermissions(seal.permissions, owner=owner, mapped=mapped)
    lists_folders = EMPTY_FOLDERS in seal.manifests
    walk = _ReleaseWalk(layout, release, permissions, lists_folders=lists_folders, touched=touched)
    try:
        yield from walk.above()
        yield from walk.compare(stop)
    finally:
        walk.close()


def findings_without_data(layout: DatasetLayout, release: str, seal: Seal) -> Iterator[Finding]:
    """Yield the findings for a release without a folder `data`: the file that replaced it, or all files as
    missing. Raises FailedError for an unreadable manifest, OSError."""
    try:
        kind = kind_of((layout.release(release) / DATA).lstat().st_mode)
    except FileNotFoundError:
        pass
    else:
        yield Finding("replaced", ".", f"a {kind} stands in the place of the release's data folder")
        return
    yield Finding("missing", ".", "the release's data folder is not there")
    for files in read_files(layout.release(release) / MANIFEST, columns=("path",)):
        for path in files["path"]:
            yield Finding("missing", path, "it is not there")
    if EMPTY_FOLDERS in seal.manifests:
        with contextlib.suppress(FailedError):
            for folder in read_folders(layout.release(release) / EMPTY_FOLDERS):
                yield Finding(EMPTY_FOLDER, folder, "an empty folder of the source that is not there")


class _ReleaseWalk:
    """A pass over a release's tree."""

    def __init__(
        self,
        layout: DatasetLayout,
        release: str,
        permissions: PublishedPermissions,
        *,
        lists_folders: bool = False,
        touched: Callable[[str, int], None] | None = None,
    ) -> None:
        self._touched = touched
        self._lists_folders = lists_folders
        self._folder, self._permissions = layout.release(release), permissions
        self._checks_acls = permissions.has_acl
        self._root = os.open(self._folder / DATA, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # folders that already have a finding: they replace a file, or cannot be read
        self._reported: set[str] = set()
        self._unreadable: list[Finding] = []  # folders that the walk could not read, not yielded yet
        self._empty_folders = KeptFolders(())
        # {path of a file in the current manifest batch: how the file's ACL deviates}
        self._acls: dict[str, str] = {}
        self._calls = Calls()

    def close(self) -> None:
        self._calls.close()
        os.close(self._root)

    def above(self) -> Iterator[Finding]:
        """Yield findings about the mode of `data` and about files beside it. If the file system no longer has
        ACLs, that is one finding, and ACLs are not compared."""
        for name in sorted(os.listdir(self._folder)):
            if name == EMPTY_FOLDERS and self._lists_folders:
                continue
            if name != DATA and name not in BESIDE_DATA:
                yield Finding("extra", f"../{name}", "it stands beside data/ and belongs to no release")
        status = os.fstat(self._root)
        why = self._permissions.deviates(
            "dir", ".", stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
        )
        place = f"/proc/self/fd/{self._root}"
        if self._checks_acls and (refused := acl_refusal(place)):
            self._checks_acls = False
            yield Finding("mode", ".", f"ACLs, published with {self._permissions.acl}: {refused}")
        elif self._checks_acls:
            why = ", ".join(filter(None, (why, self._permissions.acl_deviates("dir", ".", place))))
        if why:
            yield Finding("mode", ".", why)

    def compare(self, stop: Callable[[], None]) -> Iterator[Finding]:
        """Yield findings below `data`. The cursor yields the tree's paths to check, with the index of the
        manifest's next row. `own`: the path is the path of that row."""
        tree = Cursor(self._folder / DATA, unreadable=self._note_unreadable)
        if self._lists_folders:
            # A damaged list has its own finding (`audit_plan.unsound`). Its folders then count as extra.
            with contextlib.suppress(FailedError):
                self._empty_folders = KeptFolders(read_folders(self._folder / EMPTY_FOLDERS))
        columns = ("path", "size", "mtime_ns") if self._touched else ("path", "size")
        for files in read_files(self._folder / MANIFEST, columns=columns):
            stop()
            paths, sizes = files["path"], files["size"]
            times = files["mtime_ns"] if self._touched else None
            self._acls = self._other_acls(paths) if self._checks_acls else {}
            for index, member, own in tree.against(paths, partial(self._as_published, paths, sizes, times)):
                yield from self._newly_unreadable()
                if not own and member is not None:
                    yield from self._unpublished_path(member, paths[index])
                elif member is not None:
                    yield from self._published_path(member, sizes[index], times[index] if times else None)
                else:
                    yield from self._absent(paths[index])
        for member in tree.rest():
            yield from self._newly_unreadable()
            yield from self._unpublished_path(member, "")
        yield from self._newly_unreadable()
        for folder in self._empty_folders.missing():
            yield Finding(EMPTY_FOLDER, folder, "an empty folder of the source that is not there")

    def _as_published(
        self,
        paths: Sequence[str],
        sizes: Sequence[int],
        times: Sequence[int] | None,
        looked: Looked,
        start: int,
    ) -> bool:
        """Whether all these files are as they were published."""
        end = start + len(looked.size)
        names = paths[start:end]
        if looked.size != sizes[start:end] or (times is not None and looked.mtime_ns != times[start:end]):
            return False
        if self._acls and any(name in self._acls for name in names):
            return False
        # Unless modes depend on the path, the files have few combinations of mode and owner.
        owned = zip(looked.mode, looked.uid, looked.gid, strict=True)
        each = (
            zip(names, owned, strict=True)
            if self._permissions.by_path
            else (("", combination) for combination in set(owned))
        )
        return all(
            stat.S_ISREG(mode) and not self._permissions.deviates("file", name, stat.S_IMODE(mode), uid, gid)
            for name, (mode, uid, gid) in each
        )

    def _other_acls(self, paths: Sequence[str]) -> dict[str, str]:
        """Return how the ACLs of these files deviate. It uses threads if the calls wait for a server."""
        groups = [
            (folder, together[at : at + _FILES_AT_ONCE])
            for folder, names in groupby(paths, lambda path: path.rpartition("/")[0])
            for together in [list(names)]
            for at in range(0, len(together), _FILES_AT_ONCE)
        ]
        return dict(self._calls.each(self._read_acls, groups))

    def _read_acls(self, groups: Sequence[tuple[str, list[str]]]) -> list[tuple[str, str]]:
        deviations = []
        for folder, paths in groups:
            try:
                fd = open_beneath(self._root, folder, _LOOK) if folder else os.dup(self._root)
            except OSError:
                # The folder has its own finding.
                continue
            try:
                for path in paths:
                    place = f"/proc/self/fd/{fd}/{path.rpartition('/')[2]}"
                    if why := self._permissions.acl_deviates("file", path, place):
                        deviations.append((path, why))
            finally:
                os.close(fd)
        return deviations

    def _newly_unreadable(self) -> Iterator[Finding]:
        """Yield and clear the findings of `_unreadable`."""
        while self._unreadable:
            yield self._unreadable.pop(0)

    def _note_unreadable(self, folder: str, error: OSError) -> None:
        self._reported.add(folder)
        why = f"the folder cannot be read: {os.strerror(error.errno or 0)}"
        self._unreadable.append(Finding("unread", folder, why))

    def _absent(self, path: str) -> Iterator[Finding]:
        """Yield the finding for a path that is not a file now. The file is gone, is now a folder, or is in an
        unreadable folder, which has its own finding."""
        try:
            fd = open_beneath(self._root, path, _LOOK)
        except PermissionError:
            return
        except OSError:
            yield Finding("missing", path, "it is not there")
            return
        try:
            kind = kind_of(os.fstat(fd).st_mode)
        finally:
            os.close(fd)
        if kind == "dir":
            self._reported.add(path)
            yield Finding("replaced", path, "a folder stands in its place")
        elif not any(path.startswith(f"{folder}/") for folder in self._reported):
            yield Finding("missing", path, "it was not there when its folder was read")

    def _unpublished_path(self, member: WalkedPath, path: str) -> Iterator[Finding]:
        """Yield findings of a tree path without a manifest row. `path` is the path of the next row. If a
        folder has files of the manifest or listed empty folders, only its permissions are checked."""
        if member.kind != "dir":
            yield Finding("extra", member.path, f"a {member.kind} that was not published")
        elif self._empty_folders.meet(member.path) or member.holds(path):
            yield from self._wrong_permissions(member)
        elif member.path not in self._reported:
            yield Finding("extra", member.path, "a folder that was not published")

    def _published_path(self, member: WalkedPath, size: int, mtime_ns: int | None) -> Iterator[Finding]:
        """Yield findings of a tree path with a manifest row: its size and time are compared."""
        if member.kind != "file":
            yield Finding("replaced", member.path, f"a {member.kind} stands in its place")
            return
        if member.size != size:
            yield Finding("changed", member.path, f"it has {member.size} bytes, not {size}")
        elif self._touched is not None and mtime_ns not in (None, member.mtime_ns):
            self._touched(member.path, member.size)
        yield from self._wrong_permissions(member)

    def _wrong_permissions(self, member: WalkedPath) -> Iterator[Finding]:
        """Yield the deviations of mode, owner, group and ACL."""
        why = [self._permissions.deviates(member.kind, member.path, member.mode, member.uid, member.gid)]
        if member.kind == "file":
            why.append(self._acls.get(member.path, ""))
        elif self._checks_acls:
            why.append(self._folder_acl(member.path))
        if any(why):
            yield Finding("mode", member.path, ", ".join(filter(None, why)))

    def _folder_acl(self, path: str) -> str:
        try:
            fd = open_beneath(self._root, path, _LOOK)
        except OSError as error:
            return f"its ACL cannot be read: {error.strerror}"
        try:
            return self._permissions.acl_deviates("dir", path, f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
