"""Who keeps a release from being removed, for tables of releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.dataset.pins import ShownPins

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout

Holders = Callable[["DatasetLayout"], Mapping[str, ShownPins]]  # by held release of a dataset: who holds it


def nobody(_: DatasetLayout) -> Mapping[str, ShownPins]:
    """Report no holder, without reading anything."""
    return {}
