"""Which rows of a shard are linked many at a time, and how they are counted."""

from __future__ import annotations

import pytest

from penstock.core.model import Entry, Reuse
from penstock.engine.linked_rows import LinkedRows, _of_release
from penstock.tables.run_tables import as_columns

DIGEST = f"xxh3_128:{'0a' * 16}"


@pytest.mark.parametrize(
    ("reuse", "held_as", "mtime_ns"),
    [
        (None, "", None),
        (Reuse(DIGEST, mtime_ns=5), "", 5),
        (Reuse(DIGEST, mtime_ns=0), "", 0),
        (Reuse(DIGEST), "", 9),
        (Reuse(DIGEST, mtime_ns=5), "another", None),
        (Reuse(DIGEST, mtime_ns=5, staging="run"), "", None),
    ],
)
def test_a_row_of_the_release_is_linked_with_the_time_that_its_file_has(
    reuse: Reuse | None, held_as: str, mtime_ns: int | None
) -> None:
    path = "d/a\udcff"
    (batch,) = as_columns([Entry(path, "k", 3, "t", 9, length=3, reuse=reuse, held_as=held_as)])
    linked = ([], []) if mtime_ns is None else ([(7, reuse, b"d/a\xff")], [(path, 3, mtime_ns)])
    assert _of_release([7], batch, ()) == linked
    assert _of_release([7], batch, (7,)) == ([], [])


def test_linked_rows_are_counted() -> None:
    rows = LinkedRows(4)
    rows.add(2, 10)
    assert (2 in rows, 1 in rows, rows.count, rows.bytes) == (True, False, 1, 10)
