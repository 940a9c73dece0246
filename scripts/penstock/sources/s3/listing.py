"""A bucket's listing, streamed: the next pages are on their way while one is parsed.

Guarantees ascending order of the keys' bytes, no key twice and none outside the prefix, or
raises: a listing that breaks its promise cannot be planned from.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
from functools import partial
from itertools import repeat
from operator import lt
from typing import TYPE_CHECKING

from penstock.core.model import Listed
from penstock.errors import ExpiredCredentialsError, FailedError, TransientError
from penstock.sources.backoff import TRIES, pause_after
from penstock.sources.s3.client import S3Client
from penstock.sources.s3.listing_ranges import PAGE, Ranges
from penstock.sources.s3.page import Page, encoded, key_of, objects, plain, understand
from penstock.sources.s3.sigv4 import query_string

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.sources.s3.client import Bucket
    from penstock.sources.s3.credentials import S3Credentials

PAGE_LIMIT = 64 << 20
_QUOTES = ("&quot;", "&#34;")


class Times:
    """`2024-01-31T01:02:03.004Z` to nanoseconds since the epoch; remembers minutes."""

    def __init__(self) -> None:
        self._minutes: dict[str, int] = {}

    def nanoseconds(self, text: str) -> int:
        """0 for what is no time."""
        minute = self._minutes.get(text[:16])
        try:
            if minute is None:
                parsed = dt.datetime.fromisoformat(text[:16] + ":00+00:00")
                if len(self._minutes) > 4096:
                    self._minutes.clear()
                minute = self._minutes[text[:16]] = int(parsed.timestamp())
            fraction = text[20:-1] if text[19:20] == "." else ""
            below = int((fraction + "000000000")[:9]) if fraction else 0
            return (minute + int(text[17:19])) * 1_000_000_000 + below
        except ValueError:
            return 0


class Pages:
    """The pages of a bucket's prefix, fetched ahead of the reader. `fetch` may be called from many
    threads; each has a connection of its own."""

    def __init__(
        self, bucket: Bucket, credentials: Callable[[], S3Credentials], renew: Callable[[], None]
    ) -> None:
        self._bucket, self._credentials, self._renew = bucket, credentials, renew
        self._here = threading.local()
        self._clients: list[S3Client] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ranges = Ranges(self.fetch, self._not_cut_off, bucket.prefix, bucket.url)

    def __iter__(self) -> Iterator[Page]:
        try:
            yield from self._ranges
        finally:
            self._stop.set()
            self.close()

    def _client(self) -> S3Client:
        client = S3Client(self._bucket, self._credentials())
        with self._lock:
            self._clients.append(client)
        return client

    def _not_cut_off(self, last: str, count: int) -> None:
        """Raises FailedError when a listing of `count` keys on its last page goes on behind `last`: some
        servers cut a listing at the limit of a page and say nothing of it."""
        more = self.fetch("", last, limit=1)
        for raw, _, _, _ in objects(more.text, self._bucket.url):
            key = key_of(raw, encoded(more))
            # A server that does not know `start-after` begins anew, with a smaller key.
            if os.fsencode(key) > os.fsencode(last):
                raise FailedError(
                    f"the store cuts its listing off after {count} keys and does not say so",
                    where=self._bucket.url,
                    why=f"{key!r} is there, and was not listed",
                    hint="this server's listings cannot be trusted: upgrade it, or give narrower prefixes as "
                    "several `sources`",
                )

    def fetch(self, token: str, after: str = "", *, limit: int = PAGE, tries: int = TRIES) -> Page:
        """One page; what may pass is tried again, a few times with growing pauses."""
        renewed = False
        for attempt in range(tries):
            credentials = self._credentials()
            try:
                return self._ask(token, limit, after, credentials)
            except ExpiredCredentialsError:
                if renewed:
                    raise
                with self._lock:
                    if self._credentials() is credentials:  # no other stream was faster
                        self._renew()
                renewed = True
            except TransientError as error:
                if attempt >= tries - 1:
                    raise
                self._ranges.slower()
                if self._stop.wait(pause_after(error, attempt + 1)):
                    raise
        raise TransientError("listing failed again and again", where=self._bucket.url)

    def _ask(self, token: str, limit: int, after: str, credentials: S3Credentials) -> Page:
        pairs = [("list-type", "2"), ("max-keys", str(limit)), ("encoding-type", "url")]
        if self._bucket.prefix:
            pairs.append(("prefix", self._bucket.prefix))
        if token:
            pairs.append(("continuation-token", token))
        if after:
            pairs.append(("start-after", after))
        return understand(self._get(pairs, credentials), self._bucket.url)

    def _get(self, pairs: list[tuple[str, str]], credentials: S3Credentials) -> str:
        """What the bucket itself answers, by this thread's connection."""
        client: S3Client | None = getattr(self._here, "client", None)
        if client is None:
            client = self._here.client = self._client()
        client.renew(credentials)
        connection = client.request("GET", "", query_string(pairs))
        if connection.status != 200:
            raise client.failure(connection)
        return os.fsdecode(connection.read_all(PAGE_LIMIT))

    def close(self) -> None:
        with self._lock:
            for client in self._clients:
                client.close()
            self._clients.clear()


