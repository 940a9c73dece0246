"""Azure Blob Storage as a source: one container and prefix, over HTTP. All requests only read.

A flat account lists in byte order of the names, so its pages are streamed. A hierarchical namespace lists
folder by folder, so its whole listing is sorted on disk. An account that does not state its kind is treated
as hierarchical (`anon`, and many credentials, do not allow the query).
"""

from __future__ import annotations

import re
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from penstock.core.errors import FailedError, PenstockError, TransientError
from penstock.core.model import Listed, SourceChecksum
from penstock.sources.azure.account import HINT, AzureCredentials, place, proof, refused, resolve
from penstock.sources.checksum_headers import decode
from penstock.sources.http.endpoint import endpoint, split
from penstock.sources.http.values import (
    HeaderNames,
    decimal,
    first_values,
    plain,
    query_string,
    quoted,
    stated_in_metadata,
    stated_time,
)
from penstock.sources.listing_order import Objects, in_order
from penstock.sources.objects.answers import amiss, grouped, within
from penstock.sources.objects.client import Described, ObjectClient
from penstock.sources.objects.source import ObjectSource, single_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.sources.azure.account import BlobPrefix, Sign

ARCHIVE = "Archive"  # the access tier of blobs that cannot be read; they keep it while they are rehydrated
_BLOB = re.compile(r"<Blob>(.*?)</Blob>", re.DOTALL)
_NAME = re.compile(r"\s*<Name( Encoded=\"true\")?>([^<]*)</Name>")
_FIELD = re.compile(r"<(Last-Modified|Etag|Content-Length|AccessTier)>([^<]*)</")
# the metadata's mark of a folder's blob, written by hierarchical accounts and Hadoop's drivers
_FOLDER = re.compile(r"<hdi_isfolder>\s*true\s*</", re.IGNORECASE)
_NEXT = re.compile(r"<NextMarker>([^<]*)</NextMarker>")


def understand(text: str, place: BlobPrefix) -> Objects:
    """Parse a page into blobs (their keys are relative to the prefix) and the next page's marker.

    Raises FailedError for a text that is no page of a listing, or a page that groups blobs. Raises
    TransientError for a page that is cut off.
    """
    if "<EnumerationResults" not in text[:2000]:
        raise FailedError(
            "the answer is no listing", where=place.url, hint="check the account and endpoint_url"
        )
    if not text[-200:].rstrip().endswith("</EnumerationResults>"):
        raise TransientError("the listing ends in the middle of a page", where=place.url)
    if "<BlobPrefix>" in text:
        raise grouped(place.url)
    rows: list[Listed] = []
    markers = 0
    dates: dict[str, int] = {}
    blobs = _BLOB.findall(text)
    if len(blobs) != text.count("<Blob>"):
        raise amiss("is malformed", place.url)
    for blob in blobs:
        head, _, rest = blob.partition("<Properties>")
        properties, _, metadata = rest.partition("</Properties>")
        fields, name = dict(_FIELD.findall(properties)), _NAME.match(head)
        size = decimal(fields.get("Content-Length", "").strip())
        if name is None or size is None:
            raise amiss("has an object without key or size", place.url)
        full = plain(name[2])
        if name[1]:
            full = unquote_to_bytes(full).decode("utf-8", "surrogateescape")
        key = within(full, place.prefix, place.url)
        if not key or (not size and _FOLDER.search(metadata)):
            markers += bool(key)
            continue
        date = fields.get("Last-Modified", "")
        if date not in dates:
            dates[date] = stated_time(date, place.url)
        tag = plain(fields.get("Etag", "")).strip('"')
        archived = ARCHIVE if fields.get("AccessTier") == ARCHIVE else ""
        rows.append(Listed(key, size, tag, dates[date], archived=archived))
    following = _NEXT.search(text)
    return Objects(rows, plain(following[1]) if following else "", markers)


