"""TLS over a connected socket, fed in large pieces: half the system calls of `ssl.SSLSocket`.

OpenSSL on a socket asks the kernel twice for each record of 16 KiB. Here one call brings up to FEED bytes,
and the records are taken out of memory. Names and certificates are checked by the SSL context; errors are
those of `ssl` and `socket`. `http.connect` makes one for each connection over TLS.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.sources.http.stall_guard import PacedSocket

FEED = 256 << 10
"""Bytes of one read from the socket. 32 KiB to 1 MiB were no faster. OpenSSL's own loop over the socket (its
buffering BIO, by ctypes) saves a tenth of the CPU at most: too little for code that reads CPython's internal
structures."""


class TlsSocket:
    """The few methods of a socket that a connection uses. Timeouts are the inner socket's."""

    def __init__(self, raw: PacedSocket, context: ssl.SSLContext, host: str) -> None:
        """Shakes hands. Raises ssl.SSLError or OSError; the inner socket then stays the caller's."""
        self._raw = raw
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=host)
        self._feed = memoryview(bytearray(FEED))
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                if not self._more():
                    raise ConnectionResetError("closed during the TLS handshake") from None
            except ssl.SSLError:
                self._flush()  # the alert that says why
                raise
        self._flush()

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ARG002 (a socket's)
        """Fill `buffer` as far as bytes have arrived; waits only for the first byte. 0 at the end."""
        read, size, got = self._tls.read, len(buffer), 0
        while got < size:
            try:
                count = read(size - got, buffer[got:] if got else buffer)
            except ssl.SSLWantReadError:
                if got:
                    break
                self._flush()  # TLS itself may have to send something first (a key update)
                if not self._more():
                    return 0
                continue
            except ssl.SSLZeroReturnError:
                break
            if not count:
                break
            got += int(count)
        return got

    def expect(self, length: int) -> None:
        self._raw.expect(length)

    def close(self) -> None:
        self._raw.close()

    def _more(self) -> bool:
        count = self._raw.recv_into(self._feed)
        if count:
            self._in.write(self._feed[:count])
        return count > 0

    def _flush(self) -> None:
        if self._out.pending:
            self._raw.sendall(self._out.read())
