"""Streams (threads of a worker) that read stored rows back: `Rereader` for verify, `Auditor` for audits. Also
reads a large file from front to end with several threads.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import xxhash

from penstock.core.errors import (
    DamagedError,
    FailedError,
    IntegrityError,
    ObjectError,
    PenstockError,
    TransientError,
)
from penstock.core.model import (
    XXH3,
    AuditedRow,
    Digest,
    Proof,
    RereadRow,
    SourceChecksum,
    nearest_time,
    of_hex,
)
from penstock.engine.checksums import GiantDigest, Sums, contradicted, listed, new_sum, sum_of
from penstock.engine.stream import Stopped, Stream
from penstock.fs.safe_open import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from penstock.core.model import Expected
    from penstock.engine.checksums import Sum
    from penstock.fs.cold_read import ColdReader, RangeRead


# Whole-file digests of a giant (an object copied in parts over several shards) need its bytes in order.

PIECE = 4 << 20  # bytes that a thread reads at a time
READERS = 4  # the number of threads that read a file together


def read_in_order(
    reader: Callable[[], ColdReader], path: str, size: int, consume: Callable[[memoryview], None]
) -> None:
    """Call `consume`, in this thread, with all bytes of the file in order.

    At most READERS + 1 pieces are in memory. Each thread calls `reader` to make its own reader. Raises the
    errors of reading and of `consume`.
    """
    own = threading.local()
    opened: list[ColdReader] = []

    def read(offset: int) -> bytearray:
        if not hasattr(own, "reader"):
            own.reader = reader()
            opened.append(own.reader)
        piece = bytearray()
        own.reader.read(path, offset, min(PIECE, size - offset), piece.extend)
        return piece

    offsets = iter(range(0, size, PIECE))
    under_way: deque[Future[bytearray]] = deque()
    pool = ThreadPoolExecutor(READERS)
    try:
        for offset in offsets:
            under_way.append(pool.submit(read, offset))
            if len(under_way) > READERS:
                consume(memoryview(under_way.popleft().result()))
        while under_way:
            consume(memoryview(under_way.popleft().result()))
    finally:
        pool.shutdown(cancel_futures=True)
        for piece_reader in opened:
            piece_reader.close()


# A row is a file, or a part of a giant. A row's method says whether its reading bypassed this machine's
# caches (`direct`, `dropped`) or not (`cached`). A `Rereader` reads:
#
# | row                         | bytes that are read                                                       |
# |-----------------------------|---------------------------------------------------------------------------|
# | without a digest            | none; fstat gives size and times                                          |
# | copied at once,             | its bytes, once; their digest is compared with the copy's                 |
# | or a giant's part           |                                                                           |
# | copied in parts             | all bytes, once, in order; they also prove the checksums that no part     |
# |                             | could prove: the copy's owed checksum, and the listing's                  |
# | a giant's last part,        | its bytes, and then the whole giant from front to end for whole-file      |
# | with `whole`                | digests (publish compares the digest over the giant's parts)              |

COLD_TRIES = 3  # the most reads of a row, if reads can bypass the caches but did not


class ColdStream(Stream):
    """Reads with its own descriptors, and bypasses this machine's caches if possible."""

    def __init__(self, *, reader: Callable[[], ColdReader], **common: Any) -> None:
        super().__init__(**common)
        self.reader, self.cold = reader, reader()

    def prepare(self, entries: Sequence[Expected], ahead: int) -> None:  # noqa: ARG002 (for sources)
        """As `Stream.prepare`, but read small files together."""
        # Only rows with a digest are compared, and so read.
        self.cold.expect((e.path, e.offset, e.length if e.part >= 0 else e.size) for e in entries if e.digest)

    def at_once(self, entry: Expected) -> RangeRead | None:
        """Return the reading of a small whole file that was read together with others and is right, or None.

        This shortcut exists because the time that Python takes for each file limits reading of small files.
        """
        size = entry.size
        prefetched = self.cold.announced(entry.path, 0, size) if entry.part < 0 else None
        if prefetched is None:
            return None
        reading, data = prefetched
        if reading.stat.st_size != size or entry.digest != of_hex(xxhash.xxh3_128_hexdigest(data)):
            return None
        if self.limiter:
            self.limiter.take(size)
        self.counters[self.slot] += size
        return reading

    def consumer(self, digest: Any, sums: Sequence[tuple[Any, Any]] = ()) -> Any:
        """Return a function that paces, hashes and counts each block that it is given. It raises Stopped when
        the engine stops."""
        updates = [digest.update, *(running.update for _, running in sums)]
        counters, slot, limiter, stopped = self.counters, self.slot, self.limiter, self.stopping.is_set

        def consume(block: memoryview) -> None:
            if limiter:
                limiter.take(len(block))
            for update in updates:
                update(block)
            counters[slot] += len(block)
            if stopped():
                raise Stopped

        return consume

    def close(self) -> None:
        self.cold.close()
        super().close()


