"""A value of every field of a document, made of the annotations alone: the same in every run.

Numbers differ from field to field, so that two fields that change places show."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import count
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict


def filled(kind: Any) -> Any:
    """An instance of a named tuple, a dataclass or a TypedDict, with each field set."""
    return _filled(kind, "", count(2))


def bare(kind: Any) -> Any:
    """An instance in which each field that has a default has it."""
    given = (
        kind._field_defaults
        if hasattr(kind, "_fields")
        else {
            f.name: None for f in fields(kind) if not (f.default is MISSING and f.default_factory is MISSING)
        }
    )
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: _filled(hint, name, count(2)) for name, hint in hints.items() if name not in given})


def _filled(kind: Any, name: str, numbers: count[int]) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType, NotRequired, Annotated):
        return _filled(inner[0], name, numbers)
    if origin is tuple:
        return tuple(_filled(part, name, numbers) for part in inner if part is not Ellipsis)
    if origin in (Sequence, list):
        return tuple(_filled(inner[0], f"{name} {place}", numbers) for place in ("first", "second"))
    if origin in (Mapping, dict):
        return {
            _filled(inner[0], f"{name} {place}", numbers): _filled(inner[1], f"{name} {place}", numbers)
            for place in ("first", "second")
        }
    if kind in (str, object, Any):
        return f"the {name}"
    if kind is bool:
        return True
    if kind is int:
        return next(numbers)
    if kind is float:
        return next(numbers) + 0.5
    hints = get_type_hints(kind, include_extras=True)
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{f.name: _filled(hints[f.name], f.name, numbers) for f in fields(kind)})
    if is_typeddict(kind) or hasattr(kind, "_fields"):
        return kind(**{key: _filled(hint, key, numbers) for key, hint in hints.items()})
    raise TypeError(f"{name}: {kind}")
