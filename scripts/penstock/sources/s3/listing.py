"""A bucket's listing, streamed: further pages are fetched while one is parsed.

Guarantees keys in ascending order of their bytes, no key twice, and none outside the prefix. A listing that
breaks one of these rules raises FailedError, since a plan made of it would lack files or have them twice; an
object that is listed again and alike in all is counted and left out. For
a caller that sorts (`listed` without `ordered`) the last of the three is checked alone.

Sends requests to the bucket, `Pages` from threads of its own, and writes nothing. `s3.source` lists by it;
`s3.versions`, which lists a bucket's versions, sends its requests by `answer` and `with_restores`.
"""

from __future__ import annotations

import os
from operator import lt
from typing import TYPE_CHECKING

from penstock.core.errors import STORE_AMISS, ExpiredCredentialsError, FailedError
from penstock.core.model import Listed
from penstock.core.row_codec import filled
from penstock.core.text import in_quotes
from penstock.sources.external_sort import disorder
from penstock.sources.http.dates import stated_time
from penstock.sources.http.quoting import query_string
from penstock.sources.objects.xml_text import plain
from penstock.sources.s3.client import ARCHIVES
from penstock.sources.s3.listing_ranges import PAGE, Ranges
from penstock.sources.s3.page import PageText, archived, encoded, key_of, objects, understand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.core.errors import PenstockError
    from penstock.sources.objects.pages import Requests
    from penstock.sources.s3.client import Bucket, S3Client

PAGE_LIMIT = 64 << 20
"""Bytes of a page, at most."""
_QUOTES = ("&quot;", "&#34;")


class Pages:
    """The pages of a bucket's prefix, fetched ahead of the reader. `fetch` may be called from many threads.
    `requests` are closed at the end. `after` and `upto` are whole keys: see `Ranges`."""

    def __init__(
        self, bucket: Bucket, requests: Requests[S3Client], after: bytes = b"", upto: bytes | None = None
    ) -> None:
        self._bucket, self._requests = bucket, requests
        self._ranges = Ranges(self.fetch, self._not_cut_off, bucket.prefix, bucket.url, after, upto)

    def __iter__(self) -> Iterator[PageText]:
        try:
            yield from self._ranges
        finally:
            self._requests.close()

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
                    why=f"{in_quotes(key)} is there, and was not listed",
                    hint="this server's listings cannot be trusted: upgrade it, or give narrower prefixes as "
                    "several `sources`",
                )

    def fetch(self, token: str, after: str = "", *, limit: int = PAGE) -> PageText:
        """One page. Transient errors are retried a few times, with growing pauses."""
        return self._requests.do(
            lambda client: fetched(client, self._bucket.prefix, token, limit, after), failed=self._failed
        )

    def _failed(self, error: PenstockError) -> None:
        if not isinstance(error, ExpiredCredentialsError):
            self._ranges.slower()


def fetched(client: S3Client, prefix: str, token: str, limit: int, after: str = "") -> PageText:
    """One page of the keys below a prefix, by one request."""
    pairs = [("list-type", "2"), ("max-keys", str(limit)), ("encoding-type", "url")]
    if prefix:
        pairs.append(("prefix", prefix))
    if token:
        pairs.append(("continuation-token", token))
    if after:
        pairs.append(("start-after", after))
    return understand(with_restores(client, pairs), client.url)


def with_restores(client: S3Client, pairs: Sequence[tuple[str, str]]) -> str:
    """`answer`; where a page has archived objects, it and the pages after it also state which of these are
    restored for a time."""
    text = answer(client, pairs)
    if client.asks_for_restores or not _any_archived(text):
        return text
    client.ask_for_restores()
    return answer(client, pairs)


def _any_archived(text: str) -> bool:
    return any(f"{stored}</StorageClass>" in text for stored in ARCHIVES)


def mark_archived(
    bucket: Bucket, page: PageText, batch: Sequence[Listed], block: str = "Contents"
) -> Sequence[Listed]:
    """The same objects, with the class of those that are archived."""
    if not _any_archived(page.text):
        return batch
    quoted, begin = encoded(page), len(bucket.prefix)
    held = {key_of(raw, quoted)[begin:]: it for raw, it in archived(page.text, ARCHIVES, block).items()}
    return [one._replace(archived=held[one.key]) if one.key in held else one for one in batch]


