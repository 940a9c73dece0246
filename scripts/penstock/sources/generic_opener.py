"""Makes fsspec's file system object for a URL, and translates its fields (version, time, checksums) and
errors, which differ by protocol.

`storage_options` and the lines of `credentials_file` are passed on unchanged. The protocol's library may
connect to the server.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import ftplib
import inspect
import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import source_kinds
from penstock.core.errors import (
    ConfigError,
    CrowdedError,
    FailedError,
    ObjectError,
    PenstockError,
    PreflightError,
    SourceChangedError,
)
from penstock.core.human import nearest, of_datetime
from penstock.core.model import SourceChecksum
from penstock.sources.azure import without_signatures
from penstock.sources.backoff import asked_for
from penstock.sources.credentials import keep_off_the_terminal
from penstock.sources.ftp import FtpConnection
from penstock.sources.http_values import stated_time
from penstock.sources.object_answers import STATUSES
from penstock.sources.object_source import two_meanings
from penstock.sources.stated_checksums import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.config.settings import SourceConfig
    from penstock.sources.ftp import Info


# names of protocols' fields for an object's version, and for its time; the first field that is set counts
VERSIONS = ("generation", "version_id", "etag", "ETag", "e_tag", "content_hash")
TIMES = ("mtime", "last_modified", "LastModified", "modified", "updated", "modify", "created")

_FTP = re.compile(r"(\d{8})(\d{6}(?:\.\d+)?)", re.ASCII)  # times of MLSD and MDTM (RFC 3659, 2.3), always UTC

# answers of an FTP server that takes no further connection, at once or after login (ProFTPD's MaxClients)
_CROWDED = re.compile(
    r"421|530.*(?:too many|maxim|\bmax\b|limit|already (?:logged|connected)|connections|sessions)",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)


def protocol_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions that the loaded protocols raise for faults of the server or the network."""
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
    """Convert a protocol's time to nanoseconds since the epoch. A time is a datetime, seconds, ISO 8601,
    HTTP's date, or FTP's YYYYMMDDHHMMSS, perhaps with a fraction. Anything else gives 0."""
    if isinstance(value, dt.datetime):
        return of_datetime(value)
    if isinstance(value, (int, float)):
        # Rounded to microseconds: a protocol may give a time as a float in one answer, and as a datetime in
        # another. Both must become the same number.
        return round(value * 1_000_000) * 1000
    if isinstance(value, str):
        ftp = _FTP.fullmatch(value)
        try:
            return stated_time(f"{ftp[1]}T{ftp[2]}" if ftp else value, "")
        except FailedError:
            return 0
    return 0


def modified(info: Info) -> int:
    """Return the object's time in nanoseconds since the epoch; 0 if the protocol states none."""
    return next((when for name in TIMES if info.get(name) and (when := nanoseconds(info[name]))), 0)


def token_of(info: Info) -> str:
    """Return the version: etag or generation; without these, size and time; without a time, ""."""
    for name in VERSIONS:
        if info.get(name):
            return str(info[name]).strip('"')
    changed = modified(info)
    return f"{info.get('size')}-{changed}" if changed else ""


def checksums_of(info: Info) -> list[SourceChecksum]:
    """Return the checksums that the descriptions of Google's and Azure's protocols contain."""
    checksums: list[SourceChecksum] = []
    if value := decode(str(info.get("crc32c") or ""), 4):
        checksums.append(SourceChecksum("crc32c", "full", value))
    stated = info.get("md5Hash")
    settings = info.get("content_settings")
    if not stated and settings is not None:
        name = "content_md5"
        raw = settings.get(name) if hasattr(settings, "get") else getattr(settings, name, None)
        stated = base64.b64encode(bytes(raw)).decode("ascii") if isinstance(raw, (bytes, bytearray)) else raw
    if value := decode(str(stated or ""), 16):
        checksums.append(SourceChecksum("md5", "full", value))
    return checksums


