"""One page of ListObjectsV2, as S3 and what speaks its protocol write it: its objects, and the token of the
next page. Pure; `s3.listing` and `s3.listing_ranges` fetch the pages."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.core.errors import STORE_AMISS, FailedError, TransientError
from penstock.core.text import in_quotes
from penstock.sources.decimals import decimal
from penstock.sources.objects.xml_text import plain

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

# The order in which AWS and most others write an object's fields.
_USUAL = re.compile(
    r"<Contents><Key>([^<]*)</Key><LastModified>([^<]*)</LastModified><ETag>([^<]*)</ETag>"
    r"(?:<(?:Checksum[A-Za-z]*|Type)>[^<]*</[A-Za-z]*>)*<Size>([0-9]{1,19})</Size>"
)
_OBJECT = re.compile(r"<Contents>(.*?)</Contents>", re.DOTALL)
_FIELD = re.compile(r"<(Key|LastModified|ETag|Size)>([^<]*)</")
_CLASS = re.compile(r"<StorageClass>\s*(\w+)\s*</StorageClass>")
# A copy that can be read has a date at which it goes; while it is being restored there is none.
_RESTORED = re.compile(r"<RestoreExpiryDate>[^<]")
_KEY = re.compile(r"<Key>([^<]*)<")
_NEXT = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_TRUNCATED = re.compile(r"<IsTruncated>\s*(true|false)\s*</IsTruncated>", re.IGNORECASE)
_ENCODED = re.compile(r"<EncodingType>\s*url\s*</EncodingType>")


class PageText(NamedTuple):
    """One answer, as text by os.fsdecode, and the token of the next."""

    text: str
    following: str
    """"" at the end."""
    until: bytes | None = None
    """Keys behind this one are another stream's."""

    @property
    def empty(self) -> bool:
        return "<Key>" not in self.text


def understand(text: str, where: str) -> PageText:
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
    return PageText(text, following if truncated[1].lower() == "true" else "")


def objects(text: str, where: str) -> Iterator[tuple[str, str, str, str]]:
    """Key, time, etag and size of each object in the page's order, all as they are written there (see
    `key_of`). Raises FailedError for a malformed page or an object without key or size."""
    count = text.count("<Contents>")
    usual = _USUAL.findall(text)
    if len(usual) == count:
        yield from usual
        return
    blocks = _OBJECT.findall(text)
    if len(blocks) != count:
        raise FailedError("the listing is malformed", where=where, hint=STORE_AMISS)
    for block in blocks:
        fields = dict(_FIELD.findall(block))
        size = fields.get("Size", "").strip()
        if "Key" not in fields or decimal(size) is None:
            why = (
                f"{in_quotes(plain(fields['Key']))} has the size {in_quotes(size[:40])}"
                if "Key" in fields
                else "no key"
            )
            raise FailedError(
                "the listing has an object without key or size", where=where, why=why, hint=STORE_AMISS
            )
        yield (
            fields["Key"],
            fields.get("LastModified", ""),
            fields.get("ETag", ""),
            size,
        )


def archived(text: str, archives: Container[str], block: str = "Contents") -> dict[str, str]:
    """Of the objects of a page that are in one of these storage classes and not restored, each key, as
    encoded in the page, with its class."""
    classes = {}
    for element in re.findall(rf"<{block}>(.*?)</{block}>", text, re.DOTALL):
        stored, key = _CLASS.search(element), _KEY.search(element)
        if stored and key and stored[1] in archives and not _RESTORED.search(element):
            classes[key[1]] = stored[1]
    return classes


def encoded(page: PageText) -> bool:
    """Whether the page's keys are quoted as in a URL (`encoding-type=url` was honoured)."""
    return _ENCODED.search(page.text[:4000]) is not None or _ENCODED.search(page.text) is not None


def key_of(raw: str, quoted: bool) -> str:
    """The key that the page writes as `raw`; `quoted`: see `encoded`. A byte that is not UTF-8 is kept (by
    os.fsdecode)."""
    key = plain(raw)
    if quoted and ("%" in key or "+" in key):
        key = os.fsdecode(unquote_to_bytes(key.replace("+", " ")))
    return key


def keys(page: PageText, each: int = 16) -> Iterator[bytes]:
    """A sample of a page's keys, in the page's order: the first of every `each`."""
    quoted = encoded(page)
    for match in islice(_KEY.finditer(page.text), 0, None, each):
        yield os.fsencode(key_of(match[1], quoted))
