"""A socket that raises an error when a connection delivers next to nothing, and not when it is merely slow.

In every `timeout` seconds spent waiting for bytes, SLOW bytes a second must have come on average, wherever
they belong: a TLS handshake, an answer's head, a chunk's size, a body. Time that the caller spends elsewhere
does not count, nor does the wait for an answer's first byte, which has the whole timeout for itself.

Of a body whose length is known more is asked, so that it ends: as much as brings it within a DAY of waiting,
up to PLENTY. 256 MiB have to come at 3 KiB/s; at SLOW they would take three days.

`http.connect` wraps every new socket in it. Touches that socket alone.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW = 1024
"""Bytes a second below which a line counts as dead."""


PLENTY = 65536
"""Bytes a second that are always enough: many streams may share a thin line."""
DAY = 86400.0
"""Seconds of waiting within which a body of known length has to come."""


class PacedSocket:
    """Over a connected socket, whose timeout it takes over: the kernel's own, one system call a block."""

    __slots__ = ("_clock", "_got", "_raw", "_slow", "_timeout", "_waited")

    def __init__(
        self,
        raw: socket.socket,
        timeout: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        kernel: bool = True,
    ) -> None:
        """`kernel=False`: the socket keeps its own timeout, as one of `ssl` must."""
        self._raw, self._timeout, self._clock = raw, timeout, clock
        self._got, self._waited, self._slow = 0, 0.0, float(SLOW)
        if not kernel:
            return
        whole = int(timeout)
        limit = struct.pack("ll", whole, int((timeout - whole) * 1e6))
        raw.settimeout(None)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def sendall(self, data: bytes) -> None:
        """A request goes out: the wait begins anew."""
        self._got, self._waited, self._slow = 0, 0.0, float(SLOW)
        self._raw.sendall(data)

    def expect(self, length: int) -> None:
        """So many bytes are to come until the next request."""
        self._slow = min(PLENTY, max(SLOW, length / DAY))

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        """As a socket's. Raises TimeoutError for a drip, BlockingIOError when nothing came at all."""
        clock = self._clock
        began = clock()
        count = self._raw.recv_into(buffer, nbytes, flags)
        if self._got:
            self._waited += clock() - began
        self._got += count
        if self._waited >= self._timeout:
            if self._got < self._slow * self._timeout:
                raise TimeoutError(f"only {self._got} bytes came within the timeout")
            self._got, self._waited = 1, 0.0
        return count

    def close(self) -> None:
        self._raw.close()
