"""What source files with holes take on a target that keeps holes: the copy keeps each hole.

Only large files of folder sources are looked at; small ones count whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER, of_url
from penstock.core.errors import PenstockError
from penstock.run.planning import row_sums
from penstock.sources.registry import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from penstock.dataset.run import Run
    from penstock.sources.port import Reader

LEAST = 256 << 20  # bytes of the smallest file that is looked at: each look opens it


class SparseFiles:
    """What the large files of one run's plan take, by their sources."""

    def __init__(self, run: Run, *, kept: bool) -> None:
        """`kept`: whether the target keeps holes; else every file counts whole."""
        self._dataset = run.config.dataset
        self._folders = {
            number for number, url in enumerate(run.info.sources) if kept and of_url(url) is FOLDER
        }
        self._readers: dict[int, Reader] = {}

    def taking(self, batch: pa.RecordBatch, sizes: Sequence[int]) -> Mapping[int, int]:
        """Return, for each file with holes that is to be copied, its index and the bytes it takes."""
        if not self._folders or max(sizes, default=0) < LEAST:
            return {}
        lying = row_sums.lying(batch)
        taking: dict[int, int] = {}
        for index, size in enumerate(sizes):
            source = batch["source"][index].as_py() if size >= LEAST and not lying[index] else -1
            if source in self._folders:
                taken = self._data_bytes(source, os.fsdecode(batch["key"][index].as_py()), size)
                if taken < size:
                    taking[index] = taken
        return taking

    def _data_bytes(self, source: int, key: str, size: int) -> int:
        """Return the bytes of a file's data; an unreadable file counts whole: the copy reports its error."""
        try:
            if source not in self._readers:
                self._readers[source] = open_source(self._dataset.sources[source], self._dataset).reader()
            return self._readers[source].data_bytes(key, size)
        except PenstockError:
            return size
