"""Parses a page of a listing of objects or of versions, as S3 and compatible stores write it. Also lists by
several streams of pages at once, and yields their pages in order.
"""

from __future__ import annotations

import os
import re
import threading
import time
from bisect import bisect_left
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from os import fsdecode, fsencode
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.core.errors import STORE_AMISS, FailedError, TransientError
from penstock.core.human import in_quotes
from penstock.host import waits
from penstock.sources.http_values import decimal, plain
from penstock.sources.listing_order import endless
from penstock.sources.object_answers import amiss, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator


# The order in which AWS and most others write an object's fields.
_USUAL = re.compile(
    r"<Contents><Key>([^<]*)</Key><LastModified>([^<]*)</LastModified><ETag>([^<]*)</ETag>"
    r"(?:<(?:Checksum[A-Za-z]*|Type)>[^<]*</[A-Za-z]*>)*<Size>([0-9]{1,19})</Size>"
)
_FIELD = re.compile(r"<(Key|VersionId|IsLatest|LastModified|ETag|Size)>([^<]*)</")
_CLASS = re.compile(r"<StorageClass>\s*(\w+)\s*</StorageClass>")
# An archived object's restored copy has an expiry date; a copy that is still being restored has none.
_RESTORED = re.compile(r"<RestoreExpiryDate>[^<]")
_KEY = re.compile(r"<Key>([^<]*)<")
_NEXT = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_NEXT_KEY = re.compile(r"<NextKeyMarker>([^<]*)</NextKeyMarker>")
_NEXT_VERSION = re.compile(r"<NextVersionIdMarker>([^<]*)</NextVersionIdMarker>")
_TRUNCATED = re.compile(r"<IsTruncated>\s*(true|false)\s*</IsTruncated>", re.IGNORECASE)
_COUNT = re.compile(r"<KeyCount>\s*([0-9]{1,9})\s*</KeyCount>")
_ENCODED = re.compile(r"<EncodingType>\s*url\s*</EncodingType>")


class PageForm(NamedTuple):
    """How the pages of one kind of listing are written, and the words for faulty pages."""

    root: str
    element: str  # the name of the XML element for one object
    name: str
    hint: str  # the hint of the error for an answer that is no such page
    cut: str  # the error's words for what a truncated page without `following` lacks
    cut_hint: str


OBJECTS = PageForm(
    "ListBucketResult", "Contents", "listing", "check endpoint_url: is this an S3 server?",
    "no token for the next page",
    "this server does not know ListObjectsV2; nothing is staged of half a listing",
)  # fmt: skip
VERSIONS = PageForm(
    "ListVersionsResult", "Version", "listing of versions",
    "this store may not know ListObjectVersions: write `changed: follow` or `changed: refuse`",
    "no marker of the next page", STORE_AMISS,
)  # fmt: skip


class PageText(NamedTuple):
    """One page of a listing, as text by os.fsdecode."""

    text: str
    # the next page's token (for versions: two markers with a NUL between them); "" on the last page
    following: str
    # the last key that counts on this page, since another stream lists later keys; None: all keys count
    until: bytes | None = None
    form: PageForm = OBJECTS

    @property
    def empty(self) -> bool:
        return "<Key>" not in self.text


def understand(text: str, where: str, form: PageForm = OBJECTS) -> PageText:
    """Check a page, and find the token of the next page.

    Raises FailedError for text that is no page of a listing, or contradicts its own count. Raises
    TransientError for a page that is cut off.
    """
    truncated = _TRUNCATED.search(text[:2000]) or _TRUNCATED.search(text, max(0, len(text) - 2000))
    truncated = truncated or _TRUNCATED.search(text)
    if f"<{form.root}" not in text[:2000] or truncated is None:
        raise FailedError(f"the answer is no {form.name}", where=where, hint=form.hint)
    if not text[-200:].rstrip().endswith(f"</{form.root}>"):
        raise TransientError("the listing ends in the middle of a page", where=where)
    following = ""
    if truncated[1].lower() == "true":
        following = _version_marker(text) if form is VERSIONS else _continuation(text)
        if not following:
            raise FailedError(f"the listing is cut off: {form.cut}", where=where, hint=form.cut_hint)
    if "<CommonPrefixes>" in text:
        raise grouped(where)
    stated, count = _COUNT.search(text[:4000]), text.count(f"<{form.element}>")
    if stated and int(stated[1]) > count:
        raise amiss("lacks objects", where, f"a page states {stated[1]} and holds {count}")
    return PageText(text, following, form=form)


