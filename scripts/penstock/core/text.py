"""Text that is safe to show: on a terminal, in a log, in a report."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELD = 100
"""Characters of a field that another account wrote: it may hold as many as its file."""
TEXT = 4200
"""Of a text that such fields are in, at most: a path has 4,096 bytes."""
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """One line: everything is escaped that could steer a terminal or deceive the eye: control
    and format characters (escape sequences, bidirectional overrides), bytes that are not UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def is_utf8(text: str) -> bool:
    """Whether it is UTF-8, and not a name with bytes that the file system's encoding could not read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_quotes(value: object) -> str:
    """A name or a value in a message: in double quotes, printable."""
    return f'"{printable(str(value))}"'


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str:
    """The known word that a mistyped one was meant to be; "" where none is as alike as `least`, from 0 (not
    at all) to 1 (the same)."""
    import difflib  # it takes milliseconds, and few processes need it

    return next(iter(difflib.get_close_matches(word, list(known), 1, least)), "")


def did_you_mean(words: Iterable[str], known: Iterable[str]) -> str:
    """What follows in a message about words that are not known: `; did you mean a?`, or ""."""
    candidates = list(known)
    meant = dict.fromkeys(filter(None, (nearest(word, candidates) for word in words)))
    return f"; did you mean {', '.join(meant)}?" if meant else ""


def brief(text: object, most: int = FIELD) -> str:
    """`printable` of a field that another account wrote, of at most so many characters."""
    shown = printable(str(text)[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def printable_lines(text: str) -> str:
    """`printable` of each line; line feeds stay."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, by os.fsdecode
        return f"\\x{code - 0xDC00:02x}"
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if short:
        return short
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
