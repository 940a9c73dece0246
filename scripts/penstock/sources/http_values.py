"""Converts values of requests and answers: whole numbers, dates, names in a URL, text of XML, JSON. Also
makes templates of heads, so that a head like the last answer's needs no parsing. Pure.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote_from_bytes

from penstock.core.errors import FailedError, TransientError
from penstock.core.human import SECOND, in_quotes, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# Names are quoted once: all bytes except the unreserved ones (RFC 3986, SigV4). Dates have HTTP's form, such
# as `Wed, 06 May 2026 07:08:09 GMT`, or the forms that stores write. Stores' XML is read by patterns, not by
# a parser.

DIGITS = 19  # number of digits of 2**63, the first size that no file has


def decimal(text: str | bytes) -> int | None:
    """Parse plain digits, at most DIGITS of them; None for anything else. `int` would accept signs, blanks,
    underscores and other scripts' digits, and raise for very long texts."""
    plain = text.isascii() and text.isdigit() and len(text) <= DIGITS
    return int(text) if plain else None


_SECONDS = re.compile(r"(-?)([0-9]{1,11})(?:\.([0-9]+))?", re.ASCII)


def http_date(text: str) -> int | None:
    """Return seconds since the epoch; None for anything but a date."""
    import email.utils  # imported here, since it is rarely needed and imports a dozen modules

    try:
        parsed = email.utils.parsedate_tz(text)
        return None if parsed is None else email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):  # the calendar has no such date
        return None


def stated_in_metadata(value: bytes) -> int:
    """Parse the time that a tool wrote into an object's metadata. Return nanoseconds since the epoch, or 0.

    rclone and s3fs write seconds in S3, perhaps with a fraction; rclone writes ISO 8601 in Azure.
    """
    text = value.decode("latin-1").strip()
    if seconds := _SECONDS.fullmatch(text):
        sign = -1 if seconds[1] else 1
        return sign * (int(seconds[2]) * SECOND + int((seconds[3] or "").ljust(9, "0")[:9]))
    try:
        return nanoseconds(text)
    except ValueError:
        return 0


def stated_time(text: str, where: str) -> int:
    """Parse a store's time of an object (ISO 8601 or HTTP) into nanoseconds since the epoch; 0 if blank.
    Raises FailedError for another form."""
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
    """Quote a key (`str` by os.fsdecode) for a path; slashes stay as they are."""
    if _PLAIN.fullmatch(key):
        return key
    return quote_from_bytes(key.encode("utf-8", "surrogateescape"), safe="/" + _UNRESERVED)


def quoted_value(value: str) -> str:
    """Quote a value for a query."""
    return quote_from_bytes(value.encode("utf-8", "surrogateescape"), safe=_UNRESERVED)


