"""A mapping of the parsed configuration, and its place in the file.

A missing key, and a value of another type than asked for, is read as empty: `config.validation` reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.config.strict_yaml import KeyPath


class Section:
    """A mapping's `values`, at the key path `path`."""

    def __init__(self, value: object, path: KeyPath = ()) -> None:
        self.values: dict[str, object] = value if isinstance(value, dict) else {}
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str) -> str:
        """Return the text of this key, or ""."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def at(self, key: str) -> Section:
        """Return the mapping of this key."""
        return Section(self.values.get(key), (*self.path, key))

    def each(self) -> Iterator[tuple[str, Section]]:
        """Yield every key whose value is a mapping."""
        return ((key, self.at(key)) for key, value in self.values.items() if isinstance(value, dict))

    def listed(self, key: str) -> list[Section]:
        """List the mappings in this key's list."""
        items = self.values.get(key)
        several = enumerate(items) if isinstance(items, list) else ()
        return [Section(item, (*self.path, key, at)) for at, item in several if isinstance(item, dict)]
