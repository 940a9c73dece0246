"""Resolves an Azure source's account, container and secret, once, in the parent process; signs requests, and
translates refusals.

`anon` takes precedence over secrets, and `credentials_file` (lines KEY=VALUE) over the environment
(AZURE_STORAGE_*). The place that is used has connection_string, account_key, sas_token, or a service
principal's client_id, client_secret and tenant_id. Without any of these, azure-identity finds a login
(managed identity, workload identity, `az login`).

A request has a Shared Key signature, a SAS query, or a token that azure-identity fetches. Shared Key follows
Microsoft's "Authorize with Shared Key" (blob service, version 2009-09-19 and later). Tests compare our
signatures with those of the SDK.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import threading
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote

from penstock.core.errors import (
    ConfigError,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    TransientError,
)
from penstock.sources.credentials import ENVIRONMENT, keep_off_the_terminal, pairs, read_secret
from penstock.sources.http.endpoint import split
from penstock.sources.http.sockets import AUTHORITIES
from penstock.sources.objects.access_token import AccessToken
from penstock.sources.objects.answers import REFUSED, Meaning, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.config.settings import SourceConfig

    # Takes a request's method, path, query and lines; returns the query and header lines to send. Each header
    # line ends in CR LF.
    Sign = Callable[[str, str, str, str], tuple[str, str]]

NAMES = ("connection_string", "account_key", "sas_token", "client_id", "client_secret", "tenant_id")
SECRETS = frozenset({"connection_string", "account_key", "sas_token", "client_secret"})
VARIABLES = "AZURE_STORAGE_"  # prefix of the names of the environment variables
HINT = (
    "public container: `storage_options: {account_name: NAME, anon: true}`\n"
    "  a file with a key or token, mode 0600: `storage_options: {account_name: NAME, credentials_file: FILE}`"
)
_CONTAINER = re.compile(r"\$root|\$web|[a-z0-9](?:-?[a-z0-9]){2,62}")


class BlobPrefix(NamedTuple):
    """The container and prefix that a URL names."""

    container: str
    prefix: str  # "" or ending in a slash
    host: str  # the account's host; "" if the URL does not name it

    @property
    def url(self) -> str:
        return f"az://{self.container}/{self.prefix}"


@dataclass(frozen=True)
class AzureCredentials:
    """The address and secret that a worker needs beside the configuration. Picklable."""

    endpoint: str  # the URL of the blob service, such as `https://account.blob.core.windows.net`
    account: str = ""
    key: str = field(default="", repr=False)  # the account key
    signature: str = field(default="", repr=False)  # a shared access signature, as fields of a query
    # whether requests carry an access token, for `principal` or for a login that azure-identity finds
    login: bool = False
    # values of client_id, client_secret and tenant_id, by these names; empty without a service principal
    principal: Mapping[str, str] = field(default_factory=dict, repr=False)
    origin: str = ""  # see `sources.credentials`

    def cleaned(self, text: str) -> str:
        """Remove this account's secrets and signatures from `text`."""
        for secret in (self.key, self.signature, self.principal.get("client_secret", "")):
            text = text.replace(secret, "...") if secret else text
        return without_signatures(text)


def without_signatures(text: str) -> str:
    """Remove shared access signatures from the queries of URLs in `text`."""
    return re.sub(r"(?i)\b(sig|signature)=[^&\s]+", r"\1=...", text)


def place(url: str) -> BlobPrefix:
    """Parse `az://container/prefix`, or `abfs://container@account.dfs.core.windows.net/prefix`. Raises
    ConfigError."""
    rest = url.partition("://")[2]
    name, _, prefix = rest.partition("/")
    container, _, host = name.partition("@")
    if not _CONTAINER.fullmatch(container) or ":" in host:
        raise ConfigError(
            "the URL names no container",
            where=f"{url.partition('://')[0]}://...",
            hint="write az://container/prefix/, and the account as `account_name` in storage_options",
        )
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    return BlobPrefix(container, prefix, host)


def resolve(config: SourceConfig) -> AzureCredentials:
    """Find the account and its secret. Raises PreflightError for secrets that are missing, incomplete or not
    kept safely, ConfigError for an unusable URL or options."""
    options = config.storage_options
    settings = _given(options)
    if options.get("anon"):
        origin = ""
    elif options.get("credentials_file"):
        origin = os.path.expanduser(str(options["credentials_file"]))
    elif settings.keys() & SECRETS:
        origin = ENVIRONMENT
    else:
        origin = "the account's login (managed identity, workload identity or `az login`)"
    return replace(_resolved(config, settings), origin=origin)