def query_string(pairs: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{k}={v}" for k, v in sorted((quoted_value(k), quoted_value(v)) for k, v in pairs))


# The ampersand comes last: `&amp;lt;` means `&lt;`, not `<`.
_ENTITIES = (
    ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"),
)  # fmt: skip
_NUMBERED = re.compile(r"&#(x[0-9A-Fa-f]{1,8}|[0-9]{1,8});")
_TAG = re.compile(rb"<(\w+)>([^<]*)</")


def plain(text: str) -> str:
    """Replace XML's entities by their characters."""
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
    # Half of a surrogate pair is no character, and no key contains it.
    return match[0] if code >= 0x110000 or 0xD800 <= code < 0xE000 else chr(code)


def first_values(body: bytes) -> dict[str, str]:
    """Return {name: text} for the first text-only element of each name, such as an error's `Code` and
    `Message`. Return {} if the body is not XML."""
    values: dict[str, str] = {}
    for tag, value in _TAG.findall(body):
        values.setdefault(tag.decode("latin-1"), plain(value.decode("utf-8", "replace")))
    return values


def document(text: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object. Raises TransientError if it is cut off, FailedError for any other text."""
    try:
        answer = json.loads(text)
    except ValueError:
        if text.startswith(b"{"):
            raise TransientError("the answer ends in the middle", where=where) from None
        answer = None
    if not isinstance(answer, dict):
        raise FailedError("the answer is no JSON object", where=where, hint="check endpoint_url")
    return answer


# Templates of heads: a store answers thousands of requests with heads that differ in few values. Parsing a
# head costs more CPU than hashing a small object; comparing it with a template costs a tenth of that. A head
# fits the template if every field that a caller reads equals the learned field. Length, etag, range and
# checksums may differ, and are extracted. Any other head is parsed, so a template never decides what an
# answer means.

FIELD = rb"([!-9;-~]+):[ \t]*([^\r\n]*)"  # one field of a head: its name and its value
_LINE = re.compile(FIELD)
LENGTH = b"content-length"
_ETAG = b"etag"


class HeaderNames(NamedTuple):
    """The fields that a reader of a store's objects needs, beside HTTP's own. Names are in lower case; a name
    that ends in a dash is a prefix."""

    values: tuple[bytes, ...] = ()  # fields whose values differ between objects: checksums, versions
    fixed: tuple[bytes, ...] = ()  # fields whose values rarely differ: kinds of checksums, encryption


_FIXED = (b"connection", b"transfer-encoding", b"content-encoding")
_VALUES = (_ETAG, b"content-range")


def _any_of(names: Iterable[bytes]) -> Callable[[bytes], object]:
    each = (re.escape(name) + (b".*" if name.endswith(b"-") else b"") for name in names)
    return re.compile(b"|".join(each)).fullmatch


# fields that may be repeated, and then form one list (RFC 9110, 5.3)
_LISTS = frozenset(
    {
        b"connection",
        b"transfer-encoding",
        b"repr-digest",
        b"content-digest",
        b"digest",
        b"x-goog-hash",
    }
)
_ONCE = frozenset(
    {LENGTH, _ETAG, b"content-range", b"content-encoding", b"content-md5", b"last-modified", b"location"}
)
_ONCE_PREFIXES = (
    b"x-amz-checksum-",
    b"x-amz-server-side-encryption",
    b"x-ms-blob-content-md5",
    b"x-goog-generation",
)


def fields(lines: Sequence[tuple[bytes, bytes]]) -> tuple[dict[bytes, bytes], bytes]:
    """Return a head's fields by lower-case name, and the name of an ambiguous field, or b"". An ambiguous
    field may occur only once, but has two different values; the caller refuses the answer."""
    by_name: dict[bytes, bytes] = {}
    for label, text in lines:
        name, value = label.lower(), text.rstrip()
        earlier = by_name.setdefault(name, value)
        if earlier != value:
            if name in _ONCE or name.startswith(_ONCE_PREFIXES):
                return by_name, name
            by_name[name] = earlier + b", " + value if name in _LISTS else value
    return by_name, b""


class Shape:
    """The template of a head, made by `learn`."""

    __slots__ = ("_again", "_fixed", "_match", "_names")

    def __init__(self, pattern: bytes, fixed: Mapping[bytes, bytes], names: Sequence[bytes]) -> None:
        self._match = re.compile(pattern).match
        self._fixed, self._names = fixed, names
        self._again = [name for name in names if name.endswith(_AGAIN)]

    def fit(self, received: memoryview) -> tuple[int, dict[bytes, bytes]] | None:
        """Match a whole head at the start of the bytes. Return the body's offset and the fields, or None."""
        match = self._match(received)
        if match is None:
            return None
        fields = dict(self._fixed)
        fields.update(zip(self._names, match.groups()))  # noqa: B905 (both: one item for each group)
        for name in self._again:
            first, more = name.rstrip(_AGAIN), fields.pop(name)
            if more != fields[first]:
                fields[first] += b", " + more
        return match.end(), fields


_VALUE = rb":[ \t]*((?:[!-~]+(?: +[!-~]+)*)?)"
_AGAIN = b"\0"  # suffix for the name of the second field of a list


def learn(head: bytes, names: HeaderNames) -> Shape | None:
    """Make the template of a head, given without its blank line, for a reader of the fields `names`. Return
    None if the head lacks length or etag (other fields then identify the object), or repeats a field."""
    is_fixed, is_value = _any_of((*_FIXED, *names.fixed)), _any_of((*_VALUES, *names.values))
    status, *lines = head.split(b"\r\n")
    pattern = [re.escape(status)]
    fixed: dict[bytes, bytes] = {}
    taken: list[bytes] = []
    for line in lines:
        field = _LINE.fullmatch(line)
        if field is None:
            return None
        label, value = field.groups()
        name = label.lower()
        if name in fixed or (name in taken and (name not in _LISTS or name + _AGAIN in taken)):
            return None
        if name == LENGTH:
            taken.append(name)
            pattern.append(re.escape(label) + b":[ \t]*([0-9]{1,18})")
        elif is_fixed(name):
            fixed[name] = value.rstrip()
            pattern.append(re.escape(line))
        elif is_value(name):
            taken.append(name + _AGAIN if name in taken else name)
            pattern.append(re.escape(label) + _VALUE)
        else:
            pattern.append(re.escape(label) + b":[^\r\n]*")
    if LENGTH not in taken or _ETAG not in taken:
        return None
    return Shape(b"\r\n".join(pattern) + b"\r\n\r\n", fixed, taken)
