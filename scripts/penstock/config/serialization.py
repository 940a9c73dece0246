"""The typed settings from plain mappings and back: one way for the YAML file and for the configuration that
a run froze as JSON. Pure.

A dataclass says by its annotations how each of its fields is read. Settings hold references to secrets, never
secrets, and everything that depends on the working directory has been resolved before they are written.
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

Readers = Mapping[str, Callable[[Any], object]]
"""What reads a value that people wrote, by the name in the field's annotation (`Annotated[Path, "folder"]`,
`Annotated[int, Unit("size")]`); `null` is None without one."""


def to_json(value: DataclassInstance) -> dict[str, object]:
    """A JSON form of any dataclass of settings; `from_json` is its inverse."""
    return {name: plain(inner) for name, inner in asdict(value).items()}


def plain(value: object) -> object:
    """A value of a setting as JSON has it."""
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
    """What `to_json` made, perhaps by another version: a field that was added since has its default, one that
    this version does not know is passed over. Raises TypeError or ValueError for anything else."""
    return read(kind, raw, {})


def read(kind: type[T], raw: object, readers: Readers) -> T:
    """The dataclass `kind` of a mapping that people wrote: what a field's annotation names is read by the
    reader of that name. Raises what the readers raise, and as `from_json`."""
    if not isinstance(raw, Mapping):
        raise TypeError(f"{kind.__name__} is made of a mapping, not of {raw}")
    known = fields(kind)  # type: ignore[arg-type]
    return kind(**{f.name: _value(f.type, raw[f.name], readers) for f in known if f.name in raw})


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
        return tuple(_value(inner[0], one, readers) for one in value)
    if origin is Mapping:
        return {name: _value(inner[1], one, readers) for name, one in value.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return read(kind, value, readers)
    return kind(value) if kind in (Path, float) else value
