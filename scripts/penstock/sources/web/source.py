"""Web servers as a source: one file by its URL, or the pages of a server's own folder listing.

An object is pinned by its strong etag (If-Match), else by its date and size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes, urlsplit

from penstock.errors import ObjectError, PenstockError, PreflightError, SourceChangedError, TransientError
from penstock.sources.checksum_headers import web_claims
from penstock.sources.decimals import decimal
from penstock.sources.http.body import HttpBody
from penstock.sources.http.endpoint import split, without_user
from penstock.sources.web.client import WebClient, refused, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Claim, Entry, Listed


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
        total = decimal(stated.rpartition("/")[2])
        if headers.get(b"content-encoding", b"identity") != b"identity":
            error = ObjectError("the answer is encoded on the way", where=where, why="Content-Encoding")
        elif token and token_of(headers, entry.size) != token:
            error = SourceChangedError("the file changed since it was listed", where=where)
        elif not whole and total not in (None, entry.size):
            why = f"it has {total} bytes, {entry.size} were listed"
            error = SourceChangedError("the file's size changed since it was listed", where=where, why=why)
        elif whole and not token and connection.length not in (-1, length):
            # Nothing else can tell that it changed.
            why = f"it has {connection.length} bytes, {length} were listed"
            error = SourceChangedError("the file's size changed since it was listed", where=where, why=why)
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
        path = split(config.url).path
        self._single = "" if path.endswith("/") else self._name(config.url)
        self._unclear = 0

    @staticmethod
    def _name(url: str) -> str:
        name = urlsplit(url).path.rpartition("/")[2]
        return unquote_to_bytes(name).decode("utf-8", "surrogateescape") or "index.html"

    @property
    def ignored(self) -> Mapping[str, int]:
        """Links of the last listing whose names cannot be told."""
        return {"unclear links": self._unclear} if self._unclear else {}

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
        from penstock.sources.web.listing import WebListing

        with WebListing(self.client, self.url_of) as listing:
            if self._single:
                yield [listing.file(self._single)]
            else:
                yield from listing.folder()
                self._unclear = listing.unclear

    def list_one(self, key: str) -> Listed | None:
        from penstock.sources.web.listing import WebListing

        with WebListing(self.client, self.url_of) as listing:
            try:
                return listing.file(key)
            except SourceChangedError:
                if self._single or not listing.names(key):
                    return None
                raise

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
