"""gitignore's patterns, as the configuration has them: which of them match a key of a source or a path of a
release. Pure; `pathspec` judges."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPECIAL = re.compile(r"[\\*?\[\]!# ]")


def of_file_alone(key: str) -> tuple[str, str]:
    """The patterns that together match the key itself, and nothing below a folder of the same name."""
    literal = _SPECIAL.sub(r"\\\g<0>", key)
    return f"/{literal}", f"!/{literal}/**"


def written(patterns: Sequence[str]) -> str:
    """Patterns as a list of the configuration, which can be pasted."""
    return f"[{', '.join(_quoted(pattern) for pattern in patterns)}]"


def _quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


class Patterns:
    """Some patterns, in their order. Raises ConfigError for one that gitignore does not know; `where` is
    their key. A key or path of a folder ends in a slash."""

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
        """Whether a pattern matches, and none after it takes that back."""
        return self._spec.match_file(_named(key))


def _named(key: str) -> str:
    """No pattern can name a line feed, and in pathspec's expressions `.` does not match it."""
    return key.replace("\n", "\x01") if "\n" in key else key
