"""The seal of a release, `release.json`, which states what was published, from where, and on what evidence.
Also the SHA-256 tree over the release's records, with proofs that a record is in the tree. Pure.
"""

# Annotations are read at run time (`typed_json`): no `from __future__ import annotations`.
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from os import fsencode
from typing import Annotated, NamedTuple

from penstock.core import posix_acl
from penstock.core.grades import EVIDENCE_GRADES, SOURCE_GRADES
from penstock.core.layout import MANIFEST
from penstock.core.model import Record
from penstock.core.row_codec import ALWAYS, CARRYING, ByName, sealed_fields
from penstock.core.typed_json import LEFT_OUT, Document, RunName, Utc

# The seal is written once, before its release becomes visible. The dataset's history has the digest of its
# bytes, so the JSON of a given `Seal` must never change.

Json = dict[str, object]


class SealedSource(NamedTuple):
    """A source, as configured. Never a secret."""

    url: str
    into: str = ""  # the folder below `data/` that the source fills; "" for `data/` itself


class SealedModes(NamedTuple):
    """Modes of files and folders whose path matches. None: the rule sets no such mode."""

    match: str
    file: int | None = None
    dir: int | None = None


class SealedPermissions(NamedTuple):
    """The permissions of every file and folder of the release."""

    file_mode: int
    dir_mode: int
    gid: int | None  # None: no group was configured, and audits compare none
    uid: int
    user: Annotated[str, LEFT_OUT] = ""  # name of `uid` on the machine that published, or ""
    group: Annotated[str, LEFT_OUT] = ""  # name of `gid` on that machine, or ""
    # rules for single paths: the last rule that matches wins, also over `file_mode` and `dir_mode`
    modes: Annotated[Sequence[SealedModes], LEFT_OUT] = ()
    # named entries, by number (`core.posix_acl.parse`); empty: ACLs are not compared
    acl: Annotated[Sequence[str], LEFT_OUT] = ()

    def derived(self) -> Json:
        # JSON has no octal numbers, so the modes are repeated here as people write them.
        modes = {"files": self.file_mode, "folders": self.dir_mode}
        return {"octal": {name: f"{mode:04o}" for name, mode in modes.items()}}


@dataclass(frozen=True)
class SealedRecords:
    """The tree over the manifest's rows (`core.seal`)."""

    root: str  # `sha256:<hex>`
    count: int
    fields: Sequence[str]  # the fields in each leaf, in order; other versions may have fields unknown here


class SealedManifest(NamedTuple):
    """A file beside `data/`. A count that does not apply to this kind of file is None."""

    sha256: str  # `sha256:<hex>` of its bytes
    records: Annotated[int | None, LEFT_OUT] = None
    bytes: Annotated[int | None, LEFT_OUT] = None  # the size of the Parquet file
    folders: Annotated[int | None, LEFT_OUT] = None
    lines: Annotated[int | None, LEFT_OUT] = None
    escaped: Annotated[int | None, LEFT_OUT] = None  # lines whose file name is escaped, as in coreutils
    left_out: Annotated[int | None, LEFT_OUT] = None  # files without a line


class Amount(NamedTuple):
    files: int = 0
    bytes: int = 0


class SealedReadDelay(NamedTuple):
    """Seconds between the writing and the reading back of files (`core.grades.read_delay`). Only non-empty
    files that were written for this release count."""

    least: int
    median: int  # the median delay; up to a sixth too short
    soon: int  # files that were read back within ten minutes


