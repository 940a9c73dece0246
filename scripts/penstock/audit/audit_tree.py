"""The shape of a release against its manifest: missing, extra, replaced, wrong mode or owner.

One pass over the manifest and one over the tree, side by side; memory grows with the findings
alone. No file's bytes are read here: the elements read them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.findings import EMPTY_FOLDER, Finding
from penstock.core.layout import DATA, EMPTY_FOLDERS, MANIFEST, MANIFEST_SHA256, MANIFEST_XXH, SEAL
from penstock.errors import FailedError
from penstock.filesystem.owners import group_name, is_another, is_mapped, user_name
from penstock.filesystem.path_walk import Cursor, kind_of
from penstock.filesystem.safe_open import open_beneath
from penstock.formats.empty_folders import Kept
from penstock.formats.empty_folders import read as read_folders
from penstock.formats.manifest import read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.core.documents.seal import Seal, SealedPermissions
    from penstock.core.layout import DatasetLayout
    from penstock.filesystem.dir_stat import Looked
    from penstock.filesystem.path_walk import Found

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Policy:
    """The modes, owner and group that the files and folders of the release were published with. `mapped`:
    whether numbers of owners are mapped here (`owners.mapping`)."""

    def __init__(self, published: SealedPermissions, *, mapped: bool = False) -> None:
        self._published, self._mapped = published, mapped

    def deviates(self, kind: str, mode: int, uid: int, gid: int) -> str:
        """In words; "" when it is as published."""
        why = []
        published = self._published
        wanted = published.dir_mode if kind == "dir" else published.file_mode
        if wanted is not None and mode != wanted:
            why.append(f"mode {mode:04o}, published with {wanted:04o}")
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


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)


def look(layout: DatasetLayout, release: str, seal: Seal, stop: Callable[[], None]) -> Iterator[Finding]:
    """All deviations of the tree from the manifest, in the order of the paths."""
    policy = Policy(seal.permissions, mapped=is_mapped(layout.release(release)))
    shape = _Shape(layout, release, policy, lists_folders=EMPTY_FOLDERS in seal.manifests)
    try:
        yield from shape.above()
        yield from shape.compare(stop)
    finally:
        shape.close()


class _Shape:
    def __init__(
        self, layout: DatasetLayout, release: str, policy: Policy, *, lists_folders: bool = False
    ) -> None:
        self._lists_folders = lists_folders
        self._folder, self._policy = layout.release(release), policy
        self._root = os.open(self._folder / DATA, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._told: set[str] = set()
        """Folders that have a finding already: they stand in a file's place, or cannot be read."""
        self._dark: list[Finding] = []
        self._empty = Kept(())

    def close(self) -> None:
        os.close(self._root)

    def above(self) -> Iterator[Finding]:
        """The release's own folder: nothing beside `data` and the control files, and the mode of `data`."""
        for name in sorted(os.listdir(self._folder)):
            if name == EMPTY_FOLDERS and self._lists_folders:
                continue
            if name not in (DATA, MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, SEAL):
                yield Finding("extra", f"../{name}", "it stands beside data/ and belongs to no release")
        seen = os.fstat(self._root)
        why = self._policy.deviates("dir", stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid)
        if why:
            yield Finding("mode", ".", why)

    def compare(self, stop: Callable[[], None]) -> Iterator[Finding]:
        tree = Cursor(self._folder / DATA, unreadable=self._unreadable)
        if self._lists_folders:
            # A damaged list has a finding of its own (`audit_plan.unsound`); its folders then count as extra.
            with contextlib.suppress(FailedError):
                self._empty = Kept(read_folders(self._folder / EMPTY_FOLDERS))
        for files in read_files(self._folder / MANIFEST, columns=("path", "size")):
            stop()
            paths, sizes = files["path"], files["size"]
            for index, found, own in tree.against(paths, partial(self._kept, sizes)):
                yield from self._newly_dark()
                if not own and found is not None:
                    yield from self._beside(found, paths[index])
                elif found is not None:
                    yield from self._same(found, sizes[index])
                else:
                    yield from self._absent(paths[index])
        for found in tree.rest():
            yield from self._newly_dark()
            yield from self._beside(found, "")
        yield from self._newly_dark()
        for folder in self._empty.missing():
            yield Finding(EMPTY_FOLDER, folder, "an empty folder of the source that is not there")

    def _kept(self, sizes: Sequence[int], looked: Looked, start: int) -> bool:
        """Whether all of these are files as they were published."""
        kinds = set(zip(looked.mode, looked.uid, looked.gid, strict=True))
        return looked.size == sizes[start : start + len(looked.size)] and all(
            stat.S_ISREG(mode) and not self._policy.deviates("file", stat.S_IMODE(mode), uid, gid)
            for mode, uid, gid in kinds
        )

    def _newly_dark(self) -> Iterator[Finding]:
        while self._dark:
            yield self._dark.pop(0)

    def _unreadable(self, folder: str, error: OSError) -> None:
        self._told.add(folder)
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
            self._told.add(path)
            yield Finding("replaced", path, "a folder stands in its place")
        elif not any(path.startswith(f"{folder}/") for folder in self._told):
            yield Finding("missing", path, "it was not there when its folder was read")

    def _beside(self, found: Found, path: str) -> Iterator[Finding]:
        """Findings of something that no record names. None for a folder with a file or a listed empty folder
        below it, whose mode and owner are as published. `path` is the next record's."""
        if found.kind != "dir":
            yield Finding("extra", found.path, f"a {found.kind} that was not published")
        elif self._empty.meet(found.path) or found.holds(path):
            why = self._policy.deviates(found.kind, found.mode, found.uid, found.gid)
            if why:
                yield Finding("mode", found.path, why)
        elif found.path not in self._told:
            yield Finding("extra", found.path, "a folder that was not published")

    def _same(self, found: Found, size: int) -> Iterator[Finding]:
        if found.kind != "file":
            yield Finding("replaced", found.path, f"a {found.kind} stands in its place")
            return
        if found.size != size:
            yield Finding("changed", found.path, f"it has {found.size} bytes, not {size}")
        why = self._policy.deviates(found.kind, found.mode, found.uid, found.gid)
        if why:
            yield Finding("mode", found.path, why)
