"""A server whose clients wait."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

LISTING = (
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>9</Size>"
    b"<ETag>&quot;e&quot;</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>"
)
"""A page of one object, the last one of a bucket."""


def busy(seconds: int) -> bytes:
    """An answer that asks for a pause."""
    return b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % seconds


def page(body: bytes, kind: bytes) -> bytes:
    """An answer with this body."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


class Server:
    """Answers each request by what `answer` gives for its head, and by nothing where that is empty. Without
    `answer` it sends `drip` ten times a second, whatever comes. `waited`: the client waits by now."""

    def __init__(self, answer: Callable[[bytes], bytes] | None = None, drip: bytes = b"") -> None:
        self._answer, self._drip = answer, drip
        self.waited = threading.Event()
        self._ending = threading.Event()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for opened in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                self._open.append(opened)
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._answer is None:
                self.waited.set()
                while self._drip and not self._ending.wait(0.1):
                    opened.sendall(self._drip)
                return
            received = b""
            while more := opened.recv(1 << 16):
                received += more
                while b"\r\n\r\n" in received:
                    head, _, received = received.partition(b"\r\n\r\n")
                    answer = self._answer(head)
                    opened.sendall(answer)
                    if b" 200 " not in answer:
                        self.waited.set()
