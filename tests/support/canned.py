"""A server whose every byte the test decides, on connections that it keeps or ends as told."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import threading
from typing import TYPE_CHECKING, Self

from tests.support.commands import until

from penstock.config.settings import Reach
from penstock.sources.http_connection import Connection
from penstock.sources.http_endpoint import Endpoint, PacedSocket

if TYPE_CHECKING:
    from collections.abc import Sequence

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
END = b"FIN"
"""As an answer's last piece: the connection ends there."""
RESET = b"RST"
"""As an answer's last piece: the connection ends by RST."""
TAKEN = b"..."
"""As a piece: what follows is sent when the client took what came before."""


class Canned:
    """Answers each request with the next of its answers, in the pieces given; None hangs up."""

    def __init__(self, *answers: Sequence[bytes] | None) -> None:
        self._answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self._open: socket.socket | None = None

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def connection(self, timeout: float = 20.0) -> Connection:
        self._client = Connection(Endpoint("127.0.0.1", self.port, tls=False, reach=Reach(timeout)))
        return self._client

    def _serve(self) -> None:
        while self._answers:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open = sock
            with sock, contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._talk(sock)

    def _talk(self, sock: socket.socket) -> None:
        kept = b""
        while self._answers:
            while b"\r\n\r\n" not in kept and (more := sock.recv(65536)):
                kept += more
            head, found, kept = kept.partition(b"\r\n\r\n")
            if not found:
                break
            self.requests.append(head)
            answer = self._answers.pop(0)
            if answer is None or not self._sent(sock, answer):
                break

    def _sent(self, sock: socket.socket, answer: Sequence[bytes]) -> bool:
        """Send an answer; False when the connection ends with it."""
        for piece in answer:
            if piece is END:
                return False
            if piece is RESET:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            if piece is TAKEN:
                _until_taken(self._client)
            else:
                sock.sendall(piece)
        return True

    def __exit__(self, *_: object) -> None:
        self._answers = []
        self._listener.shutdown(socket.SHUT_RDWR)
        if self._open is not None:  # a test that fails leaves its connection open
            with contextlib.suppress(OSError):
                self._open.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def _until_taken(connection: Connection) -> None:
    until(lambda: not _waiting(connection._socket), "the client to take what came")


def _waiting(opened: object) -> int:
    """Bytes that came to the client and that it did not take yet."""
    if not isinstance(opened, PacedSocket):
        return 0
    return int(struct.unpack("i", fcntl.ioctl(opened._raw, termios.FIONREAD, bytes(4)))[0])
