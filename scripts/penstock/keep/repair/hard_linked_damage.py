"""Files of a release that are damaged, and are the very same inodes in other releases: a repair gives
these the new file, too.

They are found by inode: of each other release the files whose record has the digest of a damaged one are
looked at, under whatever path. The caller holds the locks of the dataset and of its audits. Each other
release gets the new file before the one that is repaired: a repair that is killed in between still finds
by the old inode, when it runs again, where the damage is left.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.core.documents.history_line import Repair, RepairCounts
from penstock.core.errors import PenstockError
from penstock.core.layout import MANIFEST
from penstock.dataset import history, verdicts
from penstock.fs import clock
from penstock.jobs import audit_store
from penstock.keep.audit import audit_plan
from penstock.keep.audit.audit_step import findings_of
from penstock.keep.repair.published_files import NAMED, inode_of, mender_of
from penstock.tables.manifest import with_digests
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.documents.audit_description import Audit
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.dataset.context import Context
    from penstock.target.file_replacement import Mender


class Name(NamedTuple):
    """One more name of a damaged file."""

    release: str
    path: str
    mtime_ns: int
    """As the other release's manifest has it."""


@dataclass
class HardLinkedDamage:
    """The further names of damaged files, and what became of them. `mend` may be called by several threads,
    for different files."""

    context: Context
    layout: DatasetLayout
    release: str
    """That is repaired."""
    spared: Mapping[str, str]
    """By other release: why nothing of it is replaced."""
    names: dict[str, list[Name]] = field(default_factory=dict)
    """By the path in that release."""
    mended: dict[str, set[str]] = field(default_factory=dict)
    """By other release: its paths that have the repaired file."""
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    """By other release: its paths that still have the damaged one, and why."""
    _menders: dict[str, Mender] = field(default_factory=dict)
    _why: dict[str, str] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(
        cls,
        context: Context,
        layout: DatasetLayout,
        release: str,
        records: Sequence[Record],
        spared: Mapping[str, str],
    ) -> Self:
        """The further names of these files. To be called before any of them is replaced. `spared`: releases
        in which nothing is to be replaced, each with why."""
        damage = cls(context, layout, release, spared)
        inodes: dict[tuple[int, int], str] = {}
        for record in records:
            status = inode_of(layout, release, record.path)
            if status is not None and status.st_nlink > 1:
                inodes[status.st_dev, status.st_ino] = record.path
        digests = {record.digest for record in records if record.path in inodes.values()}
        for sibling in dataset_folders.releases(layout) if inodes else ():
            if sibling != release:
                damage._look(sibling, digests, inodes)
        return damage

    def _look(self, sibling: str, digests: set[str], inodes: dict[tuple[int, int], str]) -> None:
        try:
            for path, mtime_ns in with_digests(self.layout.release(sibling) / MANIFEST, digests):
                status = inode_of(self.layout, sibling, path)
                mine = inodes.get((status.st_dev, status.st_ino)) if status is not None else None
                if mine is not None:
                    self.names.setdefault(mine, []).append(Name(sibling, path, mtime_ns))
        except PenstockError as error:
            # Without its manifest only the same path can be looked at.
            for (device, inode), path in inodes.items():
                status = inode_of(self.layout, sibling, path)
                if status is not None and (status.st_dev, status.st_ino) == (device, inode):
                    self.failed.setdefault(sibling, {})[path] = str(error).partition("\n")[0]

    def __enter__(self) -> Self:
        """Opens the releases. One that cannot be changed is said, and stays as it is."""
        for sibling in sorted({name.release for names in self.names.values() for name in names}):
            if sibling in self.spared:
                self._why[sibling] = self.spared[sibling]
                continue
            try:
                seal, digest = audit_plan.read_seal(self.layout, sibling)
                if damaged := audit_plan.unsound(self.layout, sibling, seal, digest):
                    self._why[sibling] = f"its manifest or seal is damaged: {damaged[0]}"
                else:
                    mender = mender_of(self.context, self.layout, seal, sibling)
                    self._menders[sibling] = self._stack.enter_context(mender)
            except PenstockError as error:
                self._why[sibling] = str(error).partition("\n")[0]
        return self

    def __exit__(self, *_: object) -> None:
        self._menders.clear()
        self._stack.close()

    def mend(self, path: str, new: Path) -> None:
        """Give every other release that has the damaged file of `path` the file `new`, which is as it will
        stand in the repaired one."""
        for name in self.names.get(path, ()):
            before = inode_of(self.layout, self.release, path)
            theirs = inode_of(self.layout, name.release, name.path)
            if before is None or theirs is None or before.st_ino != theirs.st_ino:
                continue
            mender = self._menders.get(name.release)
            why = self._why.get(name.release, "")
            if mender is not None:
                try:
                    mender.link_or_copy(name.path, name.mtime_ns, new)
                except PenstockError as error:
                    why = str(error).partition("\n")[0]
            if why:
                self.failed.setdefault(name.release, {})[name.path] = why
            else:
                self.mended.setdefault(name.release, set()).add(name.path)

    def note(self, audit: Audit, fsync_ends: str) -> None:
        """A line of the history and the verdict of each release that was repaired."""
        for sibling, paths in sorted(self.mended.items()):
            line = Repair(
                at=clock.stamp(self.layout.releases),
                dataset=self.layout.dataset,
                release=sibling,
                author=history.this_author(),
                audit=audit.id,
                repaired=sorted(paths)[:NAMED],
                counts=RepairCounts(len(paths), 0),
                fsync_ends=fsync_ends,
            )
            history.append(self.layout, line)
            before = verdicts.read(self.layout, sibling)
            if before is None:
                before = verdicts.new(self.layout, sibling, audit_plan.read_seal(self.layout, sibling)[1])
            fell = {
                later.id: Counter(f.kind for f in findings_of(self.layout, later) if f.path in paths)
                for later in audit_store.since_whole(self.layout, sibling)
            }
            verdicts.write(self.layout, verdicts.mended(before, audit.id, fell, len(paths)))
