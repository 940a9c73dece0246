"""Parses values as clients of file systems write them in configuration and mount options. None: missing, or
not understood."""

from __future__ import annotations

_FLAGS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def flag(text: str | None) -> bool | None:
    """Parse a switch: BeeGFS prints most as 0 and 1, and some as words."""
    return None if text is None else _FLAGS.get(text.strip().lower())


def number(text: str | None) -> int | None:
    """Parse a whole number that is not negative, in decimal digits."""
    text = "" if text is None else text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def one_of(values: tuple[str, ...] | None) -> str:
    """Return the last value of an option, which is the valid one; "" without any."""
    return values[-1] if values else ""
