"""How long a copy will take, and by which figures: measured ones where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ASSUMED_BYTES = 1_000_000_000
"""Bytes per second of one element, while nothing was measured: 8 Gbit/s."""
ASSUMED_FILES = 1000
"""Files per second of one element, likewise."""


@dataclass(frozen=True)
class Rates:
    """What one element copies, per second."""

    bytes_per_second: float = ASSUMED_BYTES
    files_per_second: float = ASSUMED_FILES
    measured: str = ""
    """The release whose copy was measured; "" when the rates are assumed."""


@dataclass(frozen=True)
class MeasuredCopy:
    """What the copy of one release did."""

    release: str
    files: int
    bytes: int
    element_seconds: float
    """Summed over the elements."""


def rates(history: Iterable[MeasuredCopy]) -> Rates:
    """From the last one that copied anything. It measured one mix of sizes; another takes another time."""
    found = Rates()
    for one in history:
        if one.element_seconds > 0 and one.files > 0:
            found = Rates(
                max(one.bytes / one.element_seconds, 1.0),
                max(one.files / one.element_seconds, 1.0),
                one.release or "earlier",
            )
    return found


def seconds(files: int, size: int, slots: int, rates: Rates) -> float:
    """Of the copy alone, over all elements, with `slots` of them at once.

    With measured rates the mix was as it was: the larger of the two times. Assumed rates are
    taken one after the other.
    """
    by_bytes, by_files = size / rates.bytes_per_second, files / rates.files_per_second
    together = max(by_bytes, by_files) if rates.measured else by_bytes + by_files
    return together / max(1, slots)
