"""Estimates how long a copy will take, by measured rates where possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ASSUMED_BYTES = 1_000_000_000  # a second and element, while nothing was measured: 8 Gbit/s
ASSUMED_FILES = 1000  # likewise
ASSUMED_LINKS = 10_000  # likewise
LONG_ENOUGH = 0.5  # element seconds of a copy that gives a rate: shorter ones measure only the start
MANY_LINKS = 1000  # links of a run that gives a rate


@dataclass(frozen=True)
class Rates:
    """What an element copies a second."""

    bytes_per_second: float = ASSUMED_BYTES
    files_per_second: float = ASSUMED_FILES
    measured: str = ""  # the release whose copy was measured; "": assumed rates
    links_per_second: float = ASSUMED_LINKS
    links_measured: str = ""  # as `measured`, of the links
    tried: bool = False  # rates that no release gave were measured on the target just now
    rehearsed: bool = False  # `measured` is the day of a rehearsal, such as `2 Nov`

    @property
    def origin(self) -> str:
        """`release 20261101-1f2e3d4c` or `rehearsed 2 Nov`; "": assumed rates."""
        return f"{'rehearsed' if self.rehearsed else 'release'} {self.measured}" if self.measured else ""


@dataclass(frozen=True)
class MeasuredCopy:
    """The work of a release's copy."""

    release: str
    files: int
    bytes: int
    element_seconds: float  # sum over the elements, without `link_seconds`
    links: int = 0
    link_seconds: float = 0.0  # of linking, likewise
    rehearsed: bool = False  # a sample was copied, not a release; `release` is the day, such as `2 Nov`


def rates(history: Iterable[MeasuredCopy], tried: Mapping[str, float] = MappingProxyType({})) -> Rates:
    """Return the rates of the last copy in `history` (oldest first) that took LONG_ENOUGH or was a rehearsal,
    and of the last with MANY_LINKS. Another mix of sizes takes another time.

    Without such a copy: `files` and `links` a second as `tried` on the target, else assumed.
    """
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
    """Return the seconds for making `links`, then copying `files` of `size` bytes in all, with `slots`
    elements. Measured rates hold for their mix: the larger of the two times counts. Assumed rates are
    added."""
    by_bytes, by_files = size / rates.bytes_per_second, files / rates.files_per_second
    together = max(by_bytes, by_files) if rates.measured else by_bytes + by_files
    return (together + links / rates.links_per_second) / max(1, slots)
