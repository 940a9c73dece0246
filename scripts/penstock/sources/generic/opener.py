"""Makes fsspec's file system object for a URL. `storage_options` and the lines of `credentials_file` are
handed on as they are. Errors name what the configuration lacks: an option, a package, the permission to
list.

`generic.source` and its readers go through an `Opener`. It reads the credentials file and loads the
protocol's library, which may connect to the server; penstock itself writes nothing.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import source_kinds
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.text import nearest
from penstock.sources.azure.account import without_signatures
from penstock.sources.generic.ftp import FtpConnection
from penstock.sources.generic.info import failure, protocol_errors
from penstock.sources.library_logs import keep_off_the_terminal
from penstock.sources.objects.source import two_meanings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.config.settings import SourceConfig
    from penstock.core.errors import PenstockError

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
"""What opens a protocol; s3fs and adlfs are part of penstock's own environment."""
HINT = "check the address, the account and storage_options: they are those of the library that is named here"
OURS = frozenset({"reader", "credentials_file"})
"""Options that no library takes."""
GOOGLE: Mapping[str, object] = {"access": "read_only", "session_kwargs": {"auto_decompress": False}}
"""Options of gcsfs: its own defaults ask for the right to write, and unpack objects that are stored
compressed."""
LOGS = (
    "fsspec", "paramiko", "s3fs", "aiobotocore", "botocore", "adlfs", "azure", "msal", "gcsfs", "google",
    "smbprotocol", "huggingface_hub",
)  # fmt: skip
_SSL = re.compile(r"\[(?:SSL|X509)(?:: \w+)?\] |\s*\(_ssl\.c:\d+\)")


@dataclass(frozen=True)
class FsspecCredentials:
    """Options that a `credentials_file` holds, for one protocol. Shows nothing of itself."""

    options: Mapping[str, str] = field(repr=False)
    origin: str = ""
    """See `renewal.origin`."""


def resolve(config: SourceConfig) -> FsspecCredentials | None:
    """The KEY=VALUE lines of `credentials_file`, as options of the protocol; None where no file is named.
    Raises PreflightError."""
    from penstock.sources.secret_file import pairs, read_secret

    path = config.storage_options.get("credentials_file")
    if not path:
        return None
    path = os.path.expanduser(str(path))
    return FsspecCredentials(pairs(read_secret(path)), path)


class Opener:
    """The way to one source: connects, gives objects their names in the library, and says what the library's
    errors mean. `storage_options` go to the library as they are, but for penstock's own."""

    def __init__(self, config: SourceConfig, credentials: FsspecCredentials | None) -> None:
        self.url, self._options = config.url, config.storage_options
        self.secrets = credentials if credentials is not None else resolve(config)
        self.root = ""
        """The name by which the library knows the URL, once it was connected."""
        self._single: bool | None = None
        self.markers = 0
        """1 where an object of no bytes has the root's name, and others are below it."""

    def renew(self, credentials: object) -> None:
        """Use these from the next `connect` on; readers connect anew then."""
        assert isinstance(credentials, FsspecCredentials)
        self.secrets = credentials

    def connect(self) -> Any:
        """A new file system object of the library, with the present secrets. Raises ConfigError,
        PreflightError."""
        import fsspec

        keep_off_the_terminal(*LOGS)
        scheme = source_kinds.scheme(self.url)
        options = {k: v for k, v in self._options.items() if k not in OURS}
        options = {**(GOOGLE if scheme in source_kinds.GCS else {}), **options}
        options |= dict(self.secrets.options) if self.secrets else {}
        try:
            if scheme in source_kinds.FTP:
                _check_names(FtpConnection, options)
                fs, root = FtpConnection.to(self.url, **options)
            else:
                _check_names(fsspec.get_filesystem_class(scheme), options)
                fs, root = fsspec.core.url_to_fs(self.url, skip_instance_cache=True, **options)
        except ImportError as error:
            raise self._lacking(error) from None
        except (ValueError, TypeError, KeyError) as error:
            known = "not known" not in str(error)
            raise ConfigError(
                "the source cannot be opened" if known else "there is no such protocol",
                where=self.url,
                why=self.cleaned(str(error))[:300],
                hint=HINT if known else "write s3://, gs://, az://, https://, sftp://, or a folder's path",
            ) from None
        except protocol_errors() as error:
            raise self.unreachable(error) from None
        self.root = root.rstrip("/")
        return fs

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """As `connect`; `disconnect` at the end."""
        fs = self.connect()
        try:
            yield fs
        finally:
            self.disconnect(fs)

    def disconnect(self, fs: Any) -> None:
        """Close FTP's connection, since its server may take few; those of other protocols go with `fs`."""
        if isinstance(fs, FtpConnection):
            fs.close()

    def path(self, fs: Any, key: str) -> str:
        """The name by which `fs` knows an object."""
        return self.root if self.is_file(fs) else f"{self.root}/{key}"

    def is_file(self, fs: Any) -> bool:
        """Whether the URL is one file's. In a store of objects a file may have the name of a prefix, which a
        slash at the URL's end means; without it `objects.source` has the table. Raises PreflightError where
        the URL names both."""
        if self._single is None:
            self._single = bool(self.root) and not self.url.endswith("/") and bool(fs.isfile(self.root))
            size = fs.info(self.root).get("size") if self._single and finds_by_prefix(fs) else None
            if size is not None and self._any_below(fs):
                if size:
                    raise two_meanings(self.url, size)
                self._single, self.markers = False, 1
        return self._single

    def _any_below(self, fs: Any) -> bool:
        """Whether there are objects below the prefix of the root's name."""
        fs.invalidate_cache()  # `isfile` leaves the object itself there, which gcsfs then lists alone
        return any(info["name"].strip("/") != self.root.strip("/") for info in fs.ls(self.root, detail=True))

    def failure(self, error: BaseException, key: str) -> PenstockError:
        """What an error of the protocol means for one object."""
        raised = failure(error, key)
        raised.why = self.cleaned(raised.why)
        return raised

    def cleaned(self, text: str) -> str:
        """`text` without any value of the credentials file, without signatures of shared access, and without
        Python's names for faults of TLS."""
        for secret in self.secrets.options.values() if self.secrets else ():
            text = text.replace(secret, "...") if secret else text
        return without_signatures(_SSL.sub("", text))

    def unreachable(self, error: BaseException) -> PreflightError:
        """What an error of the protocol means for the whole source, without secrets."""
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
    """Whether the protocol is of a store of keys, whose `find` takes the beginning of a name."""
    find = getattr(fs, "_find", None) or getattr(fs, "find", None)
    return find is not None and "prefix" in inspect.signature(find).parameters


def _check_names(kind: type[Any], options: Mapping[str, object]) -> None:
    """Raises TypeError for an option that is nearly one that the protocol's class names: many classes pass
    over what they do not know. Any other option may be meant for what a class hands its options on to."""
    makers = (vars(base).get("__init__") for base in kind.__mro__)
    named = {name for maker in filter(None, makers) for name in inspect.signature(maker).parameters}
    for option in options:
        if option not in named and (close := nearest(option, named)):
            raise TypeError(f"unknown option `{option}`; did you mean `{close}`?")
