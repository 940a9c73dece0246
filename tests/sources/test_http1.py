"""The HTTP client on connections whose every byte the test decides."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Self

import pytest
from tests.support.canned import GET, OK, RESET, TAKEN, Canned
from tests.support.hostile import Hostile
from tests.support.s3server import make_certificates

from penstock.config.settings import Reach
from penstock.core.errors import ConfigError, FailedError, PreflightError, TransientError
from penstock.sources import http_endpoint
from penstock.sources.http_connection import HEAD_LIMIT, Connection
from penstock.sources.http_endpoint import bypassed, endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3server import S3Server


def body(connection: Connection, block: int = 7) -> bytes:
    buffer = memoryview(bytearray(block))
    parts = []
    while count := connection.readinto(buffer):
        parts.append(bytes(buffer[:count]))
    return b"".join(parts)


@pytest.mark.parametrize(
    "answer",
    [
        [OK + b"Content-Length: 20\r\n\r\n" + b"0123456789" * 2],
        [OK, b"Content-Length: 20\r\n", b"\r\n", b"0123456789", b"0123456789"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\nF;x=y\r\n567890123456789\r\n0\r\n\r\n"],
        [bytes([byte]) for byte in OK + b"Transfer-Encoding: chunked\r\n\r\n14\r\n" + b"0123456789" * 2]
        + [b"\r\n0\r\nTrailer: x\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 20\r\n\r\n" + b"0123456789" * 2],
        [b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n", OK + b"content-length:20 \r\n\r\n" + b"0123456789" * 2],
        [b"HTTP/1.1 102 X\r\n\r\n" * 3 + OK + b"Content-Length: 20\r\n\r\n" + b"0123456789" * 2],
    ],
    ids=["at once", "in pieces", "chunked", "chunked, byte by byte", "interim", "interim apart", "interims"],
)
@pytest.mark.parametrize("block", [1, 7, 4096])
def test_bodies(answer: list[bytes], block: int) -> None:
    with Canned(answer, answer) as server:
        connection = server.connection()
        for _ in range(2):
            assert connection.request(GET) == 200
            assert body(connection, block) == b"0123456789" * 2
            assert connection.ends()
            assert connection.finish()
        assert server.connections == 1
        connection.close()


def test_the_end_of_the_connection_may_be_the_end_of_the_body() -> None:
    with Canned([b"HTTP/1.0 200 OK\r\n\r\nsome"]) as server:
        connection = server.connection()
        connection.request(GET)
        assert connection.length == -1
        assert body(connection) == b"some"
        connection.finish()
        assert connection._socket is None


@pytest.mark.parametrize("method", ["HEAD", "204", "304"])
def test_answers_without_a_body(method: str) -> None:
    status = b"200" if method == "HEAD" else method.encode()
    head = [b"HTTP/1.1 " + status + b" X\r\nContent-Length: 5\r\n\r\n"]
    with Canned(head, [OK + b"Content-Length: 2\r\n\r\nab"]) as server:
        connection = server.connection()
        connection.request(GET, bodyless=method == "HEAD")
        assert connection.length == 5
        assert connection.finish()
        connection.request(GET)
        assert connection.read_all(10) == b"ab"
        assert server.connections == 1
        connection.close()


def test_a_kept_connection_that_went_stale_is_made_anew() -> None:
    answer = [OK + b"Content-Length: 2\r\n\r\nab"]
    with Canned(answer, None, answer) as server:
        connection = server.connection()
        for _ in range(2):
            connection.request(GET)
            assert connection.read_all(10) == b"ab"
        assert server.connections == 2
        connection.close()


def test_a_server_that_always_hangs_up() -> None:
    with Canned(None, None, None) as server:
        with pytest.raises(TransientError, match="without an answer"):
            server.connection().request(GET)
        assert server.connections <= 2


def test_connection_close_is_heeded() -> None:
    answer = [OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab"]
    with Canned(answer, answer) as server:
        connection = server.connection()
        for _ in range(2):
            connection.request(GET)
            assert connection.read_all(10) == b"ab"
            assert connection._socket is None


@pytest.mark.parametrize(
    "answer",
    [
        [b"SSH-2.0-OpenSSH\r\n\r\n"],
        [OK + b"Content-Length: many\r\n\r\n"],
        [OK + b"X: " + b"y" * HEAD_LIMIT],
        [OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 3000],
        [OK + b"Content-Length: 200\r\n\r\n" + b"x" * 200],
        [b"HTTP/1.1 102 Processing\r\n\r\n" * 40, OK + b"Content-Length: 1\r\n\r\nx"],
        [OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: x\r\n" * 40 + b"\r\n"],
    ],
    ids=[
        "not HTTP",
        "length",
        "head",
        "chunk",
        "negative",
        "framing",
        "chunk line",
        "limit",
        "interim",
        "trailer",
    ],
)
def test_malformed_answers(answer: list[bytes]) -> None:
    with Canned(answer) as server:
        connection = server.connection()
        with pytest.raises(TransientError):
            assert connection.request(GET) and connection.read_all(100)  # noqa: PT018 (either may fail)
        assert connection._socket is None


def test_a_large_head_is_read() -> None:
    with Canned([OK + b"X: " + b"y" * 30_000 + b"\r\nContent-Length: 1\r\n\r\nz"]) as server:
        connection = server.connection()
        connection.request(GET)
        assert len(connection.headers[b"x"]) == 30_000
        assert connection.read_all(10) == b"z"
        connection.close()


class Proxy:
    """Passes CONNECT on to anywhere; notes what it was asked."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse = refuse
        self.asked: list[bytes] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._run(self._serve)
        return self

    def _run(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._run(self._pass, sock)

    def _pass(self, sock: socket.socket) -> None:
        with sock:
            head = b""
            while b"\r\n\r\n" not in head and (more := sock.recv(65536)):
                head += more
            self.asked.append(head)
            if self.refuse:
                sock.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return
            if not head.startswith(b"CONNECT"):
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
                return
            host, _, port = head.split(b" ")[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pump, args=(far, sock))
                back.start()
                _pump(sock, far)
                back.join()

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


def _pump(here: socket.socket, there: socket.socket) -> None:
    try:
        while data := here.recv(65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_https_goes_through_a_proxys_tunnel(demo_tls: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://us%40er:pass@127.0.0.1:{proxy.port}")
        place = endpoint(demo_tls.endpoint, Reach(ca_bundle=str(demo_tls.ca)))
        assert "pass" not in place.url
        connection = Connection(place)
        connection.request(f"GET /{demo_tls.bucket}/ HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        assert b"AccessDenied" in connection.read_all(10_000)
        connection.close()
        assert proxy.asked[0].startswith(f"CONNECT 127.0.0.1:{demo_tls.port} ".encode())
        assert b"Proxy-Authorization: Basic dXNAZXI6cGFzcw==" in proxy.asked[0]


def test_a_proxy_that_refuses(demo_tls: S3Server) -> None:
    with Proxy(refuse=True) as proxy:
        options = {"ca_bundle": str(demo_tls.ca), "proxy": f"http://127.0.0.1:{proxy.port}"}
        with pytest.raises(TransientError, match="proxy refused") as caught:
            Connection(endpoint(demo_tls.endpoint, Reach(**options))).request(GET)
        assert "407" in str(caught.value)


def test_plain_http_names_the_server_to_the_proxy() -> None:
    with Proxy() as proxy:
        place = endpoint("http://far.example:81", Reach(proxy=f"127.0.0.1:{proxy.port}"))
        connection = Connection(place)
        connection.request(f"GET {place.origin}/x HTTP/1.1\r\nHost: {place.authority}\r\n\r\n".encode())
        assert connection.read_all(10) == b"abc"
        assert proxy.asked[0].startswith(b"GET http://far.example:81/x HTTP/1.1\r\n")


def _listed(server: S3Server) -> bool:
    """Whether the server answers, reached as the environment says."""
    connection = Connection(endpoint(server.endpoint, Reach()))
    connection.request(f"GET /{server.bucket}/ HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    answered = b"AccessDenied" in connection.read_all(10_000)
    connection.close()
    return answered


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_authorities_of_the_environment_are_trusted(
    demo_tls: S3Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(demo_tls.ca))
    http_endpoint.tls_context.cache_clear()  # a process has one environment
    assert _listed(demo_tls)
    http_endpoint.tls_context.cache_clear()


def test_what_no_proxy_names_is_reached_directly(demo_tls: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(demo_tls.ca))
    with Proxy(refuse=True) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        with pytest.raises(TransientError, match="proxy refused"):
            _listed(demo_tls)
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,127.0.0.1")
        assert _listed(demo_tls)
        assert len(proxy.asked) == 1


def test_an_unknown_authority_is_refused(demo_tls: S3Server) -> None:
    with pytest.raises(FailedError, match="certificate"):
        Connection(endpoint(demo_tls.endpoint, Reach())).request(GET)


@pytest.mark.parametrize(
    ("days", "names", "host", "hint"),
    [
        (-1, "IP:127.0.0.1", "127.0.0.1", "have the server's certificate renewed"),
        (2, "IP:127.0.0.2", "127.0.0.1", "write the server's address as the certificate has it"),
        (2, "DNS:elsewhere.example", "localhost", "write the server's address as the certificate has it"),
    ],
)
def test_a_certificate_that_does_not_hold_has_advice_of_its_own(
    tmp_path: Path, days: int, names: str, host: str, hint: str
) -> None:
    certificate, key, authority = make_certificates(tmp_path, days=days, names=names)
    with Hostile({}, certificate=(certificate, key)) as server:
        place = endpoint(f"https://{host}:{server.port}", Reach(ca_bundle=str(authority)))
        with pytest.raises(FailedError, match="certificate is not trusted") as caught:
            Connection(place).request(GET)
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("answer", "scheme", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "https", "does not speak TLS: write http://"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "http", "speaks TLS: write https://"),  # an alert
    ],
)
def test_a_port_that_speaks_the_other_of_http_and_https_is_named(
    answer: bytes, scheme: str, words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answers() -> None:
            with listener.accept()[0] as sock:
                sock.recv(1 << 16)
                sock.sendall(answer)

        thread = threading.Thread(target=answers)
        thread.start()
        with pytest.raises(TransientError, match=words) as caught:
            Connection(endpoint(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", Reach())).request(GET)
        assert "_ssl" not in str(caught.value)
        thread.join()


@pytest.mark.parametrize(
    ("no_proxy", "host", "expected"),
    [
        ("", "a.example", False),
        ("*", "a.example", True),
        ("example", "a.example", True),
        (".example", "a.example", True),
        ("b.example, a.example", "a.example", True),
        ("a.example:80", "a.example", False),
        ("a.example:443", "a.example", True),
        ("ample", "a.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "a.example", False),
    ],
)
def test_no_proxy(no_proxy: str, host: str, expected: bool) -> None:
    assert bypassed(host, 443, no_proxy) is expected


def test_the_environment_is_heeded_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://lower:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://upper:2")
    assert endpoint("https://h", Reach()).proxy == ("lower", 1)
    assert endpoint("https://h", Reach(proxy="http://own:3")).proxy == ("own", 3)
    assert endpoint("http://h", Reach()).proxy is None
    monkeypatch.setenv("NO_PROXY", "h")
    assert endpoint("https://h", Reach()).proxy is None


def test_bundles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="not there"):
        endpoint("https://h", Reach(ca_bundle=str(tmp_path / "no")))
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    with pytest.raises(PreflightError, match="cannot be read"):
        http_endpoint.tls_context(str(empty))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(empty))
    assert endpoint("https://h", Reach()).ca_bundle == str(empty)


@pytest.mark.parametrize("url", ["ftp://h", "http://", "h:80", "http://h:99999"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError):
        endpoint(url, Reach())


@pytest.mark.parametrize("variable", ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"])
@pytest.mark.parametrize("kind", ["socks5h", "socks5", "socks4a", "socks", "SOCKS5", "https"])
def test_a_proxy_of_the_environment_that_is_no_http_proxy_is_named_as_what_it_is(
    variable: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """f5."""
    monkeypatch.setenv(variable, f"{kind}://user:word@gate.example:1080")
    with pytest.raises(PreflightError) as caught:
        endpoint("https://data.example", Reach())
    told = str(caught.value)
    assert f"the proxy that {variable} names" in told
    assert "gate.example:1080" in told
    assert "SOCKS" in told
    assert "word" not in told
    assert "data.example" not in told
    assert variable in (caught.value.hint or "")
    monkeypatch.setenv("NO_PROXY", "data.example")
    assert endpoint("https://data.example", Reach()).proxy is None


def test_a_socks_proxy_of_one_scheme_has_no_say_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """f5."""
    monkeypatch.setenv("ALL_PROXY", "socks5h://gate.example:1080")
    monkeypatch.setenv("HTTPS_PROXY", "http://web.example:3128")
    assert endpoint("https://data.example", Reach()).proxy == ("web.example", 3128)
    with pytest.raises(PreflightError, match="ALL_PROXY"):
        endpoint("http://data.example", Reach())


@pytest.mark.parametrize("url", ["socks5h://p:1080", "https://secret:word@p", "http://p:99999", "http://"])
def test_a_configured_proxy_that_is_no_http_proxy_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="proxy") as caught:
        endpoint("https://h", Reach(proxy=url))
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([OK + b"Content-Length: 20\r\n\r\n", TAKEN, b"0123456789", TAKEN, RESET], False),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n14\r\n", TAKEN, b"0123456789", TAKEN, RESET], False),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\na\r\n0123456789", TAKEN, RESET], True),
    ],
)
def test_what_came_before_a_break_is_handed_out_before_the_break(pieces: list[bytes], *, whole: bool) -> None:
    buffer = memoryview(bytearray(10 if whole else 20))
    with Canned(pieces, [OK + b"Content-Length: 2\r\n\r\nok"]) as server:
        connection = server.connection()
        assert connection.request(GET) == 200
        assert connection.readinto(buffer) == 10
        assert bytes(buffer[:10]) == b"0123456789"
        with pytest.raises(TransientError):
            connection.ends() if whole else connection.readinto(buffer)
        assert connection.request(GET) == 200
        assert body(connection) == b"ok"
        connection.close()
