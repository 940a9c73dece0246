"""Which keys of a source belong to the dataset: gitignore's patterns, `include` then `exclude`.

A key belongs when a pattern of `include` matches it and no pattern of `exclude` does. `**`
alone means everything. `!pattern` takes back what an earlier pattern of the same list matched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.model import Listed

EVERYTHING = ("**",)


class Filter:
    """The patterns of one dataset. Raises ConfigError for a pattern that gitignore does not know."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = None if tuple(include) == EVERYTHING else _matcher("include", include)
        self._exclude = _matcher("exclude", exclude) if exclude else None
        self._takes_back = any(pattern.startswith("!") for pattern in exclude)

    @property
    def everything(self) -> bool:
        return self._include is None and self._exclude is None

    def accepts(self, key: str) -> bool:
        if "\n" in key:
            # No pattern can name a line feed, and in pathspec's expressions `.` does not match it.
            key = key.replace("\n", "\x01")
        return (self._include is None or self._include(key)) and not (
            self._exclude is not None and self._exclude(key)
        )

    def wants(self, key: str) -> bool:
        """Whether a key belongs to the dataset. For a folder (its key ends in a slash): False only when
        `exclude` leaves out everything below it."""
        if key.endswith("/"):
            return self._exclude is None or self._takes_back or not self._exclude(key.replace("\n", "\x01"))
        return self.accepts(key)

    def keep(self, batch: Sequence[Listed]) -> Sequence[Listed]:
        """The objects of `batch` that belong to the dataset; `batch` itself when the filter accepts
        everything."""
        if self.everything:
            return batch
        accepts = self.accepts
        return [listed for listed in batch if accepts(listed.key)]


def _matcher(where: str, patterns: Sequence[str]) -> Callable[[str], bool]:
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(["/**" if pattern == "**" else pattern for pattern in patterns])
    except ValueError as error:
        raise ConfigError(
            "a pattern cannot be used",
            where=where,
            why=str(error),
            hint="patterns are those of gitignore, as in `**/*.jpg`",
        ) from error
    return spec.match_file
