"""The description that publish writes beside the seal, in the release's staging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.layout import CROISSANT
from penstock.dataset import seals
from penstock.extras import croissant
from penstock.extras.published_release import PublishedRelease
from penstock.fs import small_files

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import DescribeConfig


def write(folder: Path, words: DescribeConfig | None) -> None:
    """Write it durably into a sealed staging; with `words` None remove it. Raises OSError, FailedError,
    ValueError for a damaged seal."""
    if words is None:
        (folder / CROISSANT).unlink(missing_ok=True)
        return
    release = PublishedRelease(folder, seals.in_folder(folder), words)
    with small_files.Growing(folder / CROISSANT) as file:
        for piece in croissant.pieces(release):
            file.stream.write(piece.encode())
        file.close()
