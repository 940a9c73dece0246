"""S3 and compatible stores as a source: one bucket and prefix, with its listing, whose further pages are
fetched while one is parsed. All requests only read.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from operator import lt
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
)
from penstock.core.human import in_quotes
from penstock.core.model import Listed
from penstock.core.row_codec import filled
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.http_values import plain, query_string, stated_time
from penstock.sources.listing_order import Objects, between, disorder, one_by_one
from penstock.sources.object_answers import within
from penstock.sources.object_client import ObjectReader
from penstock.sources.object_source import ObjectSource, bucket_and_prefix, single_name
from penstock.sources.s3_client import ARCHIVES, AWS, Bucket, S3Client
from penstock.sources.s3_credentials import S3Credentials, resolve
from penstock.sources.s3_listing import (
    OBJECTS,
    PAGE,
    VERSIONS,
    Ranges,
    archived,
    encoded,
    key_of,
    objects,
    understand,
)
from penstock.sources.stated_checksums import s3_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.object_client import Requests
    from penstock.sources.s3_listing import PageForm, PageText


# Streams a bucket's listing: further pages are fetched while a page is parsed.
#
# Keys must ascend by their bytes, without repeats, and begin with the prefix. If they do not, FailedError is
# raised, since the plan would lack or repeat files. Identical repeats are only counted and left out. Without
# `ordered` (for a caller that sorts), only the prefix is checked.
#
# A listing of versions states the id of each object's newest version, by which the same bytes stay readable
# (`datasets.*.changed: pinned`). Buckets without versioning are refused: all their objects have the version
# id `null`, which would also match a later object of the same key.

_QUOTES = ("&quot;", "&#34;")
_NONE = "null"  # the version id of an object that was written before its bucket was versioned
NO_VERSIONS = "have versioning enabled on the bucket, or write `changed: follow` or `changed: refuse`"


def pages(
    bucket: Bucket, requests: Requests[S3Client], after: bytes = b"", upto: bytes | None = None
) -> Iterator[PageText]:
    """Yield the pages of the listing of a bucket's prefix, prefetched by several streams. Closes `requests`
    at the end. For `after` and `upto` see `Ranges`."""

    def fetch(token: str, after: str = "", *, limit: int = PAGE) -> PageText:
        return requests.do(lambda client: fetched(client, bucket.prefix, token, limit, after), failed=failed)

    def failed(error: PenstockError) -> None:
        if not isinstance(error, ExpiredCredentialsError):
            ranges.slower()

    def confirm(last: str, count: int) -> None:
        """Raise FailedError if the server cut the listing at a page's limit. Some servers do so silently."""
        more = fetch("", last, limit=1)
        for raw, *_ in objects(more.text, bucket.url):
            key = key_of(raw, encoded(more))
            # A server that ignores `start-after` begins again at the first key.
            if os.fsencode(key) > os.fsencode(last):
                raise FailedError(
                    f"the store cuts its listing off after {count} keys and does not say so",
                    where=bucket.url,
                    why=f"{in_quotes(key)} is there, and was not listed",
                    hint="this server's listings cannot be trusted: upgrade it, or give narrower prefixes as "
                    "several `sources`",
                )

    ranges = Ranges(fetch, confirm, bucket.prefix, bucket.url, after, upto)
    try:
        yield from ranges
    finally:
        requests.close()


def version_pages(bucket: Bucket, requests: Requests[S3Client], after: bytes = b"") -> Iterator[PageText]:
    """Yield the pages of all versions of the keys after `after` (b"" for all keys), in the store's order.
    Closes `requests` at the end."""

    def fetch(token: str) -> PageText:
        begin = token or os.fsdecode(after)
        return requests.do(lambda client: fetched(client, bucket.prefix, begin, PAGE, form=VERSIONS))

    try:
        yield from one_by_one(fetch, bucket.url, requests.stop)
    finally:
        requests.close()


def fetched(
    client: S3Client, prefix: str, token: str, limit: int, after: str = "", form: PageForm = OBJECTS
) -> PageText:
    """Fetch one page of the keys below a prefix. The first page with archived objects is requested twice:
    from then on, pages also state which archived objects are temporarily restored."""
    pairs = [("max-keys", str(limit)), ("encoding-type", "url"), ("prefix", prefix)]
    if form is VERSIONS:
        key, _, version = token.partition("\0")
        pairs += [("key-marker", key), ("version-id-marker", version)]
    else:
        pairs += [("list-type", "2"), ("continuation-token", token), ("start-after", after)]
    pairs = [(name, value) for name, value in pairs if value]
    query = query_string([("versions", ""), *pairs] if form is VERSIONS else pairs)
    text = os.fsdecode(client.fetched("", query))
    if not client.asks_for_restores and _any_archived(text):
        client.ask_for_restores()
        text = os.fsdecode(client.fetched("", query))
    return understand(text, client.url, form)


