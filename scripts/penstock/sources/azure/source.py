"""Azure Blob Storage as a source: one container and prefix, over HTTP.

A flat account lists in the byte order of the names, and its pages are passed on as they come. An account with
a hierarchical namespace lists folder by folder: its whole listing is sorted on disk, and so is that of an
account that does not say which one it is (`anon`, and many credentials, do not allow the query).

`registry.open_source` makes an `AzureSource` of a URL. It sends requests that only read, and writes nothing
to disk but what is sorted: in the folder that `list_sorted` is given, else where temporary files lie.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.sources.azure.account import HINT, AzureCredentials, place, resolve
from penstock.sources.azure.client import AzureClient
from penstock.sources.azure.page import understand
from penstock.sources.azure.signing import proof
from penstock.sources.external_sort import in_order
from penstock.sources.http.quoting import query_string
from penstock.sources.objects.pages import ascending
from penstock.sources.objects.source import ObjectSource, single_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.config.settings import SourceConfig
    from penstock.core.model import Listed
    from penstock.sources.azure.signing import Signer
    from penstock.sources.objects.pages import Objects


class AzureSource(ObjectSource[AzureClient]):
    """`credentials` come from `azure.account.resolve`; a worker gets them from its parent."""

    PAGE = NEAR = 5000
    CHECK = f"check the account, the container's name and the credentials; {HINT}"

    def __init__(
        self, config: SourceConfig, credentials: AzureCredentials | None = None, *, timeout: float = 60.0
    ) -> None:
        self._config, self._timeout = config, timeout
        self.place = place(config.url)
        known = credentials if credentials is not None else resolve(config)
        super().__init__(self.place.url, known.endpoint, known, single_name(config), times=config.times)
        self._lock = threading.Lock()
        self._proof: tuple[AzureCredentials, Signer] | None = None

    def credentials(self) -> AzureCredentials:
        assert isinstance(self._credentials, AzureCredentials)
        return self._credentials

    def client(self) -> AzureClient:
        options, known = self._config.storage_options, self.credentials()
        return AzureClient(self.place, known, self._proof_of, options, self._timeout, self.single)

    def _proof_of(self, credentials: AzureCredentials) -> Signer:
        """The signer of these credentials: made once, and shared by all clients."""
        with self._lock:
            if self._proof is None or self._proof[0] is not credentials:
                self._proof = credentials, proof(credentials)
            return self._proof[1]

    def resolve(self) -> AzureCredentials:
        return resolve(self._config)

    def page(self, client: AzureClient, token: str, limit: int, begins: str = "") -> Objects:
        pairs = [("restype", "container"), ("comp", "list"), ("include", "metadata")]
        pairs.append(("maxresults", str(limit)))
        pairs += [(k, v) for k, v in (("prefix", self.place.prefix + begins), ("marker", token)) if v]
        text = client.fetched("", query_string(pairs)).decode("utf-8", "surrogateescape")
        return understand(text, self.place)

    def list(self) -> Iterator[Sequence[Listed]]:
        """See `port.Source.list`. The listing of a flat account is streamed; any other is sorted on disk as a
        whole."""
        pages = self._pages()
        self._twice = 0
        below = pages if self._flat() else in_order(pages)
        return self.either(ascending(below, self.url, twice=self.count_twice))

    def _flat(self) -> bool:
        """Whether the account says that its namespace is flat."""
        if self._config.storage_options.get("anon"):
            return False
        client = self.client()
        try:
            connection = client.request("HEAD", "", "comp=properties&restype=account")
            return connection.status == 200 and connection.headers.get(b"x-ms-is-hns-enabled") == b"false"
        except PenstockError:
            return False
        finally:
            client.close()
