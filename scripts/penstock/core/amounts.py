"""Bytes and counts as people read them. `core.human` has these and everything else that people read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(count: float) -> str:
    """`0 B`, `1.50 KiB`, `110 MiB`: three digits, binary prefixes."""
    value, prefix = scaled(count)
    return f"{digits(value) if prefix else f'{value:.0f}'} {PREFIXES[prefix]}"


def digits(value: float) -> str:
    """Three significant digits, never in exponents."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def scaled(value: float) -> tuple[float, int]:
    """The value in the largest unit that leaves at least one of it, and that unit's place in `PREFIXES`."""
    value, prefix = float(value), 0
    while abs(value) >= 1023.5 and prefix < len(PREFIXES) - 1:
        value /= 1024
        prefix += 1
    return value, prefix


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def of_kinds(counts: Mapping[str, int]) -> list[str]:
    """`1 empty folder`, `2 links`, `3 filtered` of counts by kind, whose nouns are plurals; kinds without any
    are left out."""
    return [
        f"{count(number)} {re.sub(_PLURAL, _SINGULAR, kind) if number == 1 else kind}"
        for kind, number in counts.items()
        if number
    ]


_PLURAL, _SINGULAR = re.compile(r"^((?:\w+ )?\w+)s\b"), r"\1"
