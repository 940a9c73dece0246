"""Lists a web server's folder pages: the files that they link to, with the size and version of each.

Pages round sizes and times, or leave them out. So size and version of each file come from a HEAD request;
many are on their way at a time, and their answers are passed on in the order of the keys.
"""

from __future__ import annotations

import html
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from penstock.core.model import Listed
from penstock.errors import PreflightError, TransientError
from penstock.sources.decimals import decimal
from penstock.sources.http.endpoint import without_user
from penstock.sources.objects.pages import Requests
from penstock.sources.web.client import modified, plain, token_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.sources.web.client import WebClient

T = TypeVar("T")

LOOKS = 16
"""HEAD requests at a time: with 20 ms to the server some 800 a second."""
CALM = 100
"""Answers after which one more request may be on its way."""
BATCH = 512
PAGE_LIMIT = 64 << 20
DEEPEST = 64
_LINK = re.compile(r"<a\s[^>]*?href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", re.IGNORECASE)


_CLOSED = re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
_WHOLE = re.compile(r"<(?:html|body)[\s>]", re.IGNORECASE)
_BARE = re.compile(r"</(?:pre|ul|ol|dl|table|div)\s*>\s*$", re.IGNORECASE)
_ELSEWHERE = frozenset({"mailto", "javascript", "ftp", "ftps", "tel", "data", "irc", "news", "sftp", "rsync"})
"""Schemes of links that are about something else than a file of the folder."""


