"""Which store or file system a source is, beyond its URL: the same URL may lead elsewhere by now.

list writes the identity into the run's description, and uses it to find a listing that was broken off. Of a
folder the stat and the table of mounts are read; nothing is sent.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from penstock.config.source_kinds import AZURE, FOLDER_SCHEMES, GCS, S3, WEB, through_fsspec
from penstock.host.mounts import mount_of
from penstock.sources.registry import folder, pinned, scheme

if TYPE_CHECKING:
    from penstock.config.settings import SourceConfig
    from penstock.sources.port import Source


def origin(config: SourceConfig, source: Source) -> str:
    """A source's identity, for a run's description; never a secret.

    | source     | identity                                                         |
    |------------|------------------------------------------------------------------|
    | folder     | what is exported, or the device's number; the folder's own inode |
    | S3         | the endpoint and the bucket                                      |
    | Google     | the endpoint and the URL                                         |
    | Azure, web | the URL, which names the host                                    |
    | else, `reader: fsspec` | the URL and its options                              |

    Raises OSError for a folder that cannot be looked at.
    """
    kind = scheme(config.url)
    if kind in FOLDER_SCHEMES:
        top = os.path.realpath(folder(config.url))
        stat = os.stat(top)
        device = mount_of(top).device
        # A network mount has another device number on each host, and after each mount.
        held = device if ":" in device else f"device {stat.st_dev}"
        return f"{held} inode {stat.st_ino}"
    if through_fsspec(config.storage_options):
        kind = "fsspec"
    if kind in S3:
        from penstock.sources.s3.source import S3Source

        assert isinstance(source, S3Source)
        return f"{source.bucket.endpoint.rstrip('/').lower() or 'aws'} {source.bucket.name}"
    if kind in GCS:
        from penstock.sources.gcs.source import GcsSource

        assert isinstance(source, GcsSource)
        return f"{source.endpoint.rstrip('/').lower()} {source.url}"
    if kind in (*AZURE, *WEB):
        return source.url
    return f"{source.url} {json.dumps(dict(config.storage_options), sort_keys=True, default=str)}"


def same_bytes(url: str, token: str) -> bool:
    """Whether the same token of the same source means the same bytes for sure: a folder's (size, times and
    inode together), a strong etag; not a weak one, nor a date."""
    return bool(token) if scheme(url) in FOLDER_SCHEMES else pinned(url, token)
