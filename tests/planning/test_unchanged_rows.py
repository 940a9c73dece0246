"""The rows that are unchanged since the current release, by columns, beside what a row by row look says."""

from __future__ import annotations

import os
import time
import tracemalloc
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import Entry, Record, Reuse
from penstock.core.run_documents import FILE_COST, REUSED_DIVISOR, Cut
from penstock.jobs.forecast import NOTHING, OnTarget
from penstock.run import plan_checks
from penstock.run.previous_release import COLUMNS, ReuseRules, with_reuse
from penstock.tables.manifest import FORM, Files, _stored
from penstock.tables.run_tables import ShardWriter, as_columns, as_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

DIGEST = "xxh3_128:" + "0" * 32
RULES = ReuseRules({0: 0, 2: 1}, giant_bytes=1000, keep_mtime=True, proven=False)


def entry(path: str = "a", **changes: Any) -> Entry:
    return Entry(path, path, 10, "token", 7, length=10)._replace(**changes)


def record(path: str = "a", **changes: Any) -> Record:
    row = Record(
        path, 10, DIGEST, 7, path, "token", "", 0, "size", "", "cold", "direct", "h1", "h2", "at", 7, 8
    )
    return row._replace(**changes)


def manifest(records: Sequence[Record], page: int = 2) -> Iterator[pa.RecordBatch]:
    """Batches of the columns of a manifest that has these records."""
    import pyarrow as pa

    schema = pa.schema([FORM.schema.field(name) for name in COLUMNS])
    for at in range(0, len(records), page):
        files = Files.of(records[at : at + page])
        yield pa.record_batch([_stored(field, files) for field in schema], schema=schema)


def pages(rows: Iterable[Entry], page: int = 3) -> Iterator[pa.RecordBatch]:
    left = iter(rows)
    while some := list(islice(left, page)):
        yield from as_columns(some)


def compared(mine: Sequence[Entry], theirs: Sequence[Record], rules: ReuseRules = RULES) -> list[Entry]:
    found = with_reuse(pages(mine), manifest(theirs), rules)
    return [row for batch in found for row in as_rows(batch)]


def is_same(mine: Entry, theirs: Record, rules: ReuseRules = RULES) -> bool:
    ((row),) = compared([mine], [theirs], rules)
    return row.reuse is not None


def test_the_same_token_size_key_source_and_time_is_unchanged() -> None:
    assert is_same(entry(), record())
    assert is_same(entry(source=1), record(source=2))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (entry(token=""), record(token="")),
        (entry(token="new"), record()),
        (entry(size=11), record()),
        (entry(key="into/a"), record()),
        (entry(version="2"), record(version="1")),
        (entry(source=1), record()),
        (entry(), record(source=1)),
        (entry(modified_ns=8), record()),
        (entry(size=1000), record(size=1000)),
        (entry(), record(digest="xxh3_128/268435456:" + "0" * 32)),
    ],
)
def test_any_difference_means_copying(mine: Entry, theirs: Record) -> None:
    assert not is_same(mine, theirs)


def test_times_count_only_where_they_are_kept() -> None:
    assert is_same(entry(modified_ns=8), record(), RULES._replace(keep_mtime=False))


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        (record(), False),
        (record(source_grade=""), False),
        (record(source_grade="etag-md5"), True),
        (record(source_grade="full"), True),
        (record(size=0), True),
    ],
)
def test_where_a_proof_is_required_what_nothing_proved_is_copied(theirs: Record, found: bool) -> None:
    assert is_same(entry(size=theirs.size), theirs, RULES._replace(proven=True)) == found


names = st.lists(st.sampled_from(["a", "a-b", "a/b", "z", "é", "\udcff", "\U0001f600", "q"]), unique=True)


@settings(deadline=None, max_examples=50)
@given(names, names)
def test_the_merge_finds_what_both_have_and_keeps_every_row(mine: list[str], theirs: list[str]) -> None:
    paths, base = sorted(mine, key=os.fsencode), sorted(theirs, key=os.fsencode)
    rows = compared([entry(path) for path in paths], [record(path) for path in base])
    assert [row._replace(reuse=None) for row in rows] == [entry(path) for path in paths]
    assert {row.path for row in rows if row.reuse} == set(mine) & set(theirs)
    assert {row.reuse for row in rows} <= {None, Reuse(DIGEST, "size", "", 7, "h1")}


