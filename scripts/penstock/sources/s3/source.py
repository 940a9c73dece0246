"""S3 and what speaks its protocol, as a source: one bucket and prefix.

`registry.open_source` makes an `S3Source` of a URL `s3://bucket/prefix`. It sends requests to that bucket,
all of which only read, and writes nothing to disk but what `list_sorted` sorts there. Where it is given no
credentials it resolves them (`s3.credentials`), which reads the environment and files and may send requests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.sources.objects.pages import Objects, between
from penstock.sources.objects.source import ObjectSource, bucket_and_prefix, single_name
from penstock.sources.s3.client import AWS, Bucket, S3Client
from penstock.sources.s3.credentials import S3Credentials, resolve
from penstock.sources.s3.listing import Pages, fetched, listed
from penstock.sources.s3.reader import S3Reader, part_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Entry, Listed


def bucket_of(config: SourceConfig, credentials: S3Credentials, timeout: float = 60.0) -> Bucket:
    """The bucket that a URL and its options name. Raises ConfigError."""
    name, prefix = bucket_and_prefix(config.url)
    options = config.storage_options
    host = (urlsplit(credentials.endpoint).hostname or "") if credentials.endpoint else ""
    style = options.get("addressing_style")
    aws = not credentials.endpoint or host.endswith(AWS)
    # A bucket with a dot does not match the wildcard of AWS's certificates.
    path_style = style == "path" or (style != "virtual" and (not aws or "." in name))
    region, single = credentials.region, single_name(config)
    if credentials.ca_bundle:
        options = {"ca_bundle": credentials.ca_bundle, **options}
    return Bucket(name, prefix, credentials.endpoint, region, path_style, dict(options), timeout, single)


class S3Source(ObjectSource[S3Client]):
    """`credentials` come from `s3.credentials.resolve`; a worker gets them from its parent."""

    CHECK = "check endpoint_url, region, the bucket's name and the credentials"

    def __init__(
        self,
        config: SourceConfig,
        credentials: S3Credentials | None = None,
        *,
        timeout: float = 60.0,
        versions: bool = False,
    ) -> None:
        """`versions`: objects are listed with the ids of their newest versions, and read by these."""
        self._config, self._versions = config, versions
        known = credentials if credentials is not None else resolve(config)
        self.bucket = bucket_of(config, known, timeout)
        super().__init__(
            self.bucket.url, self.bucket.endpoint or "AWS", known, self.bucket.single, times=config.times
        )

    def credentials(self) -> S3Credentials:
        assert isinstance(self._credentials, S3Credentials)
        return self._credentials

    def client(self) -> S3Client:
        return S3Client(self.bucket, self.credentials())

    def resolve(self) -> S3Credentials:
        return resolve(self._config)

    def page(self, client: S3Client, token: str, limit: int, begins: str = "") -> Objects:
        page = fetched(client, self.bucket.prefix + begins, token, limit)
        return Objects(next(listed(self.bucket, iter([page]), ordered=False), ()), page.following)

    def check(self) -> None:
        """One page of one key, signed as later requests are."""
        super().check()
        if self._versions:
            from penstock.sources.s3.versions import check

            check(self.bucket, self.versioned())

    def versioned(self) -> bool | None:
        """Whether the bucket is versioned; None where these credentials may not ask."""
        from penstock.sources.s3.versions import enabled

        requests = self.requests()
        try:
            return requests.do(enabled)
        finally:
            requests.close()

    def list(self) -> Iterator[Sequence[Listed]]:
        """By several streams of pages at once; with `versions` one page after another."""
        if self._versions:
            from penstock.sources.s3 import versions

            pages = versions.pages(self.bucket, self.requests())
            return self.either(versions.listed(self.bucket, pages, self.versioned()))
        self._twice = 0
        return self.either(
            listed(self.bucket, iter(Pages(self.bucket, self.requests())), twice=self.count_twice)
        )

    def _unsorted(self) -> Iterator[Sequence[Listed]]:
        if not self._versions:
            return self._pages()
        from penstock.sources.s3 import versions

        pages = versions.pages(self.bucket, self.requests())
        return versions.listed(self.bucket, pages, self.versioned(), ordered=False)

    def list_between(self, after: bytes, upto: bytes | None) -> Iterator[Sequence[Listed]]:
        """See `port.Continued`."""
        prefix = os.fsencode(self.bucket.prefix)
        begin, end = prefix + after if after else b"", None if upto is None else prefix + upto
        requests = self.requests()
        if self._versions:
            from penstock.sources.s3 import versions

            pages = versions.pages(self.bucket, requests, os.fsdecode(begin))
            below = versions.listed(self.bucket, pages, self.versioned())
        else:
            pages_between = iter(Pages(self.bucket, requests, begin, end))
            below = listed(self.bucket, pages_between, twice=self.count_twice)
        return between(self.either(below), after, upto)

    def version_id(self, headers: Mapping[bytes, bytes]) -> str:
        return headers.get(b"x-amz-version-id", b"").decode("latin-1") if self._versions else ""

    def reader(self) -> S3Reader:
        return S3Reader(self.client, self.credentials)

    def part_sizes(self, entry: Entry, parts: int) -> Sequence[int]:
        """See `port.Parted`."""
        client = self.client()
        try:
            return part_sizes(client, entry, parts)
        finally:
            client.close()
