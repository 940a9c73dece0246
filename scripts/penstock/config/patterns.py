"""gitignore's patterns in the configuration, matched against keys of a source or paths of a release."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPECIAL = re.compile(r"[\\*?\[\]!# ]")


def of_file_alone(key: str) -> tuple[str, str]:
    """Return the patterns that together match this key alone, and nothing below a folder of that name."""
    literal = _SPECIAL.sub(r"\\\g<0>", key)
    return f"/{literal}", f"!/{literal}/**"


def written(patterns: Sequence[str]) -> str:
    """Write patterns as a list that can be pasted into the configuration."""
    return f"[{', '.join(_quoted(pattern) for pattern in patterns)}]"


def _quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


class Patterns:
    """Patterns in order. Raises ConfigError for an unknown form, at the key `where`. Paths of folders end in
    a slash."""

    def __init__(self, where: str, patterns: Sequence[str]) -> None:
        from pathspec import GitIgnoreSpec

        try:
            self._spec = GitIgnoreSpec.from_lines(
                ["/**" if pattern == "**" else pattern for pattern in patterns]
            )
        except ValueError as error:
            raise ConfigError(
                "a pattern cannot be used",
                where=where,
                why=str(error),
                hint="patterns are those of gitignore, as in `**/*.jpg`",
            ) from error

    def match(self, key: str) -> bool:
        """Return whether a pattern matches, and no later one takes that back."""
        return self._spec.match_file(_named(key))


def _named(key: str) -> str:
    """Replace line feeds: no pattern can name one, and pathspec's `.` does not match it."""
    return key.replace("\n", "\x01") if "\n" in key else key
