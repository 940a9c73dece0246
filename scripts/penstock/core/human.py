"""Bytes, rates, durations and counts as people read them; and text that is safe on a terminal."""

from __future__ import annotations

import math

from penstock.core import amounts, text
from penstock.core.amounts import scaled

printable = text.printable
size, digits = amounts.size, amounts.digits
count, counted, of_kinds = amounts.count, amounts.counted, amounts.of_kinds

UNKNOWN = "-"


def size_of(count: float, total: float) -> str:
    """`1.50 of 3.42 GiB`: both in the total's unit."""
    _, prefix = scaled(total)
    shown = count / 1024**prefix
    return f"{digits(shown) if prefix else f'{shown:.0f}'} of {size(total)}"


def rate(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s" if math.isfinite(bytes_per_second) else UNKNOWN


def speed(count: float, seconds: float) -> str:
    """The mean rate, or `-` where no time has passed."""
    return rate(count / seconds) if seconds > 0 else UNKNOWN


def duration(seconds: float) -> str:
    """`0.42 s`, `13 s`, `2 min 05 s`, `3 h 07 min`, `2 d 04 h`."""
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


def age(seconds: float | None) -> str:
    """In one unit: `42 s`, `5 min`, `3 h`, `12 d`, `2.1 y`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    for unit, long in (("s", 60), ("min", 3600), ("h", 86400), ("d", 2 * 365.25 * 86400)):
        if seconds < long:
            return f"{int(seconds // _SECONDS[unit])} {unit}"
    return f"{seconds / _SECONDS['y']:.1f} y"


_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "y": 365.25 * 86400}
