"""A batch: the rows that one worker gets in one message, as the parent process keeps it."""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING

from penstock.core.row_codec import to_wire
from penstock.runtime import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.model import Entry, Expected, Part


class Batch:
    """One batch as the parent keeps it while a worker has it: its frame, to send it again; the folders
    in which it begins and ends."""

    __slots__ = ("bytes", "count", "deaths", "folders", "frame", "large", "number", "rows")

    def __init__(
        self,
        number: int,
        rows: list[int],
        entries: Sequence[Entry | Expected] | Sequence[Part],
        total: int,
        large: bool,
    ) -> None:
        self.number, self.rows, self.count, self.bytes, self.large = number, rows, len(rows), total, large
        self.deaths = 0
        # Of the first and the last row: what lies between matters little.
        self.folders = {one.path.rpartition("/")[0] for one in (entries[0], entries[-1])}
        payload = marshal.dumps((number, rows, *to_wire(entries)))
        self.frame = wire.head(wire.BATCH, payload) + payload
