"""One page of List Blobs, as Azure and what speaks its protocol write it. Pure; `azure.source` fetches the
pages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from penstock.core.errors import STORE_AMISS, FailedError, TransientError
from penstock.core.model import Listed
from penstock.core.text import in_quotes
from penstock.sources.decimals import decimal
from penstock.sources.http.dates import stated_time
from penstock.sources.objects.pages import Objects
from penstock.sources.objects.xml_text import plain

if TYPE_CHECKING:
    from penstock.sources.azure.account import BlobPrefix

ARCHIVE = "Archive"
"""The access tier whose blobs cannot be read; one that is being rehydrated is in it until it can."""
_BLOB = re.compile(r"<Blob>(.*?)</Blob>", re.DOTALL)
_NAME = re.compile(r"\s*<Name( Encoded=\"true\")?>([^<]*)</Name>")
_FIELD = re.compile(r"<(Last-Modified|Etag|Content-Length|AccessTier)>([^<]*)</")
# A blob that stands for a folder, as hierarchical accounts and Hadoop's drivers write them.
_FOLDER = re.compile(r"<hdi_isfolder>\s*true\s*</", re.IGNORECASE)
_NEXT = re.compile(r"<NextMarker>([^<]*)</NextMarker>")


def understand(text: str, place: BlobPrefix) -> Objects:
    """The blobs of a page, keys relative to the prefix, and the marker of the next one.

    Raises FailedError for what is no page of a listing, TransientError for one that is cut off.
    """
    if "<EnumerationResults" not in text[:2000]:
        raise FailedError(
            "the answer is no listing", where=place.url, hint="check the account and endpoint_url"
        )
    if not text[-200:].rstrip().endswith("</EnumerationResults>"):
        raise TransientError("the listing ends in the middle of a page", where=place.url)
    rows: list[Listed] = []
    markers = 0
    dates: dict[str, int] = {}
    blobs = _BLOB.findall(text)
    if len(blobs) != text.count("<Blob>"):
        raise FailedError("the listing is malformed", where=place.url, hint=STORE_AMISS)
    for blob in blobs:
        head, _, rest = blob.partition("<Properties>")
        properties, _, metadata = rest.partition("</Properties>")
        fields, name = dict(_FIELD.findall(properties)), _NAME.match(head)
        size = decimal(fields.get("Content-Length", "").strip())
        if name is None or size is None:
            raise FailedError(
                "the listing has an object without key or size", where=place.url, hint=STORE_AMISS
            )
        full = plain(name[2])
        if name[1]:
            full = unquote_to_bytes(full).decode("utf-8", "surrogateescape")
        if not full.startswith(place.prefix):
            raise FailedError(
                "the listing has a key outside of the prefix",
                where=place.url,
                why=in_quotes(full),
                hint=STORE_AMISS,
            )
        key = full[len(place.prefix) :]
        if not key or (not size and _FOLDER.search(metadata)):
            markers += bool(key)
            continue
        date = fields.get("Last-Modified", "")
        if date not in dates:
            dates[date] = stated_time(date, place.url)
        tag = plain(fields.get("Etag", "")).strip('"')
        archived = ARCHIVE if fields.get("AccessTier") == ARCHIVE else ""
        rows.append(Listed(key, size, tag, dates[date], archived=archived))
    following = _NEXT.search(text)
    return Objects(rows, plain(following[1]) if following else "", markers)
