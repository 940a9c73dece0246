"""Azure Blob Storage through adlfs. Requests go through the Azure SDK's client that adlfs makes
(`service_client`), with If-Match for the listed etag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.model import Listed
from penstock.errors import TransientError
from penstock.sources.azure.account import without_signatures
from penstock.sources.azure.refusals import failure
from penstock.sources.decimals import decimal
from penstock.sources.generic import object_library
from penstock.sources.generic.info import claims_of, nanoseconds
from penstock.sources.generic.object_library import Answer
from penstock.sources.objects.pages import Objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Entry
    from penstock.errors import PenstockError

ONCE = {"retry_total": 0}
"""Trying again is the caller's."""


class AdlfsObjects:
    """See `ObjectLibrary`."""

    in_order = False  # accounts with a hierarchical namespace list folder by folder
    least = 5000

    def defaults(self) -> Mapping[str, object]:
        return {}

    def page(self, fs: Any, bucket: str, prefix: str, token: str, limit: int) -> Objects:
        from fsspec.asyn import sync

        found: Objects = sync(
            fs.loop, self._page, fs, bucket, prefix, token, limit, timeout=object_library.LONGEST
        )
        return found

    async def _page(self, fs: Any, bucket: str, prefix: str, token: str, limit: int) -> Objects:
        container = fs.service_client.get_container_client(bucket)
        pages = container.list_blobs(
            name_starts_with=prefix or None, include=["metadata"], results_per_page=limit, **ONCE
        ).by_page(continuation_token=token or None)
        objects: list[Listed] = []
        markers = 0
        async for page in pages:
            async for blob in page:
                if is_folder(blob):
                    markers += 1
                else:
                    when = nanoseconds(blob.last_modified)
                    objects.append(Listed(blob.name, blob.size, (blob.etag or "").strip('"'), when))
            break
        return Objects(objects, str(pages.continuation_token or ""), markers)

    def fetch(self, fs: Any, bucket: str, name: str, entry: Entry, offset: int, length: int) -> Answer:
        from fsspec.asyn import sync

        found: Answer = sync(
            fs.loop, self._fetch, fs, bucket, name, entry, offset, length, timeout=object_library.LONGEST
        )
        return found

    async def _fetch(self, fs: Any, bucket: str, name: str, entry: Entry, offset: int, length: int) -> Answer:
        from azure.core import MatchConditions

        seen: list[Any] = []
        how: dict[str, object] = {"raw_response_hook": seen.append, **ONCE}
        if entry.token:
            how |= {"etag": f'"{entry.token}"', "match_condition": MatchConditions.IfNotModified}
        blob = fs.service_client.get_blob_client(bucket, name)
        data = b""
        try:
            if length:
                stream = await blob.download_blob(
                    offset=offset, length=length, max_concurrency=1, decompress=False, **how
                )
                data, found = await stream.readall(), stream.properties
            else:
                found = await blob.get_blob_properties(**how)
        except BaseException:
            for one in seen:  # what is given up half read leaves its connection open
                one.http_response.internal_response.close()
            raise
        answer = seen[0].http_response
        headers = {name.lower().encode(): value.encode() for name, value in answer.headers.items()}
        version = found.etag.strip('"') if found.etag else None
        stated = len(data) if length else found.size
        if len({one.http_response.headers.get("Content-Range") for one in seen}) > 1:
            # The SDK requests the rest of an answer that is too short; the first one is judged.
            stated = min(decimal(headers.get(b"content-length", b"").decode()) or 0, length - 1)
        return Answer(data, answer.status_code, stated, headers, version, claims_of(found))

    def failure(self, error: BaseException, where: str) -> PenstockError | None:
        from azure.core.exceptions import AzureError, DecodeError

        if isinstance(error, DecodeError):
            why = str(error).partition("\n")[0]
            return TransientError("the listing ends in the middle of a page", where=where, why=why)
        if isinstance(error, (AzureError, OSError, ValueError)):
            return failure(error, without_signatures, where)
        return None


def is_folder(blob: Any) -> bool:
    """Whether a blob stands for a folder, as hierarchical accounts and Hadoop's drivers write them."""
    metadata = blob.metadata or {}
    return blob.size == 0 and any(
        name.lower() == "hdi_isfolder" and str(value).lower() == "true" for name, value in metadata.items()
    )
