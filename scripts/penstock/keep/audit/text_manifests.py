"""The text manifests of a release, made again from `manifest.parquet` where a purge or rot took them.

They hold nothing that the Parquet file does not hold, so the seal's digest of each decides whether it is the
published one again. `repair` calls it. It reads the manifest, and writes the text manifests beside it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.core.digests import XXH3
from penstock.core.layout import MANIFEST, MANIFEST_SHA256, MANIFEST_XXH
from penstock.dataset import receipts
from penstock.tables.manifest import ChecksumFile, checksums, read_files
from penstock.target import published_folder

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.documents.seal import Seal
    from penstock.core.layout import DatasetLayout

ALGORITHMS = {MANIFEST_XXH: XXH3, MANIFEST_SHA256: "sha256"}
"""Of each text manifest the algorithm of its checksums."""


def remake(layout: DatasetLayout, release: str, seal: Seal) -> list[str]:
    """Make those again that are missing or damaged; returns the names of those that are right now. Nothing is
    done where `manifest.parquet` itself is not the one that was sealed. Raises FailedError."""
    folder = layout.release(release)
    wrong = [name for name in ALGORITHMS if name in seal.manifests and not _holds(folder, name, seal)]
    if not wrong or not _holds(folder, MANIFEST, seal):
        return []
    for name in wrong:
        published_folder.put_beside(layout, release, name, partial(_write, folder, ALGORITHMS[name]))
    return [name for name in wrong if _holds(folder, name, seal)]


def _holds(folder: Path, name: str, seal: Seal) -> bool:
    try:
        return receipts.is_sealed(folder / name, seal.manifests.get(name))
    except OSError:
        return False


def _write(folder: Path, algorithm: str, path: Path) -> None:
    with ChecksumFile(path, algorithm=algorithm) as file:
        for files in read_files(folder / MANIFEST, columns=("path", "digest", "digests")):
            file.add(checksums(files, algorithm))
        file.close()
