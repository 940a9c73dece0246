"""S3 and compatible stores as a source: one bucket and prefix. All requests only read. To compute a composite
checksum (a checksum of the checksums of an upload's parts), the parts' sizes are queried."""

from __future__ import annotations

import os
import re
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.core.errors import ExpiredCredentialsError, ObjectError, PenstockError, PreflightError
from penstock.sources.backoff import asked_for, retry_after
from penstock.sources.checksum_headers import s3_checksums
from penstock.sources.listing_order import Objects, between
from penstock.sources.objects.reader import ObjectReader
from penstock.sources.objects.source import ObjectSource, bucket_and_prefix, single_name
from penstock.sources.s3.client import AWS, Bucket, S3Client
from penstock.sources.s3.credentials import S3Credentials, resolve
from penstock.sources.s3.listing import NO_VERSIONS, fetched, listed, pages, version_pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.core.model import Entry, Listed, SourceChecksum

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
