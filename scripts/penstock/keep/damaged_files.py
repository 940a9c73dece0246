"""The published files that a repair replaces: those in its release, and hard links to the same inodes in
other releases.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

from penstock.config.access_rules import sealed_rules
from penstock.core.dataset_documents import Repair, RepairCounts
from penstock.core.errors import FailedError, PenstockError
from penstock.core.layout import DATA, MANIFEST
from penstock.dataset import release_records
from penstock.fs import capabilities
from penstock.fs.owners import is_mapped, numbers_here
from penstock.jobs import audits_and_adoptions
from penstock.keep import audit_plan
from penstock.keep.audit_step import findings_of
from penstock.tables.manifest import with_digests
from penstock.target import dataset_folders
from penstock.target.file_replacement import Mender

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.config.access_rules import AccessRules
    from penstock.core.findings import Audit
    from penstock.core.layout import DatasetLayout
    from penstock.core.model import Record
    from penstock.core.seal import Seal, SealedPermissions
    from penstock.dataset.context import Context


NAMED = 1000  # number of paths that a line of the history names, at most


def mender_of(context: Context, layout: DatasetLayout, seal: Seal, release: str) -> Mender:
    """Make a mender, which replaces files and gives them the published modes, group and owner. The mender
    opens the release's `data`, and makes it again if it is missing. Raises FailedError if this mount cannot
    restore the ACL."""
    published = seal.permissions
    data = layout.release(release) / DATA
    uid, gid = numbers_here(
        published.uid, published.user, published.gid, published.group, mapped=is_mapped(data)
    )
    return Mender(
        data,
        file_mode=published.file_mode,
        dir_mode=published.dir_mode,
        gid=gid,
        uid=uid,
        rules=_rules(published, data),
        spend=context.spend,
    )


def _rules(published: SealedPermissions, data: Path) -> AccessRules:
    """Return the rules. Raises FailedError if the numbers in the release's ACL differ on this mount."""
    if published.acl and is_mapped(data):
        raise FailedError(
            "the release's ACL cannot be set again here",
            where=str(data),
            why="this mount maps the numbers of users and groups, by which the ACL names them",
            hint="repair on a machine that mounts it without id mapping",
        )
    return sealed_rules(published)


def inode_of(layout: DatasetLayout, release: str, path: str) -> os.stat_result | None:
    try:
        return os.lstat(layout.release(release) / DATA / path)
    except OSError:
        return None


# Damaged files of a release may be the same inodes in other releases. A repair replaces them there too.
#
# Candidates are all files in other releases whose record has the digest of a damaged file. Other releases get
# the new file first, so a repair that continues after a kill still finds the remaining files by the old
# inode. The caller holds the locks of the dataset and of its audits.


class Name(NamedTuple):
    """Another name of a damaged file, in another release."""

    release: str
    path: str
    mtime_ns: int  # modification time in the other release's manifest


@dataclass
class HardLinkedDamage:
    """The other names of damaged files, and their repairs. Threads may call `mend` for different files."""

    context: Context
    layout: DatasetLayout
    release: str  # the release under repair
    spared: Mapping[str, str]  # {name of another release: why that release is not changed}
    # {path in the release under repair: the file's other names}
    names: dict[str, list[Name]] = field(default_factory=dict)
    mended: dict[str, set[str]] = field(default_factory=dict)  # {name of another release: its repaired paths}
    # {name of another release: its paths that are still damaged, with the reason}
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
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
        """Find the other names of these files, before a file is replaced. `spared`: releases not to be
        changed, with the reason."""
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
            # Without the other release's manifest, only the same path can be checked.
            for (device, inode), path in inodes.items():
                status = inode_of(self.layout, sibling, path)
                if status is not None and (status.st_dev, status.st_ino) == (device, inode):
                    self.failed.setdefault(sibling, {})[path] = str(error).partition("\n")[0]

    def __enter__(self) -> Self:
        """Open the other releases. A release that cannot be changed is left out, and `_why` has the
        reason."""
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
        """Put the file `new` into each other release that shares the damaged file of `path`. `new` already
        has its final permissions and times."""
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
        """Write a history line and the verdict for each other release that was repaired."""
        for sibling, paths in sorted(self.mended.items()):
            line = Repair(
                at=capabilities.stamp(self.layout.releases),
                dataset=self.layout.dataset,
                release=sibling,
                author=release_records.this_author(),
                audit=audit.id,
                repaired=sorted(paths)[:NAMED],
                counts=RepairCounts(len(paths), 0),
                fsync_ends=fsync_ends,
            )
            release_records.append_history(self.layout, line)
            before = release_records.read_verdict(self.layout, sibling)
            if before is None:
                before = release_records.new_verdict(
                    self.layout, sibling, audit_plan.read_seal(self.layout, sibling)[1]
                )
            fell = {
                later.id: Counter(f.kind for f in findings_of(self.layout, later) if f.path in paths)
                for later in audits_and_adoptions.since_whole(self.layout, sibling)
            }
            release_records.write_verdict(
                self.layout, release_records.mended(before, audit.id, fell, len(paths))
            )
