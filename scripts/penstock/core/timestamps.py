"""Parses times to nanoseconds since the epoch, and formats times for messages."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache

from penstock.core.text import in_quotes

SECOND = 10**9  # nanoseconds
_USUAL = re.compile(r"(\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_ISO_8601 = re.compile(
    r"(\d{4})(-?)(\d\d)\2(\d\d)"
    r"(?:[Tt ](\d\d)(:?)(\d\d)(?:\6(\d\d)(?:[.,](\d+))?)? ?(?:[Zz]|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)


def nanoseconds(text: str) -> int:
    """Parse ISO 8601 or RFC 3339 to nanoseconds since the epoch. Raises ValueError.

    Hyphens, colons, seconds and the offset may be missing; no offset means UTC, a date alone its first
    moment. A blank or either case of `t` may precede the time. Fractions below a nanosecond are cut off.
    """
    if usual := _USUAL.fullmatch(text):  # as nearly all are: a page of a listing has a thousand
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
