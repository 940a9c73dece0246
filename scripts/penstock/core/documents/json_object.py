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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, str):
            raise ValueError(f"`{name}` is no text")
        return found

    def real(self, name: str, default: float = 0.0) -> float:
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, int | float):
            raise ValueError(f"`{name}` is no number")
        return float(found)

    def flag(self, name: str, *, default: bool = False) -> bool:
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise ValueError(f"`{name}` is neither true nor false")
        return found

    def text_or_none(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def number(self, name: str, default: int = 0) -> int:
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, int):
            raise ValueError(f"`{name}` is no whole number")
        return found

    def number_or_none(self, name: str) -> int | None:
        return self.number(name) if name in self else None

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        found = self._fields.get(name)
        if found is None:
            return default
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise ValueError(f"`{name}` is no list of texts")
        return tuple(found)

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; () by default."""
        found = self._fields.get(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
            raise ValueError(f"`{name}` is no list of whole numbers")
        return tuple(found)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """A list of lists of two texts; () by default."""
        found = self._fields.get(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(map(_is_pair, found)):
            raise ValueError(f"`{name}` is no list of pairs of texts")
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
        found = self._fields.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise ValueError(f"`{name}` is no list")
        return [JsonObject(one, f"one of `{name}`") for one in found]


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
