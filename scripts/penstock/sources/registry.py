"""Opens the source of a URL with its secrets, and judges version tokens.

The package of a kind of source (`config.source_kinds`) is imported on use, so no other store's library is
loaded. Only `credentials`, and `open_source` without credentials, read the environment and files of secrets,
and may use the network or a helper process. A *token* is a store's mark of an object's version (an etag, a
generation), or "" if the store states none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER, SourceKind, kind, of_url, scheme
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.sources.port import Keep, Source


def pinned(url: str, token: str) -> bool:
    """Return whether reads can be conditional on this token. They can for a strong etag or a generation, but
    not for a date or a weak etag."""
    return of_url(url).pins and bool(token) and " " not in token and not token.startswith("W/")


def may_be_split(url: str, token: str) -> bool:
    """Return whether ranges read at different times are sure to be of one version. If not, one request has to
    read the whole object."""
    return pinned(url, token) if of_url(url).pins else bool(token)


def same_bytes(url: str, token: str) -> bool:
    """Return whether an equal token means equal bytes. This holds for a folder's files (size, times, inode)
    and for strong etags, but not for weak etags or dates."""
    return bool(token) if of_url(url) is FOLDER else pinned(url, token)


def _reading(config: SourceConfig) -> SourceKind:
    """Return the kind that reads this source. Raises ConfigError for a user or password in the URL, but
    allows a user name alone if the protocol takes it (`sftp://user@host`)."""
    user, at_sign, _ = config.url.partition("://")[2].partition("/")[0].rpartition("@")
    if scheme(config.url) and at_sign and (":" in user or not of_url(config.url).user):
        raise ConfigError(
            "user info in a source's URL", hint="name a profile or a credentials_file in storage_options"
        )
    return kind(config.url, config.storage_options)


def credentials(config: SourceConfig) -> object | None:
    """Resolve the secrets of a source now, as a picklable object; None if it needs no secrets.

    The parent process calls this. Workers get the result through a pipe. Before temporary secrets expire
    (`expires`), they get new secrets by `Source.renew`. Raises ConfigError, PreflightError.
    """
    if not (module := _reading(config).secrets):
        return None
    secrets: object | None = import_module(f"penstock.sources.{module}").resolve(config)
    return secrets


def expires(secrets: object | None) -> float | None:
    """Return when the credentials expire, in seconds since the epoch; None if never, or unknown."""
    end = getattr(secrets, "expires", None)
    return end if isinstance(end, float) else None


def open_source(
    config: SourceConfig,
    dataset: DatasetConfig,
    *,
    credentials: object | None = None,
    keep: Keep | None = None,
) -> Source:
    """Open the source of a configuration, by `open_source` of its kind's package. Nothing is listed or read
    yet.

    Workers pass their parent's `credentials`; without them the secrets are resolved here. Raises ConfigError
    for an unusable URL or option, PreflightError if the secrets cannot be resolved.
    """
    package = import_module(f"penstock.sources.{_reading(config).package}.source")
    source: Source = package.open_source(config, credentials, dataset=dataset, keep=keep)
    return source