class Rereader(ColdStream):
    """Compares stored rows with the bytes that were written.

    `do` raises DamagedError if digest or size differ, and IntegrityError if the bytes contradict a checksum
    of the source that the copy did not compare.
    """

    def __init__(self, *, digests: Sequence[str], whole: bool = False, **common: Any) -> None:
        """`digests` are further digests to compute of each whole file and, if `whole` is set, each giant."""
        super().__init__(**common)
        self.whole = whole
        self.digests = [d for d in digests if d != XXH3]

    def do(self, row: int, entry: Expected) -> RereadRow:
        """Read one row according to the table above."""
        at_once = self.at_once(entry) if not (self.digests or entry.checksum) else None
        if at_once is not None and (at_once.method != "cached" or not self.cold.passes):
            return _reread_row(row, at_once)
        if not entry.digest:
            reading = self.cold.read(entry.path, 0, 0, _nothing)
            self._sized(entry, reading.stat.st_size)
            further = self._front_to_end(entry)
            return _reread_row(row, reading)._replace(method="unread", digests=further)
        in_parts, expected = entry.in_parts, Digest.parse(entry.digest)
        length = entry.length if entry.part >= 0 else entry.size
        for _ in range(COLD_TRIES):
            digest = GiantDigest(expected.part_bytes) if expected.part_bytes else xxhash.xxh3_128()
            names = self.digests if entry.part < 0 else []
            if in_parts or (self.whole and entry.part < 0 and isinstance(digest, GiantDigest)):
                names = [XXH3, *names]
            sums = [(name, new_sum(name)) for name in names]
            checksums: list[tuple[Any, Any]] = _owed(entry) if in_parts else []
            stated = Sums(entry, ()) if entry.checksum and not in_parts else None
            consumer = self.consumer(digest, [*sums, *checksums, *([("", stated)] if stated else [])])
            reading = self.cold.read(entry.path, entry.offset, length, consumer)
            self._sized(entry, reading.stat.st_size)
            read = digest.hexdigest()
            if read != expected.value:
                raise _broken(entry, f"written as {expected}, read back as {expected._replace(value=read)}")
            for checksum, running in checksums:
                contradicted(entry.key, checksum, running.hexdigest(), entry.token)
            # Read again if cached pages were used: a page that another reader happened to cache must not
            # lower the grade of the whole release.
            if reading.method != "cached" or not self.cold.passes:
                break
        parts = digest.parts if isinstance(digest, GiantDigest) and not in_parts else b""
        further = _joined(sums) or self._front_to_end(entry)
        proven = str(Proof(*stated.judge())) if stated and stated.proves else ""
        return _reread_row(row, reading)._replace(parts=parts, digests=further, proven=proven)

    def _front_to_end(self, entry: Expected) -> str:
        """Return a giant's whole-file digests; "" if none is configured, or the row is not its last part."""
        if not self.whole or entry.part < 0 or entry.offset + entry.length < entry.size:
            return ""
        tree = GiantDigest(entry.offset // entry.part if entry.part else entry.size)
        sums = [(name, new_sum(name)) for name in (XXH3, *self.digests)]
        read_in_order(self.reader, entry.path, entry.size, self.consumer(tree, sums))
        return f"{_joined(sums)} {tree.digest()}"

    def _sized(self, entry: Expected, size: int) -> None:
        if size != entry.size:
            raise _broken(entry, f"it has {size} bytes, not {entry.size}")


class Auditor(ColdStream):
    """Compares rows with the manifest's digests. A row that differs, or cannot be read, gives a result and no
    failure."""

    def do(self, row: int, entry: Expected) -> AuditedRow:
        """Read one row, once. Raises IntegrityError if it differs from the published bytes."""
        digest = xxhash.xxh3_128()
        length = entry.size if entry.part < 0 else entry.length
        reading = self.cold.read(entry.path, entry.offset, length, self.consumer(digest))
        if reading.stat.st_size != entry.size:
            raise _differs(entry, f"it has {reading.stat.st_size} bytes, not {entry.size}")
        read = of_hex(digest.hexdigest())
        if read != entry.digest:
            raise _differs(entry, f"published as {entry.digest}, read as {read}")
        return AuditedRow(row, reading.method)

    def attempt(self, row: int, entry: Expected) -> AuditedRow:
        """As `Stream.attempt`, but return an error about the row as its result, with the error in `why`."""
        at_once = self.at_once(entry)
        if at_once is not None:
            return AuditedRow(row, at_once.method)
        try:
            audited: AuditedRow = super().attempt(row, entry)
            return audited
        except PenstockError as error:
            if not isinstance(error, (ObjectError, TransientError, FailedError)):
                raise
            unread = not isinstance(error, IntegrityError)
            return AuditedRow(row, why=error.why or error.what, unread=unread)


def _differs(entry: Expected, why: str) -> IntegrityError:
    return IntegrityError("a file is not as it was published", where=printable(entry.path), why=why)


def _reread_row(row: int, reading: RangeRead) -> RereadRow:
    stat = reading.stat
    return RereadRow(row, reading.method, nearest_time(stat.st_mtime_ns), stat.st_ctime_ns, inode=stat.st_ino)


def _owed(entry: Expected) -> list[tuple[SourceChecksum, Sum]]:
    """Return the checksums that the row's parts could not prove: the copy's owed checksum and the
    listing's."""
    checksums = [SourceChecksum.parse(Proof.parse(entry.owed).checksum)] if entry.owed else []
    checksums += [checksum for checksum in listed(entry) if checksum.kind == "full"]
    return [(checksum, sum_of(checksum)) for checksum in dict.fromkeys(checksums)]


def _joined(sums: Sequence[tuple[str, Any]]) -> str:
    return " ".join(str(Digest(name, running.hexdigest())) for name, running in sums)


def _nothing(_: memoryview) -> None:
    return None


def _broken(entry: Expected, why: str) -> DamagedError:
    return DamagedError("a stored file is not as it was written", where=printable(entry.path), why=why)
