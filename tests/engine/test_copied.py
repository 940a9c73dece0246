"""Many rows in little memory are the same rows."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import Copied, Pin, Proof
from penstock.engine.journal import CopiedRows

ROWS = st.builds(
    Copied,
    row=st.integers(0, 300),
    digest=st.sampled_from(["gone", "parts/8388608:" + "a" * 32, "xxh3_128/1:" + "b" * 32])
    | st.binary(min_size=16, max_size=16).map(lambda raw: f"xxh3_128:{raw.hex()}"),
    source_grade=st.sampled_from(["", "size", "full"]),
    source_proof=st.sampled_from(["", "crc64nvme:full:0011", "size md5:\u00fc"]),
    written_host=st.sampled_from(["a", "b"]),
    copy_attempt=st.sampled_from(["1", "2"]),
    pin=st.none() | st.just(Pin(1, "t", 2, "", "")),
    linked=st.booleans(),
    owed=st.none() | st.just(Proof("full", "md5:full:00")),
)


@given(st.lists(st.tuples(st.booleans(), ROWS), max_size=60))
@settings(deadline=None, max_examples=60)
def test_it_is_as_a_dictionary(steps: list[tuple[bool, Copied]]) -> None:
    rows, known = CopiedRows(), dict[int, Copied]()
    for add, one in steps:
        if add:
            rows.add(one)
            known[one.row] = one
        else:
            rows.drop(one.row)
            known.pop(one.row, None)
        assert len(rows) == len(known)
    assert dict(rows) == known
    assert [row in rows for row in range(-2, 310)] == [row in known for row in range(-2, 310)]
    assert rows.get(1000) is None
    with pytest.raises(KeyError):
        rows[-1]


@pytest.mark.parametrize("leaves", ["another takes its place", "it is dropped"])
def test_a_rare_row_is_none_of_them_any_more_once_it_left(leaves: str) -> None:
    rows = CopiedRows()
    gone = Copied(3, "gone", "", "", "host", "attempt")
    rows.add(gone)
    assert dict(rows.odd()) == {3: gone}
    if leaves == "it is dropped":
        rows.drop(3)
    else:
        rows.add(gone._replace(digest=f"xxh3_128:{1:032x}"))
    assert dict(rows.odd()) == {}


def test_a_row_costs_less_than_120_bytes() -> None:
    count = 50_000
    rows = CopiedRows()
    tracemalloc.start()
    for row in range(count):
        rows.add(Copied(row, f"xxh3_128:{row:032x}", "full", f"crc64nvme:full:{row:016x}", "host", "attempt"))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(rows) == count
    assert held < 120 * count
