"""JSON documents as dataclasses and TypedDicts: a field's annotation says what is read.

| the field                                | what is read                                |
|------------------------------------------|---------------------------------------------|
| is missing or null, and has a default    | the default; of a TypedDict: left out       |
| is missing or null, and has none         | nothing: ValueError                         |
| has the type of its annotation           | its value; lists become tuples              |
| has another type                         | nothing: ValueError                         |
| is one that the document does not know   | without it                                  |

The first row is how older documents are read: a field that came later has a default that says what the older
documents meant. Annotations are read at run time, so a module that declares documents has no
`from __future__ import annotations`.
"""

from __future__ import annotations

import json
import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NotRequired, TypeVar, Union, get_args, get_origin, is_typeddict

from penstock.core.format_versions import refuse_newer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def parse(kind: type[T], content: bytes, what: str, newest: int, where: object) -> T:
    """A document of a file's bytes. `what` names the kind of document for people, `newest` is the highest
    format that is read, `where` the file's path. Raises NewerFormatError, and ValueError for what is no such
    document."""
    try:
        raw = json.loads(content)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    refuse_newer(what, raw.get("format"), newest, where)
    return read(kind, raw)


def read(kind: type[T], raw: object, name: str = "it") -> T:
    """A document of JSON that is parsed already. Raises ValueError."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"{name} is no JSON object")
    if is_typeddict(kind):
        known = {key: hint for key, hint in kind.__annotations__.items() if key in raw}
        return kind(**{key: _value(hint, raw[key], f"`{key}`") for key, hint in known.items()})
    found: dict[str, object] = {}
    for key, hint, needed in _fields(kind):  # type: ignore[arg-type]  # mypy: no class is hashable
        if raw.get(key) is not None:
            found[key] = _value(hint, raw[key], f"`{key}`")
        elif needed:
            if type(None) not in get_args(hint):
                raise ValueError(f"`{key}` is missing")
            found[key] = None
    return kind(**found)


def to_json(document: DataclassInstance, newest: int) -> dict[str, object]:
    """What `parse` reads, with the number of its format."""
    return {**asdict(document), "format": newest}


@cache
def _fields(kind: Hashable) -> Sequence[tuple[str, Any, bool]]:
    """Name and annotation of each field, and whether it has no default."""
    return [(f.name, f.type, f.default is MISSING and f.default_factory is MISSING) for f in fields(kind)]  # type: ignore[arg-type]


def _value(kind: Any, value: Any, name: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is object:
        return value
    if origin is NotRequired:
        return _value(inner[0], value, name)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(inner[0], value, name)
    if origin is tuple and inner[-1] is not ...:
        if not isinstance(value, list) or len(value) != len(inner):
            raise ValueError(f"{name} is no list of {len(inner)}")
        return tuple(_value(one, part, f"one of {name}") for one, part in zip(inner, value, strict=True))
    if origin in (Sequence, tuple, list):
        if not isinstance(value, list):
            raise ValueError(f"{name} is no list")
        made = (_value(inner[0], one, f"one of {name}") for one in value)
        return list(made) if origin is list else tuple(made)
    if origin in (Mapping, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{name} is no JSON object")
        return {one: _value(inner[1], told, f"{name}, {one!r},") for one, told in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return read(kind, value, name)
    if not isinstance(value, (int, float) if kind is float else kind):
        raise ValueError(f"{name} is {_NOT[kind]}")
    return value


_NOT = {str: "no text", int: "no whole number", float: "no number", bool: "neither true nor false"}
