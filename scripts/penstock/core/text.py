"""Makes text safe to show on a terminal, in a log or in a report."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELD = 100  # characters shown of a field that another account wrote
TEXT = 4200  # characters shown of a text with such fields: a path has up to 4,096 bytes
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
    """Return one line, with all characters escaped that could steer a terminal or deceive the eye: control
    and format characters (bidirectional overrides), and bytes that are not UTF-8."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def masked(text: str) -> str:
    """Return the text without credentials: passwords in URLs, signatures and tokens in queries, and words
    shaped like a cloud's key or a token.

    >>> masked("ftp://me:secret@h/x, https://h/y?X-Amz-Signature=ab12&n=1")
    'ftp://...@h/x, https://h/y?X-Amz-Signature=...&n=1'
    """
    return _SHAPED.sub("...", _QUERY.sub(r"\1...", _USER.sub(r"\1...@", text)))


def masked_words(text: str) -> str:
    """As `masked`, of another program's text: also mask the values of anything named key or secret.

    >>> masked_words("no login: token=abc, password: 'x y'")
    'no login: token=..., password: ...'
    """
    return _NAMED.sub(r"\1...", masked(text))


def is_utf8(text: str) -> bool:
    """Return whether the text can be written as UTF-8; surrogate escapes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_quotes(value: object) -> str:
    """Return a name or value for a message: in double quotes, printable."""
    return f'"{printable(str(value))}"'


def nearest(word: str, vocabulary: Iterable[str]) -> str:
    """Return the word that a mistyped one meant, or "": the only one that begins with it, else that with the
    fewest `slips`. At most a third of the longer word's letters may be slips; an option's dashes do not
    count."""
    words = list(vocabulary)
    begun = [name for name in words if len(word) > 1 and name.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    by_slips = {name: slips(word, name) for name in words}
    near = [
        name for name in words if by_slips[name] <= max(len(word.lstrip("-")), len(name.lstrip("-"))) // 3
    ]
    return min(near, key=by_slips.__getitem__, default="")


def slips(word: str, meant: str) -> int:
    """Return the number of letters left out, added, exchanged or swapped with a neighbour: the distance of
    Damerau and Levenshtein with each letter swapped at most once."""
    above: list[int] = []
    row = list(range(len(meant) + 1))
    for i, letter in enumerate(word, 1):
        above, last, row = row, above, [i]
        for j, wanted in enumerate(meant, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == meant[j - 2] and word[i - 2] == wanted:
                row[j] = min(row[j], last[j - 2] + 1)
    return row[-1]


def did_you_mean(words: Iterable[str], vocabulary: Iterable[str]) -> str:
    """Return the end of a message about unknown words: `; did you mean a?`, or ""."""
    candidates = list(vocabulary)
    meant = dict.fromkeys(filter(None, (nearest(word, candidates) for word in words)))
    return f"; did you mean {', '.join(meant)}?" if meant else ""


def brief(text: object, most: int = FIELD) -> str:
    """`printable` of a field that another account wrote, in at most `most` characters."""
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
