"""Google Cloud Storage as a source: one bucket and prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.model import Listed
from penstock.errors import ConfigError, FailedError, PenstockError, SourceChangedError
from penstock.sources.gcs.client import GOOGLE, GcsClient
from penstock.sources.gcs.credentials import GcsCredentials, resolve
from penstock.sources.generic.info import claims_of
from penstock.sources.objects.judgement import head_misfit
from penstock.sources.objects.pages import Objects
from penstock.sources.objects.reader import ObjectReader
from penstock.sources.objects.source import ObjectSource
from penstock.sources.s3.listing import Times

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig
    from penstock.core.model import Claim, Entry

FIELDS = "name,size,generation,updated"


class GcsReader(ObjectReader[GcsClient]):
    """What is Google's own: a 404 may mean another generation, and a description is JSON."""

    def _refused(self, client: GcsClient, entry: Entry) -> PenstockError:
        status, error = client.connection.status, super()._refused(client, entry)
        return (client.changed(entry) if status == 404 and entry.token else None) or error

    def checksum(self, entry: Entry) -> list[Claim]:
        client = self._client
        client.renew(self._credentials())
        found = client.document(entry.key, client.path(entry.key))
        size, version, where = int(found["size"]), str(found["generation"]), client.where(entry.key)
        if (error := head_misfit(size, {}, version, entry, where)) is not None:
            raise error
        return claims_of(found)


class GcsSource(ObjectSource[GcsClient]):
    """`credentials` come from `gcs.credentials.resolve`; a worker gets them from its parent."""

    CHECK = "check endpoint_url, the bucket's name and the credentials (none are used where none are named)"

    def __init__(
        self, config: SourceConfig, credentials: GcsCredentials | None = None, *, timeout: float = 60.0
    ) -> None:
        bucket, _, prefix = config.url.partition("://")[2].partition("/")
        if not bucket or "@" in bucket:
            raise ConfigError("the URL names no bucket", where=config.url, hint="write gs://bucket/prefix/")
        self._config, self._times = config, Times()
        self._timeout = float(str(config.storage_options.get("timeout") or timeout))
        self._prefix = f"{prefix.removesuffix('/')}/" if prefix else ""
        self.endpoint = str(config.storage_options.get("endpoint_url") or GOOGLE)
        known = credentials if credentials is not None else resolve(config)
        super().__init__(f"gs://{bucket}/{self._prefix}", self.endpoint, known)

    def client(self) -> GcsClient:
        return GcsClient(self.url, self._config.storage_options, self._timeout, self.credentials())

    def resolve(self) -> GcsCredentials:
        return resolve(self._config)

    def page(self, client: GcsClient, token: str, limit: int, begins: str = "") -> Objects:
        how = {"pageToken": token} if token else {}
        how |= {"maxResults": str(limit), "prefix": self._prefix + begins}
        found = client.document("", "", fields=f"nextPageToken,items({FIELDS})", **how)
        try:
            rows = [self._listed(item) for item in found.get("items", ())]
        except (ValueError, KeyError, TypeError) as error:
            raise FailedError("the answer is no listing", where=self.url, why=repr(error)) from None
        return Objects([row for row in rows if row.key], str(found.get("nextPageToken", "")))

    def _listed(self, item: dict[str, Any]) -> Listed:
        name: str = item["name"]
        if not name.startswith(self._prefix):
            raise FailedError("the listing has a key outside of the prefix", where=self.url, why=repr(name))
        when = self._times.nanoseconds(item["updated"])
        return Listed(name[len(self._prefix) :], int(item["size"]), str(item["generation"]), when)

    def list_one(self, key: str) -> Listed | None:
        """By its name: listings and lookups agree (https://cloud.google.com/storage/docs/consistency)."""
        client = self.client()
        try:
            return self._listed(client.document(key, client.path(key), fields=FIELDS))
        except SourceChangedError:
            return None
        finally:
            client.close()

    def reader(self) -> GcsReader:
        return GcsReader(self.client, self.credentials)
