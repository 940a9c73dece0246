"""The table of the kinds of sources. A new kind needs a row here, its options in `option_keys`, and a package
in `penstock.sources`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.config.option_keys import AzureOptions, FolderOptions, GcsOptions, S3Options, WebOptions
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class SourceKind:
    """The properties of a kind of source that code outside its package needs."""

    name: str
    schemes: tuple[str, ...]  # schemes of the source's URLs; "" for a path
    # the kind's package in `penstock.sources`; the package's module `source` has `open_source`
    package: str = "generic"
    secrets: str = ""  # module of `penstock.sources` whose `resolve` finds credentials; "" if none are needed
    options: type | None = None  # keys of `storage_options`; None if a library gets them unchecked
    # name for the first part of the URL: a host or a bucket; "" if that part may be empty
    place: str = "host"
    user: bool = False  # whether the URL may have the name of an account or container before an @
    # whether the source serves ranges on the condition that the object is the listed version
    pins: bool = False
    states_checksums: bool = True  # whether the source may state a checksum of an object
    blocks: bool = False  # whether even a whole object is read with several requests (`port.REQUEST`)
    versions: bool = False  # whether objects can be listed and read by version ids
    archives: bool = False  # whether the source reports archived objects, and times in objects' metadata
    # whether equal etags in the form of an MD5 mean equal bytes, even under different names
    content_etags: bool = False
    prefetched: bool = False  # whether small objects may be requested before their turn
    # environment variables with the source's secrets, which are not set on nodes
    variables: tuple[str, ...] = ()


FOLDER = SourceKind(
    "folder", ("", "file", "local"), "posix", options=FolderOptions, place="", states_checksums=False
)
S3 = SourceKind(
    "s3", ("s3", "s3a"), "s3", "s3.credentials", S3Options, place="bucket", pins=True, versions=True,
    archives=True, content_etags=True, prefetched=True, variables=(
        "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL",
    ),
)  # fmt: skip
AZURE = SourceKind(
    "azure", ("az", "abfs", "abfss"), "azure", "azure.account", AzureOptions, place="bucket", user=True,
    pins=True, archives=True, variables=("AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"),
)  # fmt: skip
GCS = SourceKind(
    "gcs", ("gs", "gcs"), "gcs", "gcs.source", GcsOptions, place="bucket", pins=True,
    variables=("GOOGLE_APPLICATION_CREDENTIALS",),
)  # fmt: skip
WEB = SourceKind("web", ("http", "https"), "web", options=WebOptions, pins=True)
FTP = SourceKind("ftp", ("ftp",), secrets="generic.opener", user=True, states_checksums=False)
# the kind of sources that fsspec opens: URLs whose scheme is in no row, and sources with `reader: fsspec`
OTHER = SourceKind("", (), secrets="generic.opener", blocks=True)
KINDS = (
    FOLDER, S3, AZURE, WEB, GCS, FTP,
    replace(OTHER, name="file server", schemes=("sftp", "ssh", "smb"), user=True, states_checksums=False),
    replace(OTHER, name="hadoop", schemes=("hdfs", "webhdfs"), states_checksums=False),
    replace(OTHER, name="memory", schemes=("memory",), place=""),
)  # fmt: skip
_BY_SCHEME = {scheme: kind for kind in KINDS for scheme in kind.schemes}


def scheme(url: str) -> str:
    """Return the part before `://` in lower case; "" for a path."""
    name, separator, _ = url.partition("://")
    return name.lower() if separator else ""


_VARIABLE = re.compile(r"(?:^|/)\$(?:\w|\{\w+\})", re.ASCII)
_SCP = re.compile(r"([^/@:]+@[^/@:]+):(.*)", re.DOTALL)
_WITHOUT_SLASHES = re.compile(
    rf"({'|'.join(sorted({*_BY_SCHEME} - {''}))}):(/?)(.*)",
    re.DOTALL | re.IGNORECASE,
)


def with_slashes(text: str) -> str:
    """Complete `s3:/bucket/x` and `s3:bucket/x` to `s3://bucket/x`, and likewise other schemes. `file:/x`
    becomes its path. Return "" for any other text."""
    lacking = None if scheme(text) else _WITHOUT_SLASHES.fullmatch(text)
    if lacking is None:
        return ""
    name, slash, rest = lacking[1].lower(), lacking[2], lacking[3]
    return f"{slash}{rest}" if name in FOLDER.schemes else f"{name}://{rest}"


def no_path(text: str, *, source: bool) -> str:
    """Return why this text is no path, or "" if it is a URL or may be a path.

    A shell or scp would read some of these texts in another way:

    | the text                                     | its meaning                             |
    |----------------------------------------------|-----------------------------------------|
    | has `://`                                    | a URL                                   |
    | `s3:/...`, `s3:...`, or with another scheme  | a URL that lacks a slash or two         |
    | has a folder such as `$NAME` or `${NAME}`    | a variable, which nothing expands       |
    | `user@host:...`                              | a path of scp                           |
    | any other text                               | a path                                  |
    """
    if scheme(text):
        return ""
    if url := with_slashes(text):
        if not source:
            return "begins as a URL, and this is a folder that is mounted here"
        return f"is no URL: write {url} (or ./{text} for a folder of that name)"
    if _VARIABLE.search(text):
        expanded = os.path.expandvars(text)
        write = "the path out" if _VARIABLE.search(expanded) else expanded
        return f"has a variable, and none is expanded here: write {write}"
    if (remote := _SCP.fullmatch(text)) is None:
        return ""
    if not source:
        return "is a path of scp, and this is a folder that is mounted here"
    folder = remote[2] if remote[2].startswith("/") else "/FOLDER"
    return (
        f"is a path of scp, which is no source: write sftp://{remote[1]}{folder}, another URL (s3://, gs://, "
        "abfs://, https://, ftp://), or a folder that is mounted here"
    )


def through_fsspec(options: Mapping[str, object]) -> bool:
    """Return whether these `storage_options` choose fsspec over penstock's own reader."""
    return options.get("reader") == "fsspec"


def of_url(url: str) -> SourceKind:
    return _BY_SCHEME.get(scheme(url), OTHER)


def kind(url: str, options: Mapping[str, object]) -> SourceKind:
    """Return the kind of a source: that of its scheme, or `OTHER` for a store that fsspec reads."""
    by_url = of_url(url)
    return OTHER if by_url.place == "bucket" and through_fsspec(options) else by_url


def folder(url: str) -> str:
    """Return the absolute path for a path or a file URL, which is not decoded. Raises ConfigError for a
    relative file URL."""
    if not scheme(url):
        return os.path.abspath(os.path.expanduser(url))
    path = url.partition("://")[2]
    if not path.startswith("/"):
        raise ConfigError("a file URL without an absolute path", where=url, hint="write file:///folder")
    return os.path.abspath(path)
