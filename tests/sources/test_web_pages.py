"""Folder pages and redirects of web servers that break off, wander or write odd addresses."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

import pytest
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.conftest import dataset
from tests.sources.test_others import Quiet, QuietServer

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry
from penstock.sources import backoff
from penstock.sources.port import open_source
from penstock.sources.web_client import FolderPage, may_follow

if TYPE_CHECKING:
    import http.server
    from collections.abc import Iterator


class Scripted(Quiet):
    """Pages by their decoded paths; a page may be bytes, bytes with their Content-Type, a redirect's
    `Location`, also with its status, or a status alone. A list: one after another."""

    pages: dict[str, Any]
    ends: bool
    seen: list[str]

    def do_HEAD(self) -> None:  # noqa: N802 (as the base class calls it)
        self.answer(body=False)

    def do_GET(self) -> None:  # noqa: N802
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        self.seen.append(self.path)
        found = self.pages.get(unquote(self.path))
        if isinstance(found, list) and body:
            found = found.pop(0) if len(found) > 1 else found[0]
        elif isinstance(found, list):
            found = found[-1]
        kind, status = "", 302
        if isinstance(found, tuple) and isinstance(found[0], int):
            status, found = found
        elif isinstance(found, tuple):
            found, kind = found
        if isinstance(found, int):
            self.send_response(found)
            self.send_header("Content-Length", "0")
        elif isinstance(found, str):
            self.send_response(status)
            self.send_header("Location", found.encode().decode("latin-1"))
            self.send_header("Content-Length", "0")
        elif found is None:
            self.send_response(404)
            self.send_header("Content-Length", "0")
        else:
            self.send_response(200)
            if kind:
                self.send_header("Content-Type", kind)
            if self.path.endswith("/") and self.ends:
                self.send_header("Connection", "close")
                self.close_connection = True
            else:
                self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        if body and isinstance(found, bytes):
            self.wfile.write(found)


class Site:
    def __init__(self, pages: dict[str, Any], *, ends: bool = False) -> None:
        self.seen: list[str] = []
        handler = type("Handler", (Scripted,), {"pages": pages, "ends": ends, "seen": self.seen})
        self.server: http.server.ThreadingHTTPServer = QuietServer(("127.0.0.1", 0), handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def web(url: str, **options: Any) -> Any:
    return open_source(SourceConfig(url, storage_options=options), dataset(url))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)


INDEX = "<html><title>Index of /</title><h1>Index of /</h1>"
NAMES = ["a", "b", "c", "d", "e", "f"]
PAGE = INDEX.encode() + b"<body><pre>" + b"".join(b'<a href="%b">x</a>\n' % n.encode() for n in NAMES)
WHOLE = PAGE + b"</pre></body></html>\n"
FILES = {f"/{name}": b"x" for name in NAMES}


@pytest.mark.parametrize("length", [len(PAGE) // 2, len(PAGE), len(WHOLE) - 20])
def test_a_page_that_is_cut_off_is_not_taken_for_whole(length: int) -> None:
    """The connection's end is the page's: nothing else tells that the back end died."""
    with Site({"/": WHOLE[:length], **FILES}, ends=True) as site:
        with pytest.raises(TransientError, match="may be cut off"):
            listing(web(site.url))
        assert site.seen.count("/") == backoff.TRIES


def test_a_page_that_comes_whole_at_the_second_try() -> None:
    with Site({"/": [PAGE[:60], WHOLE], **FILES}, ends=True) as site:
        assert sorted(listing(web(site.url))) == NAMES


@pytest.mark.parametrize(
    ("page", "whole"),
    [
        ("<html><body><a href=x>x</a></body></html>", True),
        ("<HTML><BODY><a href=x>x</a></BODY>", True),
        ("<html><pre><a href=x>x</a></pre><a href=y>", False),
        ("<html>a header of its own</html><pre><a href=x>x</a>", False),
        ("<pre><a href=x>x</a></pre>\n", True),
        ("<ul><li><a href=x>x</a></ul>", True),
        ("<html><ul><li><a href=x>x</a></ul>", False),
        ("<a href=x>x</a>", False),
        ("<html></html><!-- served by n -->", True),
        ("", False),
    ],
)
def test_what_is_a_whole_page(page: str, whole: bool) -> None:
    content = FolderPage()
    content.add(page.encode())
    assert content.closed() is whole


def test_a_page_of_a_stated_length_is_cut_off_without_its_end() -> None:
    with Site({"/": PAGE, **FILES}) as site, pytest.raises(PreflightError, match="it is cut off"):
        listing(web(site.url))


def test_addresses_that_are_not_plain_ascii() -> None:
    """A blank, letters of other scripts, and of Latin, in the source's URL, links and redirects."""
    pages: dict[str, Any] = {
        "/my data/データ/é/": (
            INDEX + '<a href="ü b">x</a><a href="http://[x">odd</a>'
            '<a href="%C3%A4">y</a><a href="diré/">z</a></html>'
        ).encode(),
        "/my data/データ/é/ä": b"22",
        "/my data/データ/é/diré/": f"{INDEX}<a href=moved>m</a></html>".encode(),
        "/my data/データ/é/diré/moved": "/ほか/é",
        "/ほか/é": b"4444",
    }
    pages["/my data/データ/é/ü b"] = b"1"
    with Site(pages) as site:
        source = web(f"{site.url}my data/データ/é/")
        source.check()
        found = listing(source)
        assert {key: item.size for key, item in found.items()} == {"ü b": 1, "ä": 2, "diré/moved": 4}
        assert source.ignored == {"page links without a clear name, such as http://[x": 1}
        reader = source.reader()
        assert read(reader, entry_of(found["diré/moved"])) == b"4444"
        reader.close()
        assert all(one.isascii() and " " not in one for one in site.seen)


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("ftp://h/", "no web address"),
        ("http://[bad", "no web address"),
        ("http://h:99999/", "no web address"),
        ("http://169.254.169.254/latest/meta-data/", "another server"),
        ("http://127.0.0.1:1/x", "another server"),
        ("//other.example/x", "another server"),
    ],
)
def test_redirects_that_are_not_followed(location: str, what: str) -> None:
    with Site({"/": f"{INDEX}<a href=x>x</a></html>".encode(), "/x": location}) as site:
        with pytest.raises(ObjectError, match=what) as caught:
            listing(web(site.url))
        assert "meta-data" not in str(caught.value) or what == "no web address"
        reader = web(site.url).reader()
        with pytest.raises(ObjectError, match=what):
            read(reader, Entry("x", "x", 1, "", 0, length=1))
        reader.close()


