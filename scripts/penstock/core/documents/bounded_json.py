"""JSON that another account may have written, as values of bounded memory and depth. Pure; whatever reads
JSON from the target takes it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MOST = 320 << 20
"""Bytes of memory that one document's values may take."""
_OBJECT, _LIST, _VALUE = 240, 96, 64
"""Bytes that CPython 3.11 to 3.14 take at most: for an object with a name in it, for a list with a value, and
for each further name, number or short text."""


def loads(content: bytes) -> Any:
    """The value. Raises ValueError for what is no JSON by RFC 8259 (NaN and Infinity are none), is nested too
    deep, has a number of more digits than Python reads, or would take more than `MOST` bytes of memory."""
    check(content)
    try:
        return _DECODER.decode(content.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def check(content: bytes) -> None:
    """Raises ValueError where the text and its values, or those of its lines, may take more than `MOST` bytes
    of memory."""
    # A text with one character beyond Latin-1 takes two or four bytes for each of its characters.
    wide = 1 if content.isascii() and b"\\u" not in content else 4
    values = _VALUE * (content.count(b",") + content.count(b":"))
    lists = _OBJECT * content.count(b"{") + _LIST * content.count(b"[")
    if 2 * wide * len(content) + lists + values > MOST:
        raise ValueError(f"its values would take more than {MOST >> 20} MiB of memory")


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refused)