def _continuation(text: str) -> str:
    match = _NEXT.search(text[:4000]) or _NEXT.search(text)
    return plain(match[1]) if match else ""


def _version_marker(text: str) -> str:
    key, version = _NEXT_KEY.search(text), _NEXT_VERSION.search(text)
    if key is None:
        return ""
    return f"{key_of(key[1], encoded(PageText(text, '')))}\0{plain(version[1]) if version else ''}"


def objects(text: str, where: str, form: PageForm = OBJECTS) -> Iterator[tuple[str, ...]]:
    """Yield key (raw, see `key_of`), time, etag and size of each object in the page's order. Of versions,
    yield only each object's newest, with its id. Raises FailedError for a malformed page or an object without
    key or size."""
    count = text.count(f"<{form.element}>")
    usual = _USUAL.findall(text) if form is OBJECTS else []
    if form is OBJECTS and len(usual) == count:
        yield from usual
        return
    blocks = _blocks(text, form.element)
    if len(blocks) != count:
        raise amiss("is malformed", where)
    for block in blocks:
        fields = dict(_FIELD.findall(block))
        if form is VERSIONS and fields.get("IsLatest", "").strip().lower() != "true":
            continue
        size = fields.get("Size", "").strip()
        if "Key" not in fields or decimal(size) is None:
            key = f"{in_quotes(plain(fields['Key']))} has the size" if "Key" in fields else ""
            why = f"{key} {in_quotes(size[:40])}" if key else "no key"
            raise amiss("has an object without key or size", where, why)
        row = (fields["Key"], fields.get("LastModified", ""), fields.get("ETag", ""), size)
        yield row if form is OBJECTS else (*row, fields.get("VersionId", ""))


def _blocks(text: str, element: str) -> list[str]:
    return re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)


def archived(page: PageText, archives: Container[str]) -> dict[str, str]:
    """Return the page's objects that are in one of these storage classes and not restored, as {key as encoded
    in the page: class}."""
    classes = {}
    for element in _blocks(page.text, page.form.element):
        stored, key = _CLASS.search(element), _KEY.search(element)
        if stored and key and stored[1] in archives and not _RESTORED.search(element):
            classes[key[1]] = stored[1]
    return classes


def encoded(page: PageText) -> bool:
    """Return whether the page's keys are URL-quoted (`encoding-type=url` was honoured)."""
    return _ENCODED.search(page.text[:4000]) is not None or _ENCODED.search(page.text) is not None


def key_of(raw: str, quoted: bool) -> str:
    """Decode a page's `raw` key. `quoted` is the result of `encoded`. Bytes that are not UTF-8 are kept, as
    os.fsdecode does."""
    key = plain(raw)
    if quoted and ("%" in key or "+" in key):
        key = os.fsdecode(unquote_to_bytes(key.replace("+", " ")))
    return key


def keys(page: PageText, each: int = 16) -> Iterator[bytes]:
    """Sample a page's keys: yield the first of every `each` consecutive keys."""
    quoted = encoded(page)
    for match in islice(_KEY.finditer(page.text), 0, None, each):
        yield os.fsencode(key_of(match[1], quoted))


