"""The shape of a release against its manifest: missing, extra, replaced, wrong mode or owner.

One pass over the manifest and one over the tree, side by side; memory grows with the findings
alone. Nothing is opened: the elements read the bytes.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from penstock.core.findings import Finding
from penstock.core.layout import DATA, MANIFEST
from penstock.formats.manifest import read_manifest
from penstock.storage.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.storage.walk import Found


class Policy:
    """What every file and folder of the release must have. None: not known, not compared."""

    def __init__(self, seal: dict[str, Any]) -> None:
        told = seal.get("permissions") or {}
        self.file_mode: int | None = told.get("file_mode")
        self.dir_mode: int | None = told.get("dir_mode")
        self.gid: int | None = told.get("gid")
        self.uid: int | None = told.get("uid")

    def deviates(self, found: Found) -> str:
        """In words; "" when it is as published."""
        why = []
        mode = self.dir_mode if found.kind == "dir" else self.file_mode
        if mode is not None and found.mode != mode:
            why.append(f"mode {found.mode:04o}, published with {mode:04o}")
        if self.uid is not None and found.uid != self.uid:
            why.append(f"owner {found.uid}, published by {self.uid}")
        if self.gid is not None and found.gid != self.gid:
            why.append(f"group {found.gid}, published with {self.gid}")
        return ", ".join(why)


def look(
    layout: DatasetLayout, release: str, seal: dict[str, Any], stop: Callable[[], None]
) -> Iterator[Finding]:
    """All deviations of the tree from the manifest, in the order of the paths."""
    folder = layout.release(release)
    policy = Policy(seal)
    yield from _above(layout, release, policy)
    tree = walk(folder / DATA)
    found = next(tree, None)
    for batch in read_manifest(folder / MANIFEST):
        stop()
        for record in batch:
            name = os.fsencode(record.path)
            while found is not None and _order(found) < name:
                yield from _beside(found, name, policy)
                found = next(tree, None)
            if found is not None and _order(found) == name:
                yield from _same(found, record, policy)
                found = next(tree, None)
            elif found is not None and found.kind == "dir" and found.path == record.path:
                yield Finding("replaced", record.path, "a folder stands in its place")
            else:
                yield Finding("missing", record.path, "it is not there")
    while found is not None:
        yield from _beside(found, b"", policy)
        found = next(tree, None)


def _above(layout: DatasetLayout, release: str, policy: Policy) -> Iterator[Finding]:
    """The release's own folder: nothing beside `data` and the control files, and its mode."""
    from penstock.core.layout import MANIFEST_SHA256, MANIFEST_XXH, SEAL

    folder = layout.release(release)
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        if name not in (DATA, MANIFEST, MANIFEST_XXH, MANIFEST_SHA256, SEAL):
            yield Finding("extra", f"../{name}", "it stands beside data/ and belongs to no release")
    seen = os.stat(folder / DATA, follow_symlinks=False)
    if policy.dir_mode is not None and stat.S_IMODE(seen.st_mode) != policy.dir_mode:
        yield Finding(
            "mode", ".", f"mode {stat.S_IMODE(seen.st_mode):04o}, published with {policy.dir_mode:04o}"
        )


def _order(found: Found) -> bytes:
    name = os.fsencode(found.path)
    return name + b"/" if found.kind == "dir" else name


def _beside(found: Found, upto: bytes, policy: Policy) -> Iterator[Finding]:
    """Something that no record names: good only as a folder on the way to the next record."""
    if found.kind != "dir":
        yield Finding("extra", found.path, f"a {found.kind} that was not published")
    elif not upto.startswith(_order(found)):
        yield Finding("extra", found.path, "a folder that was not published")
    else:
        why = policy.deviates(found)
        if why:
            yield Finding("mode", found.path, why)


def _same(found: Found, record: Record, policy: Policy) -> Iterator[Finding]:
    if found.kind != "file":
        yield Finding("replaced", record.path, f"a {found.kind} stands in its place")
        return
    if found.size != record.size:
        yield Finding("changed", record.path, f"it has {found.size} bytes, not {record.size}")
    why = policy.deviates(found)
    if why:
        yield Finding("mode", record.path, why)
