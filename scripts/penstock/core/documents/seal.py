"""The seal of a release, `release.json`: what was published, from where, and by which evidence.

It is written once, before its release is revealed. The dataset's history has the digest of its bytes, so the
JSON of a given `Seal` must never change.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from penstock.core import posix_acl
from penstock.core.documents.typed_json import LEFT_OUT, Document, RunName, Utc
from penstock.core.grades import EVIDENCE_GRADES, SOURCE_GRADES
from penstock.core.layout import MANIFEST

Json = dict[str, object]


class SealedSource(NamedTuple):
    """A source, as configured. Never a secret."""

    url: str
    into: str = ""  # the folder below `data/` that it fills; "": all of it


class SealedModes(NamedTuple):
    """Modes of files and folders whose path matches; None: the rule names none."""

    match: str
    file: int | None = None
    dir: int | None = None


class SealedPermissions(NamedTuple):
    """The permissions of every file and folder of the release."""

    file_mode: int
    dir_mode: int
    gid: int | None  # None: none was configured, and none is compared
    uid: int
    user: Annotated[str, LEFT_OUT] = ""  # name of `uid` on the machine that published, or ""
    group: Annotated[str, LEFT_OUT] = ""  # name of `gid` there, or ""
    # the last matching rule wins, over the modes above, too
    modes: Annotated[Sequence[SealedModes], LEFT_OUT] = ()
    # named entries, by number (`core.posix_acl.parse`); empty: ACLs are not compared
    acl: Annotated[Sequence[str], LEFT_OUT] = ()

    def derived(self) -> Json:
        # JSON has no octal numbers: the modes stand once more as people write them.
        modes = {"files": self.file_mode, "folders": self.dir_mode}
        return {"octal": {name: f"{mode:04o}" for name, mode in modes.items()}}


@dataclass(frozen=True)
class SealedRecords:
    """The tree over the manifest's rows (`core.seal_tree`)."""

    root: str  # `sha256:<hex>`
    count: int
    fields: Sequence[str]  # the content of each leaf, in order; another version's names may be unknown here


class SealedManifest(NamedTuple):
    """A file beside `data/`. A count that its kind does not have is None."""

    sha256: str  # `sha256:<hex>` of its bytes
    records: Annotated[int | None, LEFT_OUT] = None
    bytes: Annotated[int | None, LEFT_OUT] = None  # the size of the Parquet file
    folders: Annotated[int | None, LEFT_OUT] = None
    lines: Annotated[int | None, LEFT_OUT] = None
    escaped: Annotated[int | None, LEFT_OUT] = None  # lines whose name is escaped, as in coreutils
    left_out: Annotated[int | None, LEFT_OUT] = None  # files that have no line


class Amount(NamedTuple):
    files: int = 0
    bytes: int = 0


class SealedReadDelay(NamedTuple):
    """Seconds from the writing of files to their reading back (`core.grades.read_delay`), of non-empty files
    written for this release."""

    least: int
    median: int  # up to a sixth too short
    soon: int  # files that were read back within ten minutes


class SealedEvidence(NamedTuple):
    """Files and bytes by how they were proven."""

    source: Mapping[str, Amount]  # by source grade
    storage: Mapping[str, Amount]  # by storage grade
    methods: Mapping[str, Amount]  # by how the caches were bypassed on reading back
    required_storage: str
    required_source: str
    # UTC, ISO 8601: the oldest last reading of a non-empty file; "": one was never read, or all are empty
    oldest_read: Annotated[Utc, LEFT_OUT] = ""
    # where an fsync ended during writing, if not on the servers' disks, by the nodes' mounts; or ""
    fsync_ends: Annotated[str, LEFT_OUT] = ""
    # None: no such files, or a version that did not measure it
    read_after: Annotated[SealedReadDelay | None, LEFT_OUT] = None

    @property
    def weakest_source(self) -> str:
        """The weakest source grade of any file; "": the seal names none."""
        return next((grade for grade in SOURCE_GRADES if grade in self.source), "")

    @property
    def weakest_storage(self) -> str:
        """The weakest storage grade of any file; "": the seal names none."""
        return next((grade for grade in EVIDENCE_GRADES if grade in self.storage), "")

    def derived(self) -> Json:
        return {
            "weakest_source": _weakest(self.weakest_source, self.source),
            "weakest_storage": _weakest(self.weakest_storage, self.storage),
        }


class SealedAmendment(NamedTuple):
    """How the release's listing differs from the one that its run froze."""

    listing: str  # `sha256:<hex>` of the release's listing
    changed: int  # files of another version than the listed one
    gone: int
    # UTC, ISO 8601: the files were read from this time to `until`; "": not known
    began: Annotated[str, "from"]
    until: str


class SealedCarried(NamedTuple):
    """Linked files that were not read back for this release."""

    files: int
    bytes: int
    oldest_read: Utc  # UTC, ISO 8601: the oldest last reading of any of them


class Seal(NamedTuple):
    """The content of `release.json`. Times are UTC, ISO 8601; sizes are bytes."""

    dataset: str
    release: str
    run: RunName
    sealed: Utc
    penstock: str  # the version that wrote it
    files: int
    bytes: int
    giants: int
    part_bytes: int | None  # size of a giant's parts; None: no giants
    sources: Sequence[SealedSource]  # by the index in the records
    listing: str  # `sha256:<hex>` of the listing that the run froze
    include: Sequence[str]
    exclude: Sequence[str]
    scanned: int  # objects seen, before the filter
    ignored: Mapping[str, int]
    hard_links: Mapping[str, int]
    base: str | None  # the release that unchanged files were linked from
    unchanged: int
    permissions: SealedPermissions
    records: SealedRecords
    manifests: Mapping[str, SealedManifest]  # by file name
    evidence: SealedEvidence
    # part of `unchanged` that `base` holds under other names, identified by checksums
    renamed: Annotated[int, LEFT_OUT] = 0
    # set if a changing source was followed: the release is no snapshot of one moment
    amended: Annotated[SealedAmendment | None, LEFT_OUT] = None
    # files not read back for this release (`verify.linked`)
    carried: Annotated[SealedCarried | None, LEFT_OUT] = None

    def derived(self) -> Json:
        return {"snapshot": False} if self.amended is not None else {}


def _check(seal: Seal) -> None:
    if not all(posix_acl.parse(text).who.isdecimal() for text in seal.permissions.acl):
        raise ValueError("an entry of its ACL names no number")
    if MANIFEST not in seal.manifests:
        raise ValueError(f"it does not seal {MANIFEST}")


RELEASE_SEAL = Document(Seal, "a release's seal", check=_check)


def _weakest(grade: str, amounts: Mapping[str, Amount]) -> Json:
    return {"grade": grade, **amounts.get(grade, Amount())._asdict()}
