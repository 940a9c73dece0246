"""A web server as a source: one file by its URL, or a folder through the server's pages. A URL that does not
end in a slash names a folder if the server redirects to the same URL with a slash.

An object is pinned by its strong etag (If-Match). Without one, its date and size are compared with the
listing's.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urlsplit

from penstock.core.errors import ObjectError, PreflightError, SourceChangedError
from penstock.sources.http_endpoint import split, without_user
from penstock.sources.http_values import quoted
from penstock.sources.object_answers import reaching
from penstock.sources.object_client import ObjectReader
from penstock.sources.port import Source
from penstock.sources.web_client import NO_HEAD, WebClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Entry, Listed, SourceChecksum
    from penstock.sources.port import Keep
    from penstock.sources.web_listing import WebListing


class WebSource(Source):
    def __init__(
        self, config: SourceConfig, _: object = None, *, keep: Keep | None = None, **__: object
    ) -> None:
        self._keep = keep
        self.url = without_user(config.url)
        self._base = config.url
        self._options, self._reach = dict(config.storage_options), config.reach
        path = split(config.url).path or "/"
        name = path.rpartition("/")[2]
        # the file's name; "" for a folder
        self._name = unquote_to_bytes(name).decode("utf-8", "surrogateescape")
        folder = path if path.endswith("/") else f"{path}/"
        # the folder's URL, if the source is a folder
        self._folder = urlsplit(config.url)._replace(path=folder, query="", fragment="").geturl()
        self._ignored: Mapping[str, int] = {}

    @property
    def ignored(self) -> Mapping[str, int]:
        """The number of links in the last listing that name no file or folder, by reason. Unlistable items
        outside the dataset count as `filtered`."""
        return self._ignored

    def client(self, *, listing: bool = False) -> WebClient:
        return WebClient(self.url_of, self._options, self._reach, listing=listing)

    def url_of(self, key: str) -> str:
        if key == self._name or not key:
            return self._base
        return self._folder + quoted(key)

    def _in_folder(self, key: str) -> str:
        """Return a key's URL, for a source that is a folder."""
        return self._folder + quoted(key) if key or self._name else self._base

    def check(self) -> bool | None:
        with closing(self.client(listing=True)) as client, reaching("the source cannot be reached", self.url):
            connection = client.request("HEAD" if self._name else "GET", self._base)
            if client.folder:
                connection.abandon()
                connection = client.request("GET", self._folder)
            elif connection.status in NO_HEAD and self._name:
                connection.abandon()
                connection = client.request("GET", self._base, "", "Range: bytes=0-0\r\n")
            if connection.status not in (200, 206, 416):
                raise client.failure()
            connection.abandon()
        return None

    def list(self) -> Iterator[Sequence[Listed]]:
        if self._name:
            with self._listing(self.url_of) as listing:
                listed = listing.look(self._name)
            if listed is not None:
                yield [listed]
                return
        with self._listing(self._in_folder) as listing:
            for batch in listing.folder():
                if self._name and any(listed.key == self._name for listed in batch):
                    raise PreflightError(
                        "a file in the folder has the folder's own name",
                        where=self.url,
                        hint="write the source's URL with a slash at its end",
                    )
                yield batch
            self._ignored = listing.left_out

    def _listing(self, url_of: Callable[[str], str]) -> WebListing:
        from penstock.sources.web_listing import WebListing

        return WebListing(partial(self.client, listing=True), url_of, self._options, self._keep)

    def list_one(self, key: str) -> Listed | None:
        single = key == self._name
        with self._listing(self.url_of if single else self._in_folder) as listing:
            try:
                if not single:
                    listing.find(key)
                return listing.file(key)
            except SourceChangedError:
                if single or not listing.names(key):
                    return None
                # found through the folders' pages, since any page may redirect to files elsewhere
                return listing.file(key)

    @contextmanager
    def asking(self) -> Iterator[Callable[[str], Listed | None]]:
        """Make one HEAD for each file. See `port.Source`."""
        with self._listing(self.url_of) as listing:

            def head(key: str) -> Listed | None:
                try:
                    return listing.file(key)
                except SourceChangedError:
                    return None

            yield head

    def reader(self) -> ObjectReader[WebClient]:
        return ObjectReader(self.client, lambda: None)

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:
        """Return the checksums in the answer to a HEAD; () if the server refuses HEAD, or answers it
        otherwise than the copy's GETs."""
        with closing(self.reader()) as reader, suppress(ObjectError, SourceChangedError):
            return reader.checksum(entry)
        return ()


open_source = WebSource
