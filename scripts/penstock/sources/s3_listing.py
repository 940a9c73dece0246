"""Pages of ListObjectsV2, streamed: the next page is on its way while this one is parsed.

Guarantees ascending order of the keys' bytes, no key twice and none outside the prefix, or
raises: a listing that breaks its promise cannot be planned from.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes
from xml.sax.saxutils import unescape

from penstock.core.model import Listed
from penstock.errors import ExpiredCredentialsError, FailedError, TransientError
from penstock.sources.s3_client import S3Client
from penstock.sources.sigv4 import query_string

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.sources.s3_client import Bucket
    from penstock.sources.s3_credentials import S3Credentials

PAGE = 1000
PAGE_LIMIT = 64 << 20
TRIES = 6
_ENTITIES = {
    "&quot;": '"',
    "&apos;": "'",
    "&#34;": '"',
    "&#39;": "'",
    "&#xA;": "\n",
    "&#xD;": "\r",
    "&#x9;": "\t",
}
# The order in which AWS and most others write an object's fields.
_USUAL = re.compile(
    r"<Contents><Key>([^<]*)</Key><LastModified>([^<]*)</LastModified><ETag>([^<]*)</ETag>"
    r"(?:<(?:Checksum[A-Za-z]*|Type)>[^<]*</[A-Za-z]*>)*<Size>([0-9]+)</Size>"
)
_OBJECT = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_FIELD = re.compile(r"<(Key|LastModified|ETag|Size)>([^<]*)</")
_NEXT = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_TRUNCATED = re.compile(r"<IsTruncated>\s*(true|false)\s*</IsTruncated>", re.IGNORECASE)
_ENCODED = re.compile(r"<EncodingType>\s*url\s*</EncodingType>")
_QUOTES = frozenset({"&quot;", "&#34;"})
_listed = tuple.__new__
_NUMBERED = re.compile(r"&#(x[0-9A-Fa-f]+|[0-9]+);")


class Page(NamedTuple):
    """One answer, as text by os.fsdecode, and the token of the next."""

    text: str
    following: str
    """"" at the end."""


def understand(text: str, where: str) -> Page:
    """Whether and how the listing goes on.

    Raises FailedError for what is no page of a listing, TransientError for one that is cut off.
    """
    truncated = _TRUNCATED.search(text[:2000]) or _TRUNCATED.search(text, max(0, len(text) - 2000))
    truncated = truncated or _TRUNCATED.search(text)
    if "<ListBucketResult" not in text[:2000] or truncated is None:
        raise FailedError(
            "the answer is no listing", where=where, hint="check endpoint_url: is this an S3 server?"
        )
    if not text[-200:].rstrip().endswith("</ListBucketResult>"):
        raise TransientError("the listing ends in the middle of a page", where=where)
    found = _NEXT.search(text[:4000]) or _NEXT.search(text)
    following = plain(found[1]) if found else ""
    if truncated[1].lower() == "true" and not following:
        raise FailedError(
            "the listing is cut off: no token for the next page",
            where=where,
            hint="this server does not know ListObjectsV2; nothing is staged of half a listing",
        )
    return Page(text, following if truncated[1].lower() == "true" else "")


def plain(text: str) -> str:
    """XML's entities undone."""
    if "&" not in text:
        return text
    text = _NUMBERED.sub(_numbered, text)
    return unescape(text, _ENTITIES)


def _numbered(match: re.Match[str]) -> str:
    number = match[1]
    code = int(number[1:], 16) if number[0] == "x" else int(number)
    # An ampersand stays escaped here: the next step undoes it, once.
    return "&amp;" if code == 38 else chr(code) if code < 0x110000 else match[0]