class Room:
    """Limits how many requests are on their way: half as many after a transient error, at most once a second;
    one more after CALM answers."""

    def __init__(self, most: int) -> None:
        self._most = self.limit = most
        self._inside = self._answers = 0
        self._halved = -1.0
        self._change = threading.Condition()

    def __enter__(self) -> Self:
        with self._change:
            self._change.wait_for(lambda: self._inside < self.limit)
            self._inside += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._change:
            self._inside -= 1
            if kind is not None and issubclass(kind, TransientError):
                self._answers = 0
                if time.monotonic() - self._halved >= 1.0:
                    self._halved, self.limit = time.monotonic(), max(1, self.limit // 2)
            else:
                self._answers += 1
                if self._answers % CALM == 0:
                    self.limit = min(self._most, self.limit + 1)
            self._change.notify_all()


class WebListing:
    """One listing: its threads, each with connections of its own. `url_of` gives the URL of a key."""

    def __init__(self, client: Callable[[], WebClient], url_of: Callable[[str], str]) -> None:
        self._url_of = url_of
        self._requests = Requests(client, lambda: None, lambda _error, _last: None)
        self.unclear = 0
        """Links that may mean a file of a folder, but whose name is ambiguous: see `links`."""
        self._threads = ThreadPoolExecutor(LOOKS, thread_name_prefix="looks")
        self._room = Room(LOOKS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.stop()
        self._threads.shutdown(cancel_futures=True)
        self._requests.close()

    def folder(self, prefix: str = "", depth: int = 0) -> Iterator[Sequence[Listed]]:
        """All files below, in batches, in byte order. Transient errors are retried a few times, with growing
        pauses; any other refusal ends the listing."""
        if depth > DEEPEST:
            raise PreflightError(
                "the server's folders never end", where=without_user(self._url_of("")), why=prefix
            )
        page = self._patiently(self._page, prefix)
        names, unclear = links(page, self._url_of(prefix))
        self.unclear += unclear
        keys: list[str] = []
        for name in sorted(names, key=lambda name: name.encode("utf-8", "surrogateescape")):
            if not name.endswith("/"):
                keys.append(prefix + name)
                continue
            yield from self._files(keys)
            keys.clear()
            yield from self.folder(prefix + name, depth + 1)
        yield from self._files(keys)

    def file(self, key: str) -> Listed:
        return self._patiently(self._look, key)

    def names(self, key: str) -> bool:
        """Whether the folders' pages, from the root on, link to this file."""
        prefix = ""
        *folders, last = key.split("/")
        for name in (*(f"{folder}/" for folder in folders), last):
            if name not in links(self._patiently(self._page, prefix), self._url_of(prefix))[0]:
                return False
            prefix += name
        return True

    def _files(self, keys: Sequence[str]) -> Iterator[Sequence[Listed]]:
        for start in range(0, len(keys), BATCH):
            yield list(self._threads.map(self.file, keys[start : start + BATCH]))

    def _patiently(self, ask: Callable[[WebClient, str], T], key: str) -> T:
        def attempt(client: WebClient) -> T:
            with self._room:
                return ask(client, key)

        return self._requests.do(attempt)

    def _page(self, client: WebClient, prefix: str) -> str:
        url = self._url_of(prefix)
        connection = client.request("GET", url)
        if connection.status != 200:
            raise client.failure(prefix)
        unbounded = connection.unbounded
        page = connection.read_all(PAGE_LIMIT).decode("utf-8", "surrogateescape")
        if unbounded and not closed(page):
            # Where the server's back end dies, the connection just ends, and half a page looks like a whole
            # one.
            raise TransientError(
                "the folder's page may be cut off",
                where=without_user(url),
                why=f"its length is not stated, and its {len(page):,} characters do not end by </html>",
                hint="have the server state Content-Length, or end its pages by </html>",
            )
        return page

    def _look(self, client: WebClient, key: str) -> Listed:
        """Size and version of one file, by HEAD, or by its first byte where HEAD is refused."""
        url = self._url_of(key)
        connection = client.request("HEAD", url)
        size = connection.length
        if connection.status in (403, 405, 501) or (connection.status == 200 and size < 0):
            connection.abandon()
            connection = client.request("GET", url, "Range: bytes=0-0\r\n")
            total = connection.headers.get(b"content-range", b"").rpartition(b"/")[2]
            whole = decimal(total) if connection.status == 206 else None
            size = connection.length if whole is None else whole
            if connection.status == 206 and connection.length == 1:
                connection.read_all(1)  # keeps the connection
            else:
                connection.abandon()
        if connection.status not in (200, 206):
            raise client.failure(key)
        if size < 0:
            raise PreflightError("the server does not state the file's size", where=without_user(url))
        headers = connection.headers
        return Listed(key, size, token_of(headers, size), modified(headers))


def closed(page: str) -> bool:
    """Whether a page is complete: the closing tag of the whole page stands behind its last link. Earlier
    closing tags do not count: some servers put a header file with tags of its own before the listing."""
    last = page.lower().rfind("<a ")
    rest = page[max(0, last) :]
    if _CLOSED.search(rest):
        return True
    return _WHOLE.search(page) is None and _BARE.search(rest) is not None


def links(page: str, base: str) -> tuple[set[str], int]:
    """The names directly below `base` that a folder's page links to (folders end in a slash), and the number
    of links that may mean such a name but are ambiguous.

    | link, on a page of http://h/base/ | answer |
    |---|---|
    | `b%20c`, `./b`, `/base/b`, `dir/` | a name |
    | `a:b` | unclear: by the standard `a` is a scheme; servers write `./a:b` or `a%3Ab` |
    | `a%2Fb`, `/base//b`, `http://[x` | unclear |
    | `?C=N`, `#top`, `..`, `/other`, `http://else/x`, `mailto:x`, `deep/er` | no name of this folder |
    """
    here = urlsplit(base)
    path = plain(here.path)
    names: set[str] = set()
    unclear: set[str] = set()
    for found in _LINK.findall(page):
        link = html.unescape(found[0] or found[1] or found[2]).strip()
        try:
            parts = urlsplit(urljoin(base, link))
        except ValueError:
            unclear.add(link)
            continue
        if parts.scheme not in ("http", "https"):
            if parts.scheme not in _ELSEWHERE and "/" not in link[:-1]:
                unclear.add(link)
            continue
        target = plain(parts.path)
        if parts.query or parts.netloc != here.netloc or not target.startswith(path):
            continue
        raw = target[len(path) :]
        name = unquote_to_bytes(raw).decode("utf-8", "surrogateescape")
        if not name or name in (".", "..", "./", "../"):
            continue
        if raw.startswith("/") or ("/" not in raw[:-1] and "/" in name[:-1]):
            unclear.add(link)
        elif "/" not in raw[:-1]:
            names.add(name)
    return names, len(unclear)
