"""Google Cloud Storage as a source: one bucket and prefix, through the JSON API. All requests only read.

An object is read by its generation, Google's number for a version of the object. A token permits reading
only; it expires at `AccessToken.expires`, mostly after an hour. `resolve` requests the next token.
`GcsSource` calls it when the store refuses a token, and the engine calls it before a token expires.

| the first of these that is set | token |
|---|---|
| `anon` | none |
| `credentials_file`: a service account's JSON file, or a file whose line `token=PATH` names it | by a JWT |
| `instance_metadata` | from the metadata server (the environment's GCE_METADATA_HOST, or METADATA) |
| `GOOGLE_APPLICATION_CREDENTIALS` of the environment: a file as for `credentials_file` | by a JWT |
| none of these | none |

JWT means requested with a signed JWT:
https://developers.google.com/identity/protocols/oauth2/service-account#httprest
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.config.settings import Reach
from penstock.core.errors import (
    STORE_AMISS,
    FailedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Listed
from penstock.sources.credentials import pairs, read_secret
from penstock.sources.http_endpoint import Endpoint, endpoint, split
from penstock.sources.http_values import HeaderNames, document, query_string, quoted_value, stated_time
from penstock.sources.listing_order import Objects
from penstock.sources.object_answers import Meaning, head_misfit, other_version, refusal, within
from penstock.sources.object_client import (
    TIMEOUT,
    AccessToken,
    ObjectClient,
    ObjectReader,
    jwt_grant,
    requested,
)
from penstock.sources.object_source import ObjectSource, bucket_and_prefix, single_name
from penstock.sources.stated_checksums import COMBINE, google_checksums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.object_client import Request


SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
METADATA = "metadata.google.internal"
HINT = (
    "public bucket: `storage_options: {anon: true}`\n"
    "  a service account's JSON file, mode 0600: `storage_options: {credentials_file: FILE}`\n"
    "  on Google's machines: `storage_options: {instance_metadata: true}`; other logins: `reader: fsspec`"
)


def resolve(config: SourceConfig) -> AccessToken:
    """Request a token now, as the table of the module's docstring says. For "none", return a token without
    text. An unresponsive server is retried for a minute at most (`object_client.TOKEN_TRIES`, `TIMEOUT`).

    Raises PreflightError for files that are not kept safely or contain no account. Raises FailedError if the
    server refuses a token, TransientError if it does not respond or demands a later try. Raises ConfigError
    for a `token_uri` or GCE_METADATA_HOST that makes no URL. Also raises the errors of `endpoint`.
    """
    options = config.storage_options
    path = str(options.get("credentials_file") or "")
    if options.get("anon"):
        return AccessToken()
    if not path and options.get("instance_metadata"):
        host = split(f"http://{os.environ.get('GCE_METADATA_HOST') or METADATA}")
        query = f"token?{urlencode({'scopes': SCOPE})}"
        line = f"GET /computeMetadata/v1/instance/service-accounts/default/{query}"
        # The metadata server is never reached through a proxy.
        token_server = Endpoint(host.hostname or "", host.port or 80, tls=False, reach=Reach(5.0))
        return requested(
            token_server, line, "Metadata-Flavor: Google\r\n", origin="the metadata server", hint=HINT
        )
    path = os.path.expanduser(path or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""))
    if not path:
        return AccessToken()
    text = read_secret(path)
    if not text.lstrip().startswith("{"):
        path = os.path.expanduser(pairs(text).get("token", ""))
        text = read_secret(path)
    try:
        account = json.loads(text)
        server, sender, key = str(account["token_uri"]), account["client_email"], account["private_key"]
        body = jwt_grant(server, sender, SCOPE, key, account["private_key_id"])
    except (ValueError, KeyError, TypeError):
        raise PreflightError("the file is no service account's", where=path, hint=HINT) from None
    token_server = endpoint(server, config.reach._replace(timeout=TIMEOUT))
    line = f"POST {token_server.origin}{split(server).path or '/'}"
    return requested(token_server, line, body=body, origin=path, hint=HINT)


GOOGLE = "https://storage.googleapis.com"  # the server, unless `storage_options` names an `endpoint_url`
_NOBODY = Meaning(FailedError, "there are no credentials for the source", HINT)
_NO_BUCKET = Meaning(FailedError, "there is no such bucket")


class GcsClient(ObjectClient):
    """The `ObjectClient` for Google."""

    NAMES = HeaderNames(values=(b"x-goog-generation", b"x-goog-hash"))
    VERSION = b"x-goog-generation"

    def __init__(self, config: SourceConfig, credentials: object) -> None:
        bucket, prefix = bucket_and_prefix(config.url)
        super().__init__(f"gs://{bucket}/{prefix}", prefix, single_name(config))
        options = config.storage_options
        base = str(options.get("endpoint_url") or GOOGLE)
        root = f"{split(base).path.rstrip('/')}/storage/v1/b/{quoted_value(bucket)}/o"
        self.go_to(endpoint(base, config.reach), root)
        payer = str(options.get("project") or "")
        self._payer = f"&userProject={quoted_value(payer)}" if payer else ""
        self.renew(credentials)

    def renew(self, credentials: object) -> None:
        assert isinstance(credentials, AccessToken)
        self._token = credentials.line

    def signed(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:  # noqa: ARG002
        return query + self._payer, self._token + lines

    def path(self, key: str) -> str:
        return "/" + quoted_value(self.name_in(self.prefix, key))

    def get(self, entry: Entry) -> Request:
        """Make the GET, with the generation in the query, since some servers ignore `ifGenerationMatch`."""
        pinned = f"&generation={quoted_value(entry.token)}" if entry.token else ""
        # Without this header Google unpacks compressed objects, which then differ from the listing.
        return self.path(entry.key), f"alt=media{pinned}", "Accept-Encoding: gzip\r\n"

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> list[SourceChecksum]:
        stated = google_checksums(headers.get(b"x-goog-hash", b"").decode("latin-1"))
        return [checksum for checksum in stated if whole or checksum.algorithm in COMBINE]

    def describe(self, key: str) -> tuple[int, str, list[SourceChecksum]]:
        """Return an object's present size, generation and checksums. Raises the server's refusal, or
        FailedError for an answer that describes no object."""
        answer = document(self.fetched(self.path(key), "alt=json", key), self.where(key))
        try:
            stated = f"crc32c={answer.get('crc32c')},md5={answer.get('md5Hash')}"
            return int(answer["size"]), str(answer["generation"]), google_checksums(stated)
        except (ValueError, KeyError, TypeError):
            what = "the answer describes no object"
            raise FailedError(what, where=self.where(key), hint=STORE_AMISS) from None

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        try:
            details = json.loads(body)["error"]
            code, message = str(details["errors"][0]["reason"]), str(details["message"])
        except (ValueError, KeyError, TypeError, IndexError):
            code, message = "", ""
        meanings = ({} if self._token else {401: _NOBODY}) | ({} if key else {404: _NO_BUCKET})
        codes = {code: meanings[status]} if status in meanings else {}
        return refusal(status, headers, self.where(key), code=code, message=message, codes=codes)


FIELDS = "kind,nextPageToken,items(name,size,generation,updated)"
# the field `kind` of every page; if it were not checked, a JSON object without `items` would look like an
# empty listing
KIND = "storage#objects"


class GcsReader(ObjectReader[GcsClient]):
    """The `ObjectReader` for Google. A status 404 may mean that the object now has another generation.
    Checksums come from the object's JSON description."""

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


