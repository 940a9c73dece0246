"""A writer into staging that waits its turn before each metadata operation, within a budget of the root.

What counts is what asks a metadata server to change something: create, open for writing of what others write,
rename, utimes, link, unlink, and a folder that is entered for the first time (a mkdir, or a lookup). Writes,
fsyncs and reads of bytes do not. A target without a budget is written by the plain writer, never by this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.storage.pending_file import Pending
    from penstock.storage.port import Abandoned, Linked, Writer

_REMEMBERED = 1 << 16
"""Folders that are remembered as entered; some MiB."""


class EnteredFolders:
    """Which folders were entered already, the latest of them: to enter one for the first time costs the
    metadata server a look."""

    def __init__(self, *entered: str) -> None:
        self._paths = set(entered)

    def is_new(self, path: str) -> bool:
        """Whether the folder is entered for the first time; it is not from now on."""
        if path in self._paths:
            return False
        if len(self._paths) >= _REMEMBERED:
            self._paths.clear()
        self._paths.add(path)
        return True


class PacedWriter:
    """`port.Writer` over another one; `spend(n)` returns when n operations may be made."""

    def __init__(self, writer: Writer, spend: Callable[[int], None], *, keep_mtime: bool) -> None:
        self._writer, self._spend = writer, spend
        self._times = 1 if keep_mtime else 0
        self._last = ""
        self._entered = EnteredFolders("")
        self.settle, self.alive, self.holds = writer.settle, writer.alive, writer.holds
        self.held = writer.held
        self.close = writer.close

    def begin(self, path: str, size: int, *, holes: bool = False) -> Pending:
        self._before(path, 1)
        return self._writer.begin(path, size, holes=holes)

    def finish(self, pending: Pending, mtime_ns: int) -> None:
        self._spend(1 + self._times)
        self._writer.finish(pending, mtime_ns)

    def put(self, path: str, data: memoryview, mtime_ns: int) -> None:
        self._before(path, 2 + self._times)
        self._writer.put(path, data, mtime_ns)

    def discard(self, pending: Pending) -> None:
        self._writer.discard(pending)

    def remove(self, path: str) -> None:
        self._before(path, 1)
        self._writer.remove(path)

    def begin_part(self, path: str, size: int, offset: int, length: int) -> Pending:
        self._before(path, 1)
        return self._writer.begin_part(path, size, offset, length)

    def finish_part(self, pending: Pending, mtime_ns: int | None = None) -> None:
        self._spend(1)
        self._writer.finish_part(pending, mtime_ns)

    def begin_shared(self, path: str, temporary: str, size: int) -> None:
        self._before(path, 1)
        self._writer.begin_shared(path, temporary, size)

    def begin_range(self, path: str, temporary: str, size: int, offset: int) -> Pending | None:
        self._before(path, 1)
        return self._writer.begin_range(path, temporary, size, offset)

    def finish_shared(self, path: str, temporary: str, size: int, mtime_ns: int) -> bool:
        self._before(path, 2 + self._times)
        return self._writer.finish_shared(path, temporary, size, mtime_ns)

    def drop_shared(self, path: str, temporary: str) -> None:
        self._before(path, 1)
        self._writer.drop_shared(path, temporary)

    def link(self, base_data: Path, path: str, size: int, mtime_ns: int, held_as: str = "") -> bool:
        self._before(path, 2)
        return self._writer.link(base_data, path, size, mtime_ns, held_as)

    def link_many(self, base_data: Path, files: Sequence[tuple[str, int, int]]) -> list[Linked | None]:
        for path, _, _ in files:
            self._before(path, 2)
        return self._writer.link_many(base_data, files)

    def take_over(self, stagings: Sequence[Abandoned], path: str, size: int, mtime_ns: int) -> bool:
        self._before(path, 2)
        return self._writer.take_over(stagings, path, size, mtime_ns)

    def move(self, staging: Abandoned, path: str, size: int, mtime_ns: int | None) -> bool:
        self._before(path, 1)
        return self._writer.move(staging, path, size, mtime_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _before(self, path: str, operations: int) -> None:
        """Wait for these, and for the folder of `path` where it was not entered yet."""
        parent = path.rpartition("/")[0]
        if parent != self._last:
            self._last = parent
            if self._entered.is_new(parent):
                operations += 1
        self._spend(operations)
