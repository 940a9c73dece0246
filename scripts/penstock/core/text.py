"""Text that is safe to show: on a terminal, in a log, in a report."""

from __future__ import annotations

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """One line: everything is escaped that could steer a terminal or deceive the eye: control
    and format characters (escape sequences, bidirectional overrides), bytes that are not UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def in_quotes(value: object) -> str:
    """A name or a value in a message: in double quotes, printable."""
    return f'"{printable(str(value))}"'


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