@pytest.mark.parametrize(
    "theirs",
    [
        record(),
        record(source_grade="", source_proof="", written_host=""),
        record(source_grade="full", source_proof="crc32c:full:0a", mtime_ns=-5, written_host="a b"),
        record(source_proof="full sha256:full:00"),
    ],
)
def test_what_a_linked_file_brings_along_is_of_its_record(theirs: Record) -> None:
    (row,) = compared([entry()], [theirs])
    assert row.reuse == Reuse(
        theirs.digest, theirs.source_grade, theirs.source_proof, theirs.mtime_ns, theirs.written_host
    )


rows_of_plans = st.lists(
    st.tuples(
        st.sampled_from(["a/b", "a/c", "top", "x/y/z", "\udcff/q"]), st.integers(0, 9999), st.booleans()
    )
)


@settings(deadline=None, max_examples=50)
@given(rows_of_plans)
def test_sums_by_columns_are_those_of_each_row(drawn: list[tuple[str, int, bool]]) -> None:
    some = [
        entry(path, size=size, length=size, reuse=Reuse(DIGEST) if lies else None)
        for path, size, lies in drawn
    ]
    each = [FILE_COST + row.length // (REUSED_DIVISOR if row.reuse else 1) for row in some]
    for batch in as_columns(some):
        lying = [row.size for row in some if row.reuse]
        divided = plan_checks.divided(batch, [row.size for row in some])
        assert list(divided.to_copy) == [row.size for row in some if not row.reuse]
        assert (divided.linked, divided.taken) == (OnTarget(len(lying), sum(lying)), NOTHING)
        assert plan_checks.each_cost(batch) == each
        assert plan_checks.cost(batch) == sum(each)
        folders = {os.fsencode(row.path).rpartition(b"/")[0] for row in some}
        assert set(plan_checks.folders(batch)) == folders


def test_files_that_are_taken_over_are_counted_apart() -> None:
    taken = Reuse(DIGEST, staging="0123456789abcdef")
    some = [entry(size=1), entry("b", size=2, reuse=Reuse(DIGEST)), entry("c", size=4, reuse=taken)]
    (batch,) = as_columns(some)
    divided = plan_checks.divided(batch, [1, 2, 4])
    assert (list(divided.to_copy), divided.linked, divided.taken) == ([1], OnTarget(1, 2), OnTarget(1, 4))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 100), min_size=1)), st.integers(1, 5))
def test_rows_that_are_placed_together_lie_where_each_would(pieces: list[list[int]], shards: int) -> None:
    total = sum(map(sum, pieces))
    one, other = Cut(total, shards), Cut(total, shards)
    for piece in pieces:
        together = other.together(sum(piece))
        runs = other.runs(piece) if together is None else [(together, 0, len(piece))]
        assert runs == one.runs(piece)


def test_an_unchanged_row_becomes_no_python_object() -> None:
    """The peak of what Python allocates is that of one batch's bookkeeping, far below one object a row."""
    count = 20_000
    paths = [f"{number:08d}" for number in range(count)]
    mine = list(pages(map(entry, paths), page=8192))
    theirs = list(manifest([record(path) for path in paths], page=8192))
    list(with_reuse(iter(mine[:1]), iter(theirs[:1]), RULES))  # pyarrow.compute is loaded
    tracemalloc.start()
    try:
        found = 0
        for batch in with_reuse(iter(mine), iter(theirs), RULES):
            found += plan_checks.divided(batch, ()).linked.files
            assert plan_checks.cost(batch)
        assert found == count
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_delta_plan_costs_a_few_times_a_first_one(tmp_path: Path) -> None:
    """In CPU seconds of one process; row by row it was 12.9 times."""
    count = 50_000
    paths = [f"{number // 1000:05d}/{number:08d}" for number in range(count)]
    mine = list(pages((entry(path, token=f"{hash(path):x}") for path in paths), page=8192))
    held = list(manifest([record(path, token=f"{hash(path):x}") for path in paths], page=8192))
    list(with_reuse(iter(mine[:1]), iter(held[:1]), RULES))

    def planned(rows: Iterator[pa.RecordBatch], name: str) -> float:
        began = time.process_time()
        with ShardWriter(tmp_path / name, 0) as writer:
            for batch in rows:
                plan_checks.divided(batch, batch["size"].to_pylist())
                plan_checks.cost(batch)
                list(plan_checks.folders(batch))
                writer.add_columns(batch)
            assert writer.close().reused == (count if name == "delta" else 0)
        return time.process_time() - began

    first = min(planned(iter(mine), "first") for _ in range(3))
    delta = min(planned(with_reuse(iter(mine), iter(held), RULES), "delta") for _ in range(3))
    assert delta < 6 * first