def _any_archived(text: str) -> bool:
    return any(f"{stored}</StorageClass>" in text for stored in ARCHIVES)


def _with_classes(bucket: Bucket, page: PageText, batch: Sequence[Listed]) -> Sequence[Listed]:
    """Add the storage class of archived objects."""
    if not _any_archived(page.text):
        return batch
    quoted, begin = encoded(page), len(bucket.prefix)
    held = {key_of(raw, quoted)[begin:]: stored for raw, stored in archived(page, ARCHIVES).items()}
    return [row._replace(archived=held[row.key]) if row.key in held else row for row in batch]


def listed(
    bucket: Bucket,
    pages: Iterator[PageText],
    *,
    ordered: bool = True,
    twice: Callable[[int], None] = lambda _: None,
    versioned: bool | None = None,
) -> Iterator[Sequence[Listed]]:
    """Parse pages into batches of objects, none of them empty. Keys are relative to the prefix. An object
    whose key is the prefix itself (a folder placeholder) is left out.

    Without `ordered`, keys come in the store's order, perhaps with repeats. For `twice` see `ascending`.
    `versioned` states whether the bucket is versioned (None if unknown); only pages of versions need it.
    Raises FailedError for a malformed page, and for the faults listed in the module's docstring. Raises
    PreflightError for an object without a version of its own.
    """
    last, tail = "", None
    for page in pages:
        rows = list(objects(page.text, bucket.url, page.form))
        usual = page.until is None and page.form is OBJECTS
        batch = _plain_batch(bucket, rows, last, ordered=ordered) if usual else None
        if batch is None:
            batch, last = _batch(bucket, page, rows, last, tail, twice, ordered=ordered, versioned=versioned)
        elif rows:
            last, *_ = rows[-1]
        if batch:
            tail = batch[-1]
            yield _with_classes(bucket, page, batch)


def _plain_batch(
    bucket: Bucket, rows: Sequence[tuple[str, ...]], last: str, *, ordered: bool
) -> list[Listed] | None:
    """Parse a usual page by columns, in a third of the time of `_batch`. Return None unless all keys are
    ASCII without escapes, in order and below the prefix, and all etags are between quotes."""
    if not rows:
        return []
    keys, modified, etags, sizes = zip(*rows, strict=True)
    text, quoted, prefix = "".join(keys), "\n".join(etags), bucket.prefix
    if not text.isascii() or not last.isascii() or "%" in text or "+" in text or "&" in text:
        return None
    if ordered:
        if not (last < keys[0] and all(map(lt, keys, keys[1:]))):
            return None
        # The keys are in order, so if the first and last key begin with the prefix, all do.
        if not keys[0].startswith(prefix) or not keys[-1].startswith(prefix) or keys[0] == prefix:
            return None
    elif prefix in keys or not all(key.startswith(prefix) for key in keys):
        return None
    quote = next((form for form in _QUOTES if quoted.startswith(form)), "")
    tags = quoted[len(quote) : -len(quote)].split(f"{quote}\n{quote}") if quote else []
    if len(tags) != len(rows) or not quoted.endswith(quote) or quoted.count("&") != 2 * len(rows):
        return None
    if "\n" in "".join(tags):
        return None
    times = {each: stated_time(plain(each), bucket.url) for each in set(modified)}
    columns = {
        "key": [key[len(prefix) :] for key in keys] if prefix else keys,
        "size": list(map(int, sizes)),
        "token": tags,
        "modified_ns": list(map(times.__getitem__, modified)),
    }
    return filled(Listed, columns, len(rows))


