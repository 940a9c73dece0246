"""Stands between penstock and a real S3 server, and keeps what was asked for: the server's own log names
no ranges.

Only for requests without a body. Requests are handed on as they are; so are answers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import NamedTuple, Self

HEAD = 64 << 10
BLOCK = 1 << 20


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    range: str


class Relay:
    """`with Relay(port) as relay:` listens at `relay.endpoint` for the server on the loopback's `port`.
    `asked` has every request in the order in which they were handed on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[Asked] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ending = False

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ending = True
            opened = {self._listener, *self._open}
        for one in opened:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._port)) as far, contextlib.suppress(OSError):
            with self._lock:
                if self._ending:
                    return
                self._open |= {near, far}
            while (head := _head(near)) is not None:
                request, _ = head
                lines = request.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                self.asked.append(Asked(method, path, _value(lines, "range")))
                far.sendall(request)
                if not _answer(far, near, method):
                    break
        with self._lock:
            self._open -= {near, far}


def _head(sock: socket.socket) -> tuple[bytes, bytes] | None:
    """(a head with its empty line, what came after it); None at the end."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        more = sock.recv(HEAD)
        if not more:
            return None
        data += more
    return data[: end + 4], data[end + 4 :]


def _value(lines: list[str], name: str) -> str:
    found = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name}:"))
    return next(found, "")


def _answer(far: socket.socket, near: socket.socket, method: str) -> bool:
    """Hand one answer on, as it comes; False when the connection ends with it."""
    head = _head(far)
    if head is None:
        return False
    answer, body = head
    lines = answer.decode("latin-1").split("\r\n")
    near.sendall(answer + body)
    if method == "HEAD" or lines[0].split(" ")[1] in ("204", "304"):
        return True
    length = _value(lines, "content-length")
    if not length:
        return False
    left = int(length) - len(body)
    buffer = memoryview(bytearray(BLOCK))
    while left:
        got = far.recv_into(buffer[:left])
        if not got:
            return False
        near.sendall(buffer[:got])
        left -= got
    return _value(lines, "connection").lower() != "close"