class GcsSource(ObjectSource[GcsClient, AccessToken]):
    """The source. Workers pass the `credentials` that their parent got from `resolve`."""

    CHECK = "check endpoint_url, the bucket's name and the credentials (none are used where none are named)"
    RESOLVE = staticmethod(resolve)

    def __init__(self, config: SourceConfig, credentials: AccessToken | None = None, **_: object) -> None:
        bucket, self._prefix = bucket_and_prefix(config.url)
        self.endpoint = str(config.storage_options.get("endpoint_url") or GOOGLE)
        super().__init__(config, credentials, f"gs://{bucket}/{self._prefix}", self.endpoint)

    @property
    def origin(self) -> str:
        return f"{self.endpoint.rstrip('/').lower()} {self.url}"

    def client(self) -> GcsClient:
        return GcsClient(self._config, self.credentials())

    def page(self, client: GcsClient, token: str, limit: int, begins: str = "") -> Objects:
        how = {"fields": FIELDS, "maxResults": str(limit), "prefix": self._prefix + begins}
        how |= {"pageToken": token} if token else {}
        answer = document(client.fetched("", query_string([*how.items()])), self.url)
        try:
            if answer["kind"] != KIND:
                raise ValueError(answer["kind"])
            rows = [self._listed(item) for item in answer.get("items", ())]
        except (ValueError, KeyError, TypeError):
            what, why = "the answer is no listing", "it is no JSON of the kind that a listing has"
            raise FailedError(what, where=self.url, why=why, hint=STORE_AMISS) from None
        return Objects([row for row in rows if row.key], str(answer.get("nextPageToken", "")))

    def _listed(self, item: dict[str, str]) -> Listed:
        key = within(item["name"], self._prefix, self.url)
        return Listed(key, int(item["size"]), str(item["generation"]), stated_time(item["updated"], self.url))

    def find(self, client: GcsClient, key: str) -> None:
        client.describe(key)

    def reader(self) -> GcsReader:
        return GcsReader(self.client, self.credentials)


open_source = GcsSource