def failure(error: BaseException, key: str) -> PenstockError:
    """Translate a protocol's error for the object `key`. `Opener.failure` removes secrets from its text."""
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
    """Return the HTTP status of the answer that caused an error, or 0."""
    answer = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    if isinstance(answer, dict):  # the answer in botocore's error, which is the cause of s3fs's error
        stated = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        # Errors of aiohttp have `status`, those of gcsfs `code`. Errors of requests, httpx and Azure have the
        # answer.
        stated = getattr(error, "status", None) or getattr(error, "code", None)
        stated = stated or getattr(answer, "status_code", None)
    return stated if isinstance(stated, int) else 0


# {protocol: package that opens it}; penstock's own environment has s3fs and adlfs
PACKAGES = {
    "s3": "s3fs",
    "az": "adlfs",
    "abfs": "adlfs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "hdfs": "pyarrow",
    "oss": "ossfs",
    "oci": "ocifs",
    "webdav": "webdav4",
    "dropbox": "dropboxdrivefs",
    "box": "boxfs",
    "gdrive": "gdrivefs",
}
HINT = "check the address, the account and storage_options: they are those of the library that is named here"
OURS = frozenset({"reader", "credentials_file"})  # options for penstock, which are not passed to the library
# options of gcsfs; its defaults would request the right to write, and unpack compressed objects
GOOGLE: Mapping[str, object] = {"access": "read_only", "session_kwargs": {"auto_decompress": False}}
LOGS = (
    "fsspec", "paramiko", "s3fs", "aiobotocore", "botocore", "adlfs", "azure", "msal", "gcsfs", "google",
    "smbprotocol", "huggingface_hub",
)  # fmt: skip
_SSL = re.compile(r"\[(?:SSL|X509)(?:: \w+)?\] |\s*\(_ssl\.c:\d+\)")


@dataclass(frozen=True)
class FsspecCredentials:
    """Options from a `credentials_file`, for one protocol. `repr` shows none of them."""

    options: Mapping[str, str] = field(repr=False)
    origin: str = ""  # see `sources.credentials`


def resolve(config: SourceConfig) -> FsspecCredentials | None:
    """Read the KEY=VALUE lines of `credentials_file`; None if no file is named. Raises PreflightError."""
    from penstock.sources.credentials import pairs, read_secret

    path = config.storage_options.get("credentials_file")
    if not path:
        return None
    path = os.path.expanduser(str(path))
    return FsspecCredentials(pairs(read_secret(path)), path)


