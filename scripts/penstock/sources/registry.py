"""Which source a URL means, what sources of its kind can do, and the secrets they need.

Steps and workers open sources here alone. An implementation is imported when it is used, so that nobody loads
a library of another store. Only `credentials`, and `open_source` without them, touch anything: the
environment, files of secrets, and for some stores the network or a helper process. All else is pure.

A *token* is what a store states of an object's version (an etag, a generation); "" where it states none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config import source_kinds
from penstock.config.source_kinds import AZURE, FOLDER_SCHEMES, FTP, GCS, NAMED_USERS, S3, SILENT, WEB
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config.settings import DatasetConfig, SourceConfig
    from penstock.sources.port import Source


def scheme(url: str) -> str:
    """The part before `://`, in lower case; "" for a path. Raises ConfigError for a password or a user in the
    URL; a user name alone is allowed where the protocol takes one (`sftp://user@host`)."""
    name = source_kinds.scheme(url)
    user, found, _ = url.partition("://")[2].partition("/")[0].rpartition("@") if name else ("", "", "")
    if found and name not in AZURE and (":" in user or name not in NAMED_USERS):
        raise ConfigError(
            "user info in a source's URL", hint="name a profile or a credentials_file in storage_options"
        )
    return name


def states_checksums(url: str) -> bool:
    """Whether a source of this kind may state a checksum of an object that is read from it."""
    return scheme(url) not in SILENT


def has_tokens(url: str) -> bool:
    """Whether a source of this kind serves ranges on the condition that the object is the listed version."""
    return scheme(url) in (*S3, *AZURE, *GCS, *WEB)


def etags_digest_bytes(url: str) -> bool:
    """Whether two objects that have the same etag, in the form of an MD5, hold the same bytes, whatever their
    names are. In other stores an etag is that of one name: a time, a generation."""
    return scheme(url) in S3


def pinned(url: str, token: str) -> bool:
    """Whether an object with this token can be read on that condition: by a strong etag or a generation, not
    by a date or a weak etag."""
    return has_tokens(url) and bool(token) and " " not in token and not token.startswith("W/")


def may_be_split(url: str, token: str) -> bool:
    """Whether ranges of an object that are read at different times are known to be of one version. An object
    without a version token, or on the web with only a weak etag or a date, is read by one request."""
    return pinned(url, token) if has_tokens(url) else bool(token)


def in_blocks(url: str) -> bool:
    """Whether a source of this kind reads even a whole object by several requests (`port.REQUEST`)."""
    return scheme(url) not in (*FOLDER_SCHEMES, *S3, *AZURE, *GCS, *WEB, *FTP)


def folder(url: str) -> str:
    """The path of a file URL or a plain path, absolute. Nothing in it is decoded. Raises ConfigError for a
    file URL whose path is not absolute."""
    if not scheme(url):
        return os.path.abspath(os.path.expanduser(url))
    path = url.partition("://")[2]
    if not path.startswith("/"):
        raise ConfigError("a file URL without an absolute path", where=url, hint="write file:///folder")
    return os.path.abspath(path)


def credentials(config: SourceConfig) -> object | None:
    """The secrets of a source, resolved here and now; picklable. None when it needs none.

    For the parent process: workers get the result through a pipe, and again by `Source.renew`
    when temporary ones near their end (`expires`). Raises PreflightError.
    """
    kind = scheme(config.url)
    if source_kinds.through_fsspec(config.storage_options) and kind not in FOLDER_SCHEMES:
        kind = "fsspec"
    if kind in S3:
        from penstock.sources.s3.credentials import resolve

        return resolve(config)
    if kind in AZURE:
        from penstock.sources.azure import account

        return account.resolve(config)
    if kind in GCS:
        from penstock.sources.gcs import credentials as of_google

        return of_google.resolve(config)
    if kind not in (*FOLDER_SCHEMES, *WEB):
        from penstock.sources.generic import opener

        return opener.resolve(config)
    return None


def expires(secrets: object | None) -> float | None:
    """When credentials end, in seconds since the epoch; None: never, or unknown."""
    found = getattr(secrets, "expires", None)
    return found if isinstance(found, float) else None


def open_source(
    config: SourceConfig,
    dataset: DatasetConfig,
    *,
    credentials: object | None = None,
    timeout: float = 60.0,
    keep: Callable[[str], bool] | None = None,
) -> Source:
    """The source of a configuration. `timeout`: seconds without a byte after which a connection is given up.

    Without `credentials` the secrets are resolved here; workers give those of their parent. `keep` says
    whether a key belongs to the dataset (for a key that ends in a slash: whether anything in that folder
    may). The source lists other keys all the same, but refuses the dataset for none of them. Nothing is
    listed or read yet. Raises ConfigError for a URL or an option that cannot be used, PreflightError where
    secrets cannot be resolved.
    """
    kind = scheme(config.url)
    if kind in FOLDER_SCHEMES:
        from penstock.sources.posix.source import PosixSource

        return PosixSource(
            folder(config.url),
            links=dataset.links,
            empty=dataset.empty_folders,
            keep=keep,
        )
    if kind not in (*S3, *WEB, *AZURE, *GCS) or source_kinds.through_fsspec(config.storage_options):
        from penstock.sources.generic.opener import FsspecCredentials
        from penstock.sources.generic.source import FsspecSource

        assert credentials is None or isinstance(credentials, FsspecCredentials)
        return FsspecSource(config, credentials, links=dataset.links, keep=keep)
    if kind in S3:
        from penstock.sources.s3.credentials import S3Credentials
        from penstock.sources.s3.source import S3Source

        assert credentials is None or isinstance(credentials, S3Credentials)
        return S3Source(config, credentials, timeout=timeout, versions=dataset.changed == "pinned")
    if kind in WEB:
        from penstock.sources.web.source import WebSource

        return WebSource(config, timeout=timeout, keep=keep)
    if kind in GCS:
        from penstock.sources.gcs.source import GcsSource
        from penstock.sources.objects.access_token import AccessToken

        assert credentials is None or isinstance(credentials, AccessToken)
        return GcsSource(config, credentials, timeout=timeout)
    from penstock.sources.azure.account import AzureCredentials
    from penstock.sources.azure.source import AzureSource

    assert credentials is None or isinstance(credentials, AzureCredentials)
    return AzureSource(config, credentials, timeout=timeout)
