"""Moves a large body into a pending file: reads, hashes, checks and writes it, a block at a time. Also
requests the sizes of the parts in which an object was uploaded.
"""

from __future__ import annotations

import mmap
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

import xxhash

from penstock.core.errors import (
    ExpiredCredentialsError,
    IntegrityError,
    ObjectError,
    OverloadedError,
    TransientError,
)
from penstock.engine.stream import BLOCK, Stopped
from penstock.fs.libc import all_zeros
from penstock.fs.safe_open import read_at, storage_error
from penstock.sources.port import same_bytes
from penstock.sources.posix_reader import PosixBody, SparseBody

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from penstock.core.model import Entry, SourceChecksum
    from penstock.engine.checksums import Sums
    from penstock.engine.stream import Stream
    from penstock.sources.port import Body, Reader, Source
    from penstock.target.staging_folder import Pending


# A composite checksum, such as an S3 multipart etag, covers the digests of the parts in which an object was
# uploaded. Two requests give the parts' size if all except the last have the same size. That is only
# assumed: parts of 8, 4, 12 and 8 MiB would look alike. So a composite that differs contradicts the bytes
# only after the size of every part was requested:
#
# | the sizes of all parts | a composite that differs |
# |---|---|
# | as assumed | contradicts the bytes |
# | other sizes | is computed again with the stated sizes |
# | not stated by the store | proves nothing: the grade is `size` |


def part_sizes(source: Source, entry: Entry, checksum: SourceChecksum) -> Sequence[int]:
    """Request the size of each part of an upload. Returns the sizes in order, or () if the store states none.

    If the source has no such request, or the checksum is no composite, the sizes follow from the checksum's
    `part_bytes`.
    """
    sizes = source.part_sizes(entry, checksum.parts) if checksum.kind == "composite" else None
    if sizes is None:
        full, rest = divmod(entry.size, checksum.part_bytes) if checksum.part_bytes else (0, 0)
        return (*[checksum.part_bytes] * full, *([rest] if rest else []))
    return sizes if len(sizes) == checksum.parts and sum(sizes) == entry.size else ()


def as_assumed(sizes: Sequence[int], checksum: SourceChecksum) -> bool:
    """Return whether all parts except the last have the checksum's part size, and the last is no larger."""
    if not sizes:
        return False
    *body, last = sizes
    return all(size == checksum.part_bytes for size in body) and last <= checksum.part_bytes


def sizes_of_upload(
    asks: Callable[[], None],
    source: Source,
    entry: Entry,
    failed: SourceChecksum | None,
    error: IntegrityError,
) -> Sequence[int]:
    """Return the sizes of the object's uploaded parts, if composite `failed` was computed with other sizes.

    Returns () if the store does not state the sizes: the checksum then proves nothing. `asks` waits until a
    request is allowed. Raises `error` if `failed` is no composite or the assumed sizes were right, and the
    errors of `part_sizes` and `asks`.
    """
    if failed is None or failed.kind != "composite" or not failed.part_bytes:
        raise error
    asks()
    sizes = part_sizes(source, entry, failed)
    if as_assumed(sizes, failed):
        raise error
    return sizes


# A stream hashes exactly the listed bytes, in order. A hole is hashed as zeros and stays a hole in staging,
# so holes do not change the digest. If the source's file system may report holes wrongly, holes are read and
# compared with zeros. A body takes the memory of one block, or of two if a slow checksum has its own thread.

# Bytes in a piece of zeros that becomes a hole if the source's file system may report holes wrongly. Also the
# number of zeros hashed at a time for a hole, which fit into a core's cache.
PIECE = 128 << 10
_ZEROS = memoryview(bytes(PIECE))
# Seconds between two checks that the attempt is not fenced. Each check is an fstat, which is a round trip on
# a network file system. NFS first writes back all dirty pages.
ASK_EVERY = 0.25
BESIDE = 4 << 20  # bytes from which a body with a slow checksum gets a second thread and block


# bytes between two broken connections that count as progress; a server that always sends fewer is given up
PROGRESS = 16 << 10


