"""A bucket or container as a source: the parts that all stores share whose listings come in pages. All
requests only read, and only `list_sorted` writes to disk.
"""

from __future__ import annotations

from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from penstock.config.access_rules import of_file_alone, written
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
from penstock.sources.http_values import stated_time
from penstock.sources.listing_order import Objects, ascending, in_order, one_by_one
from penstock.sources.object_answers import reaching
from penstock.sources.object_client import ObjectClient, ObjectReader, Requests
from penstock.sources.port import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penstock.config.settings import SourceConfig
    from penstock.core.model import SourceChecksum


AT_ONCE = 32  # concurrent HEAD requests for objects' times, at most
C = TypeVar("C", bound=ObjectClient)
K = TypeVar("K")  # the credentials


def bucket_and_prefix(url: str) -> tuple[str, str]:
    """Split a URL like `s3://bucket/prefix/`; the prefix is "" or ends in a slash. Raises ConfigError."""
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
    """Return the last segment of a URL without a final slash, or "" if it cannot name an object."""
    if config.inventory or config.list_from:
        return ""
    _, _, key = config.url.partition("://")[2].partition("/")
    return key.rpartition("/")[2]


def two_meanings(url: str, size: int) -> PreflightError:
    """Make the error for a URL that names both an object of this size and a prefix with objects."""
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
    """Base of the stores' sources (`port.Source`). A subclass defines `client`, `RESOLVE` and `page`.

    A URL without a slash at its end may name one object, whose key is then its last segment:

    | the object | below the prefix | the source is |
    |---|---|---|
    | does not exist, or may not be requested | anything | the prefix |
    | exists | nothing, or a refused listing | that object |
    | exists, with 0 bytes, as a folder's marker | objects | the prefix |
    | exists, with bytes | objects | refused |
    """

    PAGE: ClassVar[int] = 1000  # objects requested for a page
    # A listing of this many objects whose keys begin with a name includes the object of that name.
    NEAR: ClassVar[int] = 1
    # the hint for a source that cannot be listed
    CHECK: ClassVar[str] = "check the bucket's name and the credentials"

    RESOLVE: ClassVar[Any]  # a static method: returns a `SourceConfig`'s credentials; raises PreflightError
    url: str  # URL with the prefix, for messages; without a final slash if the source is one object

    def __init__(self, config: SourceConfig, credentials: K | None, url: str, at: str = "") -> None:
        """`url` includes the prefix. `at` names the server in messages."""
        self._config = config
        self._credentials: K = self.RESOLVE(config) if credentials is None else credentials
        self.url = self._prefix_url = url
        self._at = at
        self.single = single_name(config)
        self._by_metadata, self._untimed = config.times == "metadata", 0
        self._markers = self._beside = self._twice = 0

    # ---- methods for dialects to override

    def client(self) -> C:
        """Make a client with its own connection, which signs with the present credentials."""
        raise NotImplementedError

    def page(self, client: C, token: str, limit: int, begins: str = "") -> Objects:
        """Fetch, with one request, the page that `token` names ("" for the first) of the objects whose keys
        begin with `begins`. Raises the request's error."""
        raise NotImplementedError

    def find(self, client: C, key: str) -> None:
        """Request an object by name, whatever its version. Raises the error of a refusal."""
        client.stated(Entry(key, key, 0, "", 0))

    # ---- methods of all dialects

    @property
    def ignored(self) -> Mapping[str, int]:
        """The numbers of folders' markers and identical repeats that the last listing left out."""
        counts = {"markers": self._markers + self._beside, "named twice": self._twice}
        return {what: count for what, count in counts.items() if count}

    @property
    def untimed(self) -> int:
        return self._untimed

    def _count_twice(self, count: int) -> None:
        self._twice += count

    def credentials(self) -> K:
        return self._credentials

    def renew(self, credentials: object) -> None:
        self._credentials = cast("K", credentials)

    def requests(self) -> Requests[C]:
        """Make the `Requests` of one listing; the caller closes them."""
        return Requests(self.client, self.credentials, self.renew_refused)

    def renew_refused(self, error: PenstockError, last: bool) -> None:
        self.renew(renewed(error, self._credentials, partial(self.RESOLVE, self._config), last=last))

    def check(self) -> bool | None:
        """Request the object that the URL names, or a page with one object. Raises PreflightError."""
        reached = reaching("the source cannot be listed", f"{self.url} at {self._at}", self.CHECK)
        with closing(self.requests()) as requests, reached:
            if self._one_object(requests, tries=2) is not None:
                return True
            page = requests.do(lambda client: self.page(client, "", 1), tries=2)
            return bool(page.rows) or (None if page.markers or page.following else False)

    def list(self) -> Iterator[Sequence[Listed]]:
        """See `port.Source`. Raises FailedError for an unlistable prefix (DisorderError for unordered keys),
        and PreflightError for a URL with two meanings."""
        self._twice = 0
        return self.either(self._in_order())

    def list_sorted(self, folder: Path) -> Iterator[Sequence[Listed]]:
        self._twice = 0
        return self.either(self._ascending(in_order(self._unsorted(), folder=folder)))

    def _ascending(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        return ascending(batches, self.url, twice=self._count_twice)

    def _in_order(self) -> Iterator[Sequence[Listed]]:
        return self._ascending(self._pages())

    def _unsorted(self) -> Iterator[Sequence[Listed]]:
        return self._pages()

    def either(self, below: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        """List the object that the URL names, or else `below`, with times as configured."""
        batches = self._one_or(below)
        return self._with_times(batches) if self._by_metadata else batches

    def _with_times(self, batches: Iterator[Sequence[Listed]]) -> Iterator[Sequence[Listed]]:
        self._untimed = 0
        with closing(self.requests()) as requests, waits.threads(AT_ONCE, "times") as pool:
            try:
                for batch in batches:
                    times = list(pool.map(lambda row: requests.do(partial(self._metadata_time, row)), batch))
                    self._untimed += times.count(0)
                    yield [
                        listed._replace(modified_ns=time) if time else listed
                        for listed, time in zip(batch, times, strict=True)
                    ]
            finally:
                requests.stop()

    def _metadata_time(self, listed: Listed, client: C) -> int:
        """Return the time in an object's metadata. Return 0 if it has none, or the object is gone or has
        changed; reading the object will report such a change."""
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
        """Find the URL's one object, by the table above; `url` then loses its last slash. Raises
        PreflightError if the URL names both an object and a prefix."""
        self.url, self._beside = self._prefix_url, 0
        if not self.single:
            return None
        try:
            sole = requests.do(lambda client: self._head(client, self.single), tries=tries)
        except (ObjectError, FailedError, PreflightError):
            return None  # the listing of the prefix will report what is wrong
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
        """List the objects that begin with this key, since HEAD states times in whole seconds; then request
        the object by name. The one object that the URL names is only requested by name."""
        if key == self.single != "":
            with self.asking() as ask:
                return ask(key)  # the object in the answer already has its time
        with closing(self.client()) as client:
            page = self.page(client, "", self.NEAR, key)
            for listed in page.rows:
                if listed.key == key:
                    time = self._by_metadata and self._metadata_time(listed, client)
                    return listed._replace(modified_ns=time or listed.modified_ns)
            if page.following:
                return self._head(client, key)  # HEAD is needed if the store lists in no order
            try:
                self.find(client, key)
            except SourceChangedError:
                if client.connection.status in (404, 410):
                    return None
                raise
        raise TransientError("the store has the object, and does not list it yet", where=client.where(key))

    @contextmanager
    def asking(self) -> Iterator[Callable[[str], Listed | None]]:
        """Make one HEAD for each object. See `port.Source`."""
        with closing(self.requests()) as requests:
            yield lambda key: requests.do(lambda client: self._head(client, key))

    def _head(self, client: C, key: str) -> Listed | None:
        """Return an object from the answer to a HEAD; None if it is missing, or is a folder's marker."""
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
        """Return the version's id by which the object is read, if the listing states ids."""
        return ""

    def reader(self) -> ObjectReader[C]:
        return ObjectReader(self.client, self.credentials)

    def checksum(self, entry: Entry) -> Sequence[SourceChecksum]:
        with closing(self.reader()) as reader:
            return reader.checksum(entry)
