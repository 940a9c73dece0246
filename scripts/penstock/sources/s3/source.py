"""S3 and what speaks its protocol, as a source: one bucket and prefix."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.errors import (
    ConfigError,
    ExpiredCredentialsError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.checksum_headers import s3_claims
from penstock.sources.s3.client import AWS, Bucket, S3Client
from penstock.sources.s3.credentials import S3Credentials, resolve
from penstock.sources.s3.listing import Pages, first, listed
from penstock.sources.s3.reader import S3Reader, part_bytes, part_sizes, quoted
from penstock.sources.s3.sigv4 import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Claim, Entry, Listed


def bucket_of(config: SourceConfig, credentials: S3Credentials, timeout: float = 60.0) -> Bucket:
    """The bucket that a URL and its options name. Raises ConfigError."""
    name, _, prefix = config.url.partition("://")[2].partition("/")
    if not name or "@" in name:
        raise ConfigError("the URL names no bucket", where=config.url, hint="write s3://bucket/prefix/")
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    options = config.storage_options
    host = (urlsplit(credentials.endpoint).hostname or "") if credentials.endpoint else ""
    style = options.get("addressing_style")
    aws = not credentials.endpoint or host.endswith(AWS)
    # A bucket with a dot does not match the wildcard of AWS's certificates.
    path_style = style == "path" or (style != "virtual" and (not aws or "." in name))
    return Bucket(name, prefix, credentials.endpoint, credentials.region, path_style, dict(options), timeout)


class S3Source:
    """`credentials` come from `s3.credentials.resolve`; a worker gets them from its parent."""

    @property
    def ignored(self) -> Mapping[str, int]:
        return {}

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
        self._credentials = credentials if credentials is not None else resolve(config)
        self.bucket = bucket_of(config, self._credentials, timeout)
        self.url = self.bucket.url

    def credentials(self) -> S3Credentials:
        return self._credentials

    def renew(self, credentials: object) -> None:
        """Sign with these from the next request on, in every reader of this source."""
        assert isinstance(credentials, S3Credentials)
        self._credentials = credentials

    def _renew_here(self) -> None:
        self.renew(resolve(self._config))

    def check(self) -> None:
        """One page of one key, signed as later requests are."""
        pages = Pages(self.bucket, self.credentials, self._renew_here)
        try:
            page = pages.fetch("", limit=1, tries=2)
            next(listed(self.bucket, iter([page])), None)
        except PreflightError:
            raise
        except PenstockError as error:
            raise PreflightError(
                "the source cannot be listed",
                where=f"{self.url} at {self.bucket.endpoint or 'AWS'}",
                why=f"{error.what}: {error.why}" if error.why else error.what,
                hint=error.hint or "check endpoint_url, region, the bucket's name and the credentials",
            ) from None
        finally:
            pages.close()
        if self._versions:
            from penstock.sources.s3.versions import check

            check(self.bucket, self._enabled())

    def _enabled(self) -> bool | None:
        from penstock.sources.s3.versions import VersionPages

        pages = VersionPages(self.bucket, self.credentials, self._renew_here)
        try:
            return pages.enabled()
        finally:
            pages.close()

    def list(self) -> Iterator[Sequence[Listed]]:
        if self._versions:
            from penstock.sources.s3 import versions as s3_versions

            pages = s3_versions.VersionPages(self.bucket, self.credentials, self._renew_here)
            return s3_versions.listed(self.bucket, iter(pages), self._enabled())
        return listed(self.bucket, iter(Pages(self.bucket, self.credentials, self._renew_here)))

    def list_one(self, key: str) -> Listed | None:
        """By a listing of this key alone: HEAD states times in whole seconds, a listing in thousandths."""
        name = self.bucket.prefix + key
        pages = Pages(replace(self.bucket, prefix=name), self.credentials, self._renew_here)
        try:
            found = first(pages.fetch("", limit=1), self.bucket.url)
        finally:
            pages.close()
        if found is not None and found.key == name:
            return found._replace(key=key)
        client = S3Client(self.bucket, self._credentials)
        try:
            connection = client.request("HEAD", quoted(self.bucket.prefix) + quoted(key))
            status = connection.status
            if status == 200:
                connection.finish()
                raise TransientError(
                    "the store has the object, and does not list it yet", where=self.url + key
                )
            error = client.failure(connection, name)
        finally:
            client.close()
        if status in (404, 410) and isinstance(error, SourceChangedError):
            return None
        raise error

    def reader(self) -> S3Reader:
        return S3Reader(self.bucket, self.credentials)

    def part_sizes(self, entry: Entry, parts: int) -> Sequence[int]:
        """See `port.Parted`."""
        client = S3Client(self.bucket, self._credentials)
        try:
            return part_sizes(client, quoted(self.bucket.prefix) + quoted(entry.key), entry, parts)
        finally:
            client.close()

    def checksum(self, entry: Entry) -> Sequence[Claim]:
        """By HEAD; composites come with the size of their parts when it is known."""
        client = S3Client(self.bucket, self._credentials)
        path = quoted(self.bucket.prefix) + quoted(entry.key)
        query = f"versionId={quote_value(entry.version.encode())}" if entry.version else ""
        try:
            connection = client.request("HEAD", path, query, f'If-Match: "{entry.token}"\r\n')
            if connection.status != 200:
                raise client.failure(connection, self.bucket.prefix + entry.key)
            headers = connection.headers
            claims = s3_claims(headers, whole=True)
            if claims and claims[0].kind != "full":
                size = part_bytes(client, path, entry, claims[0].parts)
                claims = s3_claims(headers, whole=True, part_bytes=size)
            return claims
        except ExpiredCredentialsError:
            raise
        finally:
            client.close()
