"""Text that is safe on a terminal, in a log and in a report; readable bytes, rates, durations and counts;
times as stores and lists write them, and as messages show them. Pure, except that `local` reads the zone.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


FIELD = 100  # characters shown of a field that another account wrote
TEXT = 4200  # characters shown of a text with such fields, since a path has up to 4,096 bytes
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
    """Return a single line without characters that could control a terminal or deceive the eye. Control and
    format characters (bidirectional overrides), and bytes that are not UTF-8, are escaped."""
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
    """As `masked`, but for another program's text: also mask the values of anything named key or secret.

    >>> masked_words("no login: token=abc, password: 'x y'")
    'no login: token=..., password: ...'
    """
    return _NAMED.sub(r"\1...", masked(text))


def is_utf8(text: str) -> bool:
    """Return whether the text can be written as UTF-8. Text with surrogate escapes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_quotes(value: object) -> str:
    """Return a name or value for a message: printable, and in double quotes."""
    return f'"{printable(str(value))}"'


def nearest(word: str, vocabulary: Iterable[str]) -> str:
    """Return the word that a mistyped `word` meant, or "". It is the only word that begins with `word`, or
    else the word with the fewest `slips`. At most a third of the longer word's letters may be slips. An
    option's dashes do not count."""
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
    """Return the end of a message about unknown words, such as `; did you mean a?`, or ""."""
    candidates = list(vocabulary)
    meant = dict.fromkeys(filter(None, (nearest(word, candidates) for word in words)))
    return f"; did you mean {', '.join(meant)}?" if meant else ""


