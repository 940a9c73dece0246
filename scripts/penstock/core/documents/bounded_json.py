"""Parses JSON that another account may have written, with bounded memory and depth."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MOST = 320 << 20  # bytes of memory that a document's values may take
# Bytes, at most, in CPython 3.11 to 3.14: an object with a name, a list with a value, each further name,
# number or short text.
_OBJECT, _LIST, _VALUE = 240, 96, 64


def loads(content: bytes) -> Any:
    """Parse the JSON. Raises ValueError for too much memory (`MOST`), nesting or digits of a number, and for
    what RFC 8259 excludes, such as NaN."""
    check(content)
    try:
        return _DECODER.decode(content.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def check(content: bytes) -> None:
    """Raise ValueError if the text, or its lines, may take more than `MOST` bytes of memory as values."""
    # A text with one character beyond Latin-1 takes two or four bytes for each of its characters.
    wide = 1 if content.isascii() and b"\\u" not in content else 4
    values = _VALUE * (content.count(b",") + content.count(b":"))
    lists = _OBJECT * content.count(b"{") + _LIST * content.count(b"[")
    if 2 * wide * len(content) + lists + values > MOST:
        raise ValueError(f"its values would take more than {MOST >> 20} MiB of memory")


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refused)