def _batch(
    bucket: Bucket,
    page: PageText,
    rows: Sequence[tuple[str, ...]],
    last: str,
    tail: Listed | None,
    twice: Callable[[int], None],
    *,
    ordered: bool,
    versioned: bool | None,
) -> tuple[list[Listed], str]:
    """Parse any page key by key; return its objects and the last key. `tail` is the last object of the pages
    before. Raises FailedError for keys out of order or outside the prefix."""
    prefix, quoted, until = bucket.prefix, encoded(page), page.until
    batch: list[Listed] = []
    before, place, pinned = last, _bytes(last), page.form is VERSIONS
    for row in rows:
        raw, modified, etag, size = row[:4]
        key, version = key_of(raw, quoted), plain(row[4]) if pinned else ""
        # Some stores repeat the marker's version at the start of a page.
        again = (ordered or version != "") and key == before
        previous, place = place, _bytes(key)
        if ordered and before and not again and not previous < place:
            raise disorder(key, before, bucket.url)
        before = key
        if until is not None and place > until:
            continue  # another stream lists this key; the order is still checked, since the ranges rely on it
        last = key
        name = key[len(prefix) :] if key.startswith(prefix) else within(key, prefix, bucket.url)
        if not name:
            continue  # the marker of the prefix itself
        # In a versioned bucket, `null` is the id of an object from before versioning, and remains valid.
        if pinned and (not version or (version == _NONE and not versioned)):
            raise PreflightError(
                "an object has no version of its own, and `changed: pinned` reads objects by those",
                where=bucket.url + name,
                why="the bucket is not versioned, or that is not to be known with these credentials",
                hint=NO_VERSIONS,
            )
        tag, time = plain(etag).strip('"'), stated_time(plain(modified), bucket.url)
        item = Listed(name, int(size), tag, time, version, "")
        if not again:
            batch.append(item)
        elif item != tail:
            raise disorder(key, key, bucket.url)
        elif not pinned:
            twice(1)
        tail = item
    return batch, last


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


# S3 and compatible stores as a source: one bucket and prefix. All requests only read. To compute a composite
# checksum (a checksum of the checksums of an upload's parts), the parts' sizes are queried.

MOST_PARTS = 10_000  # parts in an upload, at most, by S3's rules
_ENABLED = re.compile(rb"<Status>\s*Enabled\s*</Status>")


class S3Reader(ObjectReader[S3Client]):
    """`ObjectReader` with a second connection, for queries of the parts' sizes."""

    _side: S3Client | None = None

    def _checksums(
        self, client: S3Client, entry: Entry, headers: Mapping[bytes, bytes], *, whole: bool
    ) -> Sequence[SourceChecksum]:
        checksums = client.checksums(headers, whole=whole)
        if not whole or not checksums or checksums[0].kind == "full":
            return checksums
        # Only composite checksums are stated. To compute them, the parts' sizes are needed.
        return s3_checksums(headers, whole=True, part_bytes=self._part_bytes(entry, checksums[0].parts))

    def _part_bytes(self, entry: Entry, parts: int) -> int:
        if self._side is None:
            self._side = self._make()
        self._side.renew(self._credentials())
        try:
            return part_bytes(self._side, entry, parts)
        except ExpiredCredentialsError:
            raise  # the retry, with renewed credentials, will get the size
        except PenstockError:
            return 0  # the size only serves to prove the copy; without it the copy stays unproven

    def close(self) -> None:
        super().close()
        if self._side is not None:
            self._side.close()


