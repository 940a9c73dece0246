"""Metadata operations that wait for a budget of operations a second, for all runs of a root.

`spend(n)` is called, from any thread, before n operations, and returns when they may be made
(`jobs.ownership`, by the key `target.ops`). What changes a metadata server's state counts: create, open for
writing of shared files, rename, utimes, link, unlink, and a folder's first entry. Writes, fsyncs and reads of
bytes do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED = 1 << 16  # folders remembered as entered; some MiB


def unlimited(_: int, /) -> None:
    """Wait for nothing: `spend` of a target without a budget."""


class FolderBudget:
    """Waits by `spend` for operations in folders. Thread-safe.

    The first entry of a folder costs `entering` operations more; `entered` folders count as entered ("" is
    the top folder).
    """

    def __init__(self, spend: Callable[[int], None], entering: int, *entered: str) -> None:
        self._spend, self._entering, self._entered = spend, entering, set(entered)

    def before(self, path: str, operations: int) -> None:
        """Wait until so many operations may be made at the relative path `path`, and its folder entered."""
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