def _resolved(config: SourceConfig, settings: Mapping[str, str]) -> AzureCredentials:
    where = place(config.url)
    if not settings.get("connection_string"):
        return _by_options(config, where, settings)
    pairs = (item.partition("=") for item in settings["connection_string"].strip().split(";") if "=" in item)
    named = {name.lower(): value for name, _, value in pairs}
    if named.get("usedevelopmentstorage", "").lower() == "true":
        raise ConfigError(
            "a connection string for development storage", hint="name its BlobEndpoint in the string instead"
        )
    account, suffix = named.get("accountname", ""), named.get("endpointsuffix", "core.windows.net")
    endpoint = str(config.storage_options.get("endpoint_url") or named.get("blobendpoint") or "")
    if not endpoint and not account:
        raise PreflightError("the connection string names no account", where=config.url, hint=HINT)
    endpoint = (endpoint or f"https://{account}.blob.{suffix}").rstrip("/")
    signature = named.get("sharedaccesssignature", "").lstrip("?")
    return AzureCredentials(endpoint, account, named.get("accountkey", ""), signature)


def _given(options: Mapping[str, object]) -> dict[str, str]:
    """Read secrets and account name from the credentials file, or else the environment; {} with `anon`."""
    if options.get("anon"):
        return {}
    path = options.get("credentials_file")
    if not path:
        settings = {name: os.environ.get(VARIABLES + name.upper(), "") for name in (*NAMES, "account_name")}
        return {name: value for name, value in settings.items() if value}
    path = os.path.expanduser(str(path))
    lines = pairs(read_secret(path))
    settings = {name.lower().removeprefix(VARIABLES.lower()): value for name, value in lines.items()}
    if not any(settings.get(name) for name in SECRETS):
        raise PreflightError(
            "the credentials file has no secret for Azure",
            where=path,
            hint="write account_key=..., sas_token=..., connection_string=..., or client_id=..., "
            "client_secret=... and tenant_id=...",
        )
    return settings


def _endpoint(options: Mapping[str, object], where: BlobPrefix, account: str, url: str) -> str:
    if options.get("endpoint_url"):
        stated = str(options["endpoint_url"])
        components = split(stated)
        if components.username or components.password or components.query:
            raise ConfigError("a secret in a URL", where="endpoint_url", hint=HINT)
        return stated.rstrip("/")
    host = str(options.get("account_host") or where.host.replace(".dfs.", ".blob.", 1))
    if not host and not account:
        raise ConfigError("the source names no account", where=url, hint=HINT)
    return f"https://{host or account + '.blob.core.windows.net'}"


def _by_options(config: SourceConfig, where: BlobPrefix, settings: Mapping[str, str]) -> AzureCredentials:
    options = config.storage_options
    account = str(
        options.get("account_name")
        or settings.get("account_name")
        or os.environ.get(VARIABLES + "ACCOUNT_NAME")
        or where.host.partition(".")[0]
    )
    endpoint = _endpoint(options, where, account, config.url)
    if options.get("anon"):
        return AzureCredentials(endpoint)
    if settings.get("account_key"):
        account = account or (split(endpoint).hostname or "").partition(".")[0]
        return AzureCredentials(endpoint, account, settings["account_key"])
    if settings.get("sas_token"):
        token = settings["sas_token"].lstrip("?")
        if "sig" not in dict(parse_qsl(token)):
            raise PreflightError("the sas_token has no signature", where=config.url, hint=HINT)
        return AzureCredentials(endpoint, signature=token)
    names = ("client_id", "client_secret", "tenant_id") if settings.get("client_secret") else ()
    if missing := ", ".join(name for name in names if not settings.get(name)):
        raise PreflightError("a service principal is incomplete", why=f"without {missing}", hint=HINT)
    return AzureCredentials(endpoint, login=True, principal={name: settings[name] for name in names})


