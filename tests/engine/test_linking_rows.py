"""What is written of rows that are linked many at a time."""

from __future__ import annotations

import pytest

from penstock.core.digests import proof_of
from penstock.core.model import Copied, Reuse
from penstock.core.row_codec import copied_line
from penstock.engine.linking import LinkedRows, _line, _time

DIGEST = f"xxh3_128:{'0a' * 16}"


@pytest.mark.parametrize(
    "reuse",
    [
        Reuse(DIGEST, "full", "crc64nvme:full:0011223344556677", 123, "node-1"),
        Reuse(DIGEST),
        Reuse(DIGEST, "size", "", 5, 'a"quote'),
        Reuse(DIGEST, "size", "", None, "h\u00e9"),
        Reuse(DIGEST, "composite", "sha256:composite:ab-3/5 md5:full:cd", 1, ""),
    ],
)
def test_the_line_of_a_linked_row_is_that_of_its_record(reuse: Reuse) -> None:
    text = str(reuse)
    there = Reuse.parse(text)
    claim, owed = proof_of(there.proof)
    record = Copied(7, there.digest, there.grade, claim, there.host, linked=True, owed=owed)
    assert _line(7, text) == copied_line(record)
    assert _time(text, 9) == (9 if there.mtime_ns is None else there.mtime_ns)


def test_linked_rows_are_counted() -> None:
    rows = LinkedRows(4)
    rows.add(2, 10)
    assert (2 in rows, 1 in rows, rows.count, rows.bytes) == (True, False, 1, 10)
