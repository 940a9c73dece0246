"""Text that is safe to show: on a terminal, in a log, in a report. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELD = 100
"""Characters of a field that another account wrote: it may hold as many as its file."""
TEXT = 4200
"""Characters at most of a text that such fields are in: a path has 4,096 bytes."""
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]*@")
_QUERY = re.compile(
    r"(?i)([?&;](?:[\w.-]*(?:signature|credential|token|secret|passw|api[_-]?key|access[_-]?key)[\w.-]*"
    r"|sig|key|auth|authorization|jwt|policy|pwd|pass)=)[^&;\s\"'#<>\])]+"
)
_SHAPED = re.compile(r"\bA[A-Z]IA[A-Z0-9]{12,}|\beyJ[\w.-]{16,}|(?i:(?<=\bBearer ))[\w.~+/=-]{8,}")
_NAMED = re.compile(
    r"""(?i)(\b\w*(?:secret|passw|token|key)\w*\s*=\s*|"\w*(?:secret|passw|token|key)\w*"\s*:\s*"""
    r"""|\b\w*(?:secret|passw|token)\w*:\s*)(?:"[^"]*"|'[^']*'|[^\s,}]+)"""
)
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """One line: everything is escaped that could steer a terminal or deceive the eye: control
    and format characters (escape sequences, bidirectional overrides), bytes that are not UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def masked(text: str) -> str:
    """The text without what lets somebody in: a password in a URL, a signature or a token in its query, what
    has the shape of a cloud's key or of a token.

    >>> masked("ftp://me:secret@h/x, https://h/y?X-Amz-Signature=ab12&n=1")
    'ftp://...@h/x, https://h/y?X-Amz-Signature=...&n=1'
    """
    return _SHAPED.sub("...", _QUERY.sub(r"\1...", _USER.sub(r"\1...@", text)))


def masked_words(text: str) -> str:
    """`masked`, of another program's words: also without the values of what it calls a key or a secret.

    >>> masked_words("no login: token=abc, password: 'x y'")
    'no login: token=..., password: ...'
    """
    return _NAMED.sub(r"\1...", masked(text))


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8; a name of bytes that are not UTF-8 cannot (surrogate
    escapes)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_quotes(value: object) -> str:
    """A name or a value in a message: in double quotes, printable."""
    return f'"{printable(str(value))}"'


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that a mistyped one was meant to be: the only one that begins with it, else the one that
    takes the fewest `slips`, at most one for each three letters of the longer of both, without an option's
    dashes; else ""."""
    words = list(known)
    begun = [name for name in words if len(word) > 1 and name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    by_slips = {name: slips(word, name) for name in words}
    near = [
        name for name in words if by_slips[name] <= max(len(word.lstrip("-")), len(name.lstrip("-"))) // 3
    ]
    return min(near, key=by_slips.__getitem__, default="")


def slips(word: str, meant: str) -> int:
    """How many letters were left out, added, exchanged for others or swapped with their neighbours: the
    distance of Damerau and Levenshtein, with each letter swapped at most once."""
    above: list[int] = []
    row = list(range(len(meant) + 1))
    for i, letter in enumerate(word, 1):
        above, last, row = row, above, [i]
        for j, wanted in enumerate(meant, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == meant[j - 2] and word[i - 2] == wanted:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]


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
