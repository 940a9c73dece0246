"""A web server that states neither etag nor date: what it serves is of one version all the same (R3)."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from tests.support.whole_way import go, staging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 128_000


class Tokenless(BaseHTTPRequestHandler):
    """`giant`, another version of the same size at each GET, whole or of a range."""

    protocol_version = "HTTP/1.1"
    asked: list[str]

    def do_HEAD(self) -> None:
        self._head(200, SIZE)

    def do_GET(self) -> None:
        if self.path.endswith("/"):
            page = b'<html><title>Index of /</title><h1>Index of /</h1><a href="giant">giant</a></html>'
            self._head(200, len(page))
            self.wfile.write(page)
            return
        self.asked.append(self.headers.get("Range", ""))
        data = bytes([len(self.asked)]) * SIZE
        if not self.asked[-1]:
            self._head(200, SIZE)
            self.wfile.write(data)
            return
        first, last = map(int, self.asked[-1].removeprefix("bytes=").split("-"))
        self._head(206, last + 1 - first, f"bytes {first}-{last}/{SIZE}")
        self.wfile.write(data[first : last + 1])

    def _head(self, status: int, length: int, stated: str = "") -> None:
        self.send_response_only(status)
        if stated:
            self.send_header("Content-Range", stated)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Tokenless,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()
        thread.join()


def test_a_giant_without_a_token_is_never_spliced(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    url, asked = server
    with staging(tmp_path, url) as context:
        go(context)
        data = (context.layout("data").current / "data/giant").read_bytes()
    assert len(data) == SIZE
    assert len(set(data)) == 1, "bytes of several versions"
    assert asked == [""]
