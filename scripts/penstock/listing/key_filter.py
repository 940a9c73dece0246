"""Selects the keys of the dataset by gitignore's patterns.

A key belongs if a pattern of `include` matches it and no pattern of `exclude` does. `**` alone means
everything. `!pattern` cancels an earlier match in the same list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.access_rules import Patterns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Listed

EVERYTHING = ("**",)  # an `include` that needs no matching


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
        """Return whether an object's key belongs to the dataset; for folders see `wants`."""
        return (self._include is None or self._include(key)) and not (
            self._exclude is not None and self._exclude(key)
        )

    def wants(self, key: str) -> bool:
        """Return whether a key belongs to the dataset. For a folder (a key with a slash at its end): False
        only if `exclude` leaves out everything below it."""
        if key.endswith("/"):
            return self._exclude is None or self._takes_back or not self._exclude(key)
        return self.accepts(key)

    def keep(self, batch: Sequence[Listed]) -> Sequence[Listed]:
        """Return the objects of the dataset; `batch` itself if the filter accepts everything."""
        if self.everything:
            return batch
        accepts = self.accepts
        return [listed for listed in batch if accepts(listed.key)]
