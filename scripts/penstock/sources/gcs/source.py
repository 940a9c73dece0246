"""Google Cloud Storage as a source: one bucket and prefix. `registry.open_source` makes it of a URL
`gs://bucket/prefix`; an object is read by its generation, the number that Google gives to each version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import STORE_AMISS, FailedError, PenstockError, SourceChangedError, TransientError
from penstock.core.model import Listed
from penstock.core.text import in_quotes
from penstock.sources.gcs.client import GOOGLE, GcsClient
from penstock.sources.gcs.credentials import resolve
from penstock.sources.http.dates import stated_time
from penstock.sources.http.quoting import query_string
from penstock.sources.objects.json_text import document
from penstock.sources.objects.judgement import head_misfit, other_version
from penstock.sources.objects.pages import Objects
from penstock.sources.objects.reader import ObjectReader
from penstock.sources.objects.source import ObjectSource, bucket_and_prefix, single_name

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.objects.access_token import AccessToken

FIELDS = "kind,nextPageToken,items(name,size,generation,updated)"
KIND = "storage#objects"
"""Of every page: any other JSON object, since it has no `items`, would be an empty listing."""


class GcsReader(ObjectReader[GcsClient]):
    """The shared reader, with two differences: a 404 may mean that the object has another generation by now,
    and checksums come from the object's JSON description."""

    def _refused(self, client: GcsClient, entry: Entry) -> PenstockError:
        status, gone = client.connection.status, super()._refused(client, entry)
        if status != 404 or not entry.token:
            return gone
        try:
            _, generation, _ = client.describe(entry.key)
        except SourceChangedError:
            return gone
        where, what = client.where(entry.key), "the store states the generation, and does not find it"
        return other_version({}, generation, entry, where) or TransientError(what, where=where)

    def checksum(self, entry: Entry) -> list[SourceChecksum]:
        client = self._client
        client.renew(self._credentials())
        size, generation, checksums = client.describe(entry.key)
        if (error := head_misfit(size, {}, generation, entry, client.where(entry.key))) is not None:
            raise error
        return checksums


class GcsSource(ObjectSource[GcsClient]):
    """`credentials` come from `gcs.credentials.resolve`; a worker gets them from its parent."""

    CHECK = "check endpoint_url, the bucket's name and the credentials (none are used where none are named)"

    def __init__(
        self, config: SourceConfig, credentials: AccessToken | None = None, *, timeout: float = 60.0
    ) -> None:
        bucket, self._prefix = bucket_and_prefix(config.url)
        self._config, self._timeout = config, timeout
        self.endpoint = str(config.storage_options.get("endpoint_url") or GOOGLE)
        known = credentials if credentials is not None else resolve(config)
        super().__init__(f"gs://{bucket}/{self._prefix}", self.endpoint, known, single_name(config))

    def client(self) -> GcsClient:
        options, url = self._config.storage_options, self._prefix_url
        return GcsClient(url, options, self._timeout, self.credentials(), self.single)

    def resolve(self) -> AccessToken:
        return resolve(self._config)

    def page(self, client: GcsClient, token: str, limit: int, begins: str = "") -> Objects:
        how = {"fields": FIELDS, "maxResults": str(limit), "prefix": self._prefix + begins}
        how |= {"pageToken": token} if token else {}
        answer = document(client.fetched("", query_string([*how.items()])), self.url)
        try:
            if answer["kind"] != KIND:
                raise ValueError(answer["kind"])
            rows = [self._listed(item) for item in answer.get("items", ())]
        except (ValueError, KeyError, TypeError):
            raise FailedError(
                "the answer is no listing",
                where=self.url,
                why="it is no JSON of the kind that a listing has",
                hint=STORE_AMISS,
            ) from None
        return Objects([row for row in rows if row.key], str(answer.get("nextPageToken", "")))

    def _listed(self, item: dict[str, str]) -> Listed:
        name: str = item["name"]
        if not name.startswith(self._prefix):
            raise FailedError(
                "the listing has a key outside of the prefix",
                where=self.url,
                why=in_quotes(name),
                hint=STORE_AMISS,
            )
        when = stated_time(item["updated"], self.url)
        return Listed(name[len(self._prefix) :], int(item["size"]), str(item["generation"]), when)

    def find(self, client: GcsClient, key: str) -> None:
        client.describe(key)

    def reader(self) -> GcsReader:
        return GcsReader(self.client, self.credentials)
