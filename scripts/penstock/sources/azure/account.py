"""Which account, container and secret an Azure source uses. Resolved once, in the parent process.

The first of these that is there counts: `anon`; `credentials_file` (KEY=VALUE lines: connection_string,
account_key, sas_token, or client_id, client_secret and tenant_id); the same names in the environment as
AZURE_STORAGE_*; last what azure-identity finds (managed identity, workload identity, `az login`). Secrets are
never shown. `resolve` reads the environment and the credentials file, and sends nothing: access tokens are
fetched by `azure.signing`, with the first request.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from penstock.core.errors import ConfigError, PreflightError
from penstock.sources.http.endpoint import split
from penstock.sources.renewal import ENVIRONMENT
from penstock.sources.secret_file import pairs, read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.settings import SourceConfig

NAMES = ("connection_string", "account_key", "sas_token", "client_id", "client_secret", "tenant_id")
SECRETS = frozenset({"connection_string", "account_key", "sas_token", "client_secret"})
VARIABLES = "AZURE_STORAGE_"
"""What the names of the environment's variables begin with."""
HINT = "give storage_options the account_name, with a credentials_file or `anon: true`"
_CONTAINER = re.compile(r"\$root|\$web|[a-z0-9](?:-?[a-z0-9]){2,62}")


class BlobPrefix(NamedTuple):
    """What a URL names."""

    container: str
    prefix: str
    """"" or ending in a slash."""
    host: str
    """The account's host, where the URL names it, else ""."""

    @property
    def url(self) -> str:
        """For people and for the seal."""
        return f"az://{self.container}/{self.prefix}"


@dataclass(frozen=True)
class AzureCredentials:
    """What a worker needs, beside the configuration, to speak to the account. Picklable."""

    endpoint: str
    """Where the blobs are, as in `https://account.blob.core.windows.net`."""
    connection: str = field(default="", repr=False)
    """A connection string, complete; "" when tokens come from `principal` or from the environment."""
    principal: Mapping[str, str] = field(default_factory=dict, repr=False)
    """client_id, client_secret and tenant_id, or nothing."""
    origin: str = ""
    """See `renewal.origin`."""

    @property
    def fields(self) -> dict[str, str]:
        """Of the connection string, by their names in lower case."""
        pairs = (item.partition("=") for item in self.connection.split(";") if "=" in item)
        return {name.lower(): value for name, _, value in pairs}

    def cleaned(self, text: str) -> str:
        """`text` without any secret of this account, and without signatures."""
        for _, secret in _secrets(self.connection, self.principal):
            text = text.replace(secret, "...")
        return without_signatures(text)


def without_signatures(text: str) -> str:
    """`text` without the signatures of shared access, as they stand in a URL's query."""
    return re.sub(r"(?i)\b(sig|signature)=[^&\s]+", r"\1=...", text)


def place(url: str) -> BlobPrefix:
    """`az://container/prefix`, or `abfs://container@account.dfs.core.windows.net/prefix`.

    Raises ConfigError."""
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
    """The credentials that a source's configuration leads to. Raises PreflightError for secrets that are
    missing, incomplete or not kept safely, ConfigError for a URL or options that make no sense."""
    options = config.storage_options
    given = _given(options)
    if options.get("anon"):
        origin = ""
    elif options.get("credentials_file"):
        origin = os.path.expanduser(str(options["credentials_file"]))
    elif given.keys() & SECRETS:
        origin = ENVIRONMENT
    else:
        origin = "the account's login (managed identity, workload identity or `az login`)"
    return replace(_resolved(config, given), origin=origin)