def objects(text: str, where: str) -> Iterator[tuple[str, str, str, str]]:
    """Key (as encoded in the page), time, etag and size of each object."""
    count = text.count("<Contents>")
    usual = _USUAL.findall(text)
    if len(usual) == count:
        yield from usual
        return
    blocks = _OBJECT.findall(text)
    if len(blocks) != count:
        raise FailedError("the listing is malformed", where=where)
    for block in blocks:
        fields = dict(_FIELD.findall(block))
        if "Key" not in fields or not fields.get("Size", "").strip().isdigit():
            raise FailedError("the listing has an object without key or size", where=where)
        yield (
            fields["Key"],
            fields.get("LastModified", ""),
            fields.get("ETag", ""),
            fields["Size"].strip(),
        )


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
    """Fetches pages, each as soon as the one before names it, one ahead of the reader."""

    def __init__(
        self, bucket: Bucket, credentials: Callable[[], S3Credentials], renew: Callable[[], None]
    ) -> None:
        self._client = S3Client(bucket, credentials())
        self._bucket, self._credentials, self._renew = bucket, credentials, renew
        self._stop = threading.Event()

    def __iter__(self) -> Iterator[Page]:
        seen: set[int] = set()
        pool = ThreadPoolExecutor(1, thread_name_prefix="listing")
        try:
            page = self.fetch("")
            while page.following:
                if hash(page.following) in seen:
                    raise FailedError("the listing runs in a circle", where=self._bucket.url)
                seen.add(hash(page.following))
                ahead = pool.submit(self.fetch, page.following)
                yield page
                page = ahead.result()
            self._ended(page)
            yield page
        finally:
            self._stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            self._client.close()

    def _ended(self, page: Page) -> None:
        """Raises FailedError for a last page that is none: some servers cut a listing at the limit
        of a page and say nothing of it. Asked only of a last page that is full."""
        keys = [raw for raw, _, _, _ in objects(page.text, self._bucket.url)]
        if len(keys) < PAGE:
            return
        last = key_of(keys[-1], encoded(page))
        more = self.fetch("", limit=1, after=last)
        for raw, _, _, _ in objects(more.text, self._bucket.url):
            key = key_of(raw, encoded(more))
            # A server that does not know `start-after` begins anew, with a smaller key.
            if os.fsencode(key) > os.fsencode(last):
                raise FailedError(
                    f"the store cuts its listing off after {len(keys)} keys and does not say so",
                    where=self._bucket.url,
                    why=f"{key!r} is there, and was not listed",
                    hint="this server's listings cannot be trusted: upgrade it, or give narrower prefixes as "
                    "several `sources`",
                )

    def fetch(self, token: str, *, limit: int = PAGE, tries: int = TRIES, after: str = "") -> Page:
        """One page; what may pass is tried again, a few times with growing pauses."""
        renewed = False
        for attempt in range(tries):
            try:
                return self._ask(token, limit, after)
            except ExpiredCredentialsError:
                if renewed:
                    raise
                self._renew()
                renewed = True
            except TransientError as error:
                if attempt >= tries - 1:
                    raise
                pause = error.after if error.after is not None else 0.2 * 2**attempt
                if self._stop.wait(pause * random.uniform(0.8, 1.2)):  # noqa: S311 (jitter)
                    raise
        raise TransientError("listing failed again and again", where=self._bucket.url)

    def _ask(self, token: str, limit: int, after: str) -> Page:
        pairs = [("list-type", "2"), ("max-keys", str(limit)), ("encoding-type", "url")]
        if self._bucket.prefix:
            pairs.append(("prefix", self._bucket.prefix))
        if token:
            pairs.append(("continuation-token", token))
        if after:
            pairs.append(("start-after", after))
        client = self._client
        client.renew(self._credentials())
        connection = client.request("GET", "", query_string(pairs))
        if connection.status != 200:
            raise client.failure(connection)
        body = connection.read_all(PAGE_LIMIT)
        return understand(os.fsdecode(body), self._bucket.url)

    def close(self) -> None:
        self._client.close()


def encoded(page: Page) -> bool:
    """Whether the page's keys are quoted as in a URL (`encoding-type=url` was honoured)."""
    return _ENCODED.search(page.text[:4000]) is not None or _ENCODED.search(page.text) is not None


def key_of(raw: str, quoted: bool) -> str:
    """A key as it is, of how the page writes it."""
    key = plain(raw)
    if quoted and ("%" in key or "+" in key):
        key = os.fsdecode(unquote_to_bytes(key.replace("+", " ")))
    return key


def listed(bucket: Bucket, pages: Iterator[Page]) -> Iterator[Sequence[Listed]]:
    """The objects of the pages, keys relative to the prefix, one batch a page."""
    prefix = bucket.prefix
    start = len(prefix)
    last = ""
    times = Times()
    seen, modified_ns = "", 0
    for page in pages:
        encoded = _ENCODED.search(page.text[:4000]) is not None or _ENCODED.search(page.text) is not None
        batch: list[Listed] = []
        add = batch.append
        for key, modified, etag, size in objects(page.text, bucket.url):
            if "&" in key:
                key = plain(key)
            if encoded and ("%" in key or "+" in key):
                key = os.fsdecode(unquote_to_bytes(key.replace("+", " ")))
            # Text of ASCII alone is in the order of its bytes.
            if last and not (last < key if key.isascii() and last.isascii() else _bytes(last) < _bytes(key)):
                why = f"{key!r} after {last!r}"
                raise FailedError("the listing is out of order or has a key twice", where=bucket.url, why=why)
            last = key
            if not key.startswith(prefix):
                raise FailedError(
                    "the listing has a key outside of the prefix", where=bucket.url, why=repr(key)
                )
            if len(key) == start:
                continue  # the marker of the prefix itself
            if "&" in etag:
                quote = etag[: etag.find(";") + 1]
                if quote in _QUOTES and etag.endswith(quote) and etag.count("&") == 2:
                    etag = etag[len(quote) : -len(quote)]
                else:
                    etag = plain(etag).strip('"')
            else:
                etag = etag.strip('"')
            if modified != seen:
                seen, modified_ns = modified, times.nanoseconds(modified)
            add(_listed(Listed, (key[start:], int(size), etag, modified_ns, "", "")))
        if batch:
            yield batch


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
