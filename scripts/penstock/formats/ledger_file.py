"""The ledger of a dataset: how each link and unlink by penstock moved the ctime of files that releases share.

The problem: a file that was proven is known again by its inode, size and times. But each link and each
unlink moves the ctime of all names of a file, and so does penstock itself, each night. So whoever links or
unlinks looks at the ctime before and after, and writes both down. A ctime is as penstock left it when a way
leads to it, step by step, from the one that the release's manifest has.

A segment is one file, written whole: the links of some thousand files, or the unlinks of a tree.
"""

from __future__ import annotations

import secrets
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.errors import FailedError, NewerFormatError
from penstock.formats.ledger_segments import SUFFIX
from penstock.formats.tables import TableWriter, read_batches
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.formats.ledger_segments import Moves

FORMAT = 1
_NAMES = ("inode", "before_ns", "after_ns")


class _Form(NamedTuple):
    """As `tables.Form`, of rows that are no files'."""

    kind: str = f"ledger {FORMAT}"
    schema: pa.Schema = pa.schema(zip(_NAMES, [pa.int64()] * 3, strict=True))
    options: Mapping[str, object] = {
        "use_dictionary": False,
        "column_encoding": dict.fromkeys(_NAMES, "DELTA_BINARY_PACKED"),
    }
    defaults: Mapping[str, object] = {}


_FORM = _Form()


def write(folder: Path, name: str, moves: Moves) -> None:
    """A segment; durable on return, and no other has its name. Raises NoSpaceError, FailedError."""
    if not moves:
        return
    durable.make_dirs(folder)
    path = folder / f"{name}-{secrets.token_hex(4)}{SUFFIX}"
    arrays = [pa.Array.from_buffers(pa.int64(), len(moves), [None, pa.py_buffer(c)]) for c in moves.columns]
    with TableWriter(path, _FORM) as writer:
        writer.write(arrays)
        writer.close()


class Ledger:
    """Some segments, to be searched: 24 bytes a row."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """A segment that cannot be read counts as none: its files are read back."""
        self._segments: list[tuple[Sequence[int], Sequence[int], Sequence[int]]] = []
        for path in paths:
            try:
                batches = list(read_batches(path, _FORM))
            except (FailedError, NewerFormatError):
                continue
            if batches:
                table = pa.Table.from_batches(batches).sort_by("inode").combine_chunks()
                inodes, before, after = (_numbers(table.column(name)) for name in _FORM.schema.names)
                self._segments.append((inodes, before, after))

    def leads(self, inode: int, recorded_ns: int, seen_ns: int) -> bool:
        """Whether the ctime that is seen is the recorded one, or penstock moved it there from that."""
        now, moved = recorded_ns, True
        while now != seen_ns and moved:
            moved = False
            for inodes, before, after in self._segments:
                place = bisect_left(inodes, inode)
                while place < len(inodes) and inodes[place] == inode:
                    if before[place] == now and after[place] > now:
                        now, moved = after[place], True
                    place += 1
        return now == seen_ns


def _numbers(column: pa.ChunkedArray) -> array[int]:
    found = array("q")
    for chunk in column.chunks:
        found.frombytes(memoryview(chunk.buffers()[1])[chunk.offset * 8 : (chunk.offset + len(chunk)) * 8])
    return found