class Opener:
    """Connects to one source, names objects for the library, and translates the library's errors."""

    def __init__(self, config: SourceConfig, credentials: FsspecCredentials | None) -> None:
        self.url, self._options, self._reach = config.url, config.storage_options, config.reach
        self.secrets = credentials if credentials is not None else resolve(config)
        self.root = ""  # the library's name for the URL, known after `connect`
        self._single: bool | None = None
        # 1 if an empty object has the root's name, and other objects are below the root; if not, 0
        self.markers = 0

    def renew(self, credentials: object) -> None:
        """Use these credentials from the next `connect` on. Readers connect again at their next use."""
        assert isinstance(credentials, FsspecCredentials)
        self.secrets = credentials

    def connect(self) -> Any:
        """Make a file system object of the library, with the present secrets. Raises ConfigError,
        PreflightError."""
        import fsspec

        keep_off_the_terminal(*LOGS)
        scheme = source_kinds.scheme(self.url)
        options = {k: v for k, v in self._options.items() if k not in OURS}
        options = {**(GOOGLE if source_kinds.of_url(self.url) is source_kinds.GCS else {}), **options}
        options |= dict(self.secrets.options) if self.secrets else {}
        try:
            if source_kinds.of_url(self.url) is source_kinds.FTP:
                options.pop("ca_bundle", None)  # `Reach` has the bundle already
                _check_names(FtpConnection, options)
                fs, root = FtpConnection.to(self.url, reach=self._reach, **options)
            else:
                _check_names(fsspec.get_filesystem_class(scheme), options)
                fs, root = fsspec.core.url_to_fs(self.url, skip_instance_cache=True, **options)
        except ImportError as error:
            raise self._lacking(error) from None
        except (ValueError, TypeError, KeyError) as error:
            exists = "not known" not in str(error)
            raise ConfigError(
                "the source cannot be opened" if exists else "there is no such protocol",
                where=self.url,
                why=self.cleaned(str(error))[:300],
                hint=HINT if exists else "write s3://, gs://, az://, https://, sftp://, or a folder's path",
            ) from None
        except protocol_errors() as error:
            raise self.unreachable(error) from None
        self.root = root.rstrip("/")
        return fs

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        fs = self.connect()
        try:
            yield fs
        finally:
            self.disconnect(fs)

    def disconnect(self, fs: Any) -> None:
        """Close an FTP connection, since servers may accept few. Other connections end with `fs`."""
        if isinstance(fs, FtpConnection):
            fs.close()

    def path(self, fs: Any, key: str) -> str:
        """Return an object's name in `fs`."""
        return self.root if self.is_file(fs) else f"{self.root}/{key}"

    def is_file(self, fs: Any) -> bool:
        """Return whether the URL names one file.

        In an object store, a file may have a prefix's name. A slash at the URL's end means the prefix; for
        any other URL see the table in `object_source`. Raises PreflightError if the URL names both.
        """
        if self._single is None:
            self._single = bool(self.root) and not self.url.endswith("/") and bool(fs.isfile(self.root))
            size = fs.info(self.root).get("size") if self._single and finds_by_prefix(fs) else None
            if size is not None and self._any_below(fs):
                if size:
                    raise two_meanings(self.url, size)
                self._single, self.markers = False, 1
        return self._single

    def _any_below(self, fs: Any) -> bool:
        fs.invalidate_cache()  # after `isfile`, gcsfs would list only the object itself
        return any(info["name"].strip("/") != self.root.strip("/") for info in fs.ls(self.root, detail=True))

    def failure(self, error: BaseException, key: str) -> PenstockError:
        """Do the same as the module's function `failure`, but remove secrets from the error."""
        raised = failure(error, key)
        raised.why = self.cleaned(raised.why)
        return raised

    def cleaned(self, text: str) -> str:
        """Remove from `text` the credentials file's values, signatures of shared access, and Python's names
        for TLS faults."""
        for secret in self.secrets.options.values() if self.secrets else ():
            text = text.replace(secret, "...") if secret else text
        return without_signatures(_SSL.sub("", text))

    def unreachable(self, error: BaseException) -> PreflightError:
        """Make the error for an unreachable source, without secrets."""
        why = self.cleaned(str(error))[:300] or type(error).__name__
        return PreflightError("the source cannot be listed", where=self.url, why=why, hint=HINT)

    def _lacking(self, error: ImportError) -> PreflightError:
        protocol = source_kinds.scheme(self.url)
        package = PACKAGES.get(protocol) or getattr(error.__cause__, "name", None) or error.name
        return PreflightError(
            f"{protocol}:// needs a package that is not installed",
            where=self.url,
            why=str(error)[:300],
            hint=f"pip install {package}, in the environment that runs penstock, here and on the nodes"
            if package
            else "install it into the environment that runs penstock, here and on the nodes",
        )


def finds_by_prefix(fs: Any) -> bool:
    """Return whether the protocol's store has plain keys (`find` then takes the beginning of a name)."""
    find = getattr(fs, "_find", None) or getattr(fs, "find", None)
    return find is not None and "prefix" in inspect.signature(find).parameters


def _check_names(kind: type[Any], options: Mapping[str, object]) -> None:
    """Raise TypeError for a misspelt option of the protocol's class, since many classes ignore unknown
    options or pass them on."""
    makers = (vars(base).get("__init__") for base in kind.__mro__ if base is not object)
    named = {
        name: it for maker in filter(None, makers) for name, it in inspect.signature(maker).parameters.items()
    }
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in named.values())
    for option in options:
        if option not in named and (close := nearest(option, named)):
            raise TypeError(f"unknown option `{option}`; did you mean `{close}`?")
        if option not in named and not takes_any:
            raise TypeError(f"unknown option `{option}`")
