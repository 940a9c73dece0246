"""The rows that describe a file on its way from a listing to a release, as named tuples; and the digests and
proofs in these rows, with their only parser. A giant is a large object that is copied in parts. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# Digests and proofs as text in rows, journals and manifests.
#
# | text                             | what it is |
# | -------------------------------- | --------------------------------------------------------------------- |
# | `xxh3_128:<32 hex>`              | of a file's bytes, or of those of one part of a giant |
# | `xxh3_128/<part bytes>:<32 hex>` | of a giant: XXH3 over the 16-byte digests of its parts, in order |
# | `parts/<part bytes>:<32 hex>` | in a journal: XXH3 over the digests of the parts of a file that is no |
# |                                  | giant in the plan; verify reads the file and computes a plain digest |
# | `sha256:<64 hex>` and others     | further digests of the whole file, if configured |
# | `<grade> <checksum>`             | a `Proof` |
#
# Rows keep the texts unparsed, since a shard has hundreds of thousands of them.

XXH3 = "xxh3_128"
PLAIN = f"{XXH3}:"  # begins the digest of a file or of one part
PARTS = "parts"  # replaces the algorithm's name in the digest of a file copied in parts
IN_PARTS = f"{PARTS}/"
# Pattern of checksums (`core.model.SourceChecksum`) that identify the bytes of files of equal size, whatever
# their names. A CRC of 32 or 64 bits is too weak for a million files.
STRONG_CHECKSUM = "^(md5|sha1|sha256|sha512|xxh3_128):full:[0-9a-f]+$"
DIGEST_BYTES = 16  # bytes of a single digest in `Record.parts`


class Digest(NamedTuple):
    """`str(digest)` is the text in a row."""

    algorithm: str  # `xxh3_128`, `sha256`, ..., or `parts`
    value: str  # hexadecimal, lower case
    # Size of the parts whose digests were hashed (the last part may be smaller). 0 if the bytes were hashed.
    part_bytes: int = 0

    def __str__(self) -> str:
        kind = f"{self.algorithm}/{self.part_bytes}" if self.part_bytes else self.algorithm
        return f"{kind}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse `str(digest)`. Raises ValueError if the part size is no number."""
        kind, _, value = text.partition(":")
        algorithm, _, part_bytes = kind.partition("/")
        return cls(algorithm, value, int(part_bytes or 0))


def hex_of(text: str) -> str:
    """Return the 32 hex digits of a file's or a part's digest; other texts unchanged."""
    return text.removeprefix(PLAIN)


def of_hex(text: str) -> str:
    """Invert `hex_of`."""
    return text if ":" in text else PLAIN + text


def is_plain(text: str) -> bool:
    """Return whether a digest was computed from the bytes of a file or part, not from digests of parts."""
    return text.startswith(PLAIN)


def is_in_parts(text: str) -> bool:
    """Return whether a journal's digest is of a file copied in parts."""
    return text.startswith(IN_PARTS)


def values(texts: Sequence[str], algorithm: str) -> list[str] | None:
    """Return the hex digits of the digests, or None if any has another algorithm or was made from parts."""
    mark = f"{algorithm}:"
    if not all(text.startswith(mark) for text in texts):
        return None
    return [text[len(mark) :] for text in texts]


def value_of(digests: Iterable[Digest], algorithm: str) -> str | None:
    """Return the hex digits of the first digest that hashes all bytes by this algorithm, or None."""
    return next(
        (digest.value for digest in digests if digest.algorithm == algorithm and not digest.part_bytes), None
    )


def listed(text: str) -> list[Digest]:
    """Parse digests separated by blanks. Raises the errors of `Digest.parse`."""
    return list(map(Digest.parse, text.split()))


def as_giant(in_parts: str) -> str:
    """Convert the digest of a file copied in parts to the form used for a giant."""
    return str(Digest.parse(in_parts)._replace(algorithm=XXH3))


def as_in_parts(tree: Digest) -> str:
    """Invert `as_giant`."""
    return str(tree._replace(algorithm=PARTS))


