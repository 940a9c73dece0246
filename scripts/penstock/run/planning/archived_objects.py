"""Archived objects that a copy would have to read: plan counts them before a byte moves, and stops.

The source's last listing stated their class. Linked and taken-over files are read at no source: they do not
count.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import NAMED_FILES, PreflightError
from penstock.fs.errno_map import printable
from penstock.run.planning import row_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class ArchivedObjects:
    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._named: list[str] = []

    def add(self, batch: pa.RecordBatch, sizes: Sequence[int]) -> None:
        """Count the archived objects to copy among these rows of the plan; sizes in bytes."""
        if not batch["archived"].total_values_length:
            return
        columns = (batch["path"].to_pylist(), batch["archived"].to_pylist(), sizes, row_sums.lying(batch))
        for path, stored, size, lies in zip(*columns, strict=True):
            if stored and not lies:
                self._count(os.fsdecode(path), os.fsdecode(stored), size)

    def _count(self, path: str, stored: str, size: int) -> None:
        self._files[stored] += 1
        self._bytes[stored] += size
        if len(self._named) < NAMED_FILES:
            self._named.append(f"{printable(path)}: {stored}, {human.size(size)}")

    def check(self) -> None:
        if not self._files:
            return
        counts = "; ".join(
            f"{human.counted(count, 'object')}, {human.size(self._bytes[stored])}, {stored}"
            for stored, count in sorted(self._files.items())
        )
        more = self._files.total() - len(self._named)
        raise PreflightError(
            "objects of the source are archived and cannot be read",
            where=self._dataset,
            why="\n  ".join([f"{counts}:", *self._named, *([f"and {more:,} more"] if more else [])]),
            hint="have them restored at the store and run the same command; or leave all archived objects "
            "out by `archived: skip` of the source, or some by `exclude`",
        )
