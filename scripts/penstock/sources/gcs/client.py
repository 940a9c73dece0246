"""Google's dialect of `objects.client`: requests of the JSON API, its headers and its refusals.

`gcs.source` makes a client for each thread. It sends requests to one bucket, all of which only read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.core.errors import STORE_AMISS, FailedError, PenstockError
from penstock.sources.checksum_headers import COMBINE, google_checksums
from penstock.sources.gcs.credentials import HINT
from penstock.sources.http.endpoint import endpoint, split
from penstock.sources.http.quoting import quoted_value
from penstock.sources.http.response_template import HeaderNames
from penstock.sources.objects.access_token import AccessToken
from penstock.sources.objects.client import ObjectClient
from penstock.sources.objects.json_text import document
from penstock.sources.objects.refusals import Meaning, refusal
from penstock.sources.objects.source import bucket_and_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Entry, SourceChecksum
    from penstock.sources.objects.client import Request

GOOGLE = "https://storage.googleapis.com"
"""The server, unless `storage_options` names an `endpoint_url`."""
_NOBODY = Meaning(FailedError, "there are no credentials for the source", HINT)
_NO_BUCKET = Meaning(FailedError, "there is no such bucket")


class GcsClient(ObjectClient):
    """Carries a bearer token. `url` is `gs://bucket/prefix/`; `single` as of `ObjectClient`."""

    NAMES = HeaderNames(values=(b"x-goog-generation", b"x-goog-hash"))
    VERSION = b"x-goog-generation"

    def __init__(
        self, url: str, options: Mapping[str, object], timeout: float, credentials: object, single: str = ""
    ) -> None:
        super().__init__(url, single)
        bucket, self._prefix = bucket_and_prefix(url)
        base = str(options.get("endpoint_url") or GOOGLE)
        root = f"{split(base).path.rstrip('/')}/storage/v1/b/{quoted_value(bucket)}/o"
        self.go_to(endpoint(base, options, timeout=timeout), root)
        payer = str(options.get("project") or "")
        self._payer = f"&userProject={quoted_value(payer)}" if payer else ""
        self.renew(credentials)

    def renew(self, credentials: object) -> None:
        assert isinstance(credentials, AccessToken)
        self._token = credentials.line

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        server = self.connection.endpoint
        # Without gzip here Google unpacks objects that are stored compressed, and they differ from the
        # listing.
        takes = "gzip" if query.startswith("alt=media") else "identity"
        target = f"{server.origin}{self.root}{path}?{query}{self._payer}"
        lines = f"Accept-Encoding: {takes}\r\n{server.proxy_lines}{self._token}{lines}"
        return f"{method} {target} HTTP/1.1\r\nHost: {server.authority}\r\n{lines}\r\n".encode("latin-1")

    def path(self, key: str) -> str:
        return "/" + quoted_value(self.name_in(self._prefix, key))

    def get(self, entry: Entry) -> Request:
        """The GET names the generation, since not every server obeys `ifGenerationMatch`."""
        pinned = f"&generation={quoted_value(entry.token)}" if entry.token else ""
        return self.path(entry.key), f"alt=media{pinned}", ""

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> list[SourceChecksum]:
        found = google_checksums(headers.get(b"x-goog-hash", b"").decode("latin-1"))
        return [checksum for checksum in found if whole or checksum.algorithm in COMBINE]

    def describe(self, key: str) -> tuple[int, str, list[SourceChecksum]]:
        """Size, generation and checksums of an object as it is now. Raises the refusal, FailedError for an
        answer that describes no object."""
        answer = document(self.fetched(self.path(key), "alt=json", key), self.where(key))
        try:
            stated = f"crc32c={answer.get('crc32c')},md5={answer.get('md5Hash')}"
            return int(answer["size"]), str(answer["generation"]), google_checksums(stated)
        except (ValueError, KeyError, TypeError):
            raise FailedError(
                "the answer describes no object", where=self.where(key), hint=STORE_AMISS
            ) from None

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        try:
            told = json.loads(body)["error"]
            code, message = str(told["errors"][0]["reason"]), str(told["message"])
        except (ValueError, KeyError, TypeError, IndexError):
            code, message = "", ""
        meanings = ({} if self._token else {401: _NOBODY}) | ({} if key else {404: _NO_BUCKET})
        codes = {code: meanings[status]} if status in meanings else {}
        return refusal(status, headers, self.where(key), code=code, message=message, codes=codes)
