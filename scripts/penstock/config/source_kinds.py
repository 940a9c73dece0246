"""Which kind of source a URL means."""

from __future__ import annotations

S3 = ("s3", "s3a")
WEB = ("http", "https")
AZURE = ("az", "abfs", "abfss")
FOLDER = ("", "file", "local")
NAMED_USERS = ("sftp", "ssh", "ftp", "smb")
"""Protocols whose URLs may name the account, as in `sftp://user@host/`: a name is no secret."""

KINDS = {
    **dict.fromkeys(S3, "s3"),
    **dict.fromkeys(WEB, "web"),
    **dict.fromkeys(AZURE, "azure"),
    **dict.fromkeys(FOLDER, "folder"),
    "gs": "gcs",
    "gcs": "gcs",
    "hf": "hf",
    "sftp": "sftp",
    "ssh": "sftp",
    "ftp": "ftp",
    "smb": "smb",
    "memory": "memory",
}
"""The kind that each scheme means; "" is a path."""


def scheme(url: str) -> str:
    """The part before `://`, in lower case; "" for a path."""
    name, found, _ = url.partition("://")
    return name.lower() if found else ""


def kind(url: str) -> str:
    """One of the kinds whose options are known (`$defs/options_*` of the schema), or "" for another
    protocol of fsspec, which takes what it takes."""
    return KINDS.get(scheme(url), "")
