"""Lists the newest version of each object of a versioned bucket, by ListObjectVersions, with the version's
id. By that id the same bytes can be read whatever is written to the key later (`datasets.*.changed:
pinned`).

A bucket that is not versioned is refused: its objects have the id `null`, which a later object of that key
has too. Sends requests to the bucket and writes nothing; `s3.source` calls it in place of `s3.listing`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from penstock.core.errors import STORE_AMISS, FailedError, ObjectError, PreflightError, TransientError
from penstock.core.model import Listed
from penstock.core.text import in_quotes
from penstock.sources.external_sort import disorder
from penstock.sources.http.dates import stated_time
from penstock.sources.objects.pages import one_by_one
from penstock.sources.objects.xml_text import plain
from penstock.sources.s3.listing import answer, mark_archived, with_restores
from penstock.sources.s3.page import PageText, encoded, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.sources.objects.pages import Requests
    from penstock.sources.s3.client import Bucket, S3Client

PAGE = 1000
"""Versions that a page is asked to hold."""
_NONE = "null"
"""The version id of an object that was written while its bucket was not versioned."""
_VERSION = re.compile(r"<Version>(.*?)</Version>", re.DOTALL)
_FIELD = re.compile(r"<(Key|VersionId|IsLatest|LastModified|ETag|Size)>([^<]*)</")
_TRUNCATED = re.compile(r"<IsTruncated>\s*(true|false)\s*</IsTruncated>", re.IGNORECASE)
_NEXT_KEY = re.compile(r"<NextKeyMarker>([^<]*)</NextKeyMarker>")
_NEXT_VERSION = re.compile(r"<NextVersionIdMarker>([^<]*)</NextVersionIdMarker>")
_STATUS = re.compile(r"<Status>\s*(\w+)\s*</Status>")
HINT = "have versioning enabled on the bucket, or write `changed: follow` or `changed: refuse`"


def pages(bucket: Bucket, requests: Requests[S3Client], after: str = "") -> Iterator[PageText]:
    """The pages of all versions below the prefix, of keys behind `after` ("": from the first), in the store's
    order. `requests` are closed at the end."""

    def fetch(token: str) -> PageText:
        return requests.do(lambda client: _fetched(client, bucket.prefix, token or after))

    try:
        yield from one_by_one(fetch, bucket.url, requests.stop)
    finally:
        requests.close()


def _fetched(client: S3Client, prefix: str, token: str) -> PageText:
    pairs = [("versions", ""), ("max-keys", str(PAGE)), ("encoding-type", "url")]
    if prefix:
        pairs.append(("prefix", prefix))
    if token:
        key, _, version = token.partition("\0")
        pairs.append(("key-marker", key))
        if version:
            pairs.append(("version-id-marker", version))
    return _understand(with_restores(client, pairs), client.url)


def enabled(client: S3Client) -> bool | None:
    """Whether the bucket is versioned; None where these credentials may not ask."""
    try:
        text = answer(client, [("versioning", "")])
    except ObjectError:
        return None
    found = _STATUS.search(text)
    return found is not None and found[1] == "Enabled"


def check(bucket: Bucket, enabled: bool | None) -> None:
    """Raises PreflightError for a bucket that is known not to be versioned."""
    if enabled is False:
        raise PreflightError(
            "the bucket is not versioned, and `changed: pinned` reads objects by their versions",
            where=bucket.url,
            hint=HINT,
        )


def listed(
    bucket: Bucket, pages: Iterator[PageText], enabled: bool | None, *, ordered: bool = True
) -> Iterator[Sequence[Listed]]:
    """The newest versions, keys relative to the prefix, one batch a page; what was deleted is left out.
    `enabled` is the answer of the function of that name. Raises FailedError for a malformed page or keys that
    are not in ascending order of their bytes (without `ordered` any order will do), PreflightError for an
    object that has no version of its own."""
    last, before = b"", ""
    for page in pages:
        batch = []
        quoted = encoded(page)
        for block in _VERSION.findall(page.text):
            fields = dict(_FIELD.findall(block))
            if fields.get("IsLatest", "").strip().lower() != "true":
                continue
            if "Key" not in fields or not fields.get("Size", "").strip().isdecimal():
                raise FailedError(
                    "the listing has an object without key or size", where=bucket.url, hint=STORE_AMISS
                )
            key, version = key_of(fields["Key"], quoted), plain(fields.get("VersionId", ""))
            if (os.fsencode(key), version) == (last, before):
                continue  # some stores begin a page with the version that the marker names
            if ordered and not last < os.fsencode(key):
                raise disorder(key, os.fsdecode(last), bucket.url)
            last, before = os.fsencode(key), version
            if not key.startswith(bucket.prefix):
                raise FailedError(
                    "the listing has a key outside of the prefix",
                    where=bucket.url,
                    why=in_quotes(key),
                    hint=STORE_AMISS,
                )
            if key == bucket.prefix:
                continue  # the marker of the prefix itself
            # Of a bucket whose versioning is on, `null` names what was there before, and stays.
            if not version or (version == _NONE and not enabled):
                raise PreflightError(
                    "an object has no version of its own, and `changed: pinned` reads objects by those",
                    where=f"{bucket.url}{key[len(bucket.prefix) :]}",
                    why="the bucket is not versioned, or that is not to be known with these credentials",
                    hint=HINT,
                )
            modified = stated_time(plain(fields.get("LastModified", "")), bucket.url)
            token = plain(fields.get("ETag", "")).strip('"')
            batch.append(Listed(key[len(bucket.prefix) :], int(fields["Size"]), token, modified, version))
        if batch:
            yield mark_archived(bucket, page, batch, "Version")


def _understand(text: str, where: str) -> PageText:
    """Whether and how the listing goes on: the markers, with a NUL between. Raises FailedError for what is no
    page of a listing, TransientError for one that is cut off."""
    truncated = _TRUNCATED.search(text)
    if "<ListVersionsResult" not in text[:2000] or truncated is None:
        raise FailedError(
            "the answer is no listing of versions",
            where=where,
            hint="this store may not know ListObjectVersions: write `changed: follow` or `changed: refuse`",
        )
    if not text[-200:].rstrip().endswith("</ListVersionsResult>"):
        raise TransientError("the listing ends in the middle of a page", where=where)
    if truncated[1].lower() != "true":
        return PageText(text, "")
    key, version = _NEXT_KEY.search(text), _NEXT_VERSION.search(text)
    if key is None:
        raise FailedError("the listing is cut off: no marker of the next page", where=where, hint=STORE_AMISS)
    marker = key_of(key[1], encoded(PageText(text, "")))
    return PageText(text, f"{marker}\0{plain(version[1]) if version else ''}")