class SealedEvidence(NamedTuple):
    """Files and bytes, grouped by how they were proven."""

    source: Mapping[str, Amount]  # amounts by source grade
    storage: Mapping[str, Amount]  # amounts by storage grade
    methods: Mapping[str, Amount]  # amounts by how reading back bypassed the caches
    required_storage: str
    required_source: str
    # The earliest time at which any non-empty file was last read, in UTC, ISO 8601. "" if a file was never
    # read, or if all files are empty.
    oldest_read: Annotated[Utc, LEFT_OUT] = ""
    # where an fsync ended during writing, according to the nodes' mounts; "" if on the servers' disks
    fsync_ends: Annotated[str, LEFT_OUT] = ""
    # None: no such files exist, or an older version of penstock did not measure the delay
    read_after: Annotated[SealedReadDelay | None, LEFT_OUT] = None

    @property
    def weakest_source(self) -> str:
        """The weakest source grade of any file, or "" if the seal has no source grades."""
        return next((grade for grade in SOURCE_GRADES if grade in self.source), "")

    @property
    def weakest_storage(self) -> str:
        """The weakest storage grade of any file, or "" if the seal has no storage grades."""
        return next((grade for grade in EVIDENCE_GRADES if grade in self.storage), "")

    def derived(self) -> Json:
        return {
            "weakest_source": _weakest(self.weakest_source, self.source),
            "weakest_storage": _weakest(self.weakest_storage, self.storage),
        }


class SealedAmendment(NamedTuple):
    """How the release's listing differs from the listing that its run froze."""

    listing: str  # `sha256:<hex>` of the release's listing
    changed: int  # files whose version is not the listed version
    gone: int
    # UTC, ISO 8601: the files were read from this time to `until`; "": not known
    began: Annotated[str, "from"]
    until: str


class SealedCarried(NamedTuple):
    """Linked files that were not read back for this release."""

    files: int
    bytes: int
    oldest_read: Utc  # UTC, ISO 8601: each of these files was read at this time or later


class Seal(NamedTuple):
    """The content of `release.json`. Times are UTC, ISO 8601; sizes are bytes."""

    dataset: str
    release: str
    run: RunName
    sealed: Utc
    penstock: str  # the version of penstock that wrote the seal
    files: int
    bytes: int
    giants: int
    part_bytes: int | None  # size of a giant's parts; None if the release has no giants
    sources: Sequence[SealedSource]  # records refer to a source by its index here
    listing: str  # `sha256:<hex>` of the listing that the run froze
    include: Sequence[str]
    exclude: Sequence[str]
    scanned: int  # objects seen, before the filter
    ignored: Mapping[str, int]
    hard_links: Mapping[str, int]
    base: str | None  # the earlier release whose unchanged files were linked
    unchanged: int
    permissions: SealedPermissions
    records: SealedRecords
    manifests: Mapping[str, SealedManifest]  # the manifests by file name
    evidence: SealedEvidence
    # files among `unchanged` that `base` has under other names, identified by checksums
    renamed: Annotated[int, LEFT_OUT] = 0
    # set if the run followed a changing source: the release is then no snapshot of a single moment
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


# The seal's SHA-256 tree over the canonical records, and proofs that a record is in the tree. A record is a
# row of the manifest, and the seal contains the tree's root.
#
# The tree is that of RFC 9162, section 2.1: a leaf is SHA-256(0x00 + record), a node SHA-256(0x01 + left +
# right). The number of leaves on a node's left side is the largest power of two below the node's number of
# leaves. So some twenty hashes, without the manifest, prove that a file belongs to a sealed release.

# Fields in a record's canonical bytes, in order. Times and attempts on the target are left out, because they
# are facts about a file system, not about the data.
SEALED_FIELDS = sealed_fields(ALWAYS)
# Such fields for a release with carried-over files. They also state which files, and when each was read back.
CARRYING_FIELDS = sealed_fields(CARRYING)


def canonical(record: Record, fields: Sequence[str] = SEALED_FIELDS) -> bytes:
    """Return the record's fields as netstrings (`<length>:<bytes>,`): different records give different bytes.
    This function defines what `leaves` hashes. `fields`: as in the seal, perhaps of another version."""
    return _netstrings([getattr(record, name) for name in fields])


