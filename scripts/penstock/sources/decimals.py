"""Whole numbers out of headers and pages, read strictly. Pure."""

from __future__ import annotations

DIGITS = 19
"""Of 2**63, the first size that no file has: longer numbers mean nothing."""


def decimal(text: str | bytes) -> int | None:
    """The number that plain digits write, at most DIGITS of them; None for anything else.

    `int` takes signs, blanks, underscores and the digits of other scripts too, and raises for very many.
    """
    plain = text.isascii() and text.isdigit() and len(text) <= DIGITS
    return int(text) if plain else None
