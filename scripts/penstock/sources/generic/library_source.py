"""A bucket and prefix of S3, Azure or Google as a source, through the library that fsspec has for that store.

It gives the same keys, version tokens, times and checksums as penstock's own reader of the store. Objects are
requested on the condition that they are the listed version, and each answer is compared with the listing. The
requests for one object without a version token cannot be on a condition: the versions that their answers
state are compared with each other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.model import Entry
from penstock.errors import (
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.backoff import TRIES, retrying
from penstock.sources.checksum_headers import COMBINE
from penstock.sources.external_sort import in_order
from penstock.sources.generic.opener import HINT, Opener
from penstock.sources.objects.judgement import head_misfit, misfit
from penstock.sources.objects.pages import ascending, one_by_one
from penstock.sources.port import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Claim, Listed
    from penstock.sources.generic.object_library import Answer, ObjectLibrary
    from penstock.sources.generic.opener import FsspecCredentials
    from penstock.sources.objects.pages import Objects

PAGE = 5000
T = TypeVar("T")


class LibrarySource:
    """`credentials` come from `opener.resolve`; a worker gets them from its parent."""

    def __init__(
        self, config: SourceConfig, library: ObjectLibrary, credentials: FsspecCredentials | None = None
    ) -> None:
        scheme, _, rest = config.url.partition("://")
        place, _, prefix = rest.partition("/")
        self._bucket = place.partition("@")[0]
        self._prefix = f"{prefix.removesuffix('/')}/" if prefix else ""
        self.url = f"{scheme}://{place}/{self._prefix}"
        self._library = library
        self._opener = Opener(config, credentials, library.defaults())
        self._lock = threading.Lock()
        self._open: tuple[Any, Any] | None = None
        self._markers = 0

    @property
    def ignored(self) -> Mapping[str, int]:
        return {"markers": self._markers} if self._markers else {}

    def renew(self, credentials: object) -> None:
        """Set the credentials of all readers of this source, from the next request on."""
        self._opener.renew(credentials)

    def _fs(self) -> Any:
        """The library's file system object, shared by all readers of this source, and made anew for new
        credentials. Each of its connections serves one request at a time."""
        with self._lock:
            if self._open is None or self._open[0] is not self._opener.secrets:
                self._open = (self._opener.secrets, self._opener.connect()[0])
            return self._open[1]

    def run(self, work: Callable[..., T], where: str, *arguments: Any) -> T:
        """What `work`, a method of the library, returns. Raises its failure as an error of penstock that
        names `where`."""
        fs = self._fs()
        try:
            return work(fs, self._bucket, *arguments)
        except PenstockError:
            raise
        except Exception as error:
            found = self._library.failure(error, where)
            if found is None:
                raise
            found.why = self._opener.cleaned(found.why)
            raise found from None

    def check(self) -> None:
        try:
            self.run(self._library.page, self.url, self._prefix, "", 1)
        except PreflightError:
            raise
        except PenstockError as error:
            raise PreflightError(
                "the source cannot be listed",
                where=self.url,
                why=f"{error.what}: {error.why}" if error.why else error.what,
                hint=error.hint or HINT,
            ) from None

    def _page(self, prefix: str, token: str, limit: int) -> Objects:
        """Raises FailedError for a listing that is refused: that says nothing of any object."""
        try:
            return self.run(self._library.page, self.url, prefix, token, limit)
        except (ObjectError, SourceChangedError) as error:
            why = f"{error.what}: {error.why}"
            raise FailedError("the source cannot be listed", where=self.url, why=why, hint=HINT) from None

    def list(self) -> Iterator[Sequence[Listed]]:
        """See `port.Source.list`. Where the library does not list in byte order, the whole listing is sorted
        on disk."""
        self._markers = 0
        pages = self._pages()
        return ascending(pages if self._library.in_order else in_order(pages), self.url)

    def _pages(self) -> Iterator[Sequence[Listed]]:
        stop = threading.Event()

        def fetch(token: str) -> Objects:
            return retrying(lambda: self._page(self._prefix, token, PAGE), TRIES, stop.wait)

        for page in one_by_one(fetch, self.url, stop.set):
            self._markers += page.markers
            yield [self._below(item) for item in page.rows if item.key != self._prefix]

    def _below(self, item: Listed) -> Listed:
        if not item.key.startswith(self._prefix):
            raise FailedError(
                "the listing has a key outside of the prefix", where=self.url, why=repr(item.key)
            )
        return item._replace(key=item.key[len(self._prefix) :])

    def list_one(self, key: str) -> Listed | None:
        name, where = self._prefix + key, self.url + key
        for item in self._page(name, "", self._library.least).rows:
            if item.key == name:
                return item._replace(key=key)
        try:
            self.run(self._library.fetch, where, name, Entry(key, key, 0, "", 0), 0, 0)
        except SourceChangedError:
            return None
        raise TransientError("the store has the object, and does not list it yet", where=where)

    def fetch(self, entry: Entry, offset: int, length: int) -> Answer:
        """The answer to a conditional request for a range. Raises the error of an answer that does not fit
        the listing (`judgement`). Without a length: the object's description."""
        where = self.url + entry.key
        answer = self.run(self._library.fetch, where, self._prefix + entry.key, entry, offset, length)
        if not length:
            error = head_misfit(answer.length, answer.headers, answer.version, entry, where)
        elif length != entry.size and answer.status != 206:
            error = ObjectError("the server ignores ranges", where=where, why=f"status {answer.status}")
        else:
            error = misfit(
                answer.status, answer.length, answer.headers, answer.version, entry, (offset, length), where,
                encoded=True,
            )  # fmt: skip
        if error is not None:
            raise error
        return answer

    def reader(self) -> LibraryReader:
        return LibraryReader(self)

    def checksum(self, entry: Entry) -> Sequence[Claim]:
        return self.fetch(entry, 0, 0).claims


class LibraryBody:
    """One range, by requests of `port.REQUEST` bytes each."""

    claims: Sequence[Claim]

    def __init__(self, source: LibrarySource, entry: Entry, offset: int, length: int) -> None:
        self._source, self._entry = source, entry
        self._at, self._end = offset, offset + length
        self._version: str | None = ""
        claims = self._next().claims
        if length == entry.size and length > REQUEST:
            claims = source.checksum(entry)  # the answer to a range of S3 states less than the description
        self.claims = [
            one for one in claims if length == entry.size or (one.kind == "full" and one.algorithm in COMBINE)
        ]

    def _next(self) -> Answer:
        length = min(REQUEST, self._end - self._at)
        answer = self._source.fetch(self._entry, self._at, length)
        if length < self._entry.size and not self._entry.token:
            # None of these requests is on a condition: their answers are compared with each other.
            if answer.version is None or self._version not in ("", answer.version):
                why = f"{self._version or 'no version'}, then {answer.version or 'no version'}"
                raise SourceChangedError(
                    "bytes of two versions cannot be told apart", where=self._entry.key, why=why
                )
            self._version = answer.version
        self._ready = memoryview(answer.data)
        self._at += length
        return answer

    def readinto(self, buffer: memoryview) -> int:
        if not self._ready and self._at < self._end:
            self._next()
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._ready = memoryview(b"")
        self._end = self._at


class LibraryReader:
    """For one thread; the connections are the library's."""

    def __init__(self, source: LibrarySource) -> None:
        self._source = source

    def open(self, entry: Entry, offset: int, length: int) -> LibraryBody:
        return LibraryBody(self._source, entry, offset, length)

    def close(self) -> None:
        """Nothing is kept."""