def _netstrings(values: Iterable[str | int | bytes]) -> bytes:
    out = b""
    for value in values:
        raw = value if isinstance(value, bytes) else fsencode(str(value))
        out += b"%d:%b," % (len(raw), raw)
    return out


def leaves(columns: ByName, names: Sequence[str] = SEALED_FIELDS) -> list[bytes]:
    """Return `leaf(canonical(record, names))` of each record. Much faster than these calls if most fields are
    equal in all records and the text is ASCII."""
    fields = [columns[name] for name in names]
    if not fields[0]:
        return []
    return [
        sha256(text.encode()).digest() if text.isascii() and not parts else leaf(_netstrings(values))
        for text, parts, values in zip(
            _texts(fields), columns["parts"], zip(*fields, strict=True), strict=True
        )
    ]


def _texts(fields: Sequence[Sequence[str | int | bytes]]) -> Iterable[str]:
    """Return the text that the leaf of each record hashes. Valid for ASCII text without binary fields."""
    template = "\0"
    changing: list[Iterable[object]] = []
    for values in fields:
        texts = [""] * len(values) if isinstance(values[0], bytes) else list(map(str, values))
        first = texts[0]
        if texts.count(first) == len(texts):
            template += f"{len(first)}:{first},".replace("%", "%%")
        else:
            template += "%d:%s,"
            changing += [map(len, texts), texts]
    if not changing:
        return [template % ()] * len(fields[0])
    return map(template.__mod__, zip(*changing, strict=True))


def leaf(record: bytes) -> bytes:
    """Return the 32-byte hash of a record's canonical bytes."""
    return sha256(b"\x00" + record).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Tree:
    """Computes the root over a growing list of leaves. Its memory grows with the logarithm of the list."""

    def __init__(self) -> None:
        self._full: list[tuple[int, bytes]] = []
        self.count = 0

    def extend(self, hashes: Sequence[bytes]) -> None:
        """Append leaves (`leaf`, `leaves`)."""
        at = 0
        while at < len(hashes):
            # The largest whole subtree that begins here.
            size = 1 << (len(hashes) - at).bit_length() - 1
            if self.count:
                size = min(size, self.count & -self.count)
            row = hashes[at : at + size]
            while len(row) > 1:
                row = list(map(_node, row[::2], row[1::2]))
            at, self.count = at + size, self.count + size
            hashed = row[0]
            while self._full and self._full[-1][0] == size:
                size, hashed = size * 2, _node(self._full.pop()[1], hashed)
            self._full.append((size, hashed))

    def root(self) -> str:
        """Return `sha256:<hex>`. Without records it is the hash of empty bytes."""
        if not self._full:
            return f"sha256:{sha256(b'').hexdigest()}"
        hashed = self._full[-1][1]
        for _, left in reversed(self._full[:-1]):
            hashed = _node(left, hashed)
        return f"sha256:{hashed.hex()}"


def proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes beside the path from leaf `index` to the root, lowest first. Keeps all in memory."""
    way: list[bytes] = []
    row = list(leaves)
    while len(row) > 1:
        beside = index ^ 1
        if beside < len(row):
            way.append(row[beside])
        pairs = [_node(row[i], row[i + 1]) for i in range(0, len(row) - 1, 2)]
        # An odd last hash moves up unchanged, which gives the same tree as the largest-power-of-two split.
        row = pairs + row[len(row) & ~1 :]
        index >>= 1
    return way


def included(record: bytes, index: int, count: int, way: Sequence[bytes], root: str) -> bool:
    """Return whether `record` is number `index` of the `count` records under `root` (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < count:
        return False
    place, last, hashed = index, count - 1, leaf(record)
    for beside in way:
        if last == 0:
            return False
        if place & 1 or place == last:
            hashed = _node(beside, hashed)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            hashed = _node(hashed, beside)
        place, last = place >> 1, last >> 1
    return last == 0 and root == f"sha256:{hashed.hex()}"
