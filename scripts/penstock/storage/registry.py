"""Opens the storage of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.storage.port import Storage


def open_storage(spend: Callable[[int], None] | None = None) -> Storage:
    """The storage of targets that are POSIX trees: all there are. With `spend` it waits by that before so
    many metadata operations."""
    from penstock.storage import posix

    if spend is None:
        return posix
    from penstock.storage.paced_storage import PacedStorage

    return cast("Storage", PacedStorage(posix, spend))
