"""The seal of a release, `release.json`: what was published, from where, and by which evidence.

The seal's bytes have their digest in the dataset's history, so what is written of one `Seal` never changes. A
seal is written once, before its release is revealed, and only read from then on. Pure: publish writes the
file, `dataset.seals` reads it.
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
    """One source, as the configuration had it. Never a secret."""

    url: str
    into: str = ""
    """The folder below `data/` that it fills; "" for all of it."""


class SealedModes(NamedTuple):
    """The modes of files and folders whose path a pattern matches; None: the rule names none."""

    match: str
    file: int | None = None
    dir: int | None = None


class SealedPermissions(NamedTuple):
    """What every file and folder of the release has."""

    file_mode: int
    dir_mode: int
    gid: int | None
    """None: none was asked for, and none is compared."""
    uid: int
    user: Annotated[str, LEFT_OUT] = ""
    """The name of `uid`, and `group` that of `gid`, on the machine that published; "" where it had none."""
    group: Annotated[str, LEFT_OUT] = ""
    modes: Annotated[Sequence[SealedModes], LEFT_OUT] = ()
    """The last rule that matches a path goes before the others, and before the modes above."""
    acl: Annotated[Sequence[str], LEFT_OUT] = ()
    """Entries of named users and groups, by number (`core.posix_acl.parse`). Empty: ACLs are not compared."""

    def derived(self) -> Json:
        # JSON has no octal numbers: the modes stand once more as people write them.
        modes = {"files": self.file_mode, "folders": self.dir_mode}
        return {"octal": {name: f"{mode:04o}" for name, mode in modes.items()}}


@dataclass(frozen=True)
class SealedRecords:
    """The tree over the manifest's rows (`core.seal_tree`)."""

    root: str
    """`sha256:<hex>`."""
    count: int
    fields: Sequence[str]
    """What each leaf holds, in this order. Those of another version may be none that this one knows."""


class SealedManifest(NamedTuple):
    """One file beside `data/`. A count that a file of its kind does not have is None."""

    sha256: str
    """`sha256:<hex>` of its bytes."""
    records: Annotated[int | None, LEFT_OUT] = None
    bytes: Annotated[int | None, LEFT_OUT] = None
    """The size of the Parquet file."""
    folders: Annotated[int | None, LEFT_OUT] = None
    lines: Annotated[int | None, LEFT_OUT] = None
    escaped: Annotated[int | None, LEFT_OUT] = None
    """Lines whose name is escaped, as in coreutils."""
    left_out: Annotated[int | None, LEFT_OUT] = None
    """Files that have no line."""


class Amount(NamedTuple):
    """Files, and their bytes."""

    files: int = 0
    bytes: int = 0


class SealedReadDelay(NamedTuple):
    """How long after their writing files were read back (`core.grades.read_delay`), in seconds: those that
    were written for this release and that hold anything."""

    least: int
    median: int
    """Up to a sixth too short."""
    soon: int
    """Files that were read back within ten minutes."""


class SealedEvidence(NamedTuple):
    """Files and bytes by how they were proven."""

    source: Mapping[str, Amount]
    """By source grade."""
    storage: Mapping[str, Amount]
    """By storage grade."""
    methods: Mapping[str, Amount]
    """By how the caches were passed when the files were read back."""
    required_storage: str
    required_source: str
    oldest_read: Annotated[Utc, LEFT_OUT] = ""
    """When the file that was read longest ago was last read back, of all that hold anything, UTC in ISO 8601;
    "" where one was never read, or none holds anything."""
    fsync_ends: Annotated[str, LEFT_OUT] = ""
    """Where an fsync ended while the files were written, if not on the servers' disks, by the mounts of the
    nodes that wrote them; "" where none said so."""
    read_after: Annotated[SealedReadDelay | None, LEFT_OUT] = None
    """None where there were none, and in seals of versions that did not measure it."""

    @property
    def weakest_source(self) -> str:
        """The weakest source grade that any file has; "" where the seal names none."""
        return next((grade for grade in SOURCE_GRADES if grade in self.source), "")

    @property
    def weakest_storage(self) -> str:
        """The weakest storage grade that any file has; "" where the seal names none."""
        return next((grade for grade in EVIDENCE_GRADES if grade in self.storage), "")

    def derived(self) -> Json:
        return {
            "weakest_source": _weakest(self.weakest_source, self.source),
            "weakest_storage": _weakest(self.weakest_storage, self.storage),
        }


class SealedAmendment(NamedTuple):
    """How the release's listing differs from the one that its run froze."""

    listing: str
    """`sha256:<hex>` of the listing that the release holds."""
    changed: int
    """Files that are of another version than the listed one."""
    gone: int
    began: Annotated[str, "from"]
    """The files were read between this time and `until`, UTC, ISO 8601; "" where that is not known."""
    until: str


class SealedCarried(NamedTuple):
    """Linked files that were not read back for this release."""

    files: int
    bytes: int
    oldest_read: Utc
    """When the one that was read longest ago was last read back, UTC in ISO 8601."""


class Seal(NamedTuple):
    """What `release.json` says. Times are UTC, ISO 8601; sizes are bytes."""

    dataset: str
    release: str
    run: RunName
    sealed: Utc
    """When."""
    penstock: str
    """The version that wrote it."""
    files: int
    bytes: int
    giants: int
    part_bytes: int | None
    """The size of a giant's parts; None without giants."""
    sources: Sequence[SealedSource]
    """By the index that the records have."""
    listing: str
    """`sha256:<hex>` of the listing that the run froze."""
    include: Sequence[str]
    exclude: Sequence[str]
    scanned: int
    """Objects seen, before the filter."""
    ignored: Mapping[str, int]
    hard_links: Mapping[str, int]
    base: str | None
    """The release that unchanged files were linked from."""
    unchanged: int
    permissions: SealedPermissions
    records: SealedRecords
    manifests: Mapping[str, SealedManifest]
    """By file name."""
    evidence: SealedEvidence
    renamed: Annotated[int, LEFT_OUT] = 0
    """Those of `unchanged` that `base` holds under another name, known by their checksums."""
    amended: Annotated[SealedAmendment | None, LEFT_OUT] = None
    """Where the source was followed while it changed: the release is no snapshot of one moment."""
    carried: Annotated[SealedCarried | None, LEFT_OUT] = None
    """What was not read back for this release (`verify.linked`); None where all was."""

    def derived(self) -> Json:
        return {"snapshot": False} if self.amended is not None else {}


def _check(seal: Seal) -> None:
    if not all(posix_acl.parse(text).who.isdecimal() for text in seal.permissions.acl):
        raise ValueError("an entry of its ACL names no number")
    if MANIFEST not in seal.manifests:
        raise ValueError(f"it does not seal {MANIFEST}")


RELEASE_SEAL = Document(Seal, "a release's seal", check=_check)


def _weakest(grade: str, amounts: Mapping[str, Amount]) -> Json:
    """A grade, and how much has it."""
    return {"grade": grade, **amounts.get(grade, Amount())._asdict()}
