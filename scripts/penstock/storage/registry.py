"""Opens the storage of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.storage.port import Storage


def open_storage() -> Storage:
    """The storage of targets that are POSIX trees: all there are."""
    from penstock.storage import posix

    return posix
