"""Which host a source's bytes come from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.config.source_kinds import AZURE, FOLDER_SCHEMES, GCS, S3, WEB, through_fsspec
from penstock.filesystem.clients.registry import server_address
from penstock.runtime.proc import PROC
from penstock.sources.http.endpoint import endpoint
from penstock.sources.registry import folder, scheme

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig


def server_host(config: SourceConfig, secrets: object | None, proc: str | os.PathLike[str] = PROC) -> str:
    """The name or address of the host to which connections for a source go. `secrets`: what
    `registry.credentials` resolved.

    | source                  | host                                                                |
    |-------------------------|---------------------------------------------------------------------|
    | folder on NFS           | the address that the mount was made with, else the server's name    |
    | S3, Google, Azure, web  | of the endpoint, or of the proxy that leads there                   |
    | else                    | that of the URL, where it names one (`sftp://host/folder`)          |
    | folder elsewhere        | ""                                                                  |

    Raises ConfigError for an endpoint that is no URL, OSError for a folder that cannot be looked at.
    """
    kind = scheme(config.url)
    if kind in FOLDER_SCHEMES:
        return server_address(os.path.realpath(folder(config.url)), proc)
    options, base = config.storage_options, str(config.storage_options.get("endpoint_url") or "")
    if through_fsspec(options) or kind not in (*S3, *GCS, *AZURE, *WEB):
        url = base or config.url
        return (urlsplit(url).hostname or "") if base or kind not in (*S3, *GCS, *AZURE) else ""
    if kind in S3:
        region = getattr(secrets, "region", "us-east-1")
        base = getattr(secrets, "endpoint", "") or base or f"https://s3.{region}.amazonaws.com"
    elif kind in GCS:
        from penstock.sources.gcs.client import GOOGLE

        base = base or GOOGLE
    elif kind in AZURE:
        base = getattr(secrets, "endpoint", "") or base
    else:
        base = config.url
    return endpoint(base, options).address[0]
