"""The seals of a dataset's releases, as they lie on the target: the one reader of `release.json`, the
document that publish writes of a release (counts, digests of its manifests, what was proven). Reads only."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.documents.seal import RELEASE_SEAL
from penstock.core.errors import FailedError
from penstock.core.layout import SEAL
from penstock.fs import plain_files

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.documents.seal import Seal
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.run import Run


class Stored(NamedTuple):
    """A seal and the digest of its bytes, of one reading."""

    seal: Seal
    digest: str
    """`sha256:<hex>`: what the dataset's history names the seal by."""


def load(layout: DatasetLayout, release: str) -> Stored:
    """The seal of a release. Raises OSError when it cannot be read, ValueError when it is damaged,
    NewerFormatError."""
    return in_folder(layout.release(release))


def in_folder(folder: Path) -> Stored:
    """The seal in the folder of a release, or of its staging. Raises as `load`."""
    path = folder / SEAL
    return of_content(plain_files.read(path), path)


def of_content(content: bytes, path: Path) -> Stored:
    """The seal that these bytes of `path` are. Raises ValueError, NewerFormatError."""
    return Stored(RELEASE_SEAL.from_json(content, path), f"sha256:{hashlib.sha256(content).hexdigest()}")


def find(layout: DatasetLayout, release: str) -> Stored | None:
    """The seal of a release, None when it is missing or damaged. Raises FailedError when it cannot be
    read, NewerFormatError."""
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
    """The seal of the run's release when it stands under its final name, and this run published it. Raises
    as `find`."""
    found = find(run.layout, run.release)
    return found if found is not None and found.seal.run == run.id else None