_WRONG_KEYS = Meaning(FailedError, "the store refuses the credentials", HINT)
_NO_CONTAINER = Meaning(FailedError, "there is no such container")
_ARCHIVED = Meaning(ObjectError, "the object is archived", "rehydrate it first")
# {error code of Azure: meaning}, whatever the status
CODES = {
    **dict.fromkeys(
        (
            "NoAuthenticationInformation",
            "AuthorizationFailure",
            "PublicAccessNotPermitted",
            "AccountIsDisabled",
        ),
        _WRONG_KEYS,
    ),
    # After these two codes: the key was regenerated, or the login withdrawn.
    **dict.fromkeys(("AuthenticationFailed", "InvalidAuthenticationInfo"), REFUSED),
    **dict.fromkeys(("ContainerNotFound", "ContainerBeingDeleted", "ResourceNotFound"), _NO_CONTAINER),
    **dict.fromkeys(("BlobArchived", "BlobBeingRehydrated"), _ARCHIVED),
}


def refused(
    status: int,
    code: str,
    message: str,
    headers: Mapping[bytes, bytes],
    where: str,
    *,
    listing: bool = False,
) -> PenstockError:
    """Do the same as `answers.refusal`, with Azure's codes. A signature outside its period of validity gives
    ExpiredCredentialsError. `message` contains no secret."""
    if status == 403 and "time frame" in message:
        why = f"status {status} {code}"
        return ExpiredCredentialsError("the signature is not valid at this time", where=where, why=why)
    return refusal(status, headers, where, code=code, message=message, codes=CODES, listing=listing)


def failure(error: BaseException, cleaned: Callable[[str], str], where: str) -> PenstockError:
    """Translate an exception of azure-identity; `cleaned` removes secrets.

    If no server answered, return TransientError for a network fault, FailedError for a missing token or an
    untrusted certificate.
    """
    message = cleaned(str(getattr(error, "message", "") or error)).strip()
    status = getattr(error, "status_code", None)
    if not status:
        return _without_answer(error, message.partition("\n")[0][:300], where)
    code = getattr(error, "error_code", None)
    stated = getattr(getattr(error, "response", None), "headers", None) or {}
    headers = {b"retry-after": str(stated.get("Retry-After", "")).encode("latin-1", "replace")}
    message = message if "time frame" in message else message.partition("\n")[0]
    return refused(status, str(getattr(code, "value", code) or ""), message, headers, where)


def _without_answer(error: BaseException, message: str, where: str) -> PenstockError:
    from azure.core.exceptions import ClientAuthenticationError

    if isinstance(error, ClientAuthenticationError):
        return FailedError("there are no credentials for the source", where=where, why=message, hint=HINT)
    if "CERTIFICATE_VERIFY_FAILED" in message:
        what, hint = "the server's certificate is not trusted", AUTHORITIES
        return FailedError(what, where=where, why=message, hint=hint)
    what = "the exchange with the server failed"
    return TransientError(what, where=where, why=message or type(error).__name__)


VERSION = "2021-12-02"  # `x-ms-version` of every request; newer versions add nothing that penstock reads
SCOPE = "https://storage.azure.com/.default"  # the scope of requested access tokens
EARLY = 300.0  # seconds before a token's end at which a new token is fetched

# Seconds and retries for each method of login that azure-identity tries. By default azure-identity would try
# four times, for 300 s each. Calls of `az` end after 10 s anyway.
IMPATIENT: Mapping[str, int] = {"connection_timeout": 10, "read_timeout": 10, "retry_total": 1}


class SharedKey:
    """Signs requests by HMAC-SHA256 with the account's key."""

    def __init__(self, account: str, key: str) -> None:
        """Raises FailedError for a key that is not base64."""
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
        """Return the text of which the signature is computed."""
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
    """Adds an access token, of a service principal or a login, to requests. All threads of a source share
    it."""

    def __init__(self, credentials: AzureCredentials) -> None:
        self._credentials = credentials
        self._lock = threading.Lock()
        self._source: object = None
        self._token = AccessToken("", 0.0)

    def sign(self, method: str, path: str, query: str, lines: str) -> tuple[str, str]:  # noqa: ARG002
        """Add the token to the lines. Raises FailedError for missing credentials, TransientError for a
        network fault."""
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


def proof(credentials: AzureCredentials) -> Sign:
    """Return the function that signs requests. Raises FailedError for unusable credentials."""
    if credentials.login:
        return Token(credentials).sign
    if credentials.key and not credentials.account:
        raise FailedError("an account key without the account's name", hint=HINT)
    if credentials.key:
        return SharedKey(credentials.account, credentials.key).sign
    head = f"x-ms-version: {VERSION}\r\n"
    return lambda _, __, query, lines: ("&".join(filter(None, (query, credentials.signature))), head + lines)
