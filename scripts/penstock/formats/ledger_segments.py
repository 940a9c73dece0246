"""The segments of a dataset's ledger (`formats.ledger_file`), as names and numbers: loads no pyarrow."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".parquet"


class Moves:
    """Ctimes that were moved, to be written as one segment: 24 bytes a file."""

    def __init__(self) -> None:
        self.columns = (array("q"), array("q"), array("q"))

    def add(self, inode: int, before_ns: int, after_ns: int) -> None:
        for column, value in zip(self.columns, (inode, before_ns, after_ns), strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self.columns[0])


def prune(folder: Path, before: float) -> None:
    """Remove the segments that were written before this time, by the file system's clock. Raises OSError."""
    for path in segments(folder):
        if path.stat().st_mtime < before:
            path.unlink(missing_ok=True)


def segments(folder: Path) -> list[Path]:
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except FileNotFoundError:
        return []
