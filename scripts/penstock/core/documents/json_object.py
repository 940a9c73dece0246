"""A JSON object, read field by field with the type that the document wants.

| the field                       | what is read       |
|---------------------------------|--------------------|
| is missing, or null             | the default        |
| has the type that is asked for  | its value          |
| has another type                | nothing: ValueError |
| is one that nobody asks for     | passed over        |

The first row is how older documents are read: a field that came later has a default that says what the
older documents meant.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


class JsonObject:
    """Raises ValueError where `value` is no JSON object; each method, where the field has another type."""

    def __init__(self, value: object, name: str = "it") -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is no JSON object")
        self._fields: dict[str, object] = value

    @classmethod
    def parse(cls, content: bytes) -> JsonObject:
        """Of a file's or a line's bytes. Raises ValueError."""
        try:
            return cls(json.loads(content))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"it is no JSON ({error})") from error

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def names(self) -> Iterable[str]:
        return self._fields

    def text(self, name: str, default: str = "") -> str:
        return self._typed(name, str, default, "no text")

    def text_or_none(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def number(self, name: str, default: int = 0) -> int:
        return self._typed(name, int, default, "no whole number")

    def number_or_none(self, name: str) -> int | None:
        return self.number(name) if name in self else None

    def real(self, name: str, default: float = 0.0) -> float:
        return float(self._typed(name, (int, float), default, "no number"))

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(self._list(name, default, _is_text, "no list of texts"))

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; () by default."""
        return tuple(self._list(name, (), _is_number, "no list of whole numbers"))

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """A list of lists of two texts; () by default."""
        found = self._list(name, (), _is_pair, "no list of pairs of texts")
        return tuple((one, other) for one, other in found)

    def counts(self, name: str) -> dict[str, int]:
        """An object of whole numbers; {} by default."""
        inner = self.inner(name)
        return {one: inner.number(one) for one in inner.names()}

    def inner(self, name: str) -> JsonObject:
        """The object in this field; one without any field by default."""
        found = self._fields.get(name)
        return JsonObject({} if found is None else found, f"`{name}`")

    def named(self, name: str) -> dict[str, JsonObject]:
        """An object of objects; {} by default."""
        inner = self.inner(name)
        return {one: inner.inner(one) for one in inner.names()}

    def listed(self, name: str) -> list[JsonObject]:
        """A list of objects; [] by default."""
        found = self._list(name, (), lambda _: True, "no list")
        return [JsonObject(one, f"one of `{name}`") for one in found]

    def _typed(self, name: str, kind: type[T] | tuple[type[T], ...], default: T, not_so: str) -> T:
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, kind):
            raise ValueError(f"`{name}` is {not_so}")
        return found

    def _list(
        self, name: str, default: Iterable[Any], good: Callable[[object], bool], not_so: str
    ) -> Iterable[Any]:
        found = self._typed(name, list, None, not_so)
        if found is None:
            return default
        if not all(map(good, found)):
            raise ValueError(f"`{name}` is {not_so}")
        return found


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_text, value))