def listed(bucket: Bucket, pages: Iterator[Page]) -> Iterator[Sequence[Listed]]:
    """The objects of the pages, keys relative to the prefix, one batch a page."""
    last = ""
    times = Times()
    for page in pages:
        rows = list(objects(page.text, bucket.url))
        batch = None if page.until is not None else _plain_batch(bucket, rows, last, times)
        if batch is None:
            batch, last = _batch(bucket, page, rows, last, times)
        elif rows:
            last = rows[-1][0]
        if batch:
            yield batch


def first(page: Page, where: str) -> Listed | None:
    """The first object of a page, with its whole key."""
    for raw, modified, etag, size in objects(page.text, where):
        key = key_of(raw, encoded(page))
        return Listed(key, int(size), plain(etag).strip('"'), Times().nanoseconds(modified))
    return None


def _plain_batch(
    bucket: Bucket, rows: Sequence[tuple[str, str, str, str]], last: str, times: Times
) -> list[Listed] | None:
    """The whole page column by column, a third of the time, when it is as most are: keys of ASCII with
    nothing to be undone, in order and below the prefix, each etag between quotes. Else None."""
    if not rows:
        return []
    keys, modified, etags, sizes = zip(*rows, strict=True)
    text, quoted, prefix = "".join(keys), "\n".join(etags), bucket.prefix
    if not text.isascii() or not last.isascii() or "%" in text or "+" in text or "&" in text:
        return None
    if not (last < keys[0] and all(map(lt, keys, keys[1:]))):
        return None
    # In order, so all others lie between these two.
    if not keys[0].startswith(prefix) or not keys[-1].startswith(prefix) or keys[0] == prefix:
        return None
    quote = next((form for form in _QUOTES if quoted.startswith(form)), "")
    tags = quoted[len(quote) : -len(quote)].split(f"{quote}\n{quote}") if quote else []
    if len(tags) != len(rows) or not quoted.endswith(quote) or quoted.count("&") != 2 * len(rows):
        return None
    if "\n" in "".join(tags):
        return None
    known = {each: times.nanoseconds(each) for each in set(modified)}
    names = [key[len(prefix) :] for key in keys] if prefix else keys
    none = repeat("")
    columns = zip(names, map(int, sizes), tags, map(known.__getitem__, modified), none, none, strict=False)
    return list(map(partial(tuple.__new__, Listed), columns))


def _batch(
    bucket: Bucket, page: Page, rows: Sequence[tuple[str, str, str, str]], last: str, times: Times
) -> tuple[list[Listed], str]:
    """The same for any page, key by key, and the last key. Raises FailedError for a listing out of order
    or beside the prefix."""
    prefix, quoted, until = bucket.prefix, encoded(page), page.until
    batch: list[Listed] = []
    for raw, modified, etag, size in rows:
        key = key_of(raw, quoted)
        if until is not None and _bytes(key) > until:
            break
        if last and not _bytes(last) < _bytes(key):
            why = f"{key!r} after {last!r}"
            raise FailedError("the listing is out of order or has a key twice", where=bucket.url, why=why)
        last = key
        if not key.startswith(prefix):
            raise FailedError("the listing has a key outside of the prefix", where=bucket.url, why=repr(key))
        if key == prefix:
            continue  # the marker of the prefix itself
        tag = plain(etag).strip('"')
        batch.append(Listed(key[len(prefix) :], int(size), tag, times.nanoseconds(modified), "", ""))
    return batch, last


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
