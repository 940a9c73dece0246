"""Reads and writes JSON documents as named tuples, dataclasses and TypedDicts, according to their fields'
annotations. Memory and nesting are bounded, as another account may have written a document. Pure.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from penstock.core.errors import refuse_newer, refuse_unreleased
from penstock.core.human import nanoseconds

MOST_VALUES = 320 << 20  # bytes of memory that a document's values may take
# Most bytes that CPython 3.11 to 3.14 needs for an object with a name, for a list with a value, and for each
# further name, number or short text.
_OBJECT, _LIST, _VALUE = 240, 96, 64


def bounded_loads(content: bytes) -> Any:
    """Parse the JSON. Raises ValueError for values that RFC 8259 excludes (such as NaN). It is also raised
    for too much memory (`MOST_VALUES`), too deep nesting, and too many digits in a number."""
    check_bounds(content)
    try:
        return _DECODER.decode(content.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def check_bounds(content: bytes) -> None:
    """Raise ValueError if the values in the JSON text, or in its lines, may take more than `MOST_VALUES`
    bytes of memory."""
    # A text with one character beyond Latin-1 takes two or four bytes for each of its characters.
    wide = 1 if content.isascii() and b"\\u" not in content else 4
    values = _VALUE * (content.count(b",") + content.count(b":"))
    lists = _OBJECT * content.count(b"{") + _LIST * content.count(b"[")
    if 2 * wide * len(content) + lists + values > MOST_VALUES:
        raise ValueError(f"its values would take more than {MOST_VALUES >> 20} MiB of memory")


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refused)


# How a document's fields are read.
#
# | the field                                | what is read                                |
# |------------------------------------------|---------------------------------------------|
# | is missing or null, and has a default    | the default; of a TypedDict: left out       |
# | is missing or null, and has none         | nothing: ValueError                         |
# | has the type of its annotation           | its value; lists become tuples              |
# | has another type                         | nothing: ValueError                         |
# | is one that the document does not know   | without it                                  |
#
# The first row is for documents of earlier versions. A field added after 1.0 has a default, which states the
# meaning of documents without the field. All fields are written, and for people also the result of the
# document's method `derived`. Annotations are read at run time, so modules with documents have no
# `from __future__ import annotations`.
#
# | the annotation             | the field                                                              |
# |----------------------------|------------------------------------------------------------------------|
# | `Annotated[str, "from"]`   | is called `from` in JSON                                               |
# | `Annotated[..., LEFT_OUT]` | is not written where it has its default                                |
# | `Annotated[..., INLINE]`   | is a document whose fields are beside those of the enclosing document  |
# | `FileNumber`               | is an inode or device number: up to 64 bits, without a sign            |
# | `Annotated[..., function]` | is a value for which this function raises no ValueError                |
# | `Mapping[int, ...]`        | has keys that are numbers written as text                              |
# | `Literal["a", "b"]`        | is one of these words                                                  |
#
# Prefer a named tuple, unless another document inherits from it or a field is called `count` or `index`. Each
# command declares all documents, which takes 1.8 ms for a dataclass and 0.1 ms for a named tuple.

T = TypeVar("T")
ValueReader = Callable[[Any], Any]
INLINE, LEFT_OUT = object(), object()  # marks in annotations, explained in the second table above
LARGEST = 1 << 63  # all numbers must be below this limit: no count, time or table entry is larger
_FILE_NUMBER = object()
FileNumber = Annotated[int, _FILE_NUMBER]


def between(least: int, below: int) -> ValueReader:
    """Return a mark for the annotation of a number that is at least `least` and less than `below`."""

    def check(value: Any) -> None:
        if not least <= value < below:
            raise ValueError(f"it is no number from {least} to below {below}")

    return check


def _written_as(pattern: str) -> ValueReader:
    def check(value: Any) -> None:
        if not re.fullmatch(pattern, value):
            raise ValueError("it is not as such a text is written")

    return check


def _utc(value: Any) -> None:
    if value:
        _written_as(r"[0-9-]{10}T[0-9:]{8}Z")(value)
        nanoseconds(value)


# a process as `workflow.controller` writes it, `<pid>.<start time in ticks>`; "" for no process
ProcessName = Annotated[str, _written_as(r"([0-9]{1,10}\.[0-9]{1,20})?")]
# a run's id, which is also its folder's name; "" for no run
RunName = Annotated[str, _written_as("([0-9A-Za-z][0-9A-Za-z_-]{0,63})?")]
Moment = Annotated[float, between(0, 253_402_300_800)]  # seconds since the epoch, up to the year 9999
Utc = Annotated[str, _utc]  # a moment as `2026-01-31T12:00:00Z`, or ""
NOTHING: Mapping[Any, Any] = types.MappingProxyType({})  # default of an empty mapping


class Document(Generic[T]):
    """A kind of document on disk. `what` is its readable name. Formats up to `newest` are read, and `newest`
    is written. `check` raises ValueError for wrong contents whose types are right. `where`, in methods, is
    the file's path, for messages."""

    def __init__(
        self, kind: type[T], what: str, newest: int = 1, *, check: Callable[[T], None] | None = None
    ) -> None:
        self.kind, self.what, self.newest, self._check = kind, what, newest, check

    def to_json(self, document: T) -> dict[str, object]:
        """Return the JSON object to write, including its format's number."""
        return {**plain(document), "format": self.newest}

    def from_json(self, content: bytes, where: object) -> T:
        """Parse a file's bytes. Raises NewerFormatError, OlderVersionError, or else ValueError."""
        return self.from_value(loads(content), where)

    def from_value(self, raw: object, where: object) -> T:
        """As `from_json`, but for parsed JSON."""
        document = read(self.kind, self.numbered(raw, where))
        if self._check is not None:
            self._check(document)
        return document

    def numbered(self, raw: object, where: object) -> dict[str, object]:
        """Check the document's format and return its fields as written. Raises the errors of `from_json`."""
        if not isinstance(raw, dict):
            raise ValueError("it is no JSON object")
        number, by = raw.get("format"), raw.get("penstock")
        if not isinstance(number, int):
            raise ValueError("`format` is no whole number")
        refuse_unreleased(self.what, where, str(by or ""))
        refuse_newer(self.what, number, self.newest, where, by=str(by or ""))
        return raw


