"""A stream for adopt: it reads rows of a tree that penstock did not write, and compares them with their
source.

It takes an `Entry` and returns a `Surveyed`. A difference is a result, not a failure.

| the source states a checksum of the bytes | `read_source` | the row is compared with               |
|-------------------------------------------|---------------|----------------------------------------|
| yes, and it can be computed               | any           | that checksum (`checksums.Sums`)       |
| no                                        | yes           | the source's bytes, read for this      |
| no                                        | no            | only the size                          |

A row whose bytes differed when last read is compared as if `read_source` were set. If the source cannot be
reached, the row fails, and a later attempt compares it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from penstock.core.errors import DamagedError, IntegrityError, ObjectError, PenstockError, SourceChangedError
from penstock.core.findings import (
    CHECKSUM,
    OTHER,
    READ,
    SAME,
    SIZE,
    SOURCE,
    UNLIKE,
    UNREAD,
)
from penstock.core.grades import SIZE_ONLY
from penstock.core.model import XXH3, SourceChecksum, Surveyed, nearest_time, of_hex
from penstock.engine.checksums import GiantDigest, Sums, listed
from penstock.engine.pump import Pump, sizes_of_upload
from penstock.engine.stream import Stopped, Stream

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from penstock.core.model import Entry
    from penstock.engine.stream import Sources
    from penstock.fs.cold_read import ColdReader
    from penstock.sources.port import Reader


READ_GRADE = "full"  # the source grade of rows compared with all bytes of the source


class _Seen(NamedTuple):
    """One reading of a row in the tree."""

    digest: str
    parts: bytes
    method: str
    stat: os.stat_result


class _OtherBytesError(IntegrityError):
    """The source was read, and has other bytes than the tree."""


class Surveyor(Stream):
    """Reads the tree, bypassing this machine's caches if possible, and the source according to the table."""

    def __init__(
        self,
        *,
        reader: Callable[[], ColdReader],
        sources: Sources,
        policy: str,
        read_source: bool,
        differed: frozenset[int],
        giant_bytes: int,
        part_bytes: int,
        **common: Any,
    ) -> None:
        """`reader` makes a reader of the tree. `policy` is the setting `verify.source_checksum`. `differed`
        has the rows whose bytes differed when last read. A whole file of `giant_bytes` or more gets digests
        of its parts, each of `part_bytes`."""
        super().__init__(**common)
        self.cold, self.sources, self.policy = reader(), sources, policy
        self.read_source, self.differed = read_source, differed
        self.giant_bytes, self.part_bytes = giant_bytes, part_bytes
        self.readers: dict[int, Reader] = {}
        self._at_source = False  # whether an error now would concern the source, not the tree
        self._of_source = Pump(self, lambda _: None)

    def prepare(self, entries: Sequence[Entry], ahead: int) -> None:  # noqa: ARG002 (for sources)
        self.cold.expect((e.path, e.offset, e.length if e.part >= 0 else e.size) for e in entries)

    def rest(self) -> None:
        for reader in self.readers.values():
            reader.close()

    def do(self, row: int, entry: Entry) -> Surveyed:
        """Compare one row. Returns the result if it does not differ.

        Raises DamagedError if the tree has no file of the listed size, and another IntegrityError if the
        bytes differ. Raises any other PenstockError if the tree or the source cannot be read.
        """
        checksums = self._checksums(entry)
        sums = Sums(entry, checksums, lambda: checksums, policy=self.policy)
        reading = self._read(entry, sums)
        grade, proof, how = SIZE_ONLY, "", CHECKSUM if sums.proves else SIZE
        try:
            grade, proof = sums.judge()
        except IntegrityError as error:
            failed = sums.failed
            self._at_source = True
            sizes = sizes_of_upload(self.asks, self.sources.get(entry.source), entry, failed, error)
            if sizes:
                sums = Sums(entry, checksums, policy=self.policy, sizes=sizes)
                reading = self._read(entry, sums)
                grade, proof = sums.judge()
            else:
                how = SIZE
        if how == SIZE and (self.read_source or row in self.differed):
            self._as_in_source(entry, reading)
            how = READ
            if entry.part < 0:
                grade = READ_GRADE
                # A file with parts has only a digest over its parts, and no digest of all bytes as a proof.
                proof = (
                    ""
                    if reading.parts
                    else str(SourceChecksum(XXH3, "full", reading.digest.partition(":")[2]))
                )
                grade = grade if proof else SIZE_ONLY
        stat = reading.stat
        return Surveyed(
            row, SAME, how, "", reading.digest, grade, proof, reading.method, nearest_time(stat.st_mtime_ns),
            stat.st_ctime_ns, stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid, stat.st_nlink,
            reading.parts,
        )  # fmt: skip

    def attempt(self, row: int, entry: Entry) -> Surveyed:
        """As `Stream.attempt`, but return other errors as the row's result.

        Raises only Stopped, and errors of the source that are not about the object.
        """
        differed = READ if row in self.differed else ""
        try:
            surveyed: Surveyed = super().attempt(row, entry)
            return surveyed
        except DamagedError as error:
            return Surveyed(row, UNLIKE, differed, error.why or error.what)
        except _OtherBytesError as error:
            return Surveyed(row, OTHER, READ, error.why)
        except IntegrityError as error:
            return Surveyed(row, OTHER, CHECKSUM, error.reason)
        except PenstockError as error:
            if self._at_source:
                if not isinstance(error, (ObjectError, SourceChangedError)):
                    raise
                why = error.reason
                return Surveyed(row, SOURCE, differed, why)
            return Surveyed(row, UNREAD, differed, error.why or error.what)

    def _read(self, entry: Entry, sums: Sums) -> _Seen:
        """Read the row's bytes in the tree, and feed them to `sums`.

        Raises DamagedError if the tree has no regular file of the listed size.
        """
        self._at_source = False
        giant = entry.part < 0 and entry.size >= max(self.giant_bytes, self.part_bytes + 1)
        digest: Any = GiantDigest(self.part_bytes) if giant else xxhash.xxh3_128()
        length = entry.length if entry.part >= 0 else entry.size
        updates = [digest.update, *([sums.update] if sums else [])]
        counters, slot, stopped = self.counters, self.slot, self.stopping.is_set

        def consume(block: memoryview) -> None:
            for update in updates:
                update(block)
            counters[slot] += len(block)
            if stopped():
                raise Stopped

        reading = self.cold.read(entry.path, entry.offset, length, consume)
        if reading.stat.st_size != entry.size:
            why = f"it has {reading.stat.st_size} bytes, not {entry.size}"
            raise DamagedError("a file is not as it was listed", where=entry.key, why=why)
        if giant:
            return _Seen(str(digest.digest()), digest.parts, reading.method, reading.stat)
        return _Seen(of_hex(digest.hexdigest()), b"", reading.method, reading.stat)

    def _as_in_source(self, entry: Entry, reading: _Seen) -> None:
        """Read the row's range in the source, and raise `_OtherBytesError` if its bytes differ."""
        self._at_source = True
        before = self.counters[self.slot]
        length = entry.length if entry.part >= 0 else entry.size
        self.asks()
        reader, url = self._reader(entry.source), self.sources.get(entry.source).url
        body = self._of_source.open(url, reader, entry, entry.offset, length)
        digest: Any = GiantDigest(self.part_bytes) if reading.parts else None
        try:
            source_digest = of_hex(self._of_source.run(entry, body, _Nowhere(digest), None, length))  # type: ignore[arg-type]
            body.close()
        except IntegrityError as error:
            body.abandon()
            raise SourceChangedError(error.what, where=error.where, why=error.why) from None
        except BaseException:
            body.abandon()
            raise
        # Only bytes of the tree count as progress.
        self.counters[self.slot] = before
        source_digest = str(digest.digest()) if digest is not None else source_digest
        if source_digest != reading.digest:
            why = f"the source has {source_digest}, the tree {reading.digest}"
            raise _OtherBytesError("the bytes are not those of the source", where=entry.key, why=why)

    def _checksums(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Request the object's checksums, unless the listing has a checksum of all its bytes."""
        if any(checksum.kind == "full" for checksum in listed(entry)):
            return ()
        self._at_source = True
        reader = self._reader(entry.source)
        self.asks()
        if entry.part >= 0:
            return self.sources.checksums(entry)
        try:
            stated = reader.checksum(entry)
        except PenstockError:
            # The rest of an answer may still arrive on this connection, so do not use it again.
            self.readers.pop(entry.source).close()
            raise
        return self.sources.get(entry.source).checksum(entry) if stated is None else stated

    def _reader(self, index: int) -> Reader:
        if index not in self.readers:
            self.readers[index] = self.sources.get(index).reader()
        return self.readers[index]

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self.readers.clear()
        self.cold.close()
        super().close()


class _Nowhere:
    """Takes the place of a pending file, as the source's bytes are only compared. If a digest over parts is
    given, it updates the digest."""

    def __init__(self, digest: GiantDigest | None) -> None:
        self._digest = digest

    def write_all(self, data: memoryview) -> None:
        if self._digest is not None:
            self._digest.update(data)

    def skip(self, count: int) -> None:
        """Treat a hole of the source as zeros."""
        while self._digest is not None and count > 0:
            self._digest.update(_ZEROS[: min(count, len(_ZEROS))])
            count -= len(_ZEROS)


_ZEROS = memoryview(bytes(1 << 20))