def answer(client: S3Client, pairs: Sequence[tuple[str, str]]) -> str:
    """What the bucket itself answers to a query, as text by os.fsdecode. Raises the error of
    `client.failure` for every status but 200."""
    connection = client.request("GET", "", query_string(pairs))
    if connection.status != 200:
        raise client.failure()
    return os.fsdecode(connection.read_all(PAGE_LIMIT))


def listed(
    bucket: Bucket,
    pages: Iterator[PageText],
    *,
    ordered: bool = True,
    twice: Callable[[int], None] = lambda _: None,
) -> Iterator[Sequence[Listed]]:
    """The objects of the pages, keys relative to the prefix, one batch a page; no batch for a page without
    objects. The marker of the prefix itself is left out. Without `ordered` keys come as the store sends them,
    in any order and perhaps twice. `twice`: see `pages.ascending`. Raises FailedError for a malformed page,
    and as the module says."""
    last, tail = "", None
    for page in pages:
        rows = list(objects(page.text, bucket.url))
        batch = None if page.until is not None else _plain_batch(bucket, rows, last, ordered=ordered)
        if batch is None:
            batch, last = _batch(bucket, page, rows, last, tail, twice, ordered=ordered)
        elif rows:
            last, *_ = rows[-1]
        if batch:
            tail = batch[-1]
            yield mark_archived(bucket, page, batch)


def _plain_batch(
    bucket: Bucket, rows: Sequence[tuple[str, str, str, str]], last: str, *, ordered: bool
) -> list[Listed] | None:
    """The objects of a page, column by column, in a third of the time of `_batch`. None for a page that is
    not as most are: ASCII keys without escapes, in order and below the prefix, each etag between quotes."""
    if not rows:
        return []
    keys, modified, etags, sizes = zip(*rows, strict=True)
    text, quoted, prefix = "".join(keys), "\n".join(etags), bucket.prefix
    if not text.isascii() or not last.isascii() or "%" in text or "+" in text or "&" in text:
        return None
    if ordered:
        if not (last < keys[0] and all(map(lt, keys, keys[1:]))):
            return None
        # The keys are in order, so all others lie between the first and the last.
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
    known = {each: stated_time(plain(each), bucket.url) for each in set(modified)}
    names = [key[len(prefix) :] for key in keys] if prefix else keys
    columns = {
        "key": names,
        "size": list(map(int, sizes)),
        "token": tags,
        "modified_ns": list(map(known.__getitem__, modified)),
    }
    return filled(Listed, columns, len(rows))


def _batch(
    bucket: Bucket,
    page: PageText,
    rows: Sequence[tuple[str, str, str, str]],
    last: str,
    tail: Listed | None,
    twice: Callable[[int], None],
    *,
    ordered: bool,
) -> tuple[list[Listed], str]:
    """The objects of any page, key by key, and the last key; `tail` is the object before them. Raises
    FailedError for keys that are out of order or outside the prefix."""
    prefix, quoted, until = bucket.prefix, encoded(page), page.until
    batch: list[Listed] = []
    before = last
    for raw, modified, etag, size in rows:
        key = key_of(raw, quoted)
        again = ordered and key == before
        if ordered and before and not again and not _bytes(before) < _bytes(key):
            raise disorder(key, before, bucket.url)
        before = key
        if until is not None and _bytes(key) > until:
            continue  # another stream's; that it is in order is what the ranges rest on
        last = key
        if not key.startswith(prefix):
            raise FailedError(
                "the listing has a key outside of the prefix",
                where=bucket.url,
                why=in_quotes(key),
                hint=STORE_AMISS,
            )
        if key == prefix:
            continue  # the marker of the prefix itself
        tag = plain(etag).strip('"')
        item = Listed(key[len(prefix) :], int(size), tag, stated_time(plain(modified), bucket.url), "", "")
        if not again:
            batch.append(item)
        elif item != tail:
            raise disorder(key, key, bucket.url)
        else:
            twice(1)
        tail = item
    return batch, last


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
