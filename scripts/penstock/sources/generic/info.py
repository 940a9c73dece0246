"""What fsspec's protocols state of an object (version, time, checksums) in penstock's terms, and what their
errors mean. Each protocol names these fields in its own way. Pure; the modules of this package call it."""

from __future__ import annotations

import base64
import datetime as dt
import ftplib
import re
import sys
from typing import TYPE_CHECKING, Any

from penstock.core.errors import CrowdedError, FailedError, ObjectError, PenstockError, SourceChangedError
from penstock.core.model import SourceChecksum
from penstock.core.timestamps import of_datetime
from penstock.sources.backoff import asked_for
from penstock.sources.checksum_headers import decode
from penstock.sources.http.dates import stated_time
from penstock.sources.objects.refusals import STATUSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    Info = Mapping[str, Any]
    """What a protocol states of one name, by `info` or `ls`: which fields there are is the protocol's."""

# Fields in which protocols state an object's version, and its time; the first one that is set counts.
VERSIONS = ("generation", "version_id", "etag", "ETag", "e_tag", "content_hash")
TIMES = ("mtime", "last_modified", "LastModified", "modified", "updated", "modify", "created")

_FTP = re.compile(r"(\d{8})(\d{6}(?:\.\d+)?)", re.ASCII)
"""Of MLSD and MDTM (RFC 3659, 2.3), always UTC."""

_CROWDED = re.compile(
    r"421|530.*(?:too many|maxim|\bmax\b|limit|already (?:logged|connected)|connections|sessions)",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
"""An FTP server that takes no further connection: at once, or after the login (ProFTPD's MaxClients)."""


def protocol_errors() -> tuple[type[BaseException], ...]:
    """What the protocols in use raise when the other side or the network fails."""
    errors: list[type[BaseException]] = [OSError, EOFError, ftplib.Error]
    for module, name in (
        ("azure.core.exceptions", "AzureError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("google.auth.exceptions", "GoogleAuthError"),
        ("aiohttp", "ClientError"),
        ("gcsfs.retry", "HttpError"),
        ("paramiko", "SSHException"),
        ("fsspec.exceptions", "FSTimeoutError"),
    ):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            errors.append(kind)
    return tuple(errors)


def nanoseconds(value: object) -> int:
    """Nanoseconds since the epoch, from a time as protocols write it: datetime, seconds, ISO 8601, HTTP's
    dates, or FTP's YYYYMMDDHHMMSS with or without a fraction. 0 for anything else."""
    if isinstance(value, dt.datetime):
        return of_datetime(value)
    if isinstance(value, (int, float)):
        # Microseconds are enough: a protocol may give the same time as a float in one answer and as a
        # datetime in another, and both must become the same number.
        return round(value * 1_000_000) * 1000
    if isinstance(value, str):
        ftp = _FTP.fullmatch(value)
        try:
            return stated_time(f"{ftp[1]}T{ftp[2]}" if ftp else value, "")
        except FailedError:
            return 0
    return 0


def modified(info: Info) -> int:
    """When the object was written: nanoseconds since the epoch, 0 where the protocol does not say."""
    return next((when for name in TIMES if info.get(name) and (when := nanoseconds(info[name]))), 0)


def token_of(info: Info) -> str:
    """The version by etag or generation; else size and time together; else ""."""
    for name in VERSIONS:
        if info.get(name):
            return str(info[name]).strip('"')
    changed = modified(info)
    return f"{info.get('size')}-{changed}" if changed else ""


def checksums_of(info: Info) -> list[SourceChecksum]:
    """The checksums in the descriptions of objects that Google's and Azure's protocols give."""
    checksums: list[SourceChecksum] = []
    if value := decode(str(info.get("crc32c") or ""), 4):
        checksums.append(SourceChecksum("crc32c", "full", value))
    stated = info.get("md5Hash")
    settings = info.get("content_settings")
    if not stated and settings is not None:
        raw = (
            settings.get("content_md5")
            if hasattr(settings, "get")
            else getattr(settings, "content_md5", None)
        )
        stated = base64.b64encode(bytes(raw)).decode("ascii") if isinstance(raw, (bytes, bytearray)) else raw
    if value := decode(str(stated or ""), 16):
        checksums.append(SourceChecksum("md5", "full", value))
    return checksums


def failure(error: BaseException, key: str) -> PenstockError:
    """What an error of a protocol means for the object `key`. The text of `error` is taken as it is:
    `Opener.failure` takes secrets out of it."""
    why = str(error)[:300] or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return SourceChangedError("the object is gone since it was listed", where=key, why=why)
    if isinstance(error, ftplib.Error) and _CROWDED.match(why):
        return CrowdedError(
            "the server takes no further connection",
            where=key,
            why=f"{why}; `engine.streams` and `cluster.max_elements` say how many this run opens",
        )
    if isinstance(error, (PermissionError, IsADirectoryError, ftplib.error_perm)):
        return ObjectError("the object cannot be read", where=key, why=why)
    status = _status(error)
    if status in STATUSES:
        meaning = STATUSES[status]
        return meaning.error(meaning.what, where=key, why=why, hint=meaning.hint)
    return asked_for("reading the object failed", key, why, status, "", None)


def _status(error: BaseException) -> int:
    """The status of the answer that an error is of, or 0."""
    answer = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    if isinstance(answer, dict):  # botocore's, which s3fs gives as the cause of its own
        stated = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        # aiohttp's errors carry `status`, gcsfs's `code`, those of requests, httpx and Azure the answer.
        stated = getattr(error, "status", None) or getattr(error, "code", None)
        stated = stated or getattr(answer, "status_code", None)
    return stated if isinstance(stated, int) else 0
