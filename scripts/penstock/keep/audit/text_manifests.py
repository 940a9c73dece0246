"""Makes the text manifests of a release again from `manifest.parquet`, after a purge or rot.

The Parquet file holds all of their content, so the seal's digest proves each remade file.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.core.layout import MANIFEST, MANIFEST_SHA256, MANIFEST_XXH
from penstock.core.model import XXH3
from penstock.dataset import receipts
from penstock.tables.manifest import ChecksumFile, checksums, read_files
from penstock.target import published_folder

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal

ALGORITHMS = {MANIFEST_XXH: XXH3, MANIFEST_SHA256: "sha256"}  # the checksum algorithm of each text manifest


def remake(layout: DatasetLayout, release: str, seal: Seal) -> list[str]:
    """Remake missing or damaged text manifests; return the names of those restored. Raises FailedError. Does
    nothing if `manifest.parquet` itself is not the sealed one."""
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
