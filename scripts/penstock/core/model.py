"""The rows: what a file is on its way from a listing to a release, as named tuples. Pure.

An object is listed (`Listed`), planned (`Entry`, a row of a shard, which is the work of one element), copied
(`Copied`), read back (`RereadRow`) and published (`Record`). A giant is a large object whose parts are rows
of their own, in several shards.

A path or key is a `str` made by `os.fsdecode`: bytes that are not UTF-8 travel as surrogate
escapes. On disk (Parquet) it is a binary column, made by `os.fsencode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.core.digests import Proof

EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1
"""Nanoseconds since the epoch that a row on disk can hold: of the years 1677 to 2262."""


def nearest_time(modified_ns: int) -> int:
    """The nearest time that a row can hold; the token, by which versions are told apart, stays exact."""
    return min(max(modified_ns, EARLIEST), LATEST)


class Listed(NamedTuple):
    """One object as its source lists it."""

    key: str
    """Relative to the source's root or prefix: what the include patterns see."""
    size: int
    token: str
    """Opaque version token; the same token means the same bytes. S3: the etag without quotes;
    POSIX: `size-mtime_ns-ctime_ns-inode`; fsspec: the best that the protocol has, or ""."""
    modified_ns: int
    version: str = ""
    """A version id or generation by which the source can be asked for exactly these bytes. Of a web server:
    where the file lies, if its folder's URL led elsewhere (`web.client.place_of`)."""
    checksum: str = ""
    """A source checksum that the listing itself carries, as `str(SourceChecksum)`, or ""."""
    archived: str = ""
    """The store's name of the class or tier in which the object cannot be read before somebody has it
    restored, or ""."""


class Entry(NamedTuple):
    """One planned copy: key to path, whole or one part of a giant. A row of a shard."""

    path: str
    """Target path below `data/`, relative, normalised."""
    key: str
    size: int
    """Of the whole object, also in a part's row."""
    token: str
    modified_ns: int
    source: int = 0
    """Index into the dataset's sources."""
    version: str = ""
    checksum: str = ""
    part: int = -1
    """-1: the whole object. Else this row is part `part` of a giant."""
    offset: int = 0
    length: int = 0
    """Bytes of this row: `size` for a whole object."""
    reuse: Reuse | None = None
    """A file on the target that is this object: link it, copy nothing."""
    held_as: str = ""
    """Under which path the release holds that file, where it is known by its checksum; "": under this one."""
    archived: str = ""

    def listed(self) -> Listed:
        """The object, as its listing has it."""
        return Listed(
            self.key,
            self.size,
            self.token,
            self.modified_ns,
            self.version,
            self.checksum,
            self.archived,
        )


class Expected(NamedTuple):
    """One row as verify or audit reads it back: which bytes of which file, and what they must be."""

    path: str
    size: int
    """Of the whole file, also in a part's row."""
    part: int = -1
    offset: int = 0
    length: int = 0
    digest: str = ""
    """Of the row's bytes, by the journal or the manifest; "": they are not read."""
    key: str = ""
    token: str = ""
    checksum: str = ""
    """A checksum of the object that the bytes were not compared with yet, or ""."""
    in_parts: bool = False
    """The row was copied in parts, and `digest` is over these: its own digest is to be made, too."""
    owed: str = ""
    """`str(Proof)` of a source checksum that copy could not compare, since it needs all bytes of the file in
    order: verify does. "" where there is none. Of rows copied in parts."""


class RereadRow(NamedTuple):
    """What verify saw of a row. Times are in nanoseconds since the epoch."""

    row: int
    method: str
    mtime_ns: int
    ctime_ns: int
    parts: bytes = b""
    """As `Record.parts`."""
    digests: str = ""
    """Further digests, by `str(Digest)`; first the row's own where it was copied in parts."""
    proven: str = ""
    """`str(Proof)` of the checksum that held; "" where there was none to compare with."""
    inode: int = 0


class AuditedRow(NamedTuple):
    """What an audit saw of a row."""

    row: int
    method: str = ""
    why: str = ""
    """"" for a row that is as it was published."""
    unread: bool = False
    """Nothing is known of its bytes: no right to read them, or a read error after all tries."""


