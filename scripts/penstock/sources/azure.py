"""Azure Blob Storage as a source: one container and prefix, over HTTP; its account, container and secret,
which are resolved once, in the parent process; and the signatures of its requests. All requests only read.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

from penstock.core.errors import (
    ConfigError,
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    TransientError,
)
from penstock.core.model import Listed, SourceChecksum
from penstock.sources.credentials import ENVIRONMENT, keep_off_the_terminal, pairs, read_secret
from penstock.sources.http_endpoint import AUTHORITIES, endpoint, split
from penstock.sources.http_values import (
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
from penstock.sources.object_answers import REFUSED, Meaning, amiss, grouped, refusal, within
from penstock.sources.object_client import AccessToken, Described, ObjectClient
from penstock.sources.object_source import ObjectSource, single_name
from penstock.sources.stated_checksums import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.config.settings import SourceConfig

    # Takes a request's method, path, query and lines; returns the query and header lines to send. Each header
    # line ends in CR LF.
    Sign = Callable[[str, str, str, str], tuple[str, str]]


# Resolves an Azure source's account, container and secret, once, in the parent process; signs requests, and
# translates refusals.
#
# `anon` takes precedence over secrets, and `credentials_file` (lines KEY=VALUE) over the environment
# (AZURE_STORAGE_*). The place that is used has connection_string, account_key, sas_token, or a service
# principal's client_id, client_secret and tenant_id. Without any of these, azure-identity finds a login
# (managed identity, workload identity, `az login`).
#
# A request has a Shared Key signature, a SAS query, or a token that azure-identity fetches. Shared Key
# follows Microsoft's "Authorize with Shared Key" (blob service, version 2009-09-19 and later). Tests compare
# our signatures with those of the SDK.

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
    """Do the same as `object_answers.refusal`, with Azure's codes. A signature outside its period of validity
    gives ExpiredCredentialsError. `message` contains no secret."""
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


# Azure Blob Storage as a source: one container and prefix, over HTTP. All requests only read.
#
# A flat account lists in byte order of the names, so its pages are streamed. A hierarchical namespace lists
# folder by folder, so its whole listing is sorted on disk. An account that does not state its kind is treated
# as hierarchical (`anon`, and many credentials, do not allow the query).

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
