"""Google Cloud Storage through gcsfs. Requests of the JSON API go through gcsfs's signed `call`, for the
listed generation of an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.model import Listed
from penstock.errors import (
    FailedError,
    ObjectError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.backoff import asked_for
from penstock.sources.checksum_headers import google_claims
from penstock.sources.gcs.source import FIELDS, KIND
from penstock.sources.generic import object_library
from penstock.sources.generic.info import claims_of, nanoseconds
from penstock.sources.generic.object_library import Answer
from penstock.sources.objects.json_text import document
from penstock.sources.objects.pages import Objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.model import Entry

PLAIN = {"Accept-Encoding": "identity"}
STORED = {"Accept-Encoding": "gzip"}
"""An object that is stored compressed comes as it is stored, not decompressed on the way."""


class GcsfsObjects:
    """See `ObjectLibrary`."""

    in_order = True
    least = 1

    def defaults(self) -> Mapping[str, object]:
        return {"access": "read_only", "session_kwargs": {"auto_decompress": False}}

    def page(self, fs: Any, bucket: str, prefix: str, token: str, limit: int) -> Objects:
        where = f"gs://{bucket}/{prefix}"
        _, text = fs.call(
            "GET",
            "b/{}/o",
            bucket,
            headers=PLAIN,
            timeout=object_library.LONGEST,
            prefix=prefix or None,
            pageToken=token or None,
            maxResults=limit,
            fields=FIELDS,
        )
        found = document(text, where)
        if found.get("kind") != KIND:
            raise FailedError("the answer is no listing", where=where, why=f"kind {found.get('kind')!r}")
        objects = [
            Listed(one["name"], int(one["size"]), str(one["generation"]), nanoseconds(one["updated"]))
            for one in found.get("items", ())
        ]
        return Objects(objects, found.get("nextPageToken", ""))

    def fetch(self, fs: Any, bucket: str, name: str, entry: Entry, offset: int, length: int) -> Answer:
        pinned = {"generation": entry.token or None, "timeout": object_library.LONGEST}
        if not length:
            _, text = fs.call("GET", "b/{}/o/{}", bucket, name, headers=PLAIN, **pinned)
            seen = document(text, f"gs://{bucket}/{name}")
            return Answer(b"", 200, int(seen["size"]), {}, str(seen["generation"]), claims_of(seen))
        asked = dict(STORED)
        if length != entry.size:
            asked["Range"] = f"bytes={offset}-{offset + length - 1}"
        told, data = fs.call("GET", "b/{}/o/{}", bucket, name, alt="media", headers=asked, **pinned)
        headers = {name.lower().encode(): value.encode() for name, value in told.items()}
        status = 206 if b"content-range" in headers else 200
        claims = google_claims(",".join(told.getall("X-Goog-Hash", ())))
        return Answer(data, status, len(data), headers, told.get("X-Goog-Generation"), claims)

    def failure(self, error: BaseException, where: str) -> PenstockError | None:
        from aiohttp import ClientError
        from gcsfs.retry import HttpError
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        why = str(error)[:300] or type(error).__name__
        if isinstance(error, FileNotFoundError):  # also of a generation that is no longer there
            return SourceChangedError(
                "the object is gone, or changed since it was listed", where=where, why=why
            )
        if isinstance(error, GoogleAuthError):
            return FailedError("there are no credentials for the source", where=where, why=why)
        if isinstance(error, HttpError):
            status = error.code if isinstance(error.code, int) else 0
            if status == 401:
                return FailedError("the store refuses the credentials", where=where, why=why)
            if status in (0, 408, 429) or status >= 500:
                return asked_for("the store asks for patience", where, why, status, "", None)
            if status == 416:
                return SourceChangedError("the object is shorter than it was listed", where=where, why=why)
        if isinstance(error, (HttpError, ValueError)) or why.startswith("Forbidden"):
            return ObjectError("the store refuses the object", where=where, why=why)
        if isinstance(error, (OSError, ClientError, RequestException)):
            return TransientError("the exchange with the server failed", where=where, why=why)
        return None
