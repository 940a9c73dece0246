"""Moves a large body's bytes from a source into a pending file: read, hash, check, write, a block at a time.

`transfer.copier` and `part_copier` use it to copy, `reading.surveyor` to read a source without a file. It
reads the body and writes into the pending file that it gets; it opens, names and removes no file.

Guarantees. Exactly the listed bytes are hashed, in order, and the digest is the same whatever holes the file
has: a hole is hashed as the zeros that it reads as, and stays a hole in staging. A hole for which the file
system cannot be trusted is read and compared with zeros. Memory is a block, or two where a slow sum goes
beside.
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
from penstock.fs.errno_map import storage_error
from penstock.fs.libc import all_zeros
from penstock.fs.safe_open import read_at
from penstock.sources.posix.reader import PosixBody, SparseBody
from penstock.sources.registry import same_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from penstock.core.model import Entry, SourceChecksum
    from penstock.engine.checksums import Sums
    from penstock.engine.stream import Stream
    from penstock.sources.port import Body, Reader
    from penstock.target.pending_file import Pending

PIECE = 128 << 10
"""Bytes of zeros that become a hole where the source's file system does not say for sure; and the
zeros that are hashed for one, few enough to stay in a core's cache."""
_ZEROS = memoryview(bytes(PIECE))
ASK_EVERY = 0.25
"""Seconds between two checks that the attempt was not overtaken. Each is an fstat: on a network file system a
round to a server, and NFS writes back all dirty pages before it answers one."""
BESIDE = 4 << 20
"""Bytes from which a body with a slow checksum gets a second thread and block."""


PROGRESS = 16 << 10
"""Bytes after which a body that broke has made progress: a server that gives fewer each time is given up."""


class ResumedBody:
    """A `port.Body` that goes on where its connection broke, by a request for the rest of the listed version.

    | what the request for the rest brings | then |
    |---|---|
    | the rest | reading goes on; PROGRESS bytes of it begin the row's tries anew |
    | an error that may pass | the request is made again, while the row has tries left |
    | a refusal, as of a server without ranges | the break is raised: the row begins at its first byte |
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
        """See `port.Body`; TransientError where the row has no tries left. Raises Stopped, too."""
        try:
            count = self._body.readinto(buffer)
        except (ExpiredCredentialsError, OverloadedError):
            raise  # an answer, and no break
        except TransientError as broken:
            if self._at == self._end:
                raise  # nothing is left to ask for, and the end did not come
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
        """As `PosixBody.require_listed`, of a body of a folder's file."""
        assert isinstance(self._body, PosixBody)
        self._body.require_listed()

    def close(self) -> None:
        """See `port.Body`."""
        self._body.close()

    def abandon(self) -> None:
        """See `port.Body`."""
        self._body.abandon()


class Pump:
    """Moves bodies for one stream: with its buffer, its counter and its limit of bytes. `alive` is called
    before a body's first block is written, and later before a block when ASK_EVERY seconds have passed; it
    raises where the attempt was overtaken."""

    def __init__(self, stream: Stream, alive: Callable[[Pending], None]) -> None:
        self._stream, self._alive = stream, alive
        self._second: memoryview | None = None
        self._asked = 0.0

    def open(self, url: str, reader: Reader, entry: Entry, offset: int, length: int) -> Body:
        """As `Reader.open`, of a source with this URL; the body goes on where its connection breaks, if the
        entry's token pins the version."""
        body = reader.open(entry, offset, length)
        if same_bytes(url, entry.token) and not isinstance(body, SparseBody):
            return ResumedBody(self._stream, reader, entry, offset, length, body)
        return body

    def read_back(self, pending: Pending, sums: Sums, expected: str) -> Any:
        """The xxh3_128, to be continued, of what the pending file holds up to its position; None where that
        is not `expected`, in hex digits. `sums` gets the same bytes. Raises Stopped, and by
        `errno_map.storage_error`."""
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
        """Move `length` bytes; returns their xxh3_128 in hex digits. `sums` gets the same bytes in order;
        None: no checksum of the source is computed. `digest` already has the bytes before these. `before` is
        called before each block is written, `mark` with the digest after it. Raises TransientError for a body
        that ends early, IntegrityError for one that is longer, Stopped when the engine stops, and what
        reading, writing and `alive` raise. The caller closes `body` and `pending`."""
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
        """The hot loop: 1 MiB at a time through aligned buffers."""
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
            # Blocks are filled: the target gets whole aligned ones however the source drips.
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
        # Room of its own: the last block may still be worked on.
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
        """Gaps are passed over where they are certain, else read and left out when they are zeros."""
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
    """A second thread for a slow checksum: it calls `update` with each block given, in order. `room` returns
    when fewer than `blocks` of them wait or are being worked on: so of as many buffers used in turn the next
    is free to be filled.

    MD5 does some 0.8 GB a second and the SHAs some 2, on a core that would else read, hash and write: hashlib
    lets other threads run meanwhile, so one stream uses two cores where there are two.
    """

    def __init__(self, update: Callable[[memoryview], None], blocks: int) -> None:
        # Few bodies need it.
        from concurrent.futures import ThreadPoolExecutor

        self._update, self._blocks = update, blocks
        self._given: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sums")

    def room(self) -> None:
        """To be called before a buffer is filled for `give`. Raises what `update` raised."""
        while len(self._given) >= self._blocks:
            self._given.popleft().result()

    def give(self, block: memoryview) -> None:
        """Have the thread call `update` with the block, which must not change until its turn among the
        buffers comes again."""
        self._given.append(self._thread.submit(self._update, block))

    def end(self) -> None:
        """On return all blocks given are done, and the thread has ended. Raises what `update` raised."""
        self._thread.shutdown()
        for one in self._given:
            one.result()


def _write_but_zeros(pending: Pending, data: memoryview) -> None:
    """Write the data, with holes in place of pieces of zeros; in one write where no piece is all zeros."""
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
    """The error, for the caller to raise, of a body that ended after `read` of `length` bytes."""
    return TransientError(
        "the body ended early", where=entry.key, why=f"{read} bytes came of the {length} that were listed"
    )


def long(entry: Entry, length: int) -> IntegrityError:
    """The error, for the caller to raise, of a body with more than the `length` bytes that were listed."""
    return IntegrityError(
        "the body is longer than listed", where=entry.key, why=f"{length} bytes were listed"
    )
