"""The rows of `core.model` are those of the table of columns."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from penstock.core import row_codec
from penstock.core.model import Copied, Entry, Expected, Listed, Pin, Proof, Record, Reuse, Surveyed
from penstock.core.row_codec import COLUMNS
from penstock.core.seal import SEALED_FIELDS

PLACE = ("row", "part", "offset", "length")
FILES: list[tuple[str, tuple[str, ...]]] = [
    (row_codec.LISTING, Entry._fields),
    (row_codec.SHARD, Entry._fields),
    (row_codec.RECORDS, (*PLACE, *Record._fields)),
    (row_codec.MANIFEST, Record._fields),
    (row_codec.AUDIT_SHARD, Expected._fields),
    (row_codec.SURVEY, Surveyed._fields),
]
TYPES = {
    "binary": (str, bytes), "int64": (int,), "uint64": (int,), "double": (float,), "struct": (Reuse | None,),
}  # fmt: skip


@pytest.mark.parametrize(("file", "names"), FILES)
def test_a_row_has_every_column_of_its_file(file: str, names: tuple[str, ...]) -> None:
    stands = {column.name for column in COLUMNS if file in column.stands}
    assert {column.name for column in row_codec.of_file(file, names)} == stands
    assert stands <= set(names)


@pytest.mark.parametrize("row", [Listed, Entry, Copied, Expected, Record, Pin, Surveyed])
def test_a_field_has_the_type_and_default_of_its_column(row: Any) -> None:
    told = get_type_hints(row, localns={"Pin": Pin, "Proof": Proof})
    for name in set(row._fields) & row_codec.BY_NAME.keys():
        column = row_codec.BY_NAME[name]
        assert told[name] in TYPES[column.kind.stored], name
        assert (told[name] is str) == column.kind.text, name
        # Where a file has no digest, nothing stands for it; a row in memory may have none.
        if name in row._field_defaults and column.default is not row_codec.REQUIRED:
            assert row._field_defaults[name] == column.default, name


def test_a_column_that_is_added_later_has_a_default() -> None:
    for column in COLUMNS:
        if max(column.stands.values()) > 1:
            assert column.default is not row_codec.REQUIRED, column.name


def test_the_seal_covers_the_data_and_no_fact_of_one_file_system() -> None:
    assert SEALED_FIELDS == (
        "path", "size", "digest", "modified_ns", "key", "token", "version", "source", "source_grade",
        "source_proof", "storage_grade", "method", "written_host", "verified_host", "parts", "digests",
    )  # fmt: skip
    assert row_codec.sealed_fields(row_codec.ALWAYS) == SEALED_FIELDS
    assert row_codec.sealed_fields(row_codec.CARRYING) == (*SEALED_FIELDS, "read_at", "carried")
    assert set(SEALED_FIELDS) < set(Record._fields)


def test_the_formats_of_the_files() -> None:
    files = [row_codec.JOURNAL, *(file for file, _ in FILES)]
    assert {row_codec.file_format(file) for file in files} == {1}
