"""Parses a page of an S3 listing of objects or versions: its objects, and the token of the next page."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.core.errors import STORE_AMISS, FailedError, TransientError
from penstock.core.human import in_quotes
from penstock.sources.http.values import decimal, plain
from penstock.sources.objects.answers import amiss, grouped

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

# The order in which AWS and most others write an object's fields.
_USUAL = re.compile(
    r"<Contents><Key>([^<]*)</Key><LastModified>([^<]*)</LastModified><ETag>([^<]*)</ETag>"
    r"(?:<(?:Checksum[A-Za-z]*|Type)>[^<]*</[A-Za-z]*>)*<Size>([0-9]{1,19})</Size>"
)
_FIELD = re.compile(r"<(Key|VersionId|IsLatest|LastModified|ETag|Size)>([^<]*)</")
_CLASS = re.compile(r"<StorageClass>\s*(\w+)\s*</StorageClass>")
# A restored copy has an expiry date; one that is still being restored has none.
_RESTORED = re.compile(r"<RestoreExpiryDate>[^<]")
_KEY = re.compile(r"<Key>([^<]*)<")
_NEXT = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_NEXT_KEY = re.compile(r"<NextKeyMarker>([^<]*)</NextKeyMarker>")
_NEXT_VERSION = re.compile(r"<NextVersionIdMarker>([^<]*)</NextVersionIdMarker>")
_TRUNCATED = re.compile(r"<IsTruncated>\s*(true|false)\s*</IsTruncated>", re.IGNORECASE)
_COUNT = re.compile(r"<KeyCount>\s*([0-9]{1,9})\s*</KeyCount>")
_ENCODED = re.compile(r"<EncodingType>\s*url\s*</EncodingType>")


class PageForm(NamedTuple):
    """How the pages of a kind of listing are written, and the words for faulty ones."""

    root: str
    element: str  # of one object
    name: str
    hint: str  # for an answer of another kind
    cut: str  # what a truncated page lacks
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
    """One answer, as text by os.fsdecode."""

    text: str
    following: (
        str  # the token of the next page, of versions its two markers with a NUL between; "" at the end
    )
    until: bytes | None = None  # later keys are another stream's
    form: PageForm = OBJECTS

    @property
    def empty(self) -> bool:
        return "<Key>" not in self.text


def understand(text: str, where: str, form: PageForm = OBJECTS) -> PageText:
    """Check a page, and find the token of the next.

    Raises FailedError for what is no page of a listing or contradicts its own count, TransientError for a
    page that is cut off.
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
    """Yield key, time, etag and size of each object in the page's order, raw (see `key_of`); for versions
    only the newest, with its id. Raises FailedError for a malformed page or an object without key or size."""
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
    """Return the keys, as encoded in the page, of objects in one of these storage classes that are not
    restored, each with its class."""
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
    """Decode a page's `raw` key; `quoted`: see `encoded`. Bytes that are not UTF-8 are kept (by
    os.fsdecode)."""
    key = plain(raw)
    if quoted and ("%" in key or "+" in key):
        key = os.fsdecode(unquote_to_bytes(key.replace("+", " ")))
    return key


def keys(page: PageText, each: int = 16) -> Iterator[bytes]:
    """Sample a page's keys: the first of every `each`."""
    quoted = encoded(page)
    for match in islice(_KEY.finditer(page.text), 0, None, each):
        yield os.fsencode(key_of(match[1], quoted))
