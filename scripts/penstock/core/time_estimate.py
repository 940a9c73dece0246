"""How long a copy will take, and by which figures: measured ones where there are any. Pure; `jobs.forecast`
calls it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ASSUMED_BYTES = 1_000_000_000
"""Bytes per second of one element, while nothing was measured: 8 Gbit/s."""
ASSUMED_FILES = 1000
"""Files per second of one element, likewise."""
ASSUMED_LINKS = 10_000
"""Links per second of one element, likewise."""
LONG_ENOUGH = 0.5
"""Element seconds from which on a copy gives a rate: of one changed file only its start would be measured."""
MANY_LINKS = 1000
"""Links from which on a run's linking is long enough to give a rate."""


@dataclass(frozen=True)
class Rates:
    """What one element copies, per second."""

    bytes_per_second: float = ASSUMED_BYTES
    files_per_second: float = ASSUMED_FILES
    measured: str = ""
    """The release whose copy was measured; "" when the rates are assumed."""
    links_per_second: float = ASSUMED_LINKS
    links_measured: str = ""
    """As `measured`, of the links."""
    tried: bool = False
    """What was not measured by a release was measured on the target just now."""
    rehearsed: bool = False
    """`measured` is the day of a rehearsal, such as `2 Nov`."""

    @property
    def origin(self) -> str:
        """`release 20261101-1f2e3d4c` or `rehearsed 2 Nov`; "" where the rates are assumed."""
        return f"{'rehearsed' if self.rehearsed else 'release'} {self.measured}" if self.measured else ""


@dataclass(frozen=True)
class MeasuredCopy:
    """What the copy of one release did."""

    release: str
    files: int
    bytes: int
    element_seconds: float
    """Summed over the elements, without `link_seconds`."""
    links: int = 0
    link_seconds: float = 0.0
    """What linking took, likewise."""
    rehearsed: bool = False
    """No release was copied but a sample; `release` is the day, such as `2 Nov`."""


def rates(history: Iterable[MeasuredCopy], tried: Mapping[str, float] = MappingProxyType({})) -> Rates:
    """The rates of the last copy in `history` (oldest first) that took LONG_ENOUGH or was a rehearsal, and of
    the last that linked MANY_LINKS or more. They are those of its mix of sizes; another mix takes another
    time. Where no copy gives a rate: `files` and `links` a second as they were `tried` on the target, else
    assumed."""
    estimate = Rates(
        files_per_second=max(tried.get("files", ASSUMED_FILES), 1.0),
        links_per_second=max(tried.get("links", ASSUMED_LINKS), 1.0),
        tried=bool(tried),
    )
    for copy in history:
        if copy.files > 0 and copy.element_seconds >= (0 if copy.rehearsed else LONG_ENOUGH):
            estimate = replace(
                estimate,
                bytes_per_second=max(copy.bytes / copy.element_seconds, 1.0),
                files_per_second=max(copy.files / copy.element_seconds, 1.0),
                measured=copy.release or "earlier",
                rehearsed=copy.rehearsed,
            )
        if copy.link_seconds > 0 and copy.links >= MANY_LINKS:
            estimate = replace(
                estimate,
                links_per_second=copy.links / copy.link_seconds,
                links_measured=copy.release or "earlier",
            )
    return estimate


def seconds(files: int, size: int, slots: int, rates: Rates, links: int = 0) -> float:
    """Seconds that copying `files` of `size` bytes in all takes, with `slots` elements at once, and making
    `links`, which an element does before it copies.

    With measured rates the mix was as it was: the larger of the two times. Assumed rates are
    taken one after the other.
    """
    by_bytes, by_files = size / rates.bytes_per_second, files / rates.files_per_second
    together = max(by_bytes, by_files) if rates.measured else by_bytes + by_files
    return (together + links / rates.links_per_second) / max(1, slots)
