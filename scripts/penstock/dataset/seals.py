"""The one reader of `release.json`, the seal that publish writes of a release: counts, digests of its
manifests, and what was proven."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import FailedError
from penstock.core.layout import SEAL
from penstock.core.seal import RELEASE_SEAL
from penstock.fs import small_files

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.core.seal import Seal
    from penstock.dataset.run import Run


class Stored(NamedTuple):
    """A seal and the digest of its bytes."""

    seal: Seal
    digest: str  # `sha256:<hex>`, as the dataset's history names the seal


def load(layout: DatasetLayout, release: str) -> Stored:
    """Read the seal of a release. Raises OSError, ValueError if it is damaged, NewerFormatError."""
    return in_folder(layout.release(release))


def in_folder(folder: Path) -> Stored:
    """Read the seal in the folder of a release or staging. Raises as `load`."""
    path = folder / SEAL
    return of_content(small_files.read(path), path)


def of_content(content: bytes, path: Path) -> Stored:
    """Parse the bytes of the seal at `path`. Raises ValueError, NewerFormatError."""
    return Stored(RELEASE_SEAL.from_json(content, path), f"sha256:{hashlib.sha256(content).hexdigest()}")


def find(layout: DatasetLayout, release: str) -> Stored | None:
    """Read the seal of a release; None if it is missing or damaged. Raises FailedError if it cannot be read,
    NewerFormatError."""
    try:
        return load(layout, release)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        where = str(layout.release(release) / SEAL)
        raise FailedError(
            "a release's seal cannot be read",
            where=where,
            why=str(error),
            hint="`penstock audit` says what is damaged; `penstock rollback` makes another release current",
        ) from error


def of_run(run: Run) -> Stored | None:
    """Read the seal of the run's published release; None if this run did not publish it. Raises as `find`."""
    stored = find(run.layout, run.release)
    return stored if stored is not None and stored.seal.run == run.id else None
