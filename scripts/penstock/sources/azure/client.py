"""Azure's dialect of `objects.client`: how a request is written and signed, and what headers and refusals
mean. `azure.source` makes a client for each thread; it sends requests to the container, and only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.model import SourceChecksum
from penstock.sources.azure.account import AzureCredentials
from penstock.sources.azure.page import ARCHIVE
from penstock.sources.azure.refusals import refused
from penstock.sources.checksum_headers import decode
from penstock.sources.http.dates import stated_in_metadata
from penstock.sources.http.endpoint import endpoint, split
from penstock.sources.http.quoting import quoted
from penstock.sources.http.response_template import HeaderNames
from penstock.sources.objects.client import ObjectClient
from penstock.sources.objects.xml_text import first_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.core.errors import PenstockError
    from penstock.core.model import Entry
    from penstock.sources.azure.account import BlobPrefix
    from penstock.sources.azure.signing import Signer
    from penstock.sources.objects.client import Request


class AzureClient(ObjectClient):
    """A path is below the container."""

    NAMES = HeaderNames(values=(b"content-md5", b"x-ms-blob-content-md5"))

    def __init__(
        self,
        place: BlobPrefix,
        credentials: AzureCredentials,
        proof: Callable[[AzureCredentials], Signer],
        options: Mapping[str, object],
        timeout: float,
        single: str = "",
    ) -> None:
        """`proof`: shared by the clients of a source, so that a token is fetched once. `single`: as of
        `ObjectClient`."""
        super().__init__(place.url, single)
        self._credentials, self._proof_of = credentials, proof
        self._proof = proof(credentials)
        self._prefix = place.prefix
        base = split(credentials.endpoint).path.rstrip("/")
        server = endpoint(credentials.endpoint, options, timeout=timeout)
        self.go_to(server, f"{base}/{quoted(place.container)}")
        self._lines = f"Host: {server.authority}\r\nAccept-Encoding: identity\r\n{server.proxy_lines}"

    def renew(self, credentials: object) -> None:
        if credentials is not self._credentials:
            assert isinstance(credentials, AzureCredentials)
            self._credentials = credentials
            self._proof = self._proof_of(credentials)

    def head(self, method: str, path: str, query: str, lines: str) -> bytes:
        path = self.root + path
        query, lines = self._proof.sign(method, path, query, lines)
        target = f"{self.connection.endpoint.origin}{path}{'?' if query else ''}{query}"
        return f"{method} {target} HTTP/1.1\r\n{self._lines}{lines}\r\n".encode("latin-1")

    def get(self, entry: Entry) -> Request:
        lines = f'If-Match: "{entry.token}"\r\n' if entry.token else ""
        return f"/{quoted(self.name_in(self._prefix, entry.key))}", "", lines

    def is_folder(self, headers: Mapping[bytes, bytes]) -> bool:
        """A directory of a hierarchical account, or what Hadoop's drivers write for one."""
        return headers.get(b"x-ms-meta-hdi_isfolder", b"").strip().lower() == b"true"

    def archived(self, headers: Mapping[bytes, bytes]) -> str:
        return ARCHIVE if headers.get(b"x-ms-access-tier", b"").decode("latin-1") == ARCHIVE else ""

    def metadata_time(self, headers: Mapping[bytes, bytes]) -> int:
        return stated_in_metadata(headers.get(b"x-ms-meta-mtime", b""))

    def checksums(self, headers: Mapping[bytes, bytes], *, whole: bool) -> Sequence[SourceChecksum]:
        """The blob's own MD5, which is of all its bytes whatever the range was; where whoever wrote it left
        one."""
        stated = (headers.get(b"x-ms-blob-content-md5") or headers.get(b"content-md5", b"")) if whole else b""
        value = decode(stated.decode("latin-1"), 16) if stated else None
        return [SourceChecksum("md5", "full", value)] if value else []

    def refusal(self, status: int, headers: Mapping[bytes, bytes], body: bytes, key: str) -> PenstockError:
        told = first_values(body)
        code = headers.get(b"x-ms-error-code", b"").decode("latin-1") or told.get("Code", "")
        message = " ".join(filter(None, (told.get("Message"), told.get("AuthenticationErrorDetail"))))
        message = self._credentials.cleaned(" ".join(message.split()))
        return refused(status, code, message, headers, self.where(key), listing=not key)
