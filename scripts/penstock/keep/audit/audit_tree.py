"""The shape of a release against its manifest: missing, extra, replaced, wrong mode, owner or ACL.

One pass over the manifest and one over the tree, side by side; memory grows with the findings
alone. No file's bytes are read here: the elements read them.
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
from penstock.core.documents.findings import EMPTY_FOLDER, Finding
from penstock.core.errors import FailedError
from penstock.core.layout import BESIDE_DATA, DATA, EMPTY_FOLDERS, MANIFEST
from penstock.core.posix_acl import in_words
from penstock.fs.acl_xattrs import ACCESS, DEFAULT, NONE_KEPT, allows, read, refusal
from penstock.fs.adaptive_threads import Calls
from penstock.fs.owners import group_name, is_another, is_mapped, user_name
from penstock.fs.path_walk import Cursor, kind_of
from penstock.fs.safe_open import open_beneath
from penstock.tables.empty_folders import Kept
from penstock.tables.empty_folders import read as read_folders
from penstock.tables.manifest import read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.config.access_rules import Access
    from penstock.core.documents.seal import Seal, SealedPermissions
    from penstock.core.layout import DatasetLayout
    from penstock.fs.dir_stat import Looked
    from penstock.fs.path_walk import WalkedPath

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_GROUP = 64
"""Files of a folder whose ACLs a thread reads at a time."""


class Policy:
    """The modes, owner, group and ACLs that the files and folders of the release were published with.
    `mapped`: whether numbers of owners are mapped here (`owners.mapping`); ACLs, which name numbers, are not
    compared then. `owner`: the account that owns the dataset now. What is its own is no other account's, also
    where another one published it: root gave the dataset to another account since."""

    def __init__(
        self, published: SealedPermissions, *, owner: int | None = None, mapped: bool = False
    ) -> None:
        self._published, self._owner, self._mapped = published, owner, mapped
        self._rules = sealed_rules(published)
        self.by_path, self.has_acl = self._rules.by_path, self._rules.has_acl and not mapped
        self.acl = ", ".join(published.acl)

    def _wanted(self, kind: str, path: str) -> Access:
        published = self._published
        if kind == "dir":
            return self._rules.folder(path, published.dir_mode)
        return self._rules.file(path, published.file_mode)

    def deviates(self, kind: str, path: str, mode: int, uid: int, gid: int) -> str:
        """In words; "" when it is as published, the ACL apart."""
        why = []
        published, wanted = self._published, self._wanted(kind, path)
        if mode != wanted.mode:
            why.append(f"mode {mode:04o}, published with {wanted.mode:04o}")
        if uid != self._owner:
            why += self._another("owner", uid, user_name, published.uid, published.user, "published by")
        why += self._another("group", gid, group_name, published.gid, published.group, "published with")
        return ", ".join(why)

    def _another(
        self, what: str, number: int, name: Callable[[int], str], wanted: int | None, known: str, how: str
    ) -> Iterator[str]:
        """What is said of an owner or group that is another than the published one."""
        if wanted is None or (number == wanted and not self._mapped):
            return
        here = name(number) if known else ""
        if is_another(number, here, wanted, known, mapped=self._mapped):
            yield f"{what} {_numbered(number, here)}, {how} {_numbered(wanted, known)}"

    def acl_deviates(self, kind: str, path: str, place: str) -> str:
        """The same of the ACLs of what is at `place`; "" also for a link, and where nothing is there."""
        wanted = self._wanted(kind, path)
        deviations = []
        try:
            for name, acl in ((ACCESS, wanted.acl), (DEFAULT, wanted.default)):
                actual = None if acl is None else read(place, name, follow=kind == "dir")
                if acl is not None and not allows(actual, acl):
                    what = "default ACL" if name == DEFAULT else "ACL"
                    deviations.append(f"{what} {in_words(actual)}, published with {in_words(acl)}")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, *NONE_KEPT):
                return ""
            deviations.append(f"its ACL cannot be read: {error.strerror}")
        return ", ".join(deviations)


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)


def look(
    layout: DatasetLayout,
    release: str,
    seal: Seal,
    stop: Callable[[], None],
    touched: Callable[[str, int], None] | None = None,
) -> Iterator[Finding]:
    """All deviations of the tree from the manifest, in the order of the paths. `touched` is called with path
    and size of each file that has the published size and another modification time than verify saw: that is
    no deviation by itself."""
    mapped = is_mapped(layout.release(release))
    # Where numbers are mapped, names decide (S19).
    owner = None if mapped else layout.folder.lstat().st_uid
    policy = Policy(seal.permissions, owner=owner, mapped=mapped)
    shape = _Shape(layout, release, policy, lists_folders=EMPTY_FOLDERS in seal.manifests, touched=touched)
    try:
        yield from shape.above()
        yield from shape.compare(stop)
    finally:
        shape.close()


def without_data(layout: DatasetLayout, release: str, seal: Seal) -> Iterator[Finding]:
    """The findings of a release that has no folder `data`: what stands in its place; where nothing does, all
    that it held is missing."""
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


class _Shape:
    def __init__(
        self,
        layout: DatasetLayout,
        release: str,
        policy: Policy,
        *,
        lists_folders: bool = False,
        touched: Callable[[str, int], None] | None = None,
    ) -> None:
        self._touched = touched
        self._lists_folders = lists_folders
        self._folder, self._policy = layout.release(release), policy
        self._root = os.open(self._folder / DATA, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._reported: set[str] = set()
        """Folders that have a finding already: they stand in a file's place, or cannot be read."""
        self._dark: list[Finding] = []
        self._empty = Kept(())
        self._acls: dict[str, str] = {}
        """Of files of the manifest's batch that is compared now, in what their ACLs deviate."""
        self._calls = Calls()

    def close(self) -> None:
        self._calls.close()
        os.close(self._root)

    def above(self) -> Iterator[Finding]:
        """The release's own folder: nothing beside `data` and the control files, and the mode of `data`."""
        for name in sorted(os.listdir(self._folder)):
            if name == EMPTY_FOLDERS and self._lists_folders:
                continue
            if name != DATA and name not in BESIDE_DATA:
                yield Finding("extra", f"../{name}", "it stands beside data/ and belongs to no release")
        seen = os.fstat(self._root)
        why = self._policy.deviates("dir", ".", stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
        place = f"/proc/self/fd/{self._root}"
        if self._policy.has_acl and (refused := refusal(place)):
            self._policy.has_acl = False
            yield Finding("mode", ".", f"ACLs, published with {self._policy.acl}: {refused}")
        elif self._policy.has_acl:
            why = ", ".join(filter(None, (why, self._policy.acl_deviates("dir", ".", place))))
        if why:
            yield Finding("mode", ".", why)

    def compare(self, stop: Callable[[], None]) -> Iterator[Finding]:
        tree = Cursor(self._folder / DATA, unreadable=self._unreadable)
        if self._lists_folders:
            # A damaged list has a finding of its own (`audit_plan.unsound`); its folders then count as extra.
            with contextlib.suppress(FailedError):
                self._empty = Kept(read_folders(self._folder / EMPTY_FOLDERS))
        columns = ("path", "size", "mtime_ns") if self._touched else ("path", "size")
        for files in read_files(self._folder / MANIFEST, columns=columns):
            stop()
            paths, sizes = files["path"], files["size"]
            times = files["mtime_ns"] if self._touched else None
            self._acls = self._other_acls(paths) if self._policy.has_acl else {}
            for index, member, own in tree.against(paths, partial(self._kept, paths, sizes, times)):
                yield from self._newly_dark()
                if not own and member is not None:
                    yield from self._beside(member, paths[index])
                elif member is not None:
                    yield from self._same(member, sizes[index], times[index] if times else None)
                else:
                    yield from self._absent(paths[index])
        for member in tree.rest():
            yield from self._newly_dark()
            yield from self._beside(member, "")
        yield from self._newly_dark()
        for folder in self._empty.missing():
            yield Finding(EMPTY_FOLDER, folder, "an empty folder of the source that is not there")

    def _kept(
        self,
        paths: Sequence[str],
        sizes: Sequence[int],
        times: Sequence[int] | None,
        looked: Looked,
        start: int,
    ) -> bool:
        """Whether all of these are files as they were published."""
        end = start + len(looked.size)
        names = paths[start:end]
        if looked.size != sizes[start:end] or (times is not None and looked.mtime_ns != times[start:end]):
            return False
        if self._acls and any(name in self._acls for name in names):
            return False
        # Where no path has a mode of its own, few combinations stand for all files.
        owned = zip(looked.mode, looked.uid, looked.gid, strict=True)
        each = zip(names, owned, strict=True) if self._policy.by_path else (("", one) for one in set(owned))
        return all(
            stat.S_ISREG(mode) and not self._policy.deviates("file", name, stat.S_IMODE(mode), uid, gid)
            for name, (mode, uid, gid) in each
        )

    def _other_acls(self, paths: Sequence[str]) -> dict[str, str]:
        """Those of these files whose ACL is not what was published, and in what; by threads where the calls
        wait for a server."""
        groups = [
            (folder, together[at : at + _GROUP])
            for folder, names in groupby(paths, lambda path: path.rpartition("/")[0])
            for together in [list(names)]
            for at in range(0, len(together), _GROUP)
        ]
        return dict(self._calls.each(self._read_acls, groups))

    def _read_acls(self, groups: Sequence[tuple[str, list[str]]]) -> list[tuple[str, str]]:
        deviations = []
        for folder, paths in groups:
            try:
                fd = open_beneath(self._root, folder, _LOOK) if folder else os.dup(self._root)
            except OSError:
                # What became of the folder is a finding of its own.
                continue
            try:
                for path in paths:
                    place = f"/proc/self/fd/{fd}/{path.rpartition('/')[2]}"
                    if why := self._policy.acl_deviates("file", path, place):
                        deviations.append((path, why))
            finally:
                os.close(fd)
        return deviations

    def _newly_dark(self) -> Iterator[Finding]:
        while self._dark:
            yield self._dark.pop(0)

    def _unreadable(self, folder: str, error: OSError) -> None:
        self._reported.add(folder)
        why = f"the folder cannot be read: {os.strerror(error.errno or 0)}"
        self._dark.append(Finding("unread", folder, why))

    def _absent(self, path: str) -> Iterator[Finding]:
        """Nothing of that name in its place of the order: gone, a folder now, or in a folder that cannot be
        read (which has a finding of its own)."""
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

    def _beside(self, member: WalkedPath, path: str) -> Iterator[Finding]:
        """Findings of something that no record names. None for a folder with a file or a listed empty folder
        below it, whose mode and owner are as published. `path` is the next record's."""
        if member.kind != "dir":
            yield Finding("extra", member.path, f"a {member.kind} that was not published")
        elif self._empty.meet(member.path) or member.holds(path):
            yield from self._policy_of(member)
        elif member.path not in self._reported:
            yield Finding("extra", member.path, "a folder that was not published")

    def _same(self, member: WalkedPath, size: int, mtime_ns: int | None) -> Iterator[Finding]:
        if member.kind != "file":
            yield Finding("replaced", member.path, f"a {member.kind} stands in its place")
            return
        if member.size != size:
            yield Finding("changed", member.path, f"it has {member.size} bytes, not {size}")
        elif self._touched is not None and mtime_ns not in (None, member.mtime_ns):
            self._touched(member.path, member.size)
        yield from self._policy_of(member)

    def _policy_of(self, member: WalkedPath) -> Iterator[Finding]:
        """Mode, owner, group and ACL of a file or folder."""
        why = [self._policy.deviates(member.kind, member.path, member.mode, member.uid, member.gid)]
        if member.kind == "file":
            why.append(self._acls.get(member.path, ""))
        elif self._policy.has_acl:
            why.append(self._folder_acl(member.path))
        if any(why):
            yield Finding("mode", member.path, ", ".join(filter(None, why)))

    def _folder_acl(self, path: str) -> str:
        try:
            fd = open_beneath(self._root, path, _LOOK)
        except OSError as error:
            return f"its ACL cannot be read: {error.strerror}"
        try:
            return self._policy.acl_deviates("dir", path, f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
