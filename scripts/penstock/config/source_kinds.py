"""Which kind of source a URL means: by its scheme, and whether its options name fsspec. Pure, but that a
message expands the environment's variables."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

S3 = ("s3", "s3a")
WEB = ("http", "https")
AZURE = ("az", "abfs", "abfss")
GCS = ("gs", "gcs")
FTP = ("ftp",)
FOLDER_SCHEMES = ("", "file", "local")
SILENT = (*FOLDER_SCHEMES, *FTP, "sftp", "ssh", "smb", "hdfs", "webhdfs")
"""Protocols that never state a checksum of an object."""
NAMED_USERS = ("sftp", "ssh", "ftp", "smb")
"""Protocols whose URLs may name the account, as in `sftp://user@host/`: a name is no secret."""

KINDS = {
    **dict.fromkeys(S3, "s3"),
    **dict.fromkeys(WEB, "web"),
    **dict.fromkeys(AZURE, "azure"),
    **dict.fromkeys(FOLDER_SCHEMES, "folder"),
    **dict.fromkeys(GCS, "gcs"),
}
"""The kind of each scheme that penstock reads itself; "" is a path."""


def scheme(url: str) -> str:
    """The part before `://`, in lower case; "" for a path."""
    name, found, _ = url.partition("://")
    return name.lower() if found else ""


_VARIABLE = re.compile(r"(?:^|/)\$(?:\w|\{\w+\})", re.ASCII)
_SCP = re.compile(r"([^/@:]+@[^/@:]+):(.*)", re.DOTALL)
_WITHOUT_SLASHES = re.compile(
    rf"({'|'.join(sorted({*KINDS, *NAMED_USERS} - {''}))}):(/?)(.*)",
    re.DOTALL | re.IGNORECASE,
)


def with_slashes(text: str) -> str:
    """`s3://bucket/x` of `s3:/bucket/x` and `s3:bucket/x`, and so of other schemes; of `file:/x` its path.
    "" for any other text."""
    lacking = None if scheme(text) else _WITHOUT_SLASHES.fullmatch(text)
    if lacking is None:
        return ""
    name, slash, rest = lacking[1].lower(), lacking[2], lacking[3]
    return f"{slash}{rest}" if name in FOLDER_SCHEMES else f"{name}://{rest}"


def no_path(text: str, *, source: bool) -> str:
    """Why this is no path, where a shell or scp would read it otherwise than it stands; "" for what may be
    one, and for a URL.

    | the text                                     | is                                      |
    |----------------------------------------------|-----------------------------------------|
    | has `://`                                    | a URL                                   |
    | `s3:/...`, `s3:...`, and so other schemes    | a URL that lacks a slash or two         |
    | a folder in it begins as `$NAME`, `${NAME}`  | a variable, which nothing expands       |
    | `user@host:...`                              | a path of scp                           |
    | another                                      | a path                                  |
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
    """Whether the `storage_options` of a store ask for fsspec in place of penstock's own reader."""
    return options.get("reader") == "fsspec"


def kind(url: str, options: Mapping[str, object]) -> str:
    """One of the kinds whose options are known (`config.option_keys`), or "" for what fsspec
    opens, whose options are handed on as they are."""
    found = KINDS.get(scheme(url), "")
    return "" if scheme(url) in (*S3, *AZURE, *GCS) and through_fsspec(options) else found
