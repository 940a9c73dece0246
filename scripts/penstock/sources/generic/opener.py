"""Makes fsspec's file system object for a URL, from `storage_options` and `credentials_file`. Errors name
what the configuration lacks: an option, a package, the permission to list."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import source_kinds
from penstock.errors import ConfigError, PreflightError
from penstock.sources.generic.info import protocol_errors
from penstock.sources.library_logs import keep_off_the_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config.settings import SourceConfig

PACKAGES = {
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
"""What opens a protocol, where that is no part of penstock's own environment."""
HINT = "check the address and the account: docs/configuration.md has the options of each kind of source"
OURS = frozenset({"reader", "credentials_file"})
"""Options that no library takes."""
OTHERS = frozenset({"ca_bundle", "proxy", "instance_metadata", "profile"})
"""Options of penstock's own readers, which a dataset may state for all its sources; a protocol without a
table of options is not given them."""
LOGS = (
    "fsspec", "paramiko", "s3fs", "aiobotocore", "botocore", "adlfs", "azure", "msal", "gcsfs", "google",
    "smbprotocol", "huggingface_hub",
)  # fmt: skip


@dataclass(frozen=True)
class FsspecCredentials:
    """Options that a `credentials_file` holds, for one protocol. Shows nothing of itself."""

    options: Mapping[str, str] = field(repr=False)
    origin: str = ""
    """See `renewal.origin`."""


def resolve(config: SourceConfig) -> FsspecCredentials | None:
    """The KEY=VALUE lines of `credentials_file`, as options of the protocol. Raises PreflightError."""
    from penstock.sources.secret_file import pairs, read_secret

    path = config.storage_options.get("credentials_file")
    if not path:
        return None
    path = os.path.expanduser(str(path))
    return FsspecCredentials(pairs(read_secret(path)), path)


class Opener:
    """`storage_options` go to the library as they are, but for penstock's own."""

    def __init__(
        self,
        config: SourceConfig,
        credentials: FsspecCredentials | None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        self.url, self._options = config.url, config.storage_options
        self._defaults = defaults or {}
        self.secrets = credentials if credentials is not None else resolve(config)

    def renew(self, credentials: object) -> None:
        assert isinstance(credentials, FsspecCredentials)
        self.secrets = credentials

    def connect(self) -> tuple[Any, str]:
        """A new file system object of the library, and the name by which it knows the root. Raises
        ConfigError, PreflightError."""
        import fsspec

        keep_off_the_terminal(*LOGS)
        left_out = OURS if source_kinds.kind(self.url, self._options) else OURS | OTHERS
        options = {k: v for k, v in self._options.items() if k not in left_out}
        options = {**self._defaults, **options}
        options |= dict(self.secrets.options) if self.secrets else {}
        try:
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
        return fs, root.rstrip("/")

    def cleaned(self, text: str) -> str:
        """`text` without any value of the credentials file."""
        for secret in self.secrets.options.values() if self.secrets else ():
            text = text.replace(secret, "...") if secret else text
        return text

    def unreachable(self, error: BaseException) -> PreflightError:
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