def test_a_redirect_to_a_host_that_is_named_is_followed() -> None:
    with Site({"/x": b"data"}) as other, Site({}) as site:
        elsewhere = f"http://localhost:{other.port}/x"
        site.server.RequestHandlerClass.pages["/x"] = elsewhere  # type: ignore[attr-defined]
        with pytest.raises(ObjectError, match="name it: `redirects") as caught:
            listing(web(f"{site.url}x"))
        assert f"localhost:{other.port}" in str(caught.value)
        source = web(f"{site.url}x", redirects=[f"localhost:{other.port}"])
        assert listing(source)["x"].size == 4


@pytest.mark.parametrize(
    ("old", "new", "named", "followed"),
    [
        ("http://h/a", "http://h/b", [], True),
        ("http://h/a", "http://H:80/b", [], True),
        ("http://h/a", "https://h/b", [], True),
        ("https://h/a", "http://h/b", ["h"], False),
        ("http://h/a", "http://h:8080/b", [], False),
        ("http://h:8080/a", "https://h/b", [], False),
        ("http://h/a", "http://g/b", [], False),
        ("http://h/a", "http://g/b", ["g"], True),
        ("http://h/a", "https://g/b", ["G"], True),
        ("http://h/a", "http://g:81/b", ["g"], False),
        ("http://h/a", "http://g:81/b", ["g:81"], True),
        ("http://h/a", "http://x.g/b", ["g"], False),
        ("http://h/a", "http://x.g/b", ["*.g"], True),
        ("http://h/a", "http://evilg/b", ["*.g"], False),
        ("http://h/a", "http://[::1]/b", ["[::1]"], True),
        ("http://h/a", "http://[::1]:81/b", ["[::1]:81"], True),
    ],
)
def test_which_redirects_are_followed(old: str, new: str, named: list[str], followed: bool) -> None:
    assert may_follow(urlsplit(old), urlsplit(new), named) is followed


