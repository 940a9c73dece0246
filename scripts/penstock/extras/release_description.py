"""The description that publish writes beside the seal: one file in the staging of the release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.layout import CROISSANT
from penstock.dataset import seals
from penstock.extras import croissant
from penstock.extras.published_release import PublishedRelease
from penstock.fs import durable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.settings import DescribeConfig


def write(folder: Path, words: DescribeConfig | None) -> None:
    """Into the folder of a sealed staging, durably; with `words` None no description is there on return.
    Raises OSError, FailedError, ValueError for a damaged seal."""
    if words is None:
        (folder / CROISSANT).unlink(missing_ok=True)
        return
    release = PublishedRelease(folder, seals.in_folder(folder), words)
    with durable.Growing(folder / CROISSANT) as file:
        for piece in croissant.pieces(release):
            file.stream.write(piece.encode())
        file.close()
