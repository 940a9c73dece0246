"""Rows made and taken apart by position: the one module that does so. All others name a row's fields."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = TypeVar("Row", bound=tuple[Any, ...])


class ByName(Protocol):
    """The values of many rows, field by field."""

    def __getitem__(self, name: str, /) -> Sequence[Any]: ...


def rows(kind: type[Row], columns: ByName) -> list[Row]:
    """Rows of a kind of named tuple, of all its fields, without the cost of a call for each."""
    fields: Sequence[str] = kind._fields  # type: ignore[attr-defined]
    return made(kind, zip(*(columns[name] for name in fields), strict=True))


def made(kind: type[Row], values: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Rows of a kind from the values of all their fields, in order."""
    return list(map(partial(tuple.__new__, kind), values))
