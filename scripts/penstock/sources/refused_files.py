"""Collects the items of a source with folders that no release can contain: links, special files, unreadable
files. A listing raises `error` after it has listed the whole source."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from penstock.core.errors import PreflightError
from penstock.core.human import counted, in_quotes

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN = 100  # number of refused files that one message names, at most; all are counted


class Remedy(Enum):
    """What a person can do about an item, besides leaving it out by `exclude`."""

    LINK = (
        "set `links` of the dataset to `follow`, which copies the files that links lead to, or to `skip`, "
        "which leaves links out"
    )
    ASTRAY = "mend the links that lead to no file of the source, or set `links` of the dataset to `skip`"
    UNREAD = "let this account read what cannot be read (`chmod`, an ACL)"
    SPECIAL = "remove what is neither a file nor a folder: it holds no data"
    CHANGE = "change them at the source"
    CUT = (
        "name a list of the keys by `list_from` of the source, or have its server list all names of a folder"
    )


class RefusedFiles:
    """Items that the dataset's policies refuse: all are counted, and the error names the first SHOWN.

    `keep` decides which items belong to the dataset; other items are never refused. `keep` gets a folder's
    key with a slash at its end, and returns False only if nothing below it belongs. The root ("") always
    belongs.
    """

    def __init__(self, keep: Callable[[str], bool] | None = None) -> None:
        self.count = 0
        self.left_out = 0  # items that would be refused, if `include` and `exclude` did not leave them out
        self._keep = keep
        self._lines: list[str] = []
        self._remedies: dict[Remedy, None] = {}

    def add(self, path: str, why: str, remedy: Remedy) -> None:
        """Refuse an item, or count it in `left_out` if it is outside the dataset. `path` is relative to the
        source's root."""
        if path and self._keep is not None and not self._keep(path):
            self.left_out += 1
            return
        self.count += 1
        self._remedies[remedy] = None
        if len(self._lines) < SHOWN:
            self._lines.append(f"{in_quotes(path or '.')}: {why}")

    def error(self, url: str) -> PreflightError:
        lines = list(self._lines)
        if self.count > len(lines):
            lines.append(f"... and {self.count - len(lines)} more")
        return PreflightError(
            f"{counted(self.count, 'item')} of the source cannot be staged",
            where=url,
            why="\n  " + "\n  ".join(lines),
            hint=";\n  ".join(remedy.value for remedy in self._remedies)
            + "; or leave them out by `exclude` patterns",
        )
