"""A bucket or container as a source: what is the same for every store that lists by pages.

The sources of `s3`, `azure` and `gcs` derive from `ObjectSource`. All requests only read. `list_sorted` sorts
on disk, in the folder that it is given; nothing else here writes.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from penstock.config.patterns import of_file_alone, written
from penstock.core.errors import (
    STORE_AMISS,
    ConfigError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry, Listed
from penstock.host import waits
from penstock.sources.backoff import TRIES
from penstock.sources.credentials import renewed
from penstock.sources.http.values import stated_time
from penstock.sources.listing_order import Objects, ascending, in_order, one_by_one
from penstock.sources.objects.answers import reaching
from penstock.sources.objects.client import ObjectClient, Requests
from penstock.sources.objects.reader import ObjectReader
from penstock.sources.port import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import SourceConfig
    from penstock.core.model import SourceChecksum

AT_ONCE = 32
"""HEAD requests for times at once."""
C = TypeVar("C", bound=ObjectClient)
K = TypeVar("K")
"""The credentials."""


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """What a URL like `s3://bucket/prefix/` names; the prefix is "" or ends in a slash. Raises
    ConfigError."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if not bucket or "@" in bucket:
        raise ConfigError(
            "the URL names no bucket", where=f"{scheme}://...", hint=f"write {scheme}://bucket/prefix/"
        )
    if bucket.startswith("arn:"):
        hint = f"write {scheme}://{bucket.rpartition(':')[2]}/{prefix}"
        if "accesspoint" in bucket:
            hint = f"write the access point's alias in its place, {scheme}://NAME-s3alias/prefix/"
        raise ConfigError("the URL has an ARN where a bucket's name belongs", where=url, hint=hint)
    return bucket, f"{prefix.removesuffix('/')}/" if prefix else ""


def single_name(config: SourceConfig) -> str:
    """The last segment of a URL without a slash at its end, which may be one object's. "" for a URL that
    means a prefix alone: with that slash, or of a source that something else lists."""
    if config.inventory or config.list_from:
        return ""
    _, _, key = config.url.partition("://")[2].partition("/")
    return key.rpartition("/")[2]


def two_meanings(url: str, size: int) -> PreflightError:
    """The error of a URL that names an object of so many bytes, and a prefix with objects below."""
    url = url.removesuffix("/")
    above, _, name = url.rpartition("/")
    return PreflightError(
        "the URL names an object and a folder",
        where=url,
        why=f"the object has {size:,} bytes, and there are objects below {url}/",
        hint=f"write {url}/ for the folder; for the object write {above}/ with "
        f"`include: {written(of_file_alone(name))}`",
    )


