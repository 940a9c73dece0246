"""A drip of bytes ends in an error wherever in the exchange it happens."""

from __future__ import annotations

import socket
import ssl
import threading
from itertools import cycle, repeat
from typing import TYPE_CHECKING, Self

import pytest
from tests.support.s3server import make_certificates

from penstock.config.settings import Reach
from penstock.core.errors import TransientError
from penstock.sources.http_connection import Connection
from penstock.sources.http_endpoint import Endpoint, PacedSocket, TlsSocket

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
TIMEOUT = 1.0


class Drip:
    """Waits for a connection's first bytes, answers `first` at once and `rest` one by one, for ever."""

    def __init__(self, first: bytes, rest: Iterable[bytes]) -> None:
        self._first, self._rest = first, rest
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        with sock:
            sock.recv(65536)
            drip(sock, self._first, self._rest, self._ending)

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._listener.close()


def drip(sock: socket.socket, first: bytes, rest: Iterable[bytes], ending: threading.Event) -> None:
    try:
        sock.sendall(first)
        for piece in rest:
            sock.sendall(piece)
            if ending.wait(0.1):
                return
    except OSError:
        return


def exchange(connection: Connection) -> None:
    buffer = memoryview(bytearray(100_000))
    connection.request(GET)
    while connection.readinto(buffer):
        pass


@pytest.mark.parametrize(
    ("first", "rest"),
    [
        (OK + b"X: ", repeat(b"y")),
        (b"", repeat(b"HTTP/1.1 102 X\r\n\r\n")),
        (OK + b"Content-Length: 100000\r\n\r\n", repeat(b"x")),
        (OK + b"\r\n", repeat(b"x")),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", cycle([b"1", b"\r\n", b"x", b"\r\n"])),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", repeat(b"x")),
    ],
    ids=["head", "interim", "body", "no length", "chunks", "chunk line"],
)
def test_answers(first: bytes, rest: Iterable[bytes]) -> None:
    with Drip(first, rest) as server:
        connection = Connection(Endpoint("127.0.0.1", server.port, tls=False, reach=Reach(TIMEOUT)))
        with pytest.raises(TransientError, match=r"bytes came within the timeout|without an end"):
            exchange(connection)
        assert connection._socket is None


def test_a_proxys_answer() -> None:
    with Drip(b"", repeat(b"H")) as proxy:
        place = Endpoint("far.example", 443, tls=True, reach=Reach(TIMEOUT), proxy=("127.0.0.1", proxy.port))
        with pytest.raises(TransientError, match="bytes came within the timeout"):
            Connection(place).request(GET)


def test_a_handshake() -> None:
    with Drip(b"\x16\x03\x03\x40\x00", repeat(b"\x02")) as server:
        place = Endpoint("127.0.0.1", server.port, tls=True, reach=Reach(TIMEOUT))
        with pytest.raises(TransientError, match="bytes came within the timeout"):
            Connection(place).request(GET)


def test_a_record(tmp_path: Path) -> None:
    """One record of TLS that comes byte by byte hands nothing out until it is whole."""
    ours, theirs = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key, authority = make_certificates(tmp_path)
    server.load_cert_chain(certificate, key)
    ending = threading.Event()

    def serve() -> None:
        come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
        far = server.wrap_bio(come, go, server_side=True)
        while True:
            try:
                far.do_handshake()
                break
            except ssl.SSLWantReadError:
                theirs.sendall(go.read())
                come.write(theirs.recv(65536))
        far.write(b"x" * 10_000)
        sent = go.read()
        drip(theirs, sent[:-5_000], (bytes([byte]) for byte in sent[-5_000:]), ending)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        tls = TlsSocket(
            PacedSocket(ours, 2 * TIMEOUT), ssl.create_default_context(cafile=authority), "127.0.0.1"
        )
        buffer = memoryview(bytearray(10_000))
        with pytest.raises(TimeoutError, match="bytes came within the timeout"):
            tls.recv_into(buffer)
    finally:
        ending.set()
        thread.join()
        ours.close()
        theirs.close()


def test_what_the_caller_does_meanwhile_does_not_count() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        now = [0.0]
        paced = PacedSocket(ours, 20.0, clock=lambda: now[0])
        buffer = memoryview(bytearray(10))
        for _ in range(5):
            theirs.sendall(b"0123456789")
            assert paced.recv_into(buffer) == 10
            now[0] += 1000.0


@pytest.mark.parametrize(
    ("length", "rate", "fine"),
    [
        (256 << 20, 1100, False),  # three days
        (256 << 20, 4000, True),
        (1 << 20, 1100, True),
        (1 << 40, 60_000, False),
        (1 << 40, 70_000, True),
    ],
)
def test_more_is_asked_of_a_line_that_a_large_body_comes_by(length: int, rate: int, fine: bool) -> None:
    """By a clock of the test's own: a second passes in each call, which brings so many bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        seconds = iter(range(1 << 20))
        paced = PacedSocket(ours, 60.0, clock=lambda: next(seconds))
        paced.sendall(b"request")
        paced.expect(length)
        buffer = memoryview(bytearray(rate))
        came = 0
        try:
            for _ in range(200):
                theirs.sendall(bytes(rate))
                came += paced.recv_into(buffer, rate, socket.MSG_WAITALL)
        except TimeoutError:
            assert not fine
        else:
            assert fine
        assert came
