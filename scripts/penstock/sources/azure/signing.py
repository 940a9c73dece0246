"""Proofs of who sends a request to Azure: the account's key (Shared Key), a signature in the query (SAS), or
an access token from azure-identity.

Shared Key follows Microsoft's "Authorize with Shared Key" (blob service, version 2009-09-19 and later); tests
compare it with the SDK's own signer.

`azure.source` makes one signer of its credentials (`proof`), and its clients call `sign` for each request.
Keys and signatures are computed here; `Token` has azure-identity fetch a token over the network (or start
`az`) where it has none that lasts.
"""

from __future__ import annotations

import base64
import hmac
import threading
from email.utils import formatdate
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from penstock.core.errors import FailedError
from penstock.sources.azure.account import HINT, AzureCredentials
from penstock.sources.azure.refusals import failure
from penstock.sources.library_logs import keep_off_the_terminal
from penstock.sources.objects.access_token import AccessToken

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "2021-12-02"
"""`x-ms-version` of every request: newer ones add nothing that is read."""
SCOPE = "https://storage.azure.com/.default"
"""What an access token is requested for."""
EARLY = 300.0
"""Seconds before a token's end at which a new one is fetched."""

IMPATIENT: Mapping[str, int] = {"connection_timeout": 10, "read_timeout": 10, "retry_total": 1}
"""Seconds, and retries, for each way that azure-identity tries: its own limits are 300 s, four times. `az`
has 10 s as it is."""


class Signer(Protocol):
    """What a request carries."""

    def sign(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:
        """The query and the header lines as they are sent; `path`, `query` and `lines` as in a request. Each
        header line ends in CR LF."""


class Unsigned:
    """Nothing, or the signature that stands in every query."""

    def __init__(self, signature: str = "") -> None:
        self._signature = signature

    def sign(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:  # noqa: ARG002
        query = "&".join(filter(None, (query, self._signature)))
        return query, f"x-ms-version: {VERSION}\r\n{lines}"


class SharedKey:
    """HMAC-SHA256 over the request by the account's key."""

    def __init__(self, account: str, key: str) -> None:
        """Raises FailedError for a key that is not written in base64."""
        self._account = account
        try:
            self._key = base64.b64decode(key.encode(), validate=True)
        except ValueError:
            raise FailedError("the account key is not written as Azure writes it", hint=HINT) from None

    def sign(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:
        stamp = formatdate(usegmt=True)
        text = self.canonical(method, path, query, lines, stamp)
        signature = base64.b64encode(hmac.digest(self._key, text.encode(), "sha256")).decode("ascii")
        return query, (
            f"x-ms-date: {stamp}\r\nx-ms-version: {VERSION}\r\n{lines}"
            f"Authorization: SharedKey {self._account}:{signature}\r\n"
        )

    def canonical(self, method: str, path: str, query: str, lines: str, stamp: str) -> str:
        """The text that is signed."""
        headers = dict(line.split(": ", 1) for line in lines.split("\r\n") if line)
        own = ("If-Match", "If-None-Match", "If-Unmodified-Since", "Range")
        pairs = sorted(unquote(pair).partition("=")[::2] for pair in query.split("&") if pair)
        return (
            f"{method}\n\n\n\n\n\n\n\n"
            + "".join(f"{headers.get(name, '')}\n" for name in own)
            + f"x-ms-date:{stamp}\nx-ms-version:{VERSION}\n/{self._account}{path}"
            + "".join(f"\n{name.lower()}:{value}" for name, value in pairs)
        )


class Token:
    """An access token of a service principal, or of what azure-identity finds around (managed identity,
    workload identity, `az login`). Shared by the threads of a source."""

    def __init__(self, credentials: AzureCredentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._source: object = None
        self._token = AccessToken("", 0.0)

    def sign(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:  # noqa: ARG002
        """Raises FailedError where there are no credentials, TransientError for the network."""
        with self._lock:
            if not self._token.lasts(EARLY):
                self._fetch()
            line = self._token.line
        return query, f"x-ms-version: {VERSION}\r\n{lines}{line}"

    def _fetch(self) -> None:
        from azure.core.exceptions import AzureError
        from azure.identity import ClientSecretCredential, DefaultAzureCredential

        keep_off_the_terminal("azure", "msal")
        principal: Mapping[str, str] = self._credentials.principal
        try:
            if self._source is None:
                kind = ClientSecretCredential if principal else DefaultAzureCredential
                self._source = kind(**principal, **IMPATIENT)  # type: ignore[arg-type]
            assert isinstance(self._source, (ClientSecretCredential, DefaultAzureCredential))
            token = self._source.get_token(SCOPE)
        except (AzureError, OSError) as error:
            raise failure(error, self._credentials.cleaned, self._credentials.endpoint) from None
        except ValueError as error:
            why = self._credentials.cleaned(str(error))
            where = self._credentials.endpoint
            raise FailedError("the account cannot be used", where=where, why=why, hint=HINT) from None
        self._token = AccessToken(token.token, float(token.expires_on))


def proof(credentials: AzureCredentials) -> Signer:
    """What these credentials prove themselves by. Raises FailedError for ones that cannot be used."""
    if not credentials.connection:
        return Token(credentials)
    given = credentials.fields
    if given.get("accountkey"):
        if not given.get("accountname"):
            raise FailedError("an account key without the account's name", hint=HINT)
        return SharedKey(given["accountname"], given["accountkey"])
    return Unsigned(given.get("sharedaccesssignature", "").lstrip("?"))