def test_a_folder_that_the_server_does_not_show() -> None:
    with Site({"/": 403}) as site, pytest.raises(PreflightError, match="autoindex"):
        web(site.url).check()


def test_a_url_that_is_none_is_a_matter_of_the_configuration() -> None:
    for url in ("http://[x/", "http://h:0/", "http://h:99999/"):
        with pytest.raises(PenstockError) as caught:
            web(url)
        assert caught.value.exit_code == 2


@pytest.fixture
def raw() -> Iterator[Any]:
    """A server that answers each request with the same bytes."""
    answers: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock:
                sock.settimeout(10)
                while b"\r\n\r\n" not in sock.recv(65536):
                    pass
                sock.sendall(answers[0])

    thread = threading.Thread(target=serve)
    thread.start()
    yield answers, listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    ("head", "error"),
    [
        ("Content-Length: " + "9" * 5000, TransientError),
        ("Content-Length: \xb2", TransientError),
        ("Content-Length: 1\r\nContent-Length: 2", TransientError),
        ("Content-Length: 3\r\nETag: a\r\nETag: b", TransientError),
        ("Content-Length: 3\r\nLast-Modified: Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Content-Length: 3\r\nContent-Length: 3", None),
    ],
)
def test_odd_heads(raw: Any, head: str, error: type[PenstockError] | None) -> None:
    answers, port = raw
    answers.append(f"HTTP/1.1 200 OK\r\nConnection: close\r\n{head}\r\n\r\nabc".encode("latin-1"))
    source = web(f"http://127.0.0.1:{port}/x")
    reader = source.reader()
    entry = Entry("x", "x", 3, "", 0, length=3)
    if error is None:
        assert read(reader, entry) == b"abc"
        assert listing(source)["x"].size == 3
    else:
        with pytest.raises(error):
            read(reader, entry)
    reader.close()


def test_two_ranges_in_one_answer_are_refused(raw: Any) -> None:
    answers, port = raw
    answers.append(
        b"HTTP/1.1 206 P\r\nConnection: close\r\nContent-Length: 3\r\nContent-Range: bytes 3-5/9\r\n"
        b"Content-Range: bytes 2-4/9\r\n\r\nabc"
    )
    reader = web(f"http://127.0.0.1:{port}/x").reader()
    with pytest.raises(TransientError, match="content-range twice"):
        read(reader, Entry("x", "x", 9, "", 0, length=9), 2, 3)
    reader.close()


def test_a_size_that_changed_at_the_server_is_a_changed_source(raw: Any) -> None:
    """Also where neither an etag nor a date tells it."""
    answers, port = raw
    answers.append(
        b"HTTP/1.1 206 P\r\nConnection: close\r\nContent-Length: 3\r\nContent-Range: bytes 2-4/8\r\n\r\nabc"
    )
    reader = web(f"http://127.0.0.1:{port}/x").reader()
    with pytest.raises(SourceChangedError, match="size changed"):
        read(reader, Entry("x", "x", 9, "", 0, length=9), 2, 3)
    answers[0] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    with pytest.raises(SourceChangedError, match="size changed"):
        read(reader, Entry("x", "x", 9, "", 0, length=9))
    reader.close()
