"""Links the unchanged rows of a shard, many at a time, before its workers begin to copy the others.

A link is three calls, and no byte is moved: to hand each row to a worker and take its line back cost more
than the calls themselves. The element links by itself, in the order of the paths, a folder at a time; by
threads where the file system answers slowly (`Calls`).

What it linked is in the journal as any row, once the names are durable; and in the dataset's ledger, with
the ctime before and after, so that verify knows the file again.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from itertools import compress
from typing import TYPE_CHECKING

from penstock.core.digests import hex_of, proof_of
from penstock.core.model import Copied, Reuse
from penstock.core.row_codec import copied_line, text_line
from penstock.filesystem.adaptive_threads import Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    import pyarrow as pa

    from penstock.engine.records.journal_flusher import Keeper
    from penstock.engine.tasks import CopyTask, Outcome, StopCheck
    from penstock.engine.workers.messages import CopyWork
    from penstock.storage.port import Linked, Writer


class LinkedRows:
    """The numbers of rows, one bit of a byte each."""

    def __init__(self, rows: int) -> None:
        self._flags = bytearray(rows)
        self.count = self.bytes = 0

    def add(self, row: int, size: int) -> None:
        self._flags[row] = 1
        self.count += 1
        self.bytes += size

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and bool(self._flags[row])


def link_rows(
    task: CopyTask,
    work: CopyWork,
    shard: Iterable[tuple[Sequence[int], pa.RecordBatch]],
    skip: Container[int],
    keeper: Keeper,
    outcome: Outcome,
    told: Callable[[], None],
    stop: StopCheck,
    ops: Callable[[], float] | None = None,
) -> LinkedRows:
    """Link the rows that are of the base release, but those in `skip`; `told` is called now and then. Rows
    that cannot be linked are left to be copied. `ops`: the metadata operations a second that may be made."""
    linked = LinkedRows(task.shard.rows)
    base = task.base
    if base is None or task.way != "link" or not task.shard.reused:
        return linked
    from penstock.engine.shared_memory import spending
    from penstock.formats.ledger_recorder import Recorder
    from penstock.formats.shards import reused
    from penstock.formats.tables import strings
    from penstock.storage.registry import open_storage

    began = time.monotonic()
    with ExitStack() as stack:
        storage = open_storage()
        spend = stack.enter_context(spending(ops, time.sleep)) if ops else None
        own = threading.local()
        writers: list[Writer] = []

        def writer() -> Writer:
            """Of this thread."""
            if not hasattr(own, "writer"):
                made = storage.writer(work.data, **work.writer)
                stack.enter_context(closing(made))
                own.writer = storage.paced_writer(made, spend, keep_mtime=False) if spend else made
                writers.append(own.writer)
            found: Writer = own.writer
            return found

        def some(files: Sequence[tuple[str, int, int]]) -> list[Linked | None]:
            return writer().link_many(base, files)

        calls = stack.enter_context(Calls())
        moved = Recorder(task.ledger, f"{task.run}-{task.shard.index:05d}")
        for numbers, batch in shard:
            stop()
            reuse = reused(batch)
            if not reuse:
                continue
            # Renamed files are few: the workers link them.
            renamed = batch["held_as"].to_pylist()
            wanted = [
                bool(text) and not held_as and not Reuse.is_taken(text) and row not in skip
                for row, text, held_as in zip(numbers, reuse, renamed, strict=True)
            ]
            rows = list(compress(numbers, wanted))
            if not rows:
                continue
            there = list(compress(reuse, wanted))
            sizes = list(compress(batch["size"].to_pylist(), wanted))
            times = compress(batch["modified_ns"].to_pylist(), wanted)
            paths = compress(strings(batch["path"]), wanted)
            files = [
                (path, size, _time(one, listed))
                for path, size, listed, one in zip(paths, sizes, times, there, strict=True)
            ]
            lines = []
            for row, size, one, made in zip(rows, sizes, there, calls.each(some, files), strict=True):
                if made is not None:
                    linked.add(row, size)
                    moved(*made)
                    lines.append(_line(row, one))
            for each in writers:
                each.settle()
            outcome.files += len(lines)
            outcome.bytes += sum(size for size, row in zip(sizes, rows, strict=True) if row in linked)
            outcome.linked += len(lines)
            keeper.add("".join(lines).encode())
            keeper.check()
            told()
        moved.close()
    outcome.linked_bytes = linked.bytes
    outcome.link_seconds = time.monotonic() - began
    return linked


_WORDS = 5
"""Of `str(Reuse)` of a file of a release."""


def _time(reuse: str, listed: int) -> int:
    """The time of the file in the release, which was `listed` where nothing says otherwise."""
    words = reuse.split(" ")
    if len(words) != _WORDS:
        found = Reuse.parse(reuse).mtime_ns
        return listed if found is None else found
    return listed if words[3] == "-" else int(words[3])


def _line(row: int, reuse: str) -> str:
    """`copied_line` of a linked row; of words without anything to escape at once, as `fresh_line` is made."""
    words = reuse.split(" ")
    if len(words) == _WORDS and reuse.isascii() and not _ESCAPED & set(reuse):
        digest, grade, proof, _, host = ("" if word == "-" else word for word in words)
        return text_line(f'[{row},"{hex_of(digest)}","{grade}","{proof}","{host}"]')
    there = Reuse.parse(reuse)
    claim, owed = proof_of(there.proof)
    return copied_line(Copied(row, there.digest, there.grade, claim, there.host, linked=True, owed=owed))


_ESCAPED = frozenset('"\\+\x7f') | frozenset(map(chr, range(32)))
"""Characters that JSON escapes, or that stand for a blank."""