# Lists by several streams of pages at once, and yields the pages in order.
#
# Each page names the next page, so a single stream waits a round trip for each page. While the reader (the
# caller of the iterator) waits, the remaining keys are split. Another stream then begins after a guessed
# middle key (`start-after`), and the split stream ends at that key. If no keys follow the middle, the next
# guess is a smaller key. The ranges adjoin without gaps, so each key is listed once. `Letters` halves the
# space of keys by reading them as numbers.
#
# At most `AHEAD` pages of each stream wait for the reader; at most `RATE` requests begin in a second. There
# is only one stream if the listing has few pages, the reader is slow, the store ignores `start-after`, or the
# keys' middle cannot be guessed (few ASCII characters).

DIGITS = 10  # characters, after the common prefix of two keys, that are read as a number
_DECIMALS = frozenset(b"0123456789")


class Letters:
    """The ASCII characters seen in keys. They serve as digits: `_position` reads a key as a number, so that
    ranges of keys can be halved."""

    def __init__(self) -> None:
        self._characters: set[int] = set()
        self._sorted: list[int] = []

    def see(self, key: bytes) -> None:
        new = {byte for byte in key if 32 < byte < 127} - self._characters
        if new:
            if new & _DECIMALS:
                new |= _DECIMALS  # if one decimal digit was seen, the other nine will probably follow
            self._characters |= new
            self._sorted = sorted(self._characters)

    def between(self, low: bytes, high: bytes | None, prefix: bytes) -> bytes | None:
        """Return a key strictly between `low` and `high` (None: the end of `prefix`), near the middle, in
        valid UTF-8, and as short as possible. Return None if no key lies between, or the guess failed."""
        common = _common_prefix(low, high, prefix)
        middle = (self._position(low, len(common)) + self._end(high, len(common))) // 2
        base = len(self._sorted) + 1
        key = bytearray(common)
        for place in reversed(range(DIGITS)):
            digit = middle // base**place % base
            if not digit:
                return None
            key.append(self._sorted[digit - 1])
            if low < key and (high is None or key < high):
                return bytes(key) if _is_text(key) else None
        return None

    def fraction_passed(self, low: bytes, at: bytes, high: bytes | None, prefix: bytes) -> float:
        """Estimate which fraction (0 to 1) of the keys from `low` to `high` lies before `at`."""
        common = _common_prefix(low, high, prefix)
        begin, end = self._position(low, len(common)), self._end(high, len(common))
        return (self._position(at, len(common)) - begin) / (end - begin) if end > begin else 1.0

    def _end(self, key: bytes | None, skip: int) -> int:
        return (len(self._sorted) + 1) ** DIGITS if key is None else self._position(key, skip)

    def _position(self, key: bytes, skip: int) -> int:
        """Read the characters after the first `skip` as a number, in which digit 0 means the key's end."""
        letters = self._sorted
        value = 0
        for place in range(skip, skip + DIGITS):
            digit = 0
            if place < len(key):
                digit = bisect_left(letters, key[place])
                digit += digit < len(letters) and letters[digit] == key[place]
            value = value * (len(letters) + 1) + digit
        return value


def _common_prefix(low: bytes, high: bytes | None, prefix: bytes) -> bytes:
    if high is None:
        return prefix
    for place, (ours, theirs) in enumerate(zip(low, high, strict=False)):
        if ours != theirs:
            return low[:place]
    return low[: len(high)]


def _is_text(key: bytes | bytearray) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


PAGE = 1000  # keys requested for a page
STREAMS = 16  # streams at once, at most
AHEAD = 4  # pages of each stream that may wait for the reader, at most: some 20 MiB for all streams
RATE = 1000.0  # requests that begin in a second, at most: a fifth of S3's limit for one prefix
SPLIT_AFTER = 0.015  # seconds for which the reader waits before another stream is added
GUESSES = 16  # number of failed guesses that is always allowed; each further one needs four useful pages