class Surveyed(NamedTuple):
    """What was seen of one row of a listing in a tree that penstock did not write (`penstock adopt`)."""

    row: int
    state: str
    """One of `core.documents.differences.STATES`."""
    how: str = ""
    """What the bytes were compared by, one of `core.documents.differences.PROOFS`. Of a row whose state is
    not SAME: what its bytes were last seen to differ by, "" where they were not; nothing but its bytes clears
    it."""
    why: str = ""
    """"" for a row that is as its source has it, as far as it was compared."""
    digest: str = ""
    """Of the row's bytes in the tree: xxh3_128, of a whole file with `parts` the one over these."""
    source_grade: str = "size"
    source_proof: str = ""
    """As of `Copied`."""
    method: str = ""
    """How the caches were passed: as of `Record`."""
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    """0: the file could not be opened."""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    links: int = 0
    parts: bytes = b""
    """Of a whole file that a release would hold as a giant: the digests of its parts, as of `Record`."""
    verified_host: str = ""
    """The host that read it."""
    seen_ns: int = 0
    """When it was read, in nanoseconds since the epoch."""


class Reuse(NamedTuple):
    """A file that lies on the target already and is the listed object, and what it brings along."""

    digest: str
    source_grade: str = "size"
    """How its source proved it on its way: one of `core.grades.SOURCE_GRADES`."""
    source_proof: str = ""
    """As journals spell it: with its grade where it is still owed (`digests.proof_text`)."""
    mtime_ns: int | None = None
    """Its modification time as the target keeps it; None where that was not recorded: the source's. Of a file
    that is known by its checksum (`Entry.held_as`) None means that this object has another time, so that it
    becomes a file of its own."""
    written_host: str = ""
    """Who wrote it; "" when that is not known."""
    staging: str = ""
    """The run whose staging holds it; "": the release that the plan names as its base."""


class SourceChecksum(NamedTuple):
    """What a source states about an object's bytes: one checksum.

    `algorithm` is one of crc64nvme crc32c crc32 sha256 sha1 md5 sha512 xxh3_128 xxh64;
    `kind` is `full` (of all the object's bytes), `composite` (a hash over its parts' hashes),
    `part` (of exactly the bytes of one answered range) or `read` (of the bytes that came when the object was
    listed, since its source states not even a size: a second reading is compared with the first, which proves
    nothing beyond that). `value` is lower-case hex.
    `parts` is the number of parts of a composite, else 0; `part_bytes` is the size of all its parts
    but the last, 0 when that is not known (then it cannot be computed). A composite is the
    algorithm's hash over the concatenated raw hashes of the parts.
    """

    algorithm: str
    kind: str
    value: str
    parts: int = 0
    part_bytes: int = 0

    def __str__(self) -> str:
        text = f"{self.algorithm}:{self.kind}:{self.value}"
        if self.parts:
            text += f"-{self.parts}"
        return f"{text}/{self.part_bytes}" if self.part_bytes else text

    @classmethod
    def parse(cls, text: str) -> SourceChecksum:
        """The inverse of `str(source_checksum)`. Raises ValueError."""
        algorithm, kind, value = text.split(":")
        value, _, part_bytes = value.partition("/")
        value, _, parts = value.partition("-")
        return cls(algorithm, kind, value, int(parts or 0), int(part_bytes or 0))


class Pin(NamedTuple):
    """The version of an object that a row was copied of, where it is not the listed one: what its source's
    listing states of it since. The fields are those of `Listed`."""

    size: int
    token: str
    modified_ns: int
    version: str = ""
    checksum: str = ""

    @classmethod
    def planned(cls, entry: Entry) -> Pin:
        """The version that was listed."""
        return cls(entry.size, entry.token, entry.modified_ns, entry.version, entry.checksum)

    def of(self, entry: Entry) -> Entry:
        """The entry, a whole object, in this version. What another release holds is not this."""
        return entry._replace(**self._asdict(), length=self.size, reuse=None)


TOUCHED = "yes"
"""The value of `Copied.touched` where it is set."""


