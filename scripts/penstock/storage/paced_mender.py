"""A mender that waits its turn before each metadata operation, within a budget of the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from penstock.storage.paced_writer import EnteredFolders

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.storage.port import Mender

_OF_A_FILE = 4
"""Its mode, its times, and two renames."""
_OF_A_FOLDER = 2
"""It is opened to its owner, and closed again."""


class PacedMender:
    """`port.Mender` over another one; `spend(n)`, called from any thread, returns when n operations may be
    made."""

    def __init__(self, mender: Mender, spend: Callable[[int], None]) -> None:
        self._mender, self._spend = mender, spend
        self._entered = EnteredFolders()
        self.holds, self.close = mender.holds, mender.close

    def check(self, path: str) -> None:
        self._before(path, 0)
        self._mender.check(path)

    def replace(self, path: str, mtime_ns: int, new: Path) -> None:
        self._before(path, _OF_A_FILE)
        self._mender.replace(path, mtime_ns, new)

    def dress(self, path: str, mtime_ns: int, new: Path) -> None:
        self._spend(2)
        self._mender.dress(path, mtime_ns, new)

    def share(self, path: str, mtime_ns: int, new: Path) -> None:
        self._before(path, _OF_A_FILE)
        self._mender.share(path, mtime_ns, new)

    def set_mode(self, path: str) -> None:
        self._spend(1)
        self._mender.set_mode(path)

    def sweep(self, path: str) -> bool:
        self._before(path, 1)
        return self._mender.sweep(path)

    def make(self, path: str) -> bool:
        self._before(f"{path}/", 1)
        return self._mender.make(path)

    def within(self, parent: str) -> AbstractContextManager[int]:
        self._before(f"{parent}/", 0)
        return self._mender.within(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _before(self, path: str, operations: int) -> None:
        """Wait for these, and for the folder of `path` where it was not entered yet."""
        if self._entered.is_new(path.rpartition("/")[0]):
            operations += _OF_A_FOLDER
        if operations:
            self._spend(operations)
