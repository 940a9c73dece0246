from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.records import rows_of, write_rows, write_shard

from penstock.core.errors import FailedError
from penstock.core.model import Entry, Record
from penstock.tables.manifest import Files, SeenRow, extend_shard, read_records
from penstock.tables.run_tables import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def row(index: int, path: str = "", part: int = -1) -> SeenRow:
    record = Record(
        path=path or f"d/f{index:06d}",
        size=10 * index,
        digest=f"xxh3_128:{index:032x}",
        modified_ns=index,
        key=f"k{index}",
        token="t",
        version="",
        source=0,
        source_grade="full",
        source_proof="crc32c:full:00000000",
        storage_grade="cold",
        method="direct",
        written_host="a",
        verified_host="b",
        attempt="v1",
        mtime_ns=index,
        ctime_ns=-index,
        parts=bytes([index % 256, 0, 255]),
        digests="sha256:00 md5:11",
    )
    return SeenRow(index, part, max(part, 0) * 5, 10 * index, record)


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    odd = b"\xff\xfe \n'".decode("utf-8", "surrogateescape")
    rows = [row(0, odd), *(row(i, part=i % 3 - 1) for i in range(1, 20_000))]
    path = tmp_path / "r.parquet"
    write_rows(path, rows)
    assert max(map(len, read_records(path))) <= 8192
    assert rows_of(path) == rows


def test_no_rows_are_a_file_too(tmp_path: Path) -> None:
    write_rows(tmp_path / "r.parquet", [])
    assert rows_of(tmp_path / "r.parquet") == []


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    shard, path = tmp_path / "s.parquet", tmp_path / "r.parquet"
    write_shard(shard, 0, [Entry("a", "a", 1, "t", 0)])

    def fail(rows: Sequence[int]) -> Mapping[str, Sequence[object]]:
        raise KeyError(*rows)

    with pytest.raises(KeyError):
        extend_shard(path, numbered(shard), fail)
    assert list(tmp_path.iterdir()) == [shard]


def test_whole_files_come_together_and_parts_apart(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    write_rows(path, [row(i, part=max(-1, i - 5)) for i in range(8)])
    whole, parts = read_records(path)
    assert isinstance(whole, Files)
    assert whole["size"] == [0, 10, 20, 30, 40]
    assert isinstance(parts, list)
    assert [one.part for one in parts] == [0, 1, 2]


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 2, 1], [-1]])
def test_rows_that_do_not_ascend_are_refused(tmp_path: Path, order: list[int]) -> None:
    path = tmp_path / "r.parquet"
    write_rows(path, [row(i) for i in range(len(order))])
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, table.schema.field("row"), pa.array(order, pa.int64())), path)
    with pytest.raises(FailedError, match="not in order"):
        list(read_records(path))


def test_something_else_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.parquet", 0, [Entry("a", "a", 1, "t", 0)])
    with pytest.raises(FailedError, match="something else"):
        list(read_records(tmp_path / "s.parquet"))
    with pytest.raises(FailedError, match="cannot be read"):
        list(read_records(tmp_path / "none"))


def test_a_shard_is_extended_group_by_group(tmp_path: Path) -> None:
    rows = [row(i, part=-1 if i % 5 else 2) for i in range(70_000)]
    write_rows(tmp_path / "r.parquet", rows)
    assert rows_of(tmp_path / "r.parquet") == rows
