"""A web server as a source: one file by its URL, or a folder by the pages that the server makes of it.

An object is pinned by its strong etag (If-Match). Where the server states none, its date and size in the
answer are compared with the listing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from penstock.errors import ObjectError, PenstockError, PreflightError, SourceChangedError
from penstock.sources.http.endpoint import split, without_user
from penstock.sources.http.quoting import quoted
from penstock.sources.objects.reader import ObjectReader
from penstock.sources.web.client import WebClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Claim, Entry, Listed


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
        """Links of the last listing whose names are ambiguous."""
        return {"unclear links": self._unclear} if self._unclear else {}

    def renew(self, credentials: object) -> None:
        """The web needs none."""

    def client(self) -> WebClient:
        return WebClient(self.url_of, self._options, self._timeout)

    def url_of(self, key: str) -> str:
        if self._single:
            return self._base
        return self._base + quoted(key)

    def check(self) -> None:
        client = self.client()
        try:
            connection = client.request("HEAD" if self._single else "GET", self._base)
            if connection.status == 405 and self._single:
                return
            if connection.status != 200:
                raise client.failure()
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

    @contextmanager
    def asking(self) -> Iterator[Callable[[str], Listed | None]]:
        """By one HEAD a file. See `port.Askable`."""
        from penstock.sources.web.listing import WebListing

        with WebListing(self.client, self.url_of) as listing:

            def one(key: str) -> Listed | None:
                try:
                    return listing.file(key)
                except SourceChangedError:
                    return None

            yield one

    def reader(self) -> ObjectReader[WebClient]:
        return ObjectReader(self.client, lambda: None)

    def checksum(self, entry: Entry) -> Sequence[Claim]:
        """The claims of the answer to a HEAD; () where the server refuses it."""
        reader = self.reader()
        try:
            return reader.checksum(entry)
        except ObjectError:
            return ()
        finally:
            reader.close()
