"""Web servers as a source: one file by its URL, or the pages of a server's own folder listing.

An object is pinned by its strong etag (If-Match), else by its date and size. Nothing secret is
ever sent, so redirects to other hosts are followed; from https never to http.
"""

from __future__ import annotations

import email.utils
import html
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from penstock.core.model import Listed
from penstock.errors import ObjectError, PenstockError, PreflightError, SourceChangedError, TransientError
from penstock.sources.claims import web_claims
from penstock.sources.http1 import Connection
from penstock.sources.http_body import HttpBody
from penstock.sources.http_endpoint import endpoint, split, without_user
from penstock.sources.s3_client import retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.model import SourceConfig
    from penstock.core.model import Claim, Entry

REDIRECTS = 6
CONNECTIONS = 4
PAGE_LIMIT = 64 << 20
DEEPEST = 64
_LINK = re.compile(r"<a\s[^>]*?href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)


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


class WebReader:
    def __init__(self, source: WebSource) -> None:
        self._source = source
        self._client = source.client()

    def open(self, entry: Entry, offset: int, length: int) -> HttpBody:
        url = self._source.url_of(entry.key)
        where = without_user(url)
        whole = length == entry.size
        lines = "" if whole else f"Range: bytes={offset}-{offset + length - 1}\r\n"
        token = entry.token
        if token and " " not in token and not token.startswith("W/"):
            lines += f'If-Match: "{token}"\r\n'
        connection = self._client.request("GET", url, lines)
        status, headers = connection.status, connection.headers
        if status != (200 if whole else 206):
            if status == 200:
                connection.abandon()
                raise ObjectError("the server ignores ranges", where=where, why="status 200, not 206")
            raise refused(connection, where)
        error: PenstockError | None = None
        stated = headers.get(b"content-range", b"").decode("latin-1")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            error = ObjectError("the answer is encoded on the way", where=where, why="Content-Encoding")
        elif token and token_of(headers, entry.size) != token:
            error = SourceChangedError("the file changed since it was listed", where=where)
        elif not whole and stated != f"bytes {offset}-{offset + length - 1}/{entry.size}":
            error = ObjectError("the server answers with another range", where=where, why=repr(stated))
        elif connection.length not in (-1, length):
            why = f"{connection.length} bytes, not {length}"
            error = TransientError("the answer's length is not the listed one", where=where, why=why)
        if error is not None:
            connection.abandon()
            raise error
        return HttpBody(connection, length, web_claims(headers, whole=whole), where)

    def close(self) -> None:
        self._client.close()


class WebSource:
    """A URL that ends in a slash is a folder listing; any other is one file."""

    def __init__(self, config: SourceConfig, *, timeout: float = 60.0) -> None:
        self.url = without_user(config.url)
        self._base = config.url
        self._options, self._timeout = dict(config.storage_options), timeout
        self._single = "" if urlsplit(config.url).path.endswith("/") else self._name(config.url)
        split(config.url)

    @staticmethod
    def _name(url: str) -> str:
        name = urlsplit(url).path.rpartition("/")[2]
        return unquote_to_bytes(name).decode("utf-8", "surrogateescape") or "index.html"

    @property
    def ignored(self) -> Mapping[str, int]:
        return {}

    def renew(self, credentials: object) -> None:
        """The web needs none."""

    def client(self) -> WebClient:
        return WebClient(self._options, self._timeout)

    def url_of(self, key: str) -> str:
        if self._single:
            return self._base
        return self._base + quote(key.encode("utf-8", "surrogateescape"), safe="/-._~")

    def check(self) -> None:
        client = self.client()
        try:
            connection = client.request("HEAD" if self._single else "GET", self._base)
            if connection.status == 405 and self._single:
                return
            if connection.status != 200:
                raise refused(connection, self.url)
            connection.abandon()
        except PreflightError:
            raise
        except PenstockError as error:
            raise PreflightError(
                "the source cannot be reached",
                where=self.url,
                why=f"{error.what}: {error.why}",
                hint=error.hint,
            ) from None
        finally:
            client.close()

    def list(self) -> Iterator[Sequence[Listed]]:
        client = self.client()
        try:
            if self._single:
                yield [self._look(client, self._single)]
                return
            yield from self._folder(client, "", 0)
        finally:
            client.close()

    def _folder(self, client: WebClient, prefix: str, depth: int) -> Iterator[Sequence[Listed]]:
        if depth > DEEPEST:
            raise PreflightError("the server's folders never end", where=self.url, why=prefix)
        connection = client.request("GET", self.url_of(prefix))
        if connection.status != 200:
            raise refused(connection, without_user(self.url_of(prefix)))
        page = connection.read_all(PAGE_LIMIT).decode("utf-8", "surrogateescape")
        batch: list[Listed] = []
        for name in sorted(
            links(page, self.url_of(prefix)), key=lambda n: n.encode("utf-8", "surrogateescape")
        ):
            if name.endswith("/"):
                if batch:
                    yield batch
                    batch = []
                yield from self._folder(client, prefix + name, depth + 1)
            else:
                batch.append(self._look(client, prefix + name))
        if batch:
            yield batch

    def _look(self, client: WebClient, key: str) -> Listed:
        """Size and version of one file, by HEAD, or by its first byte where HEAD is refused."""
        url = self.url_of(key)
        connection = client.request("HEAD", url)
        size = connection.length
        if connection.status in (403, 405, 501) or (connection.status == 200 and size < 0):
            connection.abandon()
            connection = client.request("GET", url, "Range: bytes=0-0\r\n")
            total = connection.headers.get(b"content-range", b"").rpartition(b"/")[2]
            size = int(total) if connection.status == 206 and total.isdigit() else connection.length
            connection.abandon()
        if connection.status not in (200, 206):
            raise refused(connection, without_user(url))
        if size < 0:
            raise PreflightError("the server does not state the file's size", where=without_user(url))
        headers = connection.headers
        return Listed(key, size, token_of(headers, size), modified(headers))

    def reader(self) -> WebReader:
        return WebReader(self)

    def checksum(self, entry: Entry) -> Sequence[Claim]:
        client = self.client()
        try:
            connection = client.request("HEAD", self.url_of(entry.key))
            if connection.status != 200 or token_of(connection.headers, entry.size) != entry.token:
                return ()
            return web_claims(connection.headers, whole=True)
        finally:
            client.close()


def links(page: str, base: str) -> set[str]:
    """The names directly below `base` that a folder's page links to; folders end in a slash."""
    here = urlsplit(base)
    names: set[str] = set()
    for found in _LINK.findall(page):
        parts = urlsplit(urljoin(base, html.unescape(found[0] or found[1] or found[2])))
        if parts.query or parts.netloc != here.netloc or not parts.path.startswith(here.path):
            continue
        raw = parts.path[len(here.path) :]
        name = unquote_to_bytes(raw).decode("utf-8", "surrogateescape")
        if (
            name
            and name not in (".", "..", "/", "./", "../")
            and "/" not in raw[:-1]
            and "/" not in name[:-1]
        ):
            names.add(name)
    return names
