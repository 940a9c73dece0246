"""Opens the source that a URL means, with the secrets that it needs, and judges tokens.

Steps and workers open sources here alone. A kind's package (`config.source_kinds`) is imported when it is
used, so that nobody loads a library of another store. Only `credentials`, and `open_source` without them,
touch anything: the environment, files of secrets, and for some stores the network or a helper process. All
else is pure.

A *token* is what a store states of an object's version (an etag, a generation); "" where it states none.
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
    """Whether an object with this token can be read on that condition: by a strong etag or a generation, not
    by a date or a weak etag."""
    return of_url(url).pins and bool(token) and " " not in token and not token.startswith("W/")


def may_be_split(url: str, token: str) -> bool:
    """Whether ranges of an object that are read at different times are known to be of one version. An object
    without a version token, or on the web with only a weak etag or a date, is read by one request."""
    return pinned(url, token) if of_url(url).pins else bool(token)


def same_bytes(url: str, token: str) -> bool:
    """Whether the same token of the same source means the same bytes for sure: a folder's (size, times and
    inode together), a strong etag; not a weak one, nor a date."""
    return bool(token) if of_url(url) is FOLDER else pinned(url, token)


def _reading(config: SourceConfig) -> SourceKind:
    """The kind that reads a source. Raises ConfigError for a password or a user in the URL; a user name alone
    is allowed where the protocol takes one (`sftp://user@host`)."""
    user, found, _ = config.url.partition("://")[2].partition("/")[0].rpartition("@")
    if scheme(config.url) and found and (":" in user or not of_url(config.url).user):
        raise ConfigError(
            "user info in a source's URL", hint="name a profile or a credentials_file in storage_options"
        )
    return kind(config.url, config.storage_options)


def credentials(config: SourceConfig) -> object | None:
    """The secrets of a source, resolved here and now; picklable. None when it needs none.

    For the parent process: workers get the result through a pipe, and again by `Source.renew`
    when temporary ones near their end (`expires`). Raises ConfigError, PreflightError.
    """
    if not (module := _reading(config).secrets):
        return None
    secrets: object | None = import_module(f"penstock.sources.{module}").resolve(config)
    return secrets


def expires(secrets: object | None) -> float | None:
    """When credentials end, in seconds since the epoch; None: never, or unknown."""
    found = getattr(secrets, "expires", None)
    return found if isinstance(found, float) else None


def open_source(
    config: SourceConfig,
    dataset: DatasetConfig,
    *,
    credentials: object | None = None,
    keep: Keep | None = None,
) -> Source:
    """The source of a configuration, by `open_source` of its kind's package. Without `credentials` the
    secrets are resolved here; workers give those of their parent. Nothing is listed or read yet. Raises
    ConfigError for a URL or an option that cannot be used, PreflightError where secrets cannot be
    resolved."""
    package = import_module(f"penstock.sources.{_reading(config).package}.source")
    source: Source = package.open_source(config, credentials, dataset=dataset, keep=keep)
    return source
