"""How long a copy will take, and by which figures: measured ones where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


def rates(history: Iterable[Mapping[str, Any]]) -> Rates:
    """From the newest line of the history that tells what a copy did.

    Such a line has `copy`: {`files`, `bytes`, `element_seconds`} (seconds summed over the
    elements). It measured one mix of sizes: another mix takes another time.
    """
    found = Rates()
    for line in history:
        copy = line.get("copy")
        if not isinstance(copy, dict):
            continue
        try:
            seconds = float(copy["element_seconds"])
            files, size = int(copy["files"]), int(copy["bytes"])
        except (KeyError, TypeError, ValueError):
            continue
        if seconds > 0 and files > 0:
            found = Rates(
                max(size / seconds, 1.0), max(files / seconds, 1.0), str(line.get("release", "")) or "earlier"
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
