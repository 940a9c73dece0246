"""Formats bytes, rates, durations and counts for people."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from penstock.core import text

if TYPE_CHECKING:
    from collections.abc import Mapping

printable = text.printable

UNKNOWN = "-"  # for an unknown figure
PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")  # units of bytes, each 1024 times the previous
_PLURAL, _SINGULAR = re.compile(r"^((?:\w+ )?\w+)s\b"), r"\1"


def size(count: float) -> str:
    """Format bytes as `0 B`, `1.50 KiB`, `110 MiB`: three digits, binary prefixes."""
    value, prefix = scaled(count)
    return f"{digits(value) if prefix else f'{value:.0f}'} {PREFIXES[prefix]}"


def digits(value: float) -> str:
    """Format three significant digits, never with an exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def scaled(value: float) -> tuple[float, int]:
    """Return the value in the largest unit that leaves at least 1, and that unit's index in `PREFIXES`."""
    value, prefix = float(value), 0
    while abs(value) >= 1023.5 and prefix < len(PREFIXES) - 1:
        value /= 1024
        prefix += 1
    return value, prefix


def count(number: int) -> str:
    """Format as `2,000`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Format as `1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def of_kinds(counts: Mapping[str, int]) -> list[str]:
    """Format counts by kind as `1 empty folder`, `2 links`. Nouns come as plurals; zeros are left out."""
    return [
        f"{count(number)} {re.sub(_PLURAL, _SINGULAR, kind) if number == 1 else kind}"
        for kind, number in counts.items()
        if number
    ]


def size_of(count: float, total: float) -> str:
    """Format as `1.50 of 3.42 GiB`: both in the total's unit."""
    _, prefix = scaled(total)
    shown = count / 1024**prefix
    return f"{digits(shown) if prefix else f'{shown:.0f}'} of {size(total)}"


def rate(bytes_per_second: float) -> str:
    """Format as `1.50 GiB/s`; `-` if not finite."""
    return f"{size(bytes_per_second)}/s" if math.isfinite(bytes_per_second) else UNKNOWN


def speed(count: float, seconds: float) -> str:
    """Format the mean rate of so many bytes in so many seconds; `-` if no time has passed."""
    return rate(count / seconds) if seconds > 0 else UNKNOWN


def duration(seconds: float) -> str:
    """Format as `0.42 s`, `13 s`, `2 min 05 s`, `3 h 07 min`, `2 d 04 h`; `-` if negative or not finite."""
    if not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds >= 0.995 else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def time_span(least: float, most: float) -> str:
    """Format as `1 h 20 min to 1 h 34 min`, or `13 s` if alike; from two days on as `635 to 679 h`."""
    if least >= 2 * 86400:
        first, last = (f"{value / 3600:,.0f}" for value in (least, most))
        return f"{first} h" if first == last else f"{first} to {last} h"
    first, last = duration(least), duration(most)
    return first if first == last else f"{first} to {last}"


def age(seconds: float | None) -> str:
    """Format in one unit: `42 s`, `5 min`, `3 h`, `12 d`, `2.1 y`; `-` if None, negative or not finite."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    for unit, long in (("s", 60), ("min", 3600), ("h", 86400), ("d", 2 * 365.25 * 86400)):
        if seconds < long:
            return f"{int(seconds // _SECONDS[unit])} {unit}"
    return f"{seconds / _SECONDS['y']:.1f} y"


_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "y": 365.25 * 86400}