class ResumedBody:
    """A `port.Body` that, when its connection breaks, requests the rest of the listed version.

    | answer to the request for the rest | result |
    |---|---|
    | the rest | reading goes on; after PROGRESS bytes the row's tries are counted anew |
    | a transient error | the request is repeated while the row has tries left |
    | a refusal, as from a server without ranges | the first error is raised, and the row starts anew |
    | another version | SourceChangedError |
    """

    checksums: Sequence[SourceChecksum]

    def __init__(
        self, stream: Stream, reader: Reader, entry: Entry, offset: int, length: int, body: Body
    ) -> None:
        self._stream, self._reader, self._entry = stream, reader, entry
        self._at = self._tried_from = offset
        self._end = offset + length
        self._body = body
        self.checksums = body.checksums

    def readinto(self, buffer: memoryview) -> int:
        """As `port.Body.readinto`. Raises TransientError if the row has no tries left, and Stopped."""
        try:
            count = self._body.readinto(buffer)
        except (ExpiredCredentialsError, OverloadedError):
            raise  # the server answered, so the connection is not broken
        except TransientError as broken:
            if self._at == self._end:
                raise  # all bytes came, only the body's end is missing: nothing is left to request
            if self._at - self._tried_from >= PROGRESS:
                self._stream.vain_tries = 0
            self._tried_from = self._at
            try:
                count = self._stream.again(self._go_on, buffer, self._entry, broken)
            except ObjectError:
                raise broken from None
        self._at += count
        if self._at == self._end:
            self._stream.vain_tries = 0
        return count

    def _go_on(self, buffer: memoryview, entry: Entry) -> int:
        self._stream.asks()
        self._body.abandon()
        self._body = self._reader.open(entry, self._at, self._end - self._at)
        return self._body.readinto(buffer)

    def require_listed(self) -> None:
        """As `PosixBody.require_listed`. Call it only for a folder's file."""
        assert isinstance(self._body, PosixBody)
        self._body.require_listed()

    def close(self) -> None:
        self._body.close()

    def abandon(self) -> None:
        self._body.abandon()


class Pump:
    """Moves bodies for one stream, with the stream's buffer, counter and limit.

    `alive` raises an error if the attempt is fenced: another attempt took over its work. The pump calls it
    before it writes a body's first block, and then every ASK_EVERY seconds.
    """

    def __init__(self, stream: Stream, alive: Callable[[Pending], None]) -> None:
        self._stream, self._alive = stream, alive
        self._second: memoryview | None = None
        self._asked = 0.0

    def open(self, url: str, reader: Reader, entry: Entry, offset: int, length: int) -> Body:
        """As `Reader.open`. The body resumes a broken connection if the entry's token pins the version."""
        body = reader.open(entry, offset, length)
        if same_bytes(url, entry.token) and not isinstance(body, SparseBody):
            return ResumedBody(self._stream, reader, entry, offset, length, body)
        return body

    def read_back(self, pending: Pending, sums: Sums, expected: str) -> Any:
        """Hash the pending file's bytes up to its position, and feed them to `sums`.

        Returns the xxh3_128 object, which the caller continues, or None if its value is not `expected` (hex).
        Raises Stopped, and errors according to `safe_open.storage_error`.
        """
        digest, at = xxhash.xxh3_128(), 0
        while at < pending.position:
            data = self._stream.view[: min(BLOCK, pending.position - at)]
            try:
                data = data[: read_at(pending.fd, data, at)]
            except OSError as error:
                raise storage_error(error, "cannot read", pending.path) from None
            digest.update(data)
            sums.update(data)
            at += len(data) or pending.position
            if self._stream.stopping.is_set():
                raise Stopped
        return digest if digest.hexdigest() == expected else None

    def run(
        self,
        entry: Entry,
        body: Body,
        pending: Pending,
        sums: Sums | None,
        length: int,
        digest: Any = None,
        mark: Callable[[Any], None] | None = None,
        before: Callable[[], None] | None = None,
    ) -> str:
        """Move `length` bytes, and return the xxh3_128 in hex.

        It feeds the bytes to `sums` and to `digest`, which already has the preceding bytes. It calls `before`
        before it writes each block, and `mark` with the digest afterwards. Raises TransientError for a body
        that ends early, IntegrityError for a longer body, Stopped, and the errors of reading, writing and
        `alive`. The caller closes `body` and `pending`.
        """
        self._asked = 0.0
        digest = digest or xxhash.xxh3_128()
        if isinstance(body, SparseBody):
            self._with_holes(entry, body, pending, digest, sums, length, mark, before)
            return str(digest.hexdigest())
        if sums is None or not sums.slow or length < BESIDE:
            self._plain(entry, body, pending, digest, sums.update if sums else None, length, mark, before)
            return str(digest.hexdigest())
        beside = Beside(sums.update, 2)
        try:
            self._plain(entry, body, pending, digest, beside.give, length, mark, before, beside)
        finally:
            beside.end()
        return str(digest.hexdigest())

    def _plain(
        self,
        entry: Entry,
        body: Body,
        pending: Pending,
        digest: Any,
        update: Callable[[memoryview], object] | None,
        length: int,
        mark: Callable[[Any], None] | None,
        before: Callable[[], None] | None,
        beside: Beside | None = None,
    ) -> None:
        """Move the bytes, 1 MiB at a time, through aligned buffers. This is the hottest loop of a copy."""
        stream, ask, write = self._stream, self._ask, pending.write_all
        counters, slot, limiter, stopping = stream.counters, stream.slot, stream.limiter, stream.stopping
        hashed = digest.update
        block = stream.view[:BLOCK]
        spare = self._spare() if beside else block
        done = 0
        while done < length:
            want = min(BLOCK, length - done)
            if limiter:
                limiter.take(want)
            if beside:
                beside.room()
                block, spare = spare, block
            read = 0
            # Fill each block, so that the target gets whole aligned blocks even from a slow source.
            while read < want:
                more = body.readinto(block[read:want] if read or want < BLOCK else block)
                if not more:
                    raise short(entry, done + read, length)
                read += more
            data = block[:read]
            hashed(data)
            if update:
                update(data)
            ask(pending)
            if before:
                before()
            write(data)
            done += read
            counters[slot] += read
            if mark:
                mark(digest)
            if stopping.is_set():
                raise Stopped
        # Read into the buffer's last page, as the last block may still be in use.
        if body.readinto(stream.view[BLOCK:]):
            raise long(entry, length)

    def _with_holes(
        self,
        entry: Entry,
        body: SparseBody,
        pending: Pending,
        digest: Any,
        sums: Sums | None,
        length: int,
        mark: Callable[[Any], None] | None,
        before: Callable[[], None] | None,
    ) -> None:
        """Skip the holes if the source reports them reliably. Otherwise read them, but write no zeros."""
        stream, ask, limiter = self._stream, self._ask, self._stream.limiter
        certain, block = body.certain, stream.view[:BLOCK]

        def took(data: memoryview) -> None:
            digest.update(data)
            if sums:
                sums.update(data)
            stream.counters[stream.slot] += len(data)
            if stream.stopping.is_set():
                raise Stopped

        done = 0
        while done < length:
            if mark and done:
                mark(digest)
            gap = body.gap() if certain else 0
            if gap:
                for start in range(0, gap, PIECE):
                    took(_ZEROS[: gap - start])
                body.skip(gap)
                ask(pending)
                if before:
                    before()
                pending.skip(gap)
                done += gap
                continue
            read = body.readinto(block[: length - done])
            if not read:
                raise short(entry, done, length)
            data = block[:read]
            if limiter:
                limiter.take(read)
            ask(pending)
            if before:
                before()
            if certain:
                pending.write_all(data)
            else:
                _write_but_zeros(pending, data)
            took(data)
            done += read
        if body.readinto(stream.view[BLOCK:]):
            raise long(entry, length)

    def _ask(self, pending: Pending) -> None:
        now = monotonic()
        if now - self._asked >= ASK_EVERY or not self._asked:
            self._asked = now
            self._alive(pending)

    def _spare(self) -> memoryview:
        if self._second is None:
            self._second = memoryview(mmap.mmap(-1, BLOCK))
        return self._second