def loads(content: bytes) -> dict[str, object]:
    """Parse the JSON object in a file's or a line's bytes. Raises ValueError."""
    try:
        raw = bounded_loads(content)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    return raw


def read(kind: type[T], raw: object) -> T:
    """Read a document from parsed JSON. Raises ValueError."""
    if not isinstance(raw, Mapping):
        raise ValueError("it is no JSON object")
    typed = is_typeddict(kind)
    values: dict[str, object] = {}
    for field in _fields(kind):  # type: ignore[arg-type]  # mypy: no class is hashable
        value = raw if field.inline else raw.get(field.key)
        if value is None:
            if field.needed and not field.may_be_none:
                raise ValueError(f"`{field.key}` is missing")
            if field.needed or (typed and field.may_be_none and field.key in raw):
                values[field.name] = None
            continue
        try:
            values[field.name] = field.reader(value)
        except ValueError as error:
            raise ValueError(f"`{field.key}`: {error}") from error
    return kind(**values)


def plain(value: Any) -> Any:
    """Convert a document, or a part of it, to plain dictionaries and lists."""
    if is_dataclass(value) or hasattr(value, "_fields"):
        written: dict[str, object] = {}
        for field in _fields(type(value)):  # type: ignore[arg-type]
            inner = getattr(value, field.name)
            if field.inline:
                written |= plain(inner)
            elif not field.left_out or inner != field.default:
                written[field.key] = plain(inner)
        return written | value.derived() if hasattr(value, "derived") else written
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


