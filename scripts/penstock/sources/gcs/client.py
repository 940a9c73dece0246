"""The dialect's requests, by the JSON API: a GET of one generation; what answers and refusals mean."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    ExpiredCredentialsError,
    FailedError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.checksum_headers import COMBINE, google_claims
from penstock.sources.gcs.credentials import HINT, GcsCredentials
from penstock.sources.http.endpoint import endpoint, split
from penstock.sources.http.quoting import query_string, quoted_value
from penstock.sources.http.response_template import HeaderNames
from penstock.sources.objects.client import ObjectClient
from penstock.sources.objects.refusals import Meaning, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Claim, Entry
    from penstock.sources.objects.client import Request

GOOGLE = "https://storage.googleapis.com"
_LATE = Meaning(ExpiredCredentialsError, "the credentials ran out")
_NOBODY = Meaning(FailedError, "there are no credentials for the source", HINT)
_NO_BUCKET = Meaning(FailedError, "there is no such bucket")


class GcsClient(ObjectClient):
    """Signs by a bearer token. `url` is `gs://bucket/prefix/`."""

    NAMES = HeaderNames(values=(b"x-goog-generation", b"x-goog-hash"))
    VERSION = b"x-goog-generation"

    def __init__(self, url: str, options: Mapping[str, Any], timeout: float, credentials: object) -> None:
        super().__init__(url)
        bucket, _, self._prefix = url.partition("://")[2].partition("/")
        base = str(options.get("endpoint_url") or GOOGLE)
        root = f"{split(base).path.rstrip('/')}/storage/v1/b/{quoted_value(bucket)}/o"
        self.go_to(endpoint(base, options, timeout=timeout), root)
        pays = options.get("requester_pays")
        payer = str((options.get("project") if pays is True else pays) or "")
        self._payer = f"&userProject={quoted_value(payer)}" if payer else ""
        self.renew(credentials)

    def renew(self, credentials: object) -> None:
        assert isinstance(credentials, GcsCredentials)
        self._token = f"Authorization: Bearer {credentials.token}\r\n" if credentials.token else ""

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        server = self.connection.endpoint
        # An object that is stored compressed comes as it is stored only to those who say that they take that.
        takes = "gzip" if query.startswith("alt=media") else "identity"
        target = f"{server.origin}{self.root}{path}?{query}{self._payer}"
        lines = f"Accept-Encoding: {takes}\r\n{server.proxy_lines}{self._token}{lines}"
        return f"{method} {target} HTTP/1.1\r\nHost: {server.authority}\r\n{lines}\r\n".encode("latin-1")

    def path(self, key: str) -> str:
        return "/" + quoted_value(self._prefix + key)

    def get(self, entry: Entry) -> Request:
        """By generation: not every server heeds an `ifGenerationMatch`."""
        pinned = f"&generation={quoted_value(entry.token)}" if entry.token else ""
        return self.path(entry.key), f"alt=media{pinned}", ""

    def claims(self, headers: Mapping[bytes, bytes], *, whole: bool) -> list[Claim]:
        found = google_claims(headers.get(b"x-goog-hash", b"").decode("latin-1"))
        return [claim for claim in found if whole or claim.algorithm in COMBINE]

    def document(self, key: str, path: str, **query: str) -> dict[str, Any]:
        """A JSON answer; `key` "" is the listing. Raises its refusal, TransientError for one that is cut off,
        FailedError for what is no JSON."""
        connection = self.request("GET", path, query_string([*query.items()]))
        if connection.status != 200:
            raise self.failure(key)
        text = connection.read_all(64 << 20)
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError:
            if text.startswith(b"{"):
                raise TransientError("the answer ends in the middle", where=self.where(key)) from None
            hint = "check endpoint_url"
            raise FailedError("the answer is not Google's", where=self.where(key), hint=hint) from None
        return found

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        try:
            told = json.loads(body)["error"]
            code, message = str(told["errors"][0]["reason"]), str(told["message"])
        except (ValueError, KeyError, TypeError, IndexError):
            code, message = "", ""
        meaning = (_LATE if self._token else _NOBODY) if status == 401 else None
        if status == 404 and not key:
            meaning = _NO_BUCKET
        codes = {code: meaning} if meaning else {}
        return refusal(status, headers, self.where(key), code=code, message=message, codes=codes)

    def changed(self, entry: Entry) -> SourceChangedError | None:
        """After a 404 to the GET of a generation: whether the object has another one by now; None where it is
        gone."""
        try:
            now = self.document(entry.key, self.path(entry.key), fields="generation").get("generation")
        except SourceChangedError:
            return None
        why = f"its generation was {entry.token}, and is {now} now"
        return SourceChangedError(
            "the object changed since it was listed", where=self.where(entry.key), why=why
        )