class Beside:
    """A second thread for a slow checksum. It calls `update` with each block, in order.

    MD5 hashes some 0.8 GB a second and the SHAs some 2 GB, on a core that must also read, hash and write.
    As hashlib releases the interpreter lock, one stream then uses two cores.
    """

    def __init__(self, update: Callable[[memoryview], None], blocks: int) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._update, self._blocks = update, blocks
        self._given: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sums")

    def room(self) -> None:
        """Wait until fewer than `blocks` blocks are queued, so that one of the caller's buffers is free.
        Raises the errors of `update`."""
        while len(self._given) >= self._blocks:
            self._given.popleft().result()

    def give(self, block: memoryview) -> None:
        """Queue a block, which must not change until `room` frees its buffer."""
        self._given.append(self._thread.submit(self._update, block))

    def end(self) -> None:
        """Wait for all blocks and end the thread. Raises the errors of `update`."""
        self._thread.shutdown()
        for block in self._given:
            block.result()


def _write_but_zeros(pending: Pending, data: memoryview) -> None:
    """Write the data with holes for pieces of zeros, or in one write if no piece is all zeros."""
    starts = range(0, len(data), PIECE)
    empty = [all_zeros(data[at : at + PIECE]) for at in starts]
    if not any(empty):
        pending.write_all(data)
        return
    for at, zeros in zip(starts, empty, strict=True):
        piece = data[at : at + PIECE]
        if zeros:
            pending.skip(len(piece))
        else:
            pending.write_all(piece)


def short(entry: Entry, read: int, length: int) -> TransientError:
    """Return the error for a body that ended after `read` of `length` bytes."""
    return TransientError(
        "the body ended early", where=entry.key, why=f"{read} bytes came of the {length} that were listed"
    )


def long(entry: Entry, length: int) -> IntegrityError:
    """Return the error for a body with more than the `length` bytes listed."""
    return IntegrityError(
        "the body is longer than listed", where=entry.key, why=f"{length} bytes were listed"
    )