def brief(text: object, most: int = FIELD) -> str:
    """Return a field that another account wrote as `printable`, in at most `most` characters."""
    shown = printable(str(text)[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def printable_lines(text: str) -> str:
    """Return the text with each line made `printable`; line feeds stay."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode returns it
        return f"\\x{code - 0xDC00:02x}"
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if short:
        return short
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


UNKNOWN = "-"  # text for an unknown figure
PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")  # units of bytes, each 1024 times the previous
_PLURAL, _SINGULAR = re.compile(r"^((?:\w+ )?\w+)s\b"), r"\1"


def size(count: float) -> str:
    """Format bytes as `0 B`, `1.50 KiB`, `110 MiB`: three digits, binary prefixes."""
    value, prefix = scaled(count)
    return f"{digits(value) if prefix else f'{value:.0f}'} {PREFIXES[prefix]}"


def digits(value: float) -> str:
    """Format three significant digits, never with an exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def scaled(value: float) -> tuple[float, int]:
    """Return the value in the largest unit in which it is at least 1, and that unit's index in `PREFIXES`."""
    value, prefix = float(value), 0
    while abs(value) >= 1023.5 and prefix < len(PREFIXES) - 1:
        value /= 1024
        prefix += 1
    return value, prefix


def count(number: int) -> str:
    """Format as `2,000`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Format as `1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def of_kinds(counts: Mapping[str, int]) -> list[str]:
    """Format counts by kind, a plural noun, as `1 empty folder`, `2 links`. Zeros are left out."""
    return [
        f"{count(number)} {re.sub(_PLURAL, _SINGULAR, kind) if number == 1 else kind}"
        for kind, number in counts.items()
        if number
    ]


def size_of(count: float, total: float) -> str:
    """Format as `1.50 of 3.42 GiB`: both in the total's unit."""
    _, prefix = scaled(total)
    shown = count / 1024**prefix
    return f"{digits(shown) if prefix else f'{shown:.0f}'} of {size(total)}"


def rate(bytes_per_second: float) -> str:
    """Format as `1.50 GiB/s`; `-` if not finite."""
    return f"{size(bytes_per_second)}/s" if math.isfinite(bytes_per_second) else UNKNOWN


def speed(count: float, seconds: float) -> str:
    """Format the mean rate of `count` bytes in `seconds`; `-` if no time has passed."""
    return rate(count / seconds) if seconds > 0 else UNKNOWN


def duration(seconds: float) -> str:
    """Format as `0.42 s`, `13 s`, `2 min 05 s`, `3 h 07 min`, `2 d 04 h`; `-` if negative or not finite."""
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


def time_span(least: float, most: float) -> str:
    """Format as `1 h 20 min to 1 h 34 min`, or `13 s` if alike; from two days on as `635 to 679 h`."""
    if least >= 2 * 86400:
        first, last = (f"{value / 3600:,.0f}" for value in (least, most))
        return f"{first} h" if first == last else f"{first} to {last} h"
    first, last = duration(least), duration(most)
    return first if first == last else f"{first} to {last}"


def age(seconds: float | None) -> str:
    """Format in one unit: `42 s`, `5 min`, `3 h`, `12 d`, `2.1 y`; `-` if None, negative or not finite."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    for unit, long in (("s", 60), ("min", 3600), ("h", 86400), ("d", 2 * 365.25 * 86400)):
        if seconds < long:
            return f"{int(seconds // _SECONDS[unit])} {unit}"
    return f"{seconds / _SECONDS['y']:.1f} y"


_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "y": 365.25 * 86400}


SECOND = 10**9  # nanoseconds
_USUAL = re.compile(r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_ISO_8601 = re.compile(
    r"(\d{4})(-?)(\d\d)\2(\d\d)"
    r"(?:[Tt ](\d\d)(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d+))?)? ?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)


def nanoseconds(text: str) -> int:
    """Parse ISO 8601 or RFC 3339 to nanoseconds since the epoch. Raises ValueError.

    Hyphens, colons, seconds and the offset may be missing. Without an offset the time is UTC. A date alone is
    its first moment. A blank, `t` or `T` may precede the time. Fractions below a nanosecond are cut off.
    """
    if usual := _USUAL.fullmatch(text):  # fast path for nearly all times: a page of a listing has a thousand
        return (_minute(usual[1]) + int(usual[2])) * SECOND + _fraction(usual[3])
    match = _ISO_8601.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{in_quotes(text[:60])} is no time as 2026-01-31T12:00:00Z")
    hour, minute, second = (int(match[n] or 0) for n in (5, 7, 8))
    # 24:00 is the end of a day, and a leap second the beginning of the next minute.
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and (minute or second or match[9])):
        raise ValueError(f"{in_quotes(text[:60])} is no time of a day")
    ahead, behind = int(match[11] or 0), int(match[12] or 0)
    if ahead > 23 or behind > 59:
        raise ValueError(f"{in_quotes(text[:60])} has no offset that there is")
    offset = (ahead * 60 + behind) * (-60 if match[10] == "-" else 60)
    day = dt.date(int(match[1]), int(match[3]), int(match[4])) - _EPOCH.date()
    return (day.days * 86400 + hour * 3600 + minute * 60 + second - offset) * SECOND + _fraction(match[9])


def of_datetime(moment: dt.datetime) -> int:
    """Return nanoseconds since the epoch; a datetime without a zone is UTC."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - _EPOCH
    return (since.days * 86400 + since.seconds) * SECOND + since.microseconds * 1000


def local(moment: float | str) -> str:
    """Format seconds since the epoch, or a text that `nanoseconds` parses, in the reader's time zone:
    `2026-11-27 14:03:05 +0100`. Other texts stay unchanged."""
    try:
        seconds = nanoseconds(moment) // SECOND if isinstance(moment, str) else moment
        return dt.datetime.fromtimestamp(seconds, dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    except (ValueError, OverflowError, OSError):
        return str(moment)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@lru_cache(maxsize=4096)
def _minute(text: str) -> int:
    return of_datetime(dt.datetime.fromisoformat(f"{text}:00")) // SECOND


def _fraction(digits: str | None) -> int:
    return int(f"{digits[:9]:0<9}") if digits else 0
