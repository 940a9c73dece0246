"""A mapping of the parsed configuration, and its place in the file. Pure; for the loader, and for checks that
compare keys.

A key that is missing, or whose value has another type than the caller asks for, is read as empty:
`config.validation` reports what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.config.strict_yaml import KeyPath


class Section:
    """`values` holds the mapping's keys and values, `path` is its key path."""

    def __init__(self, value: object, path: KeyPath = ()) -> None:
        self.values: dict[str, object] = value if isinstance(value, dict) else {}
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str) -> str:
        """The text under this key; "" where there is none."""
        found = self.values.get(key)
        return found if isinstance(found, str) else ""

    def at(self, key: str) -> Section:
        """The mapping under this key."""
        return Section(self.values.get(key), (*self.path, key))

    def each(self) -> Iterator[tuple[str, Section]]:
        """Every key whose value is a mapping."""
        return ((key, self.at(key)) for key, value in self.values.items() if isinstance(value, dict))

    def listed(self, key: str) -> list[Section]:
        """The mappings in the list under this key."""
        found = self.values.get(key)
        several = enumerate(found) if isinstance(found, list) else ()
        return [Section(one, (*self.path, key, at)) for at, one in several if isinstance(one, dict)]
