"""Who keeps a release from being removed. `Holders` is what the tables ask; `nobody` answers where nothing on
the target can hold a release but `current`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.dataset.pins import ShownPins

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout

Holders = Callable[["DatasetLayout"], Mapping[str, ShownPins]]
"""Of a dataset: each release that is held, and by whom."""


def nobody(_: DatasetLayout) -> Mapping[str, ShownPins]:
    """No release is held. It reads nothing."""
    return {}
