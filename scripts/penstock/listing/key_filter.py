"""Which keys of a source belong to the dataset: gitignore's patterns, `include` then `exclude`.

A key belongs when a pattern of `include` matches it and no pattern of `exclude` does. `**`
alone means everything. `!pattern` takes back what an earlier pattern of the same list matched. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.patterns import Patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Listed

EVERYTHING = ("**",)
"""An `include` that needs no matching."""


class Filter:
    """The patterns of one dataset. Raises ConfigError for a pattern that gitignore does not know."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = None if tuple(include) == EVERYTHING else Patterns("include", include).match
        self._exclude = Patterns("exclude", exclude).match if exclude else None
        self._takes_back = any(pattern.startswith("!") for pattern in exclude)

    @property
    def everything(self) -> bool:
        """Whether every key belongs to the dataset."""
        return self._include is None and self._exclude is None

    def accepts(self, key: str) -> bool:
        """Whether the key of an object belongs to the dataset; of folders see `wants`."""
        return (self._include is None or self._include(key)) and not (
            self._exclude is not None and self._exclude(key)
        )

    def wants(self, key: str) -> bool:
        """Whether a key belongs to the dataset. For a folder (its key ends in a slash): False only when
        `exclude` leaves out everything below it."""
        if key.endswith("/"):
            return self._exclude is None or self._takes_back or not self._exclude(key)
        return self.accepts(key)

    def keep(self, batch: Sequence[Listed]) -> Sequence[Listed]:
        """The objects of `batch` that belong to the dataset; `batch` itself when the filter accepts
        everything."""
        if self.everything:
            return batch
        accepts = self.accepts
        return [listed for listed in batch if accepts(listed.key)]