class AzureClient(ObjectClient):
    """The dialect: paths are below the container."""

    NAMES = HeaderNames(values=(b"content-md5", b"x-ms-blob-content-md5"))

    def __init__(
        self, config: SourceConfig, credentials: AzureCredentials, proof: Callable[[AzureCredentials], Sign]
    ) -> None:
        """All clients of a source get the same `proof`, so that a token is fetched only once."""
        named = place(config.url)
        super().__init__(named.url, named.prefix, single_name(config))
        self._credentials, self._proof_of = credentials, proof
        self._sign = proof(credentials)
        base = split(credentials.endpoint).path.rstrip("/")
        self.go_to(endpoint(credentials.endpoint, config.reach), f"{base}/{quoted(named.container)}")

    def renew(self, credentials: object) -> None:
        if credentials is not self._credentials:
            assert isinstance(credentials, AzureCredentials)
            self._credentials = credentials
            self._sign = self._proof_of(credentials)

    def signed(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:
        return self._sign(method, path, query, lines)

    def described(self, headers: Mapping[bytes, bytes]) -> Described:
        """Parse the answer to a HEAD. A folder is a directory of a hierarchical account, or a marker that
        Hadoop's drivers wrote."""
        folder = headers.get(b"x-ms-meta-hdi_isfolder", b"").strip().lower() == b"true"
        archived = ARCHIVE if headers.get(b"x-ms-access-tier", b"").decode("latin-1") == ARCHIVE else ""
        return Described(folder, archived, stated_in_metadata(headers.get(b"x-ms-meta-mtime", b"")))

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:
        """Return the MD5 of the whole blob, if its writer stored one, and the answer is of the whole blob."""
        stated = (headers.get(b"x-ms-blob-content-md5") or headers.get(b"content-md5", b"")) if whole else b""
        value = decode(stated.decode("latin-1"), 16) if stated else None
        return [SourceChecksum("md5", "full", value)] if value else []

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        stated = first_values(body)
        code = headers.get(b"x-ms-error-code", b"").decode("latin-1") or stated.get("Code", "")
        message = " ".join(filter(None, (stated.get("Message"), stated.get("AuthenticationErrorDetail"))))
        message = self._credentials.cleaned(" ".join(message.split()))
        return refused(status, code, message, headers, self.where(key), listing=not key)


class AzureSource(ObjectSource[AzureClient, AzureCredentials]):
    """Workers pass their parent's `credentials` (`azure.account.resolve`)."""

    PAGE = NEAR = 5000
    CHECK = f"check the account, the container's name and the credentials\n  {HINT}"
    RESOLVE = staticmethod(resolve)

    def __init__(
        self, config: SourceConfig, credentials: AzureCredentials | None = None, **_: object
    ) -> None:
        self.place = place(config.url)
        super().__init__(config, credentials, self.place.url)
        self._at = self.credentials().endpoint
        self._lock = threading.Lock()
        self._proof: tuple[AzureCredentials, Sign] | None = None

    def client(self) -> AzureClient:
        return AzureClient(self._config, self.credentials(), self._proof_of)

    def _proof_of(self, credentials: AzureCredentials) -> Sign:
        """Return the signing function for these credentials. It is made once, and shared by all clients."""
        with self._lock:
            if self._proof is None or self._proof[0] is not credentials:
                self._proof = credentials, proof(credentials)
            return self._proof[1]

    def page(self, client: AzureClient, token: str, limit: int, begins: str = "") -> Objects:
        pairs = [("restype", "container"), ("comp", "list"), ("include", "metadata")]
        pairs.append(("maxresults", str(limit)))
        pairs += [(k, v) for k, v in (("prefix", self.place.prefix + begins), ("marker", token)) if v]
        text = client.fetched("", query_string(pairs)).decode("utf-8", "surrogateescape")
        return understand(text, self.place)

    def _in_order(self) -> Iterator[Sequence[Listed]]:
        """Stream the listing of a flat account; sort any other on disk."""
        pages = self._pages()
        return self._ascending(pages if self._flat() else in_order(pages))

    def _flat(self) -> bool:
        if self._config.storage_options.get("anon"):
            return False
        with closing(self.client()) as client, suppress(PenstockError):
            connection = client.request("HEAD", "", "comp=properties&restype=account")
            return connection.status == 200 and connection.headers.get(b"x-ms-is-hns-enabled") == b"false"
        return False


open_source = AzureSource
