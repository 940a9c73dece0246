"""Asks web servers for what lies behind a URL, over kept connections, and says what they answered.

Nothing secret is ever sent, so redirects to other hosts are followed; from https never to http.
"""

from __future__ import annotations

import email.utils
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from penstock.errors import ObjectError, PenstockError, SourceChangedError, TransientError
from penstock.sources.http1 import Connection
from penstock.sources.http_endpoint import endpoint, split, without_user
from penstock.sources.patience import retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

REDIRECTS = 6
CONNECTIONS = 4


def token_of(headers: Mapping[bytes, bytes], size: int) -> str:
    """What tells this version from another: the etag, else date and size, else ""."""
    etag = headers.get(b"etag", b"").decode("latin-1")
    if etag:
        return etag if etag.startswith("W/") else etag.strip('"')
    date = headers.get(b"last-modified", b"").decode("latin-1")
    return f"{size} {date}" if date else ""


def modified(headers: Mapping[bytes, bytes]) -> int:
    """Nanoseconds since the epoch, 0 when not stated."""
    parsed = email.utils.parsedate_tz(headers.get(b"last-modified", b"").decode("latin-1"))
    return email.utils.mktime_tz(parsed) * 1_000_000_000 if parsed else 0


class WebClient:
    """For one thread: a few kept connections, redirects followed."""

    def __init__(self, options: Mapping[str, object], timeout: float) -> None:
        self._options, self._timeout = options, timeout
        self._connections: dict[tuple[str, int, bool], Connection] = {}

    def request(self, method: str, url: str, lines: str = "") -> Connection:
        for _ in range(REDIRECTS):
            parts = split(url)
            tls = parts.scheme == "https"
            place = (parts.hostname or "", parts.port or (443 if tls else 80), tls)
            connection = self._connections.get(place)
            if connection is None:
                if len(self._connections) >= CONNECTIONS:
                    self._connections.pop(next(iter(self._connections))).close()
                connection = Connection(endpoint(url, self._options, timeout=self._timeout))
                self._connections[place] = connection
            server = connection.endpoint
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            head = (
                f"{method} {server.origin}{target} HTTP/1.1\r\nHost: {server.authority}\r\n"
                f"Accept-Encoding: identity\r\nUser-Agent: penstock\r\n{server.proxy_lines}{lines}\r\n"
            )
            status = connection.request(head.encode("latin-1"), bodyless=method == "HEAD")
            location = connection.headers.get(b"location", b"").decode("latin-1")
            if status not in (301, 302, 303, 307, 308) or not location:
                return connection
            connection.abandon()
            url = urljoin(url, location)
            if tls and urlsplit(url).scheme != "https":
                raise ObjectError("the server redirects from https to http", where=without_user(url))
        raise ObjectError("the server redirects in a circle", where=without_user(url))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def refused(connection: Connection, where: str) -> PenstockError:
    """What a status other than the wanted one means for one object."""
    status, headers = connection.status, connection.headers
    connection.abandon()
    why = f"status {status}"
    if status in (408, 429) or status >= 500:
        return TransientError(
            "the server asks for patience", where=where, why=why, after=retry_after(headers)
        )
    if status in (404, 410, 412, 416):
        return SourceChangedError("the file is not there as it was listed", where=where, why=why)
    return ObjectError("the server refuses the file", where=where, why=why)