def part_bytes(client: S3Client, entry: Entry, parts: int) -> int:
    """Return the size of all parts of a multipart object, except the last; 0 if they differ, or are unknown.

    Queries the first and last part only. If a checksum computed with this size does not match, the caller
    queries all parts by `part_sizes`.
    """
    size = _part_size(client, entry, 1)
    if not size or -(-entry.size // size) != parts:
        return 0
    if parts > 2 and _part_size(client, entry, parts) != entry.size - size * (parts - 1):
        return 0
    return size


def part_sizes(client: S3Client, entry: Entry, parts: int) -> list[int]:
    """Return the size of each part; [] if the store does not state them, or their sum is not the object's
    size. Raises a PenstockError for an answer that a retry may change."""
    sizes: list[int] = []
    for number in range(1, min(parts, MOST_PARTS) + 1):
        sizes.append(_part_size(client, entry, number, patient=True))
        if not sizes[-1]:
            return []
    return sizes if sum(sizes) == entry.size else []


def _part_size(client: S3Client, entry: Entry, number: int, *, patient: bool = False) -> int:
    """Return the size of one part; 0 if not stated. With `patient`, raise a PenstockError for an answer that
    a retry may change."""
    path, query, lines = client.get(entry)
    query = f"partNumber={number}&{query}".rstrip("&")
    connection = client.request("HEAD", path, query, lines)
    length, status, headers = connection.length, connection.status, connection.headers
    if status in (400, 401, 403):  # the keys expired, or the object has no such part
        error = client.failure(entry.key)
        if isinstance(error, ExpiredCredentialsError) or (patient and status == 403):
            raise error
        return 0
    if patient and (status in (408, 429) or status >= 500):
        where, why = client.where(entry.key), f"status {status}"
        what = "the sizes of the object's parts cannot be queried"
        raise asked_for(what, where, why, status, "", retry_after(headers))
    connection.finish()
    same = client.version(headers, entry.size) == entry.token
    return length if status in (200, 206) and same and length > 0 else 0


def bucket_of(config: SourceConfig, credentials: S3Credentials) -> Bucket:
    name, prefix = bucket_and_prefix(config.url)
    options = config.storage_options
    host = (urlsplit(credentials.endpoint).hostname or "") if credentials.endpoint else ""
    style = options.get("addressing_style")
    aws = not credentials.endpoint or host.endswith(AWS)
    # A bucket with a dot does not match the wildcard of AWS's certificates.
    path_style = style == "path" or (style != "virtual" and (not aws or "." in name))
    region, single, reach = credentials.region, single_name(config), config.reach
    reach = reach._replace(ca_bundle=reach.ca_bundle or credentials.ca_bundle)
    return Bucket(name, prefix, credentials.endpoint, region, path_style, dict(options), reach, single)


class S3Source(ObjectSource[S3Client, S3Credentials]):
    """Workers pass their parent's `credentials`. With `changed: pinned`, objects are listed with the ids of
    their newest versions, and read by these ids."""

    CHECK = "check endpoint_url, region, the bucket's name and the credentials"
    RESOLVE = staticmethod(resolve)

    def __init__(
        self,
        config: SourceConfig,
        credentials: S3Credentials | None = None,
        *,
        dataset: DatasetConfig | None = None,
        **_: object,
    ) -> None:
        secrets = credentials if credentials is not None else resolve(config)
        self.bucket = bucket_of(config, secrets)
        super().__init__(config, secrets, self.bucket.url, self.bucket.endpoint or "AWS")
        self._versions = dataset is not None and dataset.changed == "pinned"

    @property
    def origin(self) -> str:
        return f"{self.bucket.endpoint.rstrip('/').lower() or 'aws'} {self.bucket.name}"

    def client(self) -> S3Client:
        return S3Client(self.bucket, self.credentials())

    def page(self, client: S3Client, token: str, limit: int, begins: str = "") -> Objects:
        page = fetched(client, self.bucket.prefix + begins, token, limit)
        return Objects(next(listed(self.bucket, iter([page]), ordered=False), ()), page.following)

    def check(self) -> bool | None:
        """Request a page with one key, signed in the same way as later requests. With `changed: pinned`,
        require a versioned bucket, unless these credentials may not query the versioning."""
        has_objects = super().check()
        if self._versions and self.versioned() is False:
            raise PreflightError(
                "the bucket is not versioned, and `changed: pinned` reads objects by their versions",
                where=self.bucket.url,
                hint=NO_VERSIONS,
            )
        return has_objects

    def versioned(self) -> bool | None:
        """Return whether the bucket is versioned; None if these credentials may not query that."""
        with closing(self.requests()) as requests:
            try:
                answer = requests.do(lambda client: client.fetched("", "versioning="))
            except ObjectError:
                return None
        return _ENABLED.search(answer) is not None

    def _in_order(self) -> Iterator[Sequence[Listed]]:
        """List objects by several streams of pages, or versions by a single stream."""
        return self._below()

    def _unsorted(self) -> Iterator[Sequence[Listed]]:
        return self._below(ordered=False) if self._versions else self._pages()

    def _below(
        self, after: bytes = b"", upto: bytes | None = None, *, ordered: bool = True
    ) -> Iterator[Sequence[Listed]]:
        requests = self.requests()
        if self._versions:
            versions = version_pages(self.bucket, requests, after)
            return listed(self.bucket, versions, ordered=ordered, versioned=self.versioned())
        return listed(self.bucket, pages(self.bucket, requests, after, upto), twice=self._count_twice)

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        prefix = os.fsencode(self.bucket.prefix)
        begin, end = prefix + after if after else b"", None if upto is None else prefix + upto
        return between(self.either(self._below(begin, end)), after, upto)

    def version_id(self, headers: Mapping[bytes, bytes]) -> str:
        return headers.get(b"x-amz-version-id", b"").decode("latin-1") if self._versions else ""

    def reader(self) -> S3Reader:
        return S3Reader(self.client, self.credentials)

    def part_sizes(self, entry: Entry, parts: int) -> Sequence[int]:
        with closing(self.client()) as client:
            return part_sizes(client, entry, parts)


open_source = S3Source