class Copied(NamedTuple):
    """What the copy of one row became: one line of a shard's journal."""

    row: int
    """Index of the row in its shard."""
    digest: str
    """`xxh3_128:<32 hex>` of the row's bytes (of a part: of that part alone). `parts/<bytes>:<32 hex>`: of
    a file that was copied in parts of so many bytes, xxh3_128 over their digests; its own is verify's."""
    source_grade: str
    """One of `core.grades.SOURCE_GRADES`."""
    source_proof: str
    """`str(SourceChecksum)` of the checksum that was checked and held; a part's own CRC as
    `<algorithm>:part:<hex>` so that the parts' CRCs can be combined later; or ""."""
    written_host: str = ""
    copy_attempt: str = ""
    """The attempt that recorded it."""
    pin: Pin | None = None
    """The version that was copied, where it is not the planned one."""
    linked: bool = False
    """The row was not copied: it is a file that lay on the target, which `written_host` had written, as far
    as that is known. Nothing of its bytes was seen yet in this run."""
    staging: str = ""
    """The run whose staging a linked row was taken over from; "": the plan's base release."""
    owed: Proof | None = None
    """Of a file that was copied in parts: what only verify can judge, and the grade that it gives then."""
    touched: str = ""
    """`TOUCHED` of a linked row whose file's ctime, before it was linked, was neither as recorded nor as
    penstock had moved it, or was not looked at; else ""."""


class PartLine(NamedTuple):
    """One part of a row that is copied in parts, durable in the row's temporary file; or what became of this
    file as a whole. A line of a shard's journal."""

    row: int
    temporary: str
    """The file's name, in the folder of the row's path."""
    part_bytes: int
    """Bytes of each part but the last. Of a file that is copied in order: of all that is in it so far."""
    number: int
    """From 0 on (0 of a file that is copied in order); below 0 what became of the file (`engine.part`)."""
    digest: str
    """xxh3_128 of the part's bytes, in 32 hex digits."""
    proof: str
    """What `Sums.judge` keeps of a part, to be joined with the other parts'; or ""."""
    stated: str
    """The checksums of the whole object that can be checked, separated by blanks."""
    token: str
    """Of the version that was read."""


class Part(NamedTuple):
    """One piece of the work on a row that is copied in parts (`engine.part`)."""

    range: Entry
    """The row, with the `part`, `offset` and `length` of what is to be fetched."""
    temporary: str
    work: int
    part_bytes: int
    """Bytes of each part but the last; copied in order: bytes between two lines for the journal."""
    lines: tuple[PartLine, ...] = ()
    """Of all parts, in order, when they are finished; the last one of a file that is copied in order."""

    @property
    def path(self) -> str:
        return self.range.path

    @property
    def key(self) -> str:
        return self.range.key

    @property
    def size(self) -> int:
        return self.range.size

    @property
    def part(self) -> int:
        return self.range.part

    @property
    def length(self) -> int:
        return self.range.length


class Record(NamedTuple):
    """One published file: a row of the manifest, in canonical order (bytes of the path)."""

    path: str
    size: int
    digest: str
    """`xxh3_128:<hex>`, or for a giant `xxh3_128/<part bytes>:<hex>`: xxh3_128 over the
    concatenated 16-byte digests of its parts, in order."""
    modified_ns: int
    key: str
    token: str
    version: str
    source: int
    source_grade: str
    source_proof: str
    storage_grade: str
    method: str
    """How the caches were passed when it was read back: `disk`, `direct`, `dropped`, `cached`,
    `unread`."""
    written_host: str
    verified_host: str
    attempt: str
    """Of the verification."""
    mtime_ns: int
    ctime_ns: int
    """As verify saw them; the closing walk compares."""
    parts: bytes = b""
    """A giant's part digests, 16 bytes each; else empty."""
    digests: str = ""
    """Further whole-file digests, if configured, `sha256:<hex>` separated by blanks."""
    inode: int = 0
    """As verify saw it."""
    read_at: int = 0
    """When its bytes were last read back, in seconds since the epoch; 0 where that is not known."""
    carried: int = 0
    """1: it was not read back for this release. Storage grade, method, host and attempt are those of its last
    reading."""
    shared: int = 0
    """1: it shares its bytes with an earlier release, for which they were written, or is of an adopted tree
    and was not read again: `ctime_ns` is no time of their writing. 0 in manifests of versions that did not
    record it."""