def part_of(parts: bytes, number: int) -> bytes:
    """Return the raw digest of part `number`, counted from 0. `parts` is a `Record.parts`."""
    return parts[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


class Proof(NamedTuple):
    """What a source checksum proved about a row, or will prove once verify has read the row."""

    grade: str  # one of `core.grades.SOURCE_GRADES`
    checksum: str  # `str(SourceChecksum)`

    def __str__(self) -> str:
        return f"{self.grade} {self.checksum}"

    @classmethod
    def parse(cls, text: str) -> Proof:
        """Parse `str(proof)`."""
        grade, _, checksum = text.partition(" ")
        return cls(grade, checksum)


def proof_text(checksum: str, owed: Proof | None) -> str:
    """Return a copied row's proof as journals and plans write it. It is the checksum that matched
    (`Copied.source_proof`), or the grade and checksum that only verify can compare (`Copied.owed`)."""
    return checksum if owed is None else str(owed)


def proof_of(text: str) -> tuple[str, Proof | None]:
    """Invert `proof_text`."""
    return ("", Proof.parse(text)) if " " in text else (text, None)


# The rows of files.
#
# An object is listed (`Listed`), planned (`Entry`, a row of a shard), copied (`Copied`), read back
# (`RereadRow`) and published (`Record`). A giant is a large object whose parts are rows of their own, in
# several shards.
#
# A path or key is a `str` from `os.fsdecode`: bytes that are not UTF-8 travel as surrogate escapes. On disk
# (Parquet) it is a binary column, from `os.fsencode`.

# range of nanoseconds since the epoch in a row on disk: 1677 to 2262
EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1


def nearest_time(modified_ns: int) -> int:
    """Return the nearest time that a row can hold. Versions stay distinct: the token keeps the exact time."""
    return min(max(modified_ns, EARLIEST), LATEST)


class Listed(NamedTuple):
    """An object as its source lists it."""

    key: str  # relative to the source's root or prefix: what the include patterns match
    size: int
    # Opaque version token: the same token means the same bytes. S3: the etag without quotes; POSIX:
    # `size-mtime_ns-ctime_ns-inode`; fsspec: the best that the protocol has, or "".
    token: str
    modified_ns: int
    # Version id or generation with which the source serves exactly these bytes. For a web server: the file's
    # location, if its folder's URL redirected elsewhere (`web.client.place_of`).
    version: str = ""
    checksum: str = ""  # the listing's own checksum, as `str(SourceChecksum)`, or ""
    archived: str = ""  # the store's class or tier in which the object is unreadable until restored, or ""


class Entry(NamedTuple):
    """A row of a shard: the planned copy of an object, or of a part of a giant, from `key` to `path`."""

    path: str  # target path below `data/`, relative, normalised
    key: str
    size: int  # size of the whole object, also in a part's row
    token: str
    modified_ns: int
    source: int = 0  # index into the dataset's sources
    version: str = ""
    checksum: str = ""
    part: int = -1  # number of a giant's part, or -1 for a whole object
    offset: int = 0
    length: int = 0  # bytes of this row: `size` for a whole object
    reuse: Reuse | None = None  # a file on the target that is this object, to be linked instead of copied
    held_as: str = ""  # path of the reused file in its release, if a checksum identified it; or "" for `path`
    archived: str = ""

    def listed(self) -> Listed:
        """Return the object as its listing states it."""
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
    """A row that verify or audit reads back: which bytes of which file, and what they must be."""

    path: str
    size: int  # size of the whole file, also in a part's row
    part: int = -1
    offset: int = 0
    length: int = 0
    digest: str = ""  # digest of the row's bytes, from the journal or manifest; "" if not to be compared
    key: str = ""
    token: str = ""
    checksum: str = ""  # a checksum of the object that was not compared with the bytes yet, or ""
    # The row was copied in parts, so `digest` hashes the parts' digests. Verify also computes a plain digest.
    in_parts: bool = False
    # For rows copied in parts: `str(Proof)` of a source checksum over the whole file in order, or "". Copy
    # could not compute that checksum, so verify must compare it.
    owed: str = ""


class RereadRow(NamedTuple):
    """What verify saw of a row. Times are nanoseconds since the epoch."""

    row: int
    method: str
    mtime_ns: int
    ctime_ns: int
    parts: bytes = b""  # digests of a giant's parts, as in `Record.parts`
    digests: str = ""  # further digests, as `str(Digest)`; of a row copied in parts, the plain one first
    proven: str = ""  # `str(Proof)` of the checksum that matched; "" if there was none to compare with
    inode: int = 0


class AuditedRow(NamedTuple):
    """What an audit saw of a row."""

    row: int
    method: str = ""
    why: str = ""  # how the row deviates; "" if it is as published
    unread: bool = False  # whether its bytes are unknown: this account may not read it, or all retries failed


class Surveyed(NamedTuple):
    """A listed row as seen in a tree that penstock did not write (`penstock adopt`)."""

    row: int
    state: str  # one of `core.findings.STATES`
    # How the bytes were compared: one of `core.findings.PROOFS`. For a row that is not SAME: the last
    # comparison in which its bytes differed, or "". Only a comparison of bytes clears it.
    how: str = ""
    why: str = ""  # how the row differs; "" if no difference from the source was seen
    digest: str = ""  # xxh3_128 of the row's bytes in the tree, or of `parts` if a whole file has these
    source_grade: str = "size"  # as in `Copied`
    source_proof: str = ""  # as in `Copied`
    method: str = ""  # how the caches were bypassed, as in `Record`
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0  # 0: the file could not be opened
    mode: int = 0
    uid: int = 0
    gid: int = 0
    links: int = 0
    # digests of the parts of a whole file that would be a giant in a release, as in `Record`
    parts: bytes = b""
    verified_host: str = ""  # the host that read it
    seen_ns: int = 0  # when it was read, in nanoseconds since the epoch


class Reuse(NamedTuple):
    """A file that is on the target already and is the listed object."""

    digest: str
    source_grade: str = "size"  # how its source proved it in transit: one of `core.grades.SOURCE_GRADES`
    source_proof: str = ""  # as in journals: with its grade if verify still has to compare it (`proof_text`)
    # Modification time of the file on the target. None: not recorded, and the source's time applies. None for
    # a file identified by its checksum (`Entry.held_as`): the times differ, so the object is a separate file.
    mtime_ns: int | None = None
    written_host: str = ""  # the host that wrote the file; "": not known
    staging: str = ""  # the run whose staging holds it; "": the plan's base release


class SourceChecksum(NamedTuple):
    """A checksum that a source states of an object's bytes.

    `algorithm`: crc64nvme crc32c crc32 sha256 sha1 md5 sha512 xxh3_128 xxh64. `value`: lower-case hex.
    `kind`: `full` (all bytes of the object), `composite` (a hash over the raw, concatenated hashes of its
    parts), `part` (exactly the bytes of a single range request) or `read`. `read`: the source states not even
    a size, so list read the bytes. A second reading is compared with the first, which proves no more.

    `parts`: number of a composite's parts, else 0. `part_bytes`: size of all parts except the last. If it is
    0, the size is not known, and the composite cannot be computed.
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
        """Parse `str(source_checksum)`. Raises ValueError."""
        algorithm, kind, value = text.split(":")
        value, _, part_bytes = value.partition("/")
        value, _, parts = value.partition("-")
        return cls(algorithm, kind, value, int(parts or 0), int(part_bytes or 0))


class Pin(NamedTuple):
    """The version that a row was copied from, if it is not the listed version. Fields as in `Listed`."""

    size: int
    token: str
    modified_ns: int
    version: str = ""
    checksum: str = ""

    @classmethod
    def planned(cls, entry: Entry) -> Pin:
        """Return the version that was listed."""
        return cls(entry.size, entry.token, entry.modified_ns, entry.version, entry.checksum)

    def of(self, entry: Entry) -> Entry:
        """Return the entry of a whole object in this version, without `reuse`, which has other bytes."""
        return entry._replace(**self._asdict(), length=self.size, reuse=None)


TOUCHED = "yes"  # the value of `Copied.touched` if it is set


class Copied(NamedTuple):
    """The result of copying a row: a line of a shard's journal."""

    row: int  # index in its shard
    # `xxh3_128:<32 hex>` of the row's bytes (for a giant's part, of that part alone). For a row copied in
    # parts: `parts/<part bytes>:<32 hex>`, xxh3_128 over the parts' digests; verify makes the plain digest.
    digest: str
    source_grade: str  # one of `core.grades.SOURCE_GRADES`
    # `str(SourceChecksum)` of the checksum that matched, or "". A part's own CRC is `<algorithm>:part:<hex>`;
    # the parts' CRCs are combined later.
    source_proof: str
    written_host: str = ""
    copy_attempt: str = ""  # the attempt that recorded the row
    pin: Pin | None = None  # the version that was copied, if not the planned one
    # The row is a file that was on the target already, written by `written_host` if that is known. This run
    # has not read its bytes yet.
    linked: bool = False
    staging: str = ""  # the run whose staging a linked row was taken from; "": the plan's base release
    # for a file copied in parts: the checksum that only verify can compare, and the grade that it will give
    owed: Proof | None = None
    # `TOUCHED` if the file's ctime was not checked before linking, or was neither the recorded time nor a
    # time that penstock caused; else "".
    touched: str = ""


class PartLine(NamedTuple):
    """A line of a journal: a durable part of a row copied in parts, or the fate of its temporary file."""

    row: int
    temporary: str  # the file's name, in the folder of the row's path
    part_bytes: int  # size of each part except the last; for a file copied in order: all bytes so far
    # The part's number from 0 (always 0 for a file copied in order). A negative number states what became of
    # the temporary file (`engine.tasks`).
    number: int
    digest: str  # xxh3_128 of the part's bytes, in 32 hex digits
    proof: str  # what `Sums.judge` keeps for a part, to be joined with the sums of the other parts; or ""
    stated: str  # the whole object's checksums that can be checked, separated by blanks
    token: str  # token of the version that was read


class Part(NamedTuple):
    """A piece of work on a row that is copied in parts (`engine.tasks`)."""

    range: Entry  # the row, with the `part`, `offset` and `length` to fetch
    temporary: str
    work: int
    part_bytes: int  # size of each part except the last; if copied in order: bytes between journal lines
    # lines of all parts, in order, once finished; for a file copied in order only the last line
    lines: tuple[PartLine, ...] = ()

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
    """A published file: a row of the manifest, in canonical order (bytes of the path)."""

    path: str
    size: int
    # `xxh3_128:<hex>`. For a giant `xxh3_128/<part bytes>:<hex>`: xxh3_128 over the concatenated 16-byte
    # digests of its parts, in order.
    digest: str
    modified_ns: int
    key: str
    token: str
    version: str
    source: int
    source_grade: str
    source_proof: str
    storage_grade: str
    # how the caches were bypassed on reading back: `disk`, `direct`, `dropped`, `cached`, `unread`
    method: str
    written_host: str
    verified_host: str
    attempt: str  # the attempt of verify that read the file
    mtime_ns: int  # modification time as verify saw it; the closing walk compares it
    ctime_ns: int  # change time as verify saw it; the closing walk compares it
    parts: bytes = b""  # a giant's part digests, 16 bytes each; else empty
    digests: str = ""  # configured whole-file digests, `sha256:<hex>`, separated by blanks
    inode: int = 0  # inode as verify saw it
    read_at: int = 0  # when its bytes were last read back, in seconds since the epoch; 0: not known
    # 1: not read back for this release, so storage grade, method, host and attempt are of its last reading
    carried: int = 0
    # 1: `ctime_ns` is not the time of writing, because the file shares its bytes with an earlier release, or
    # comes from an adopted tree and was not read again. 0 in manifests of versions that did not record it.
    shared: int = 0
