"""Lists the files that a web server's folder pages link to, with each file's size and version.

Pages round or omit sizes and times, so sizes and times come from HEAD requests. Many requests run at a time;
the files are yielded in the order of their keys.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

import xxhash

from penstock.core.errors import (
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import XXH3, Listed, SourceChecksum
from penstock.fs.safe_open import printable
from penstock.host import waits
from penstock.sources.http_endpoint import without_user
from penstock.sources.http_values import decimal, quoted
from penstock.sources.object_client import BEGIN, Requests
from penstock.sources.web_client import (
    BLOCK,
    BY_LINKS,
    ELSEWHERE,
    NO_HEAD,
    PAGE_HREFS,
    FolderPage,
    decoded,
    encoding_of,
    hrefs,
    is_page,
    modified,
    page_name,
    place_of,
    same_place,
    same_server,
    token_of,
    weakened,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.sources.web_client import WebClient


T = TypeVar("T")

LOOKS = 16  # concurrent HEAD requests, at most: some 800 a second with a latency of 20 ms
# number of answers without a transient error after which the limit of concurrent requests rises by one
CALM = 100
BATCH = 512  # files in one batch, at most
PAGE_LIMIT = 1 << 30  # bytes of a folder's page: some ten million files
DEEPEST = 64  # depth of nested folders, at most, since a folder may link back to itself
# Number of omitted links that are remembered, so that each counts once. Further links count on each page.
REMEMBERED = 10_000
_BYTES = ("utf-8", "surrogateescape")
SHOWN = 80  # characters of a link that a message shows, at most
WAYS_OUT = (
    "have such a listing switched on there, or give a list of the keys (`list_from`); `listing: links` in "
    "storage_options takes what a page links to for all of its folder; `exclude` leaves a folder out"
)


class RequestLimit:
    """Limits concurrent requests. A transient error halves the limit, at most once a second; CALM answers
    raise it by one."""

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
    """One listing and its threads, each with its own connections. `url_of` returns a key's URL."""

    def __init__(
        self,
        client: Callable[[], WebClient],
        url_of: Callable[[str], str],
        options: Mapping[str, object],
        keep: Callable[[str], bool] | None,
    ) -> None:
        """For `options` see `config.source_kinds.WebOptions`, for `keep` see `port.Keep`."""
        self._url_of, self._keep = url_of, keep
        # whether files without a stated size are read to learn the size; if False, they are refused
        self._unsized = options.get("unsized") is True
        self._by_links = options.get("listing") == "links"
        self._requests = Requests(client, lambda: None, lambda _error, _last: None)
        self._left_out: dict[str, tuple[int, str]] = {}
        self._counts = Counter[str]()
        self._remembered: set[tuple[str, str]] = set()
        # {key of a folder being listed: the URL to which its links are relative}, if that is not the folder's
        # URL
        self._moved: dict[str, str] = {}
        self._threads = ThreadPoolExecutor(LOOKS, thread_name_prefix="looks")
        self._limit = RequestLimit(LOOKS)
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._requests.stop()
        try:
            waits.shut_down(self._threads)
        finally:
            self._requests.close()

    def folder(self, prefix: str = "", depth: int = 0) -> Iterator[Sequence[Listed]]:
        """List all files below a folder in batches, in byte order. Transient errors are retried a few times,
        with growing pauses; any other error ends the listing."""
        if depth > DEEPEST:
            raise PreflightError(
                "the server's folders never end",
                where=without_user(self._url_of("")),
                why=prefix,
                hint="a link leads back into its own folder: leave it out by `exclude`",
            )
        try:
            names = self._names(prefix)
        except (PreflightError, ObjectError):
            if self._wanted(prefix):
                raise
            self._counts["filtered"] += 1
            return
        pending = [name.encode(*_BYTES) for name in names]
        heapq.heapify(pending)
        files: dict[bytes, Listed] = {}
        ready: list[Listed] = []
        while pending:
            name = heapq.heappop(pending)
            if name in files:
                ready.append(files.pop(name))
            elif name.endswith(b"/"):
                if ready:
                    yield ready
                    ready = []
                yield from self.folder(prefix + name.decode(*_BYTES), depth + 1)
            else:
                some = [name]
                while len(some) < BATCH and pending and not pending[0].endswith(b"/"):
                    some.append(heapq.heappop(pending))
                looked = self._threads.map(self._seen, [prefix + name.decode(*_BYTES) for name in some])
                for name, listed in zip(some, looked, strict=True):
                    if isinstance(listed, PenstockError):
                        self._counts["filtered"] += 1
                    elif listed is not None:
                        files[name] = listed
                        heapq.heappush(pending, name)
                    elif f"{name.decode(*_BYTES)}/" not in names:
                        # The page links to a folder without a slash; its files sort by the name with a slash.
                        heapq.heappush(pending, name + b"/")
            if len(ready) >= BATCH or (ready and not pending):
                yield ready
                ready = []

    def _wanted(self, key: str) -> bool:
        return not key or self._keep is None or self._keep(key)

    def _seen(self, key: str) -> Listed | PenstockError | None:
        """Do as `look`, but return the refusal of a file outside the dataset."""
        try:
            return self.look(key)
        except (PreflightError, ObjectError) as error:
            if self._wanted(key):
                raise
            return error

    def find(self, key: str) -> None:
        """For `file`, find the URLs to which the folders on the file's path redirect."""

        def landing(client: WebClient, prefix: str) -> str:
            connection = client.request("HEAD", self._url(prefix))
            connection.abandon() if connection.status != 200 else connection.finish()
            return client.landed if connection.status == 200 else ""

        prefix = ""
        for folder in ("", *(f"{name}/" for name in key.split("/")[:-1])):
            prefix += folder
            if url := self._patiently(landing, prefix):
                self._lies_at(prefix, url)

    def file(self, key: str) -> Listed:
        """List one file. Raises SourceChangedError if the server does not find it, or finds a folder."""
        listed = self.look(key)
        if listed is None:
            raise SourceChangedError(
                "a folder stands where a file was listed", where=without_user(self._url_of(key))
            )
        return listed

    def names(self, key: str) -> bool:
        """Return whether the folders' pages, from the root on, link to this file."""
        prefix = ""
        *folders, last = key.split("/")
        for name in (*(f"{folder}/" for folder in folders), last):
            names = self._names(prefix)
            if name not in names and name.rstrip("/") not in names:
                return False
            prefix += name
        return True

    @property
    def left_out(self) -> Mapping[str, int]:
        """{reason: number of left-out links or folders}. Reasons for links include an example."""
        hrefs = {
            f"{PAGE_HREFS} {why}, such as {example}": count
            for why, (count, example) in self._left_out.items()
        }
        return {**hrefs, **self._counts}

    def _names(self, prefix: str) -> set[str]:
        """Return the names that a folder's page links to. Raises PreflightError for a page that is no known
        complete listing or, with `listing: links`, only for a page without links into the folder."""
        url = self._url(prefix)
        page, led_to, folder = self._patiently(self._page, prefix)
        base = page.base_of(folder)
        linked = hrefs(page.links, folder, base)
        if not linked.names and base != folder and same_server(urlsplit(base), urlsplit(folder)):
            # The page shows the folder that its <base> names.
            folder = base
            linked = hrefs(page.links, folder)
        self._lies_at(prefix, folder)
        names, left_out = linked
        if doubt := page.doubt(linked):
            if not self._by_links or not names:
                links = "" if names else ", and it links to nothing in the folder"
                to = f"the server redirects to {without_user(led_to)}; " if led_to else ""
                raise PreflightError(
                    "the folder's page is no listing that is known to be complete",
                    where=without_user(url),
                    why=printable(f"{to}{doubt}{links}"),
                    hint=WAYS_OUT,
                )
            self._counts[BY_LINKS] += 1
        for href, why in left_out.items():
            self._leave_out(href if why == ELSEWHERE else prefix + href, why)
        return names

    def _lies_at(self, prefix: str, folder: str) -> None:
        components = urlsplit(folder)
        path = components.path[: components.path.rfind("/") + 1] or "/"
        folder = components._replace(path=path, query="", fragment="").geturl()
        if not same_place(folder, self._url_of(prefix)):
            self._moved[prefix] = folder

    def _url(self, key: str) -> str:
        """Return the URL of a file or folder, relative to the page that links to it."""
        name = key.rstrip("/").rpartition("/")[2]
        parent = key.rstrip("/")[: -len(name)] if name else None
        if parent is None or parent not in self._moved:
            return self._url_of(key)
        return self._moved[parent] + quoted(key[len(parent) :])

    def _leave_out(self, href: str, why: str) -> None:
        if (why, href) in self._remembered:
            return
        if len(self._remembered) < REMEMBERED:
            self._remembered.add((why, href))
        count, example = self._left_out.get(why, (0, printable(href.partition("?")[0][:SHOWN] or "?")))
        self._left_out[why] = (count + 1, example)

    def look(self, key: str) -> Listed | None:
        """List one file; None if the server says that it is a folder."""
        return self._patiently(self._look, key)

    def _patiently(self, ask: Callable[[WebClient, str], T], key: str) -> T:
        def attempt(client: WebClient) -> T:
            with self._limit:
                return ask(client, key)

        return self._requests.do(attempt)

    def _page(self, client: WebClient, prefix: str) -> tuple[FolderPage, str, str]:
        """Fetch a folder's page; return the page, `WebClient.led_to`, and the URL after all redirects."""
        url = self._url(prefix)
        connection = client.request("GET", url)
        if connection.status != 200:
            raise client.failure(prefix)
        unbounded, page, size = connection.unbounded, FolderPage(), 0
        try:
            for data in decoded(connection, encoding_of(connection.headers)):
                size += len(data)
                if size > PAGE_LIMIT:
                    raise ValueError(f"it has more than {PAGE_LIMIT:,} bytes")
                page.add(data)
            if unbounded and not page.closed():
                # If the server's back end dies, the connection just ends, and half a page looks complete.
                raise ValueError(
                    f"it may be cut off: no tag ends its {size:,} bytes, and no length is stated"
                )
        except ValueError as error:
            connection.abandon()
            refused = TransientError if unbounded else PreflightError
            raise refused(
                "the folder's page cannot be read", where=without_user(url), why=str(error), hint=WAYS_OUT
            ) from None
        connection.finish()
        return page, client.led_to, client.landed

    def _look(self, client: WebClient, key: str) -> Listed | None:
        """Query one file's size and version by HEAD. If HEAD is refused, or states no size or 0, request the
        first byte.

        Return None if the server says that it is a folder. Raises ObjectError for an HTML page in place of a
        file, and for an encoded file.
        """
        url, own = self._url(key), self._url_of(key)
        if url != own and self._leads(client, own, url):
            url = own
        connection = client.request("HEAD", url)
        size = connection.length
        if connection.status in NO_HEAD or (connection.status == 200 and size <= 0):
            connection.abandon()
            size = self._size(client, url)
        if client.folder:
            connection.abandon()
            return None
        connection = client.connection
        if connection.status not in (200, 206):
            raise client.failure(key)
        headers = connection.headers
        if (error := client.encoded(key, headers)) is not None:
            raise error
        if is_page(headers) and not page_name(key):
            self._refuse_page(client, url)
        version = place_of(url, self._url_of("")) if url != own else ""
        if size < 0:
            return self._read(client, key, url)._replace(version=version)
        return Listed(key, size, token_of(headers, size), modified(headers), version)

    def _read(self, client: WebClient, key: str, url: str) -> Listed:
        """Read a file without a stated size. Token and checksum are computed from the received bytes, and the
        copy is compared with them. Raises TransientError for a body that ends before its last chunk."""
        if not self._unsized:
            raise PreflightError(
                "the server does not state the file's size",
                where=without_user(url),
                why="no answer has a Content-Length, or a Content-Range with the size",
                hint="to have such files read to their end when they are listed, and again when they are "
                "copied, set `unsized: true` in storage_options; or leave the file out by `exclude`",
            )
        connection = client.request("GET", url)
        if connection.status != 200:
            raise client.failure(key)
        if connection.unbounded:
            connection.abandon()
            raise ObjectError(
                "the end of the file cannot be known",
                where=without_user(url),
                why="its size is not stated, and only the end of the connection ends it: a file that was cut "
                "off would look whole",
                hint="have the server send it in chunks, or with a Content-Length; else leave it out by "
                "`exclude`",
            )
        digest, size, block = xxhash.xxh3_128(), 0, memoryview(bytearray(BLOCK))
        while count := connection.readinto(block):
            digest.update(block[:count])
            size += count
            if self._ending.is_set():
                connection.abandon()
                raise TransientError("the listing ended", where=without_user(url))
        headers = connection.headers
        connection.finish()
        checksum = SourceChecksum(XXH3, "read", digest.hexdigest())
        token = weakened(token_of(headers, size))
        return Listed(key, size, token, modified(headers), checksum=str(checksum))

    def _leads(self, client: WebClient, own: str, url: str) -> bool:
        """Return whether a file's own URL redirects to `url`, so that no place has to be recorded."""
        try:
            connection = client.request("HEAD", own)
        except ObjectError:
            return False
        connection.abandon() if connection.status != 200 else connection.finish()
        return connection.status == 200 and same_place(client.landed, url)

    def _size(self, client: WebClient, url: str) -> int:
        """Query a file's size by requesting its first byte; negative if the size is not stated.

        | answer | size |
        |---|---|
        | 206, `Content-Range: bytes 0-0/N` | N |
        | 200: the server knows no ranges | its Content-Length |
        | 416 (an empty file has no first byte), 206 without N | as a GET of all states, or N of `bytes */N` |
        """
        connection = client.request("GET", url, "", "Range: bytes=0-0\r\n")
        total = decimal(connection.headers.get(b"content-range", b"").rpartition(b"/")[2])
        if connection.status == 206 and connection.length == 1:
            connection.read_all(1)  # reads the body, so that the connection can be kept
        else:
            connection.abandon()
        if connection.status == 206 and total is not None:
            return total
        if connection.status in (206, 416):
            connection = client.request("GET", url)
            connection.abandon()
            if connection.length < 0 and total is not None:
                return total
        return connection.length

    def _refuse_page(self, client: WebClient, url: str) -> None:
        connection = client.request("GET", url, "", f"Range: bytes=0-{BEGIN - 1}\r\n")
        begin = bytearray(BEGIN)
        count = connection.readinto(memoryview(begin)) if connection.status in (200, 206) else 0
        connection.abandon()
        if (error := client.page_instead(bytes(begin[:count]))) is not None:
            raise error
