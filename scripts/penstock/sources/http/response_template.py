"""A template of a server's answers, so that the head of an answer like the last one needs no parsing.

A store answers thousands of requests with heads that differ in a few values only. Parsing a head takes more
CPU than hashing a small object; comparing it with a template takes a tenth of that. A head fits when every
field that anybody reads says what the learned one said, but for its length, etag, range and checksums, which
are taken out; fields that no caller reads may have any value. A head that does not fit, be it by one letter,
is parsed field by field: a template never decides what an answer means. Pure; a connection
(`http.connection`) keeps the template that it learned last.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

FIELD = rb"([!-9;-~]+):[ \t]*([^\r\n]*)"
"""One field of a head: its name and its value."""
_LINE = re.compile(FIELD)
LENGTH = b"content-length"
_ETAG = b"etag"


class HeaderNames(NamedTuple):
    """The fields of an answer that are read of one store's objects, beside HTTP's own; in lower case. A name
    that ends in a dash stands for all names that begin so."""

    values: tuple[bytes, ...] = ()  # differ from object to object: checksums, versions
    fixed: tuple[bytes, ...] = ()  # are mostly alike for all objects: kinds of checksums, encryption


_FIXED = (b"connection", b"transfer-encoding", b"content-encoding")
_VALUES = (_ETAG, b"content-range")


def _any_of(names: Iterable[bytes]) -> Callable[[bytes], object]:
    """Whether a name is one of these (`HeaderNames`)."""
    each = (re.escape(name) + (b".*" if name.endswith(b"-") else b"") for name in names)
    return re.compile(b"|".join(each)).fullmatch


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
"""Fields that may stand several times, as one list (RFC 9110, 5.3)."""
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
    """A head's fields by name, in lower case; and the first one that says what an answer is and stands
    there twice with two values, or b"". Such an answer is refused, since it is not known which value is
    meant."""
    by_name: dict[bytes, bytes] = {}
    for label, text in lines:
        name, value = label.lower(), text.rstrip()
        known = by_name.setdefault(name, value)
        if known != value:
            if name in _ONCE or name.startswith(_ONCE_PREFIXES):
                return by_name, name
            by_name[name] = known + b", " + value if name in _LISTS else value
    return by_name, b""


class Shape:
    """The template of one head, which `learn` makes of an answer that was parsed field by field."""

    __slots__ = ("_again", "_fixed", "_match", "_names")

    def __init__(self, pattern: bytes, fixed: Mapping[bytes, bytes], names: Sequence[bytes]) -> None:
        self._match = re.compile(pattern).match
        self._fixed, self._names = fixed, names
        self._again = [name for name in names if name.endswith(_AGAIN)]

    def fit(self, received: memoryview) -> tuple[int, dict[bytes, bytes]] | None:
        """Where the body begins, and the fields that are read, when the bytes begin with a whole head of
        this shape; None otherwise."""
        match = self._match(received)
        if match is None:
            return None
        fields = dict(self._fixed)
        fields.update(zip(self._names, match.groups()))  # noqa: B905 (its length is the pattern's)
        for name in self._again:
            first, more = name.rstrip(_AGAIN), fields.pop(name)
            if more != fields[first]:
                fields[first] += b", " + more
        return match.end(), fields


_VALUE = rb":[ \t]*((?:[!-~]+(?: +[!-~]+)*)?)"
_AGAIN = b"\0"
"""At the end of a name: a further field of a list that stands in several ones."""


def learn(head: bytes, names: HeaderNames) -> Shape | None:
    """The shape of a head without its blank line, for a reader of these fields; None for one that states no
    length, no etag (then other fields identify the object), or a thing twice."""
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
