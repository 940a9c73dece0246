"""Metadata operations that wait their turn, within a budget of operations a second for all runs of a root.

Functions that make many of them take an argument `spend`: it is called with n, from any thread, before n
operations, and returns when these may be made (`jobs.ownership` gives it, by the key `target.ops`). What
counts is what asks a metadata server to change something: create, open for writing of what others write,
rename, utimes, link, unlink, and a folder that is entered for the first time (a mkdir, or a lookup). Writes,
fsyncs and reads of bytes do not. This module touches nothing: it only counts, and calls `spend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED = 1 << 16
"""Folders that are remembered as entered; some MiB."""


def unlimited(_: int, /) -> None:
    """`spend` of a target without a budget: nothing waits."""


class FolderBudget:
    """Waits by `spend` for operations in folders. To enter a folder for the first time costs `entering`
    operations more; the folders in `entered` are taken as entered already ("" is the top folder). May be used
    by several threads."""

    def __init__(self, spend: Callable[[int], None], entering: int, *entered: str) -> None:
        self._spend, self._entering, self._entered = spend, entering, set(entered)

    def before(self, path: str, operations: int) -> None:
        """Wait until so many operations may be made at the relative path `path`, and its folder may be
        entered. Raises what `spend` raises."""
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