class _Field(NamedTuple):
    name: str
    key: str  # the field's name in JSON
    reader: ValueReader
    needed: bool  # whether the field has no default
    may_be_none: bool
    default: object
    left_out: bool
    inline: bool


@cache
def _fields(kind: Any) -> Sequence[_Field]:
    if is_typeddict(kind):
        defaults = dict.fromkeys(kind.__annotations__)
        hints = kind.__annotations__
    elif is_dataclass(kind):
        hints = {f.name: f.type for f in fields(kind)}
        defaults = {
            f.name: None if f.default is MISSING else f.default
            for f in fields(kind)
            if not (f.default is MISSING and f.default_factory is MISSING)
        }
    else:
        hints, defaults = kind.__annotations__, kind._field_defaults
    return [_field(name, hints[name], defaults) for name in hints]


def _field(name: str, hint: Any, defaults: Mapping[str, object]) -> _Field:
    marks = hint.__metadata__ if get_origin(hint) is Annotated else ()
    kind = get_args(hint)[0] if marks else hint
    return _Field(
        name,
        next((mark for mark in marks if isinstance(mark, str)), name),
        _reader(hint),
        needed=name not in defaults,
        may_be_none=type(None) in get_args(kind),
        default=defaults.get(name),
        left_out=LEFT_OUT in marks,
        inline=INLINE in marks,
    )


def _reader(kind: Any) -> ValueReader:
    """Return a function that checks a value, other than None, against an annotation. It raises ValueError.
    Each function is made only once, since receipts are read often and contain hundreds of samples."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is object:
        return lambda value: value
    if origin is Annotated:
        reader = _file_number if _FILE_NUMBER in inner else _reader(inner[0])
        checks = [mark for mark in kind.__metadata__ if isinstance(mark, types.FunctionType)]
        return _checked(reader, checks[0]) if checks else reader
    if origin in (Union, types.UnionType, NotRequired):
        return _reader(inner[0])
    if origin is Literal:
        return _word(inner)
    if origin is tuple:
        return _tuple([(int, float) if member is float else member for member in inner])
    if origin is Sequence:
        return _list(_reader(inner[0]))
    if origin is Mapping:
        return _mapping(inner[0], _reader(inner[1]))
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return partial(read, kind)
    return _plain((int, float) if kind is float else kind, _NOT[kind])


def _plain(kind: Any, not_so: str) -> ValueReader:
    def reader(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"it is {not_so}")
        if isinstance(value, int | float) and not -LARGEST <= value < LARGEST:
            raise ValueError("it is too large a number")
        return value

    return reader


def _checked(reader: ValueReader, check: ValueReader) -> ValueReader:
    def checked(value: Any) -> Any:
        check(value := reader(value))
        return value

    return checked


def _file_number(value: Any) -> Any:
    if not isinstance(value, int):
        raise ValueError(f"it is {_NOT[int]}")
    if not 0 <= value < 1 << 64:
        raise ValueError("it is no number of 64 bits")
    return value


def _word(words: Sequence[str]) -> ValueReader:
    def reader(value: Any) -> Any:
        if value not in words:
            raise ValueError(f"it is none of {', '.join(words)}")
        return value

    return reader


def _list(member: ValueReader) -> ValueReader:
    def reader(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("it is no list")
        return tuple(map(member, value))

    return reader


def _tuple(kinds: Sequence[Any]) -> ValueReader:
    def reader(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(kinds) or not all(map(isinstance, value, kinds)):
            raise ValueError(f"it is no list of {len(kinds)} values of their types")
        return tuple(value)

    return reader


def _mapping(name: Callable[[str], Any], member: ValueReader) -> ValueReader:
    def reader(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("it is no JSON object")
        members = {}
        for key, inner in value.items():
            try:
                members[name(key)] = member(inner)
            except ValueError as error:
                raise ValueError(f"`{key}`: {error}") from error
        return members

    return reader


_NOT = {str: "no text", int: "no whole number", float: "no number", bool: "neither true nor false"}
