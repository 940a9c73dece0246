"""Typed settings from plain mappings and back, for the YAML file and for a run's frozen JSON.

A dataclass's annotations say how each field is read. Settings hold references to secrets, never secrets. What
depends on the working directory is resolved before they are written.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from penstock.config.annotations import Unit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

# Readers of values by the name in a field's annotation, such as `Annotated[Path, "folder"]` or
# `Annotated[int, Unit("size")]`; `null` is None without a reader.
Readers = Mapping[str, Callable[[Any], object]]


def to_json(value: DataclassInstance) -> dict[str, object]:
    """Return a JSON form of settings; `from_json` is its inverse."""
    return {name: plain(inner) for name, inner in asdict(value).items()}


def plain(value: object) -> object:
    """Return a setting's value for JSON."""
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


def from_json(kind: type[T], raw: object) -> T:
    """Read what `to_json` made, perhaps in another version: missing fields have defaults, unknown ones are
    ignored. Raises TypeError or ValueError."""
    return read(kind, raw, {})


def read(kind: type[T], raw: object, readers: Readers) -> T:
    """Make the dataclass `kind` of a mapping, by the readers that its annotations name. Raises what readers
    raise, and as `from_json`."""
    if not isinstance(raw, Mapping):
        raise TypeError(f"{kind.__name__} is made of a mapping, not of {raw}")
    declared = fields(kind)  # type: ignore[arg-type]
    return kind(**{f.name: _value(f.type, raw[f.name], readers) for f in declared if f.name in raw})


def _value(kind: Any, value: Any, readers: Readers) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        for mark in kind.__metadata__:
            name = mark.name if isinstance(mark, Unit) else mark
            value = readers[name](value) if name in readers and value is not None else value
        return _value(inner[0], value, readers)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(inner[0], value, readers)
    if origin is tuple:
        return tuple(_value(inner[0], item, readers) for item in value)
    if origin is Mapping:
        return {name: _value(inner[1], item, readers) for name, item in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return read(kind, value, readers)
    return kind(value) if kind in (Path, float) else value
