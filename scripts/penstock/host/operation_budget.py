"""Makes metadata operations wait for the budget (operations a second) that all runs of a root share.

Any thread calls `spend(n)` before n operations, and it returns when they may be made (`jobs.ownership`, by
the setting `target.ops`). Operations that change a metadata server's state count: create, opening shared
files for writing, rename, utimes, link, unlink, and the first entry of a folder. Writes, fsyncs and reads of
bytes do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED = 1 << 16  # number of folders that are remembered as entered, at most; they take some MiB


def unlimited(_: int, /) -> None:
    """Return at once. This is `spend` for a target without a budget."""


class FolderBudget:
    """Calls `spend` for operations in folders. Thread-safe.

    The first entry of a folder costs `entering` additional operations. The folders in `entered` count as
    entered from the start ("" is the top folder).
    """

    def __init__(self, spend: Callable[[int], None], entering: int, *entered: str) -> None:
        self._spend, self._entering, self._entered = spend, entering, set(entered)

    def before(self, path: str, operations: int) -> None:
        """Wait until `operations` may be made at the relative path `path`, and its folder may be entered."""
        if self._spend is unlimited:
            return
        parent = path.rpartition("/")[0]
        if parent not in self._entered:
            if len(self._entered) >= _REMEMBERED:
                self._entered.clear()
            self._entered.add(parent)
            operations += self._entering
        if operations:
            self._spend(operations)