class ObjectSource(Source, Generic[C, K]):
    """Base of the stores' sources (`port.Source`). A subclass gives `client`, `RESOLVE` and `page`.

    A URL without a slash at its end may name one object, whose key is then its last segment:

    | the object | below the prefix | the source is |
    |---|---|---|
    | not there, or not to be asked for | anything | the prefix |
    | there | nothing, or not to be listed | that object |
    | there, of 0 bytes: a folder's marker | objects | the prefix |
    | there, with bytes | objects | refused |
    """

    PAGE: ClassVar[int] = 1000  # objects that a page is asked to hold
    NEAR: ClassVar[int] = 1
    """Objects among which the one of a given name is, when those are listed that begin with its name."""
    CHECK: ClassVar[str] = "check the bucket's name and the credentials"
    """What to do about a source that cannot be listed."""

    RESOLVE: ClassVar[Any]
    """A static method that resolves the credentials of a `SourceConfig`. Raises PreflightError."""
    url: str  # with the prefix, for people, and without its slash at the end where the source is one object

    def __init__(self, config: SourceConfig, credentials: K | None, url: str, at: str = "") -> None:
        """`url`: with the prefix. `at`: the server, for people."""
        self._config = config
        self._credentials: K = self.RESOLVE(config) if credentials is None else credentials
        self.url = self._prefix_url = url
        self._at = at
        self.single = single_name(config)
        self._by_metadata, self._untimed = config.times == "metadata", 0
        self._markers = self._beside = self._twice = 0

    # ---- what a dialect says

    def client(self) -> C:
        """A client of its own connection, that signs with the present credentials."""
        raise NotImplementedError

    def page(self, client: C, token: str, limit: int, begins: str = "") -> Objects:
        """One page, from the token of the page before it ("": the first), of the objects below the prefix
        whose keys begin so. One request; raises its error."""
        raise NotImplementedError

    def find(self, client: C, key: str) -> None:
        """An object by its name alone, whatever its version; nothing if it is there. Raises its refusal."""
        client.stated(Entry(key, key, 0, "", 0))

    # ---- what all have

    @property
    def ignored(self) -> Mapping[str, int]:
        """Markers of folders that the last listing left out, and objects that it had once more, alike in all:
        see `port.Source`."""
        counts = {"markers": self._markers + self._beside, "named twice": self._twice}
        return {what: count for what, count in counts.items() if count}

    @property
    def untimed(self) -> int:
        return self._untimed

    def _count_twice(self, count: int) -> None:
        """So many objects were listed once more, alike in all."""
        self._twice += count

    def credentials(self) -> K:
        """The present ones."""
        return self._credentials

    def renew(self, credentials: object) -> None:
        """Sign with these from the next request on, in every reader of this source."""
        self._credentials = cast("K", credentials)

    def requests(self) -> Requests[C]:
        """For the requests of one listing; to be closed."""
        return Requests(self.client, self.credentials, self.renew_refused)

    def renew_refused(self, error: PenstockError, last: bool) -> None:
        self.renew(renewed(error, self._credentials, partial(self.RESOLVE, self._config), last=last))

    def check(self) -> None:
        """Requests the object that the URL names, or one page of one object. Raises PreflightError."""
        reached = reaching("the source cannot be listed", f"{self.url} at {self._at}", self.CHECK)
        with closing(self.requests()) as requests, reached:
            if self._one_object(requests, tries=2) is None:
                requests.do(lambda client: self.page(client, "", 1), tries=2)

    def list(self) -> Iterator[Sequence[Listed]]:
        """See `port.Source`. Raises FailedError for a prefix that cannot be listed (DisorderError where the
        keys come in no order), and PreflightError for a URL with two meanings."""
        self._twice = 0
        return self.either(self._in_order())

    def list_sorted(self, folder: Path) -> Iterator[Sequence[Listed]]:
        self._twice = 0
        return self.either(self._ascending(in_order(self._unsorted(), folder=folder)))

    def _ascending(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        return ascending(batches, self.url, twice=self._count_twice)

    def _in_order(self) -> Iterator[Sequence[Listed]]:
        """All below the prefix, in ascending order."""
        return self._ascending(self._pages())

    def _unsorted(self) -> Iterator[Sequence[Listed]]:
        """All below the prefix, in the order in which the store lists it."""
        return self._pages()

    def either(self, below: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        """The one object that the URL names, or else what is `below` its prefix; with the times that are
        configured."""
        batches = self._one_or(below)
        return self._with_times(batches) if self._by_metadata else batches

    def _with_times(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        """The same objects, each with the time of its metadata where a HEAD states one."""
        self._untimed = 0
        with closing(self.requests()) as requests, waits.threads(AT_ONCE, "times") as pool:
            try:
                for batch in batches:
                    times = list(pool.map(lambda row: requests.do(partial(self._metadata_time, row)), batch))
                    self._untimed += times.count(0)
                    yield [
                        one._replace(modified_ns=time) if time else one
                        for one, time in zip(batch, times, strict=True)
                    ]
            finally:
                requests.stop()

    def _metadata_time(self, listed: Listed, client: C) -> int:
        """0 for an object that is gone or another by now, too: reading it says so."""
        entry = Entry(listed.key, listed.key, listed.size, listed.token, 0, version=listed.version)
        return client.described(client.stated(entry, gone=(404, 410, 412))[0]).time

    def _one_or(self, below: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        if not self.single:
            yield from below
            return
        with closing(self.requests()) as requests:
            sole = self._one_object(requests)
        if sole is not None:
            yield [sole]
            return
        for batch in below:
            if any(listed.key == self.single for listed in batch):
                raise PreflightError(
                    "an object in the folder has the folder's own name",
                    where=self.url,
                    hint="write the source's URL with a slash at its end",
                )
            yield batch

    def _one_object(self, requests: Requests[C], *, tries: int = TRIES) -> Listed | None:
        """By the table above; `url` has no slash at its end where it is one object. Raises PreflightError
        where the URL names an object and a prefix."""
        self.url, self._beside = self._prefix_url, 0
        if not self.single:
            return None
        try:
            sole = requests.do(lambda client: self._head(client, self.single), tries=tries)
        except (ObjectError, FailedError, PreflightError):
            return None  # what is wrong with the source, the listing of its prefix says
        if sole is None:
            return None
        with suppress(ObjectError):
            pages = one_by_one(
                lambda token: requests.do(lambda client: self.page(client, token, 1), tries=tries),
                self.url,
                lambda: None,
            )
            if any(page.rows or page.markers for page in pages):
                if sole.size:
                    raise two_meanings(self.url, sole.size)
                self._beside = 1
                return None
        self.url = self._prefix_url.removesuffix("/")
        return sole

    def _pages(self) -> Iterator[Sequence[Listed]]:
        requests = self.requests()

        def fetch(token: str) -> Objects:
            return requests.do(lambda client: self.page(client, token, self.PAGE))

        self._markers = 0
        try:
            for page in one_by_one(fetch, self.url, requests.stop):
                self._markers += page.markers
                yield page.rows
        except (ObjectError, SourceChangedError) as error:
            raise FailedError(
                "the source cannot be listed", where=self.url, why=error.why, hint=error.hint or self.CHECK
            ) from None
        finally:
            requests.close()

    def list_one(self, key: str) -> Listed | None:
        """By a listing of what begins with this key: HEAD states times in whole seconds. Then by its name.
        The one object that the URL names is listed by its name alone."""
        if key == self.single != "":
            with self.asking() as ask:
                return ask(key)  # its answer has the time already
        with closing(self.client()) as client:
            page = self.page(client, "", self.NEAR, key)
            for listed in page.rows:
                if listed.key == key:
                    time = self._by_metadata and self._metadata_time(listed, client)
                    return listed._replace(modified_ns=time or listed.modified_ns)
            if page.following:
                return self._head(client, key)  # of a store that lists in no order
            try:
                self.find(client, key)
            except SourceChangedError:
                if client.connection.status in (404, 410):
                    return None
                raise
        raise TransientError("the store has the object, and does not list it yet", where=client.where(key))

    @contextmanager
    def asking(self) -> Iterator[Callable[[str], Listed | None]]:
        """By one HEAD an object. See `port.Source`."""
        with closing(self.requests()) as requests:
            yield lambda key: requests.do(lambda client: self._head(client, key))

    def _head(self, client: C, key: str) -> Listed | None:
        """An object as the answer to a HEAD states it; None where it is not there, or stands for a folder."""
        headers, size = client.stated(Entry(key, key, 0, "", 0), gone=(404, 410))
        described = client.described(headers)
        if not headers or described.folder:
            return None
        token = client.version(headers, size)
        if size < 0 or token is None:
            what = "the answer states no size or no version"
            raise FailedError(what, where=client.where(key), hint=STORE_AMISS)
        modified = stated_time(headers.get(b"last-modified", b"").decode("latin-1"), client.where(key))
        modified = (self._by_metadata and described.time) or modified
        return Listed(key, size, token, modified, self.version_id(headers), archived=described.archived)

    def version_id(self, headers: Mapping[bytes, bytes]) -> str:  # noqa: ARG002 (of stores with versions)
        """The id by which this version is read, where the listing states one."""
        return ""

    def reader(self) -> ObjectReader[C]:
        """A reader for one thread."""
        return ObjectReader(self.client, self.credentials)

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:
        """By HEAD."""
        with closing(self.reader()) as reader:
            return reader.checksum(entry)