def _resolved(config: SourceConfig, given: Mapping[str, str]) -> AzureCredentials:
    options = config.storage_options
    where = place(config.url)
    if not given.get("connection_string"):
        endpoint = _endpoint(config, where, given)
        return _by_options(config, endpoint, given)
    connection = given["connection_string"].strip().rstrip(";")
    fields = dict(item.split("=", 1) for item in connection.split(";") if "=" in item)
    named = {name.lower(): value for name, value in fields.items()}
    if named.get("usedevelopmentstorage", "").lower() == "true":
        raise ConfigError(
            "a connection string for development storage", hint="name its BlobEndpoint in the string instead"
        )
    account, suffix = named.get("accountname", ""), named.get("endpointsuffix", "core.windows.net")
    endpoint = str(options.get("endpoint_url") or named.get("blobendpoint") or "")
    if not endpoint and not account:
        raise PreflightError("the connection string names no account", where=config.url, hint=HINT)
    endpoint = endpoint or f"https://{account}.blob.{suffix}"
    kept = [f"{k}={v}" for k, v in fields.items() if k.lower() != "blobendpoint"]
    return AzureCredentials(endpoint.rstrip("/"), ";".join([*kept, f"BlobEndpoint={endpoint.rstrip('/')}"]))


def _given(options: Mapping[str, object]) -> dict[str, str]:
    """The secrets and the account's name, from the credentials file, or from the environment where no file is
    named. {} with `anon`."""
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
    if os.environ.get("AZURE_STORAGE_CONNECTION_STRING") and not (
        settings.keys() & {"connection_string", "account_key", "sas_token"}
    ):
        raise PreflightError(
            "AZURE_STORAGE_CONNECTION_STRING in the environment contradicts the credentials file",
            where=path,
            hint="unset one of them",
        )
    return settings


def _endpoint(config: SourceConfig, where: BlobPrefix, given: Mapping[str, str]) -> str:
    options = config.storage_options
    if options.get("endpoint_url"):
        url = str(options["endpoint_url"])
        components = split(url)
        if components.username or components.password or components.query:
            raise ConfigError("a secret in a URL", where="endpoint_url", hint=HINT)
        return url.rstrip("/")
    host = str(options.get("account_host") or where.host.replace(".dfs.", ".blob.", 1))
    account = _account(config, given)
    if not host and not account:
        raise ConfigError("the source names no account", where=config.url, hint=HINT)
    return f"https://{host or account + '.blob.core.windows.net'}"


def _account(config: SourceConfig, given: Mapping[str, str]) -> str:
    return str(
        config.storage_options.get("account_name")
        or given.get("account_name")
        or os.environ.get(VARIABLES + "ACCOUNT_NAME")
        or place(config.url).host.partition(".")[0]
    )


def _by_options(config: SourceConfig, endpoint: str, given: Mapping[str, str]) -> AzureCredentials:
    if config.storage_options.get("anon"):
        return AzureCredentials(endpoint, f"BlobEndpoint={endpoint}")
    if given.get("account_key"):
        account = _account(config, given) or (split(endpoint).hostname or "").partition(".")[0]
        key = given["account_key"]
        return AzureCredentials(endpoint, f"BlobEndpoint={endpoint};AccountName={account};AccountKey={key}")
    if given.get("sas_token"):
        token = given["sas_token"].lstrip("?")
        if "sig" not in dict(parse_qsl(token)):
            raise PreflightError("the sas_token has no signature", where=config.url, hint=HINT)
        return AzureCredentials(endpoint, f"BlobEndpoint={endpoint};SharedAccessSignature={token}")
    if given.get("client_secret"):
        names = ("client_id", "client_secret", "tenant_id")
        principal = {name: given.get(name, "") for name in names}
        if not all(principal.values()):
            missing = ", ".join(name for name, value in principal.items() if not value)
            raise PreflightError("a service principal is incomplete", why=f"without {missing}", hint=HINT)
        return AzureCredentials(endpoint, "", principal)
    return AzureCredentials(endpoint)


def _secrets(connection: str, principal: Mapping[str, str]) -> list[tuple[str, str]]:
    fields = dict(item.split("=", 1) for item in connection.split(";") if "=" in item)
    found = [(k.lower(), v) for k, v in (*fields.items(), *principal.items())]
    return [(k, v) for k, v in found if k in ("accountkey", "sharedaccesssignature", "client_secret") and v]
