"""JSON documents as named tuples, dataclasses and TypedDicts: a field's annotation says what is read.

| the field                                | what is read                                |
|------------------------------------------|---------------------------------------------|
| is missing or null, and has a default    | the default; of a TypedDict: left out       |
| is missing or null, and has none         | nothing: ValueError                         |
| has the type of its annotation           | its value; lists become tuples              |
| has another type                         | nothing: ValueError                         |
| is one that the document does not know   | without it                                  |

The first row is how documents of earlier versions are read: a field that is added after 1.0 has a default
that says what documents without it meant. `Annotated[str, "from"]` is a field that JSON calls `from`; keys of
a `Mapping[int, ...]` are numbers written as text. Annotations are read at run time, so a module that declares
documents has no `from __future__ import annotations`.

A document is a named tuple where it can be (no other is based on it, no field is called `count` or `index`):
each command declares them all, which takes 1.8 ms for a dataclass and 0.1 ms for a named tuple.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

from penstock.core.documents import bounded_json
from penstock.core.format_versions import refuse_newer, refuse_unreleased

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Reader = Callable[[Any], Any]
LARGEST = 1 << 63
"""Numbers lie below it: what is counted, timed or measured here does, and tables hold no larger ones."""
NOTHING: Mapping[Any, Any] = types.MappingProxyType({})
"""What a field of names and values is where nothing is said."""


def parse(kind: type[T], content: bytes, what: str, newest: int, where: object) -> T:
    """A document of a file's bytes. `what` names the kind of document for people, `newest` is the highest
    format that is read, `where` the file's path. Raises NewerFormatError, OlderVersionError, and ValueError
    for what is no such document."""
    return read(kind, known(content, what, newest, where))


def known(content: bytes, what: str, newest: int, where: object) -> dict[str, object]:
    """The fields of a document, as `parse` would read them: for one whose JSON is not its dataclass's."""
    return numbered(loads(content), what, newest, where)


def numbered(raw: object, what: str, newest: int, where: object) -> dict[str, object]:
    """The same of JSON that is parsed already."""
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    number, by = raw.get("format"), raw.get("penstock")
    if not isinstance(number, int):
        raise ValueError("`format` is no whole number")
    refuse_unreleased(what, where, str(by or ""))
    refuse_newer(what, number, newest, where, by=str(by or ""))
    return raw


def loads(content: bytes) -> dict[str, object]:
    """The JSON object in a file's or a line's bytes. Raises ValueError."""
    try:
        raw = bounded_json.loads(content)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    return raw


def read(kind: type[T], raw: object) -> T:
    """A document of JSON that is parsed already. Raises ValueError."""
    if not isinstance(raw, Mapping):
        raise ValueError("it is no JSON object")
    typed = is_typeddict(kind)
    found: dict[str, object] = {}
    for name, key, reader, needed, may_be_none in _fields(kind):  # type: ignore[arg-type]  # mypy: no class is hashable
        value = raw.get(key)
        if value is None:
            if needed and not may_be_none:
                raise ValueError(f"`{key}` is missing")
            if needed or (typed and may_be_none and key in raw):
                found[name] = None
            continue
        try:
            found[name] = reader(value)
        except ValueError as error:
            raise ValueError(f"`{key}`: {error}") from error
    return kind(**found)


def to_json(document: DataclassInstance | tuple[Any, ...], newest: int) -> dict[str, object]:
    """What `parse` reads, with the number of its format."""
    return {**plain(document), "format": newest}


def plain(value: Any) -> Any:
    """A document, or a part of one, as JSON has it: documents and all mappings as dictionaries, sequences as
    lists."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


class _Field(NamedTuple):
    name: str
    key: str
    """In JSON."""
    reader: Reader
    needed: bool
    """Whether it has no default."""
    may_be_none: bool


@cache
def _fields(kind: Any) -> Sequence[_Field]:
    if is_typeddict(kind):
        hints = {name: (hint, False) for name, hint in kind.__annotations__.items()}
    elif not is_dataclass(kind):
        hints = {
            name: (kind.__annotations__[name], name not in kind._field_defaults) for name in kind._fields
        }
    else:
        hints = {
            f.name: (f.type, f.default is MISSING and f.default_factory is MISSING) for f in fields(kind)
        }
    return [
        _Field(name, _key(name, hint), _reader(hint), needed, type(None) in get_args(hint))
        for name, (hint, needed) in hints.items()
    ]


def _key(name: str, kind: Any) -> str:
    return kind.__metadata__[0] if get_origin(kind) is Annotated else name


def _reader(kind: Any) -> Reader:
    """What checks a value that is not None against an annotation. Raises ValueError. A function for each
    annotation, made once: receipts are read often, and hold hundreds of samples."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is object:
        return lambda value: value
    if origin in (Union, types.UnionType, NotRequired, Annotated):
        return _reader(inner[0])
    if origin is tuple:
        return _tuple([(int, float) if one is float else one for one in inner])
    if origin is Sequence:
        return _list(_reader(inner[0]))
    if origin is Mapping:
        return _mapping(inner[0], _reader(inner[1]))
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return partial(read, kind)
    return _plain((int, float) if kind is float else kind, _NOT[kind])


def _plain(kind: Any, not_so: str) -> Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"it is {not_so}")
        if isinstance(value, int | float) and not -LARGEST <= value < LARGEST:
            raise ValueError("it is too large a number")
        return value

    return reader


def _list(one: Reader) -> Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError("it is no list")
        return tuple(map(one, value))

    return reader


def _tuple(kinds: Sequence[Any]) -> Reader:
    """Of so many plain values."""

    def reader(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(kinds) or not all(map(isinstance, value, kinds)):
            raise ValueError(f"it is no list of {len(kinds)} values of their types")
        return tuple(value)

    return reader


def _mapping(name: Callable[[str], Any], one: Reader) -> Reader:
    def reader(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("it is no JSON object")
        found = {}
        for key, told in value.items():
            try:
                found[name(key)] = one(told)
            except ValueError as error:
                raise ValueError(f"`{key}`: {error}") from error
        return found

    return reader


_NOT = {str: "no text", int: "no whole number", float: "no number", bool: "neither true nor false"}
