"""Values as they stand in requests and answers: whole numbers, dates, names in a URL, text of XML, JSON.
Pure.

Every byte of a name is quoted but unreserved ones, once (RFC 3986, SigV4). Dates are HTTP's, as in `Wed, 06
May 2026 07:08:09 GMT`, and what stores state in their place. Stores' XML is read by patterns, not by a
parser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes

from penstock.core.errors import FailedError, TransientError
from penstock.core.text import in_quotes
from penstock.core.timestamps import SECOND, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGITS = 19
"""Of 2**63, the first size that no file has: longer numbers mean nothing."""


def decimal(text: str | bytes) -> int | None:
    """The number that plain digits write, at most DIGITS of them; None for anything else.

    `int` takes signs, blanks, underscores and the digits of other scripts too, and raises for very many.
    """
    plain = text.isascii() and text.isdigit() and len(text) <= DIGITS
    return int(text) if plain else None


_SECONDS = re.compile(r"(-?)([0-9]{1,11})(?:\.([0-9]+))?", re.ASCII)


def http_date(text: str) -> int | None:
    """Seconds since the epoch; None for what is no date."""
    import email.utils  # rarely needed: a dozen modules that workers do without

    try:
        parsed = email.utils.parsedate_tz(text)
        return None if parsed is None else email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):  # a date that no calendar has
        return None


def stated_in_metadata(value: bytes) -> int:
    """Nanoseconds since the epoch of a time that a tool wrote into an object's metadata: seconds, with or
    without a fraction (rclone and s3fs in S3), or ISO 8601 (rclone in Azure). 0 for anything else."""
    text = value.decode("latin-1").strip()
    if seconds := _SECONDS.fullmatch(text):
        sign = -1 if seconds[1] else 1
        return sign * (int(seconds[2]) * SECOND + int((seconds[3] or "").ljust(9, "0")[:9]))
    try:
        return nanoseconds(text)
    except ValueError:
        return 0


def stated_time(text: str, where: str) -> int:
    """Nanoseconds since the epoch of a time that a store states of an object, as ISO 8601 or HTTP has it; 0
    where it states none. Raises FailedError for what is neither."""
    if not text.strip():
        return 0
    try:
        return nanoseconds(text)
    except ValueError:
        seconds = http_date(text)
    if seconds is None:
        raise FailedError(
            "the store states a time that cannot be read",
            where=where,
            why=in_quotes(text[:60]),
            hint="times are as 2026-01-31T12:00:00Z, or as Sat, 31 Jan 2026 12:00:00 GMT",
        )
    return seconds * SECOND


_UNRESERVED = "-._~"
_PLAIN = re.compile(r"[A-Za-z0-9/._~-]*")


def quoted(key: str) -> str:
    """A key (`str` by os.fsdecode) as it stands in a path; slashes stay."""
    if _PLAIN.fullmatch(key):
        return key
    return quote_from_bytes(key.encode("utf-8", "surrogateescape"), safe="/" + _UNRESERVED)


def quoted_value(value: str) -> str:
    """A value as it stands in a query."""
    return quote_from_bytes(value.encode("utf-8", "surrogateescape"), safe=_UNRESERVED)


def query_string(pairs: Sequence[tuple[str, str]]) -> str:
    """A query in the order of its quoted names, as SigV4 signs it."""
    return "&".join(f"{k}={v}" for k, v in sorted((quoted_value(k), quoted_value(v)) for k, v in pairs))


# The ampersand comes last: `&amp;lt;` means `&lt;`, not `<`.
_ENTITIES = (
    ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"),
)  # fmt: skip
_NUMBERED = re.compile(r"&#(x[0-9A-Fa-f]{1,8}|[0-9]{1,8});")
_TAG = re.compile(rb"<(\w+)>([^<]*)</")


def plain(text: str) -> str:
    """The text with XML's entities replaced by their characters."""
    if "&" not in text:
        return text
    text = _NUMBERED.sub(_numbered, text)
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return text


def _numbered(match: re.Match[str]) -> str:
    number = match[1]
    code = int(number[1:], 16) if number[0] == "x" else int(number)
    # An ampersand stays escaped here: `_ENTITIES` replaces it, once.
    if code == 38:
        return "&amp;"
    # Half of a surrogate pair is no character: no key has one.
    return match[0] if code >= 0x110000 or 0xD800 <= code < 0xE000 else chr(code)


def first_values(body: bytes) -> dict[str, str]:
    """The text of the first element of each name that holds nothing but text: the `Code` and `Message` of an
    error. {} for what is no XML."""
    values: dict[str, str] = {}
    for tag, value in _TAG.findall(body):
        values.setdefault(tag.decode("latin-1"), plain(value.decode("utf-8", "replace")))
    return values


def document(text: bytes, where: str) -> dict[str, Any]:
    """An answer that is a JSON object. Raises TransientError for one that is cut off, FailedError for what is
    none."""
    try:
        answer = json.loads(text)
    except ValueError:
        if text.startswith(b"{"):
            raise TransientError("the answer ends in the middle", where=where) from None
        answer = None
    if not isinstance(answer, dict):
        raise FailedError("the answer is no JSON object", where=where, hint="check endpoint_url")
    return answer