class _Range:
    """The keys with `after` < key <= `upper` (None: to the end)."""

    def __init__(self, after: bytes, upper: bytes | None, top: bytes | None) -> None:
        self.after, self.upper = after, upper
        self.top = top  # the key after which no key is expected: `upper`, or a failed guess below it
        self.pages: deque[tuple[PageText, bytes]] = deque()  # pages, each with its last key
        self.token = ""
        self.tokens: set[int] = set()
        self.first, self.last = after, after
        self.landed = 0
        self.busy = self.guessing = self.ended = False
        self.dried = -1  # number of keys on the page that the store marked as the last; -1 before that page


class Ranges:
    """Iterates once over the pages with `after` < key <= `upto` (None: to the end).

    `fetch(token, after)` is called from many threads. `confirm(last, count)` checks a page of `count` keys
    that claims to end the listing at `last`, and raises if more keys follow.
    """

    def __init__(
        self, fetch: Callable[[str, str], PageText], confirm: Callable[[str, int], None], prefix: str,
        where: str, after: bytes = b"", upto: bytes | None = None,
    ) -> None:  # fmt: skip
        self._fetch, self._confirm, self._where = fetch, confirm, where
        self._prefix = fsencode(prefix)
        self._letters = Letters()
        self._ranges: deque[_Range] = deque([_Range(after, upto, upto)])
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._want, self._most, self._active = 1, STREAMS, 0
        self._waiting = 0  # number of pages that the reader has not taken
        self._useful = self._vain = 0
        self._splits = True
        self._slot = 0.0
        self._empty = 0  # number of consecutive pages without a key

    def __iter__(self) -> Iterator[PageText]:
        pool = ThreadPoolExecutor(STREAMS, thread_name_prefix="listing")
        try:
            while (page := self._next(pool)) is not None:
                yield page
        finally:
            with self._changed:
                self._ended.set()
            waits.shut_down(pool)

    # The reader's side -----------------------------------------------------------------------

    def _next(self, pool: ThreadPoolExecutor) -> PageText | None:
        while self._ranges:
            with waits.interruptible(), self._changed:
                front = self._ranges[0]
                page = self._front_page(pool, front)
            if page is not None:
                return page
            # Some stores end a listing at the limit of a page without saying so. Also, the last page of a
            # range is not the listing's last page while another range follows.
            if front.dried >= PAGE or (front.dried >= 0 and front.upper is not None):
                pool.submit(self._confirm, fsdecode(front.last), front.dried).result()
        return None

    def _front_page(self, pool: ThreadPoolExecutor, front: _Range) -> PageText | None:
        """Return the next page of the front range. If the range is finished, remove it and return None."""
        patience = 0
        while True:
            if self._error is not None:
                raise self._error
            if front.pages:
                self._waiting -= 1
                page, last = front.pages.popleft()
                self._assign(pool)
                beyond = front.upper is not None and last > front.upper
                return page._replace(until=front.upper) if beyond else page
            if front.ended and not front.busy:
                self._ranges.popleft()
                return None
            self._assign(pool)
            if not self._changed.wait(SPLIT_AFTER) and self._splits:
                patience += 1
                self._want = min(self._most, self._want + 1 if patience == 1 else self._want * 2)

    # The assignment of requests --------------------------------------------------------------

    def _assign(self, pool: ThreadPoolExecutor) -> None:
        while self._active < self._want and self._send_next(pool):
            self._active += 1

    def _send_next(self, pool: ThreadPoolExecutor) -> bool:
        """Send one request for the range that the reader needs first, from front to back. Request the range's
        next page or, while that is under way, a guess that splits the range. Return False if there is no
        request to send."""
        room = self._waiting + self._active < AHEAD * self._want
        guesses = self._splits and self._vain <= GUESSES + self._useful // 4
        for place, span in enumerate(self._ranges):
            if span.ended or not (room or (place == 0 and not span.pages)):
                continue
            if not span.busy:
                span.busy = True
                pool.submit(self._request, pool, span, span.token)
                return True
            if guesses and span.landed and not span.guessing and (middle := self._middle(span)) is not None:
                span.guessing = True
                pool.submit(self._request, pool, span, "", middle)
                return True
        return False

    def _middle(self, span: _Range) -> bytes | None:
        if span.landed > 1 and span.top is not None:
            passed = self._letters.fraction_passed(span.first, span.last, span.top, self._prefix)
            if passed > 0 and span.landed * (1 - passed) / passed < 3:
                return None  # too few keys to split: hardly three pages are left
        return self._letters.between(span.last, span.top, self._prefix)

    # The streams' side -----------------------------------------------------------------------

    def _request(
        self, pool: ThreadPoolExecutor, span: _Range, token: str, middle: bytes | None = None
    ) -> None:
        """Fetch a range's next page, or with `middle` a guess that splits the range."""
        try:
            page = self._asked(token, "" if token else fsdecode(span.after if middle is None else middle))
            with self._changed:
                if middle is None:
                    span.busy = False
                    self._land(span, page)
                else:
                    span.guessing = False
                    self._split(span, middle, page)
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            with self._changed:
                self._error = self._error or error
        with self._changed:
            self._active -= 1
            if not self._ended.is_set() and self._error is None:
                self._assign(pool)
            self._changed.notify_all()

    def _asked(self, token: str, after: str) -> PageText:
        with self._changed:
            now = time.monotonic()
            self._slot = max(self._slot + 1 / RATE, now)
            pause = self._slot - now
        if self._ended.wait(pause) if pause > 0 else self._ended.is_set():
            raise TransientError("nobody reads the listing any more", where=self._where)
        return self._fetch(token, after)

    def slower(self) -> None:
        """Halve the streams after the store reported overload."""
        with self._changed:
            self._most = max(1, self._most // 2)
            self._want = min(self._want, self._most)

    def _land(self, span: _Range, page: PageText) -> None:
        ends = _ends(page)
        self._empty = 0 if ends is not None else self._empty + 1
        if (error := endless(self._empty, self._where)) is not None:
            self._error = error
            return
        if page.following:
            if hash(page.following) in span.tokens:
                self._error = FailedError("the listing runs in a circle", where=self._where, hint=STORE_AMISS)
                return
            span.tokens.add(hash(page.following))
        else:
            span.ended, span.dried = True, page.text.count("<Contents>")
        span.token = page.following
        if ends is not None:
            first, last = ends
            for key in (first, last) if self._useful else (first, last, *keys(page)):
                self._letters.see(key)
            span.first = span.first if span.landed else first
            span.last = last
            span.landed += 1
            if span.upper is not None and last > span.upper:
                span.ended, span.dried = True, -1
                if first > span.upper:
                    return
        self._useful += 1
        self._waiting += 1
        span.pages.append((page, span.last))

    def _split(self, span: _Range, middle: bytes, page: PageText) -> None:
        ends = _ends(page)
        if ends is not None and ends[0] <= middle:
            self._splits, self._want = False, 1  # the store ignores `start-after`
            return
        if span.ended or span.last >= middle:
            self._vain += 1  # the guess came too late
            return
        if ends is None or (span.upper is not None and ends[0] > span.upper):
            self._vain += 1
            span.top = middle
            return
        new = _Range(middle, span.upper, span.top)
        span.upper = span.top = middle
        self._ranges.insert(self._ranges.index(span) + 1, new)
        self._land(new, page)


def _ends(page: PageText) -> tuple[bytes, bytes] | None:
    text = page.text
    begin, end = text.find("<Key>") + 5, text.rfind("<Key>") + 5
    if begin < 5:
        return None
    quoted = encoded(page)
    first = key_of(text[begin : text.index("<", begin)], quoted)
    return fsencode(first), fsencode(key_of(text[end : text.index("<", end)], quoted))
