"""Sends requests over one kept HTTP/1.1 connection, and receives the answers into the caller's buffers.

Every network fault is a TransientError. A connection is kept only if the answer allows that, and was read to
its end. `timeout` is in seconds without progress. Statuses are left to the caller. `Connection.request`
states the only case in which a request is repeated.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError, TransientError
from penstock.sources.http_endpoint import STATUS, addresses, broken, connect, why
from penstock.sources.http_values import FIELD, LENGTH, HeaderNames, decimal, fields, learn

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.sources.http_endpoint import Addresses, Endpoint, PacedSocket, TlsSocket
    from penstock.sources.http_values import Shape


HEAD_ROOM = 8192  # initial size of the buffer that receives heads, in bytes
HEAD_LIMIT = 1 << 16  # bytes of an answer's head, at most
INTERIM = 16  # limit of interim answers (1xx) before an answer, and of trailer lines after a body
# Number of templates that a connection learns, at most. If a server's heads always differ, their fields are
# parsed.
SHAPES = 8
_FIELD = re.compile(rb"\r\n" + FIELD)
_FOLD = re.compile(rb"[ \t]*\r\n[ \t]+")  # a field's value that continues on the next line (RFC 9112, 5.2)
_BAD_CHUNK = "the body's chunks are malformed"
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)


class _StaleError(Exception):
    """The server had closed the kept connection before it read the request."""


class Connection:
    """One connection for one thread, made on first use.

    `request` sets `status`, `headers` (names in lower case) and `length` (of the body, -1 if not stated).
    Then read the body by `readinto` and `finish`, or drop the connection by `abandon`. A small body may come
    together with its head; `take` returns that body.
    """

    def __init__(
        self, endpoint: Endpoint, places: Addresses | None = None, *, names: HeaderNames | None = None
    ) -> None:
        """`names`: the fields needed from answers received into `room`; `headers` may lack others."""
        self.endpoint, self._names = endpoint, names or HeaderNames()
        self._places = places or addresses(*endpoint.address)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.length = -1
        self._socket: PacedSocket | TlsSocket | None = None
        self._flags = 0
        self._buffer = bytearray(HEAD_ROOM)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._left = 0
        self._chunked = False
        self._keep = False
        self._shape: Shape | None = None
        self._shapes = SHAPES
        self._body: memoryview | None = None
        self._got = 0
        self._sent = False
        # the fault that broke the connection after bytes already returned; the next read raises it
        self._fault: TransientError | None = None

    # ---- request and head

    def send(self, head: bytes) -> None:
        """Send a request's head ahead of time, so that `request` with the same head only waits for the
        answer. Never raises, since `request` will raise the error."""
        if self._socket is not None and (self._left or not self._keep):
            self.abandon()
        try:
            if self._socket is None:
                self._connect()
            assert self._socket is not None
            self._socket.sendall(head)
        except (OSError, PenstockError):
            self.abandon()
        else:
            self._sent = True

    def request(
        self,
        head: bytes,
        *,
        bodyless: bool = False,
        room: memoryview | None = None,
        anew: Callable[[], bytes] | None = None,
    ) -> int:
        """Send a request's head, unless it was sent ahead; read the answer's head, and return the status.

        If the server has closed the kept connection, send the head again over a new one, once. `anew` makes
        that head, since the first head's signature may be too old. With `room`, an answer like the last one
        is received into `room`, head and body together. Then call `take` before any other read.
        """
        if self._socket is not None and not self._sent and (self._left or not self._keep):
            self.abandon()
        fresh = self._socket is None
        try:
            return self._exchange(head, bodyless, room)
        except _StaleError:
            self.abandon()
            if fresh:
                raise self._broken("the server closed the connection without an answer") from None
        try:
            return self._exchange(anew() if anew else head, bodyless, room)
        except _StaleError:
            raise self._broken("the server closed the connection without an answer") from None

    def _exchange(self, head: bytes, bodyless: bool, room: memoryview | None) -> int:
        if self._socket is None:
            self._connect()
        assert self._socket is not None
        self._start = self._end = 0
        self._left = 0
        self._keep = False
        self._body = self._fault = None
        try:
            if not self._sent:
                self._socket.sendall(head)
            self._sent = False
            if room is not None and self._shape is not None and self._fits(self._shape, room):
                return 200
            stop = self._read_head()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            if self._end:
                raise self._broken("the connection was reset") from None
            raise _StaleError from None
        except OSError as error:
            raise self._broken(why(error)) from None
        self._understand(stop, bodyless)
        self._socket.expect(max(0, self._left))
        if room is not None and self.status == 200 and self._keep and self.length >= 0 and self._shapes:
            self._shapes -= 1
            self._shape = learn(bytes(self._view[:stop]), self._names)
        return self.status

    def _fits(self, shape: Shape, room: memoryview) -> bool:
        """Receive into `room`, and return whether the answer is like the last one. If it is not, `_read_head`
        can read its bytes."""
        assert self._socket is not None
        count = self._socket.recv_into(room)
        if not count:
            raise BrokenPipeError
        fit = shape.fit(room[:count])
        if fit is not None:
            start, headers = fit
            length = int(headers[LENGTH])
            if start + length <= len(room):
                self.status, self.headers, self.length = 200, headers, length
                self._chunked = False
                # Bytes after the body answer no request of ours, so the connection is not kept.
                self._keep = count <= start + length
                self._body = room[start : start + length]
                self._got = count - start
                self._left = length
                return True
        while len(self._buffer) < count:
            self._grow()
        self._view[:count] = room[:count]
        self._end = count
        return False

    @property
    def unbounded(self) -> bool:
        """Whether the body ends only with the connection, so that a cut cannot be detected."""
        return self._left < 0 and not self._chunked

    def take(self) -> memoryview | None:
        """Return the whole body if the answer was received into its request's `room`; the result is valid
        until `room` is reused. If the result is None, read the body by `readinto`."""
        body = self._body
        if body is not None:
            got = self._got
            while got < len(body):
                got += self._receive(body[got:])
            self._body, self._left = None, 0
        return body

    def _read_head(self) -> int:
        """Receive up to the blank line; return the offset after it."""
        searched = interim = 0
        if not self._end:
            self._more_head()
        while True:
            stop = self._buffer.find(b"\r\n\r\n", searched, self._end)
            while stop >= 0:
                if not self._buffer.startswith(b"HTTP/1.1 1"):
                    return stop
                interim += 1  # the real answer follows
                if interim > INTERIM:
                    raise OSError("interim answers without an end")
                self._view[: self._end - stop - 4] = bytes(self._view[stop + 4 : self._end])
                self._end -= stop + 4
                stop = self._buffer.find(b"\r\n\r\n", 0, self._end)
            searched = max(0, self._end - 3)
            self._more_head(begun=interim > 0)

    def _more_head(self, *, begun: bool = False) -> None:
        """Receive more of the head. `begun`: an interim answer came, so the server has seen the request."""
        assert self._socket is not None
        if self._end == len(self._buffer):
            if self._end >= HEAD_LIMIT:
                raise OSError("the answer's head is too long")
            self._grow()
        count = self._socket.recv_into(self._view[self._end :])
        if not count:
            if self._buffer.startswith(b"\x15\x03", 0, self._end):  # a TLS alert
                raise OSError("what answers there speaks TLS: write https://, or correct the port")
            if self._end or begun:
                raise OSError("the connection was closed within the answer's head")
            raise BrokenPipeError
        self._end += count

    def _grow(self) -> None:
        larger = bytearray(len(self._buffer) * 2)
        larger[: self._end] = self._view[: self._end]
        self._buffer, self._view = larger, memoryview(larger)

    def _understand(self, stop: int, bodyless: bool) -> None:
        head = bytes(self._view[:stop])
        self._start = stop + 4
        status = STATUS.match(head)
        if status is None:
            raise self._broken("the answer is not HTTP/1.1")
        self.status = int(status[2])
        if b"\r\n " in head or b"\r\n\t" in head:
            head = _FOLD.sub(b" ", head)
        lines = _FIELD.findall(head)
        if not head.count(b"\r") == head.count(b"\n") == len(lines):
            raise self._broken("a line of the answer's head is no header field")
        headers, twice = fields(lines)
        self.headers = headers
        if twice:
            raise self._broken(f"the answer states {twice.decode('latin-1')} twice, and not alike")
        kept = headers.get(b"connection", b"").lower()
        self._keep = (b"close" not in kept) if status[1] == b"1" else (b"keep-alive" in kept)
        self._chunked = False
        length = headers.get(b"content-length")
        if bodyless or self.status in (204, 304):
            self._left = 0
            stated = decimal(length) if length else None
            self.length = -1 if stated is None else stated
        elif (coding := headers.get(b"transfer-encoding", b"identity").lower()) != b"identity":
            if coding != b"chunked":
                raise self._broken("the answer's Transfer-Encoding is not chunked")
            self._chunked, self._left, self.length = True, -1, -1
            self._left = self._next_chunk(first=True)
        elif length is not None:
            stated = decimal(length)
            if stated is None:
                raise self._broken("the answer's Content-Length is no number")
            self._left = self.length = stated
        else:
            self._left, self.length, self._keep = -1, -1, False

    # ---- body

    def readinto(self, buffer: memoryview) -> int:
        """Read the body's next bytes into `buffer`; return their number, 0 at the body's end. A body without
        chunks fills the buffer, unless it ends or the network stalls."""
        assert self._body is None, "take comes first"
        left = self._left
        if not left:
            return 0
        if 0 < left < len(buffer):
            buffer = buffer[:left]
        ready = self._end - self._start
        if ready:
            count = min(ready, len(buffer))
            buffer[:count] = self._view[self._start : self._start + count]
            self._start += count
            if left > 0:
                left -= count
                if left and count < len(buffer):
                    more = self._receive(buffer[count:])
                    count += more
                    left -= more
        else:
            count = self._receive(buffer)
            if left > 0:
                left -= count
            elif not count:
                left = 0  # a body without a length ends with the connection
        self._left = left
        if not left and self._chunked:
            try:
                self._left = self._next_chunk()
            except TransientError as error:
                self._fault, self._left = error, -1
        return count

    def _receive(self, buffer: memoryview) -> int:
        """Fill `buffer` from the socket; receive less only at the end, or after the timeout."""
        self._require_whole()
        assert self._socket is not None
        try:
            count = self._socket.recv_into(buffer, 0, self._flags)
            if count and count < len(buffer):
                count = self._rest(buffer, count)
        except OSError as error:
            raise self._broken(why(error)) from None
        if not count and self._left > 0:
            raise self._broken("the connection was closed within the body")
        return count

    def _rest(self, buffer: memoryview, got: int) -> int:
        """Fill the rest of a block, but return early after the timeout or a fault."""
        assert self._socket is not None
        began = time.monotonic()
        while got < len(buffer):
            try:
                count = self._socket.recv_into(buffer[got:], 0, self._flags)
            except OSError as error:
                self._fault = self._broken(why(error))  # raised by the read after these bytes
                break
            if not count:
                break  # the next call will find the end again
            got += count
            if time.monotonic() - began >= self.endpoint.reach.timeout:
                break
        return got

    def _require_whole(self) -> None:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    def _next_chunk(self, *, first: bool = False) -> int:
        """Read up to the next chunk, and return its size; 0 after the last chunk and its trailer."""
        if not first and self._line():
            raise self._broken(_BAD_CHUNK)
        size = _CHUNK_SIZE.fullmatch(self._line())
        if size is None:
            raise self._broken(_BAD_CHUNK)
        left = int(size[1], 16)
        if not left:
            for _ in range(INTERIM):
                if not self._line():
                    return 0
            raise self._broken(_BAD_CHUNK)
        return left

    def _line(self) -> bytes:
        """Read a line of the chunked framing, without its end."""
        while True:
            stop = self._buffer.find(b"\r\n", self._start, self._end)
            if stop >= 0:
                line = bytes(self._view[self._start : stop])
                self._start = stop + 2
                return line
            if self._end - self._start > 1024:
                raise self._broken(_BAD_CHUNK)
            if self._start:
                rest = bytes(self._view[self._start : self._end])
                self._view[: len(rest)] = rest
                self._start, self._end = 0, len(rest)
            assert self._socket is not None
            try:
                count = self._socket.recv_into(self._view[self._end :])
            except OSError as error:
                raise self._broken(why(error)) from None
            if not count:
                raise self._broken("the connection was closed within the body")
            self._end += count

    def read_all(self, limit: int) -> bytes:
        """Read the whole body of at most `limit` bytes; b"" for an answer to HEAD."""
        if not self._left:
            self.finish()
            return b""
        if self.length > limit:
            raise self._broken(f"an answer of {self.length} bytes where at most {limit} make sense")
        if self.length >= 0:
            body = bytearray(self.length)
            view = memoryview(body)
            got = 0
            while got < len(body):
                got += self.readinto(view[got:])
            self.finish()
            return bytes(body)
        blocks: list[bytes] = []
        total = 0
        block = memoryview(bytearray(1 << 16))
        while count := self.readinto(block):
            total += count
            if total > limit:
                raise self._broken(f"an answer of more than {limit} bytes")
            blocks.append(bytes(block[:count]))
        self.finish()
        return b"".join(blocks)

    def finish(self) -> bool:
        """End an answer. Return whether its body was read to its end; if not, drop the connection."""
        ended = not self._left
        if not ended or not self._keep or self._start != self._end:
            self.abandon()
        return ended

    def ends(self) -> bool:
        """Return whether the body ends here. For a body without a length, this reads from the connection."""
        self._require_whole()
        if self.unbounded:
            return self._start == self._end and not self._receive(memoryview(bytearray(1)))
        return not self._left

    def abandon(self) -> None:
        """Drop the connection. Never raises."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._body, self._sent, self._fault = None, False, None
        self._left = 0
        self._start = self._end = 0

    close = abandon

    # ---- connecting

    def _broken(self, reason: str) -> TransientError:
        """Drop the connection; return the error to raise."""
        self.abandon()
        return broken(self.endpoint, reason)

    def _connect(self) -> None:
        self._socket = connect(self.endpoint, self._places)
        # TLS returns single records; the kernel fills a whole block in one call.
        self._flags = 0 if self.endpoint.tls else socket.MSG_WAITALL
        self._keep = True
