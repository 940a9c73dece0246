"""The descriptions that publish writes beside the seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.description.published_release import PublishedRelease
from penstock.description.registry import FORMS
from penstock.state import seals
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.config.settings import DescribeConfig


def write(folder: Path, words: DescribeConfig | None) -> None:
    """Into the folder of a sealed staging, durably, in each form; with `words` None no description is there
    on return. Raises OSError, FailedError, ValueError for a damaged seal."""
    for form in FORMS.values():
        if words is None:
            (folder / form.file).unlink(missing_ok=True)
        else:
            pieces = form.pieces(PublishedRelease(folder, seals.in_folder(folder), words))
            with durable.Growing(folder / form.file) as file:
                write_pieces(file, pieces)


def write_pieces(file: durable.Output, pieces: Iterable[str]) -> None:
    """A document, whole and durable under its name. Raises OSError, FailedError."""
    for piece in pieces:
        file.stream.write(piece.encode())
    file.close()
