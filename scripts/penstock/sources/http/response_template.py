"""Templates of a server's answers, so that heads like the last one need no parsing.

A store answers thousands of requests with heads that differ in few values. Parsing a head costs more CPU than
hashing a small object; comparing it with a template costs a tenth of that. A head fits if every field that a
caller reads equals the learned one, but for length, etag, range and checksums, which are extracted. Any other
head is parsed: a template never decides what an answer means.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

FIELD = rb"([!-9;-~]+):[ \t]*([^\r\n]*)"  # one field of a head: its name and its value
_LINE = re.compile(FIELD)
LENGTH = b"content-length"
_ETAG = b"etag"


class HeaderNames(NamedTuple):
    """The fields that are read of a store's objects, beside HTTP's own; in lower case. A trailing dash marks
    a prefix."""

    values: tuple[bytes, ...] = ()  # differ by object: checksums, versions
    fixed: tuple[bytes, ...] = ()  # mostly equal for all objects: kinds of checksums, encryption


_FIXED = (b"connection", b"transfer-encoding", b"content-encoding")
_VALUES = (_ETAG, b"content-range")


def _any_of(names: Iterable[bytes]) -> Callable[[bytes], object]:
    each = (re.escape(name) + (b".*" if name.endswith(b"-") else b"") for name in names)
    return re.compile(b"|".join(each)).fullmatch


# fields that may be repeated, as one list (RFC 9110, 5.3)
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
    """Return a head's fields by lower-case name, and the first decisive field with two different values, or
    b"". Such an answer is ambiguous, and the caller refuses it."""
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
    """The template of one head; see `learn`."""

    __slots__ = ("_again", "_fixed", "_match", "_names")

    def __init__(self, pattern: bytes, fixed: Mapping[bytes, bytes], names: Sequence[bytes]) -> None:
        self._match = re.compile(pattern).match
        self._fixed, self._names = fixed, names
        self._again = [name for name in names if name.endswith(_AGAIN)]

    def fit(self, received: memoryview) -> tuple[int, dict[bytes, bytes]] | None:
        """Match a whole head at the start of the bytes; return the body's offset and the fields to read, or
        None."""
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
_AGAIN = b"\0"  # ends the name of a list's further field


def learn(head: bytes, names: HeaderNames) -> Shape | None:
    """Make the template of a head without its blank line, for a reader of these fields. None: it states no
    length, no etag (then other fields identify the object), or repeats a field."""
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
