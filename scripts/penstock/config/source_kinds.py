"""Which kind of source a URL means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

S3 = ("s3", "s3a")
WEB = ("http", "https")
AZURE = ("az", "abfs", "abfss")
GCS = ("gs", "gcs")
FTP = ("ftp",)
FOLDER_SCHEMES = ("", "file", "local")
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


def through_fsspec(options: Mapping[str, object]) -> bool:
    """Whether the `storage_options` of a store ask for fsspec in place of penstock's own reader."""
    return options.get("reader") == "fsspec"


def kind(url: str, options: Mapping[str, object]) -> str:
    """One of the kinds whose options are known (`$defs/options_*` of the schema), or "" for what fsspec
    opens, whose options are handed on as they are."""
    found = KINDS.get(scheme(url), "")
    return "" if scheme(url) in (*S3, *AZURE, *GCS) and through_fsspec(options) else found
