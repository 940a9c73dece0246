"""Tables and documents of other versions: what is not known is passed over, a column that a table lacks has
its default, and a format that is higher than known is refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.kinds import DOCUMENTS

from penstock.core import element_documents, row_codec
from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.model import Entry, Expected, Record, Surveyed
from penstock.doctor import selftest
from penstock.tables import json_files
from penstock.tables.tables import Form, read_batches
from penstock.workflow import controller_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORMS = [
    Form(row_codec.LISTING, Entry._fields),
    Form(row_codec.SHARD, Entry._fields),
    Form(row_codec.AUDIT_SHARD, Expected._fields),
    Form(row_codec.RECORDS, ("row", "part", "offset", "length", *Record._fields)),
    Form(row_codec.MANIFEST, Record._fields),
    Form(row_codec.SURVEY, Surveyed._fields),
]
VALUES = {
    "binary": (b"b", b"bb"), "string": ("s", "ss"), "int64": (7, 14), "int32": (7, 14),
    "uint64": ((1 << 63) + 7, (1 << 64) - 1),
}  # fmt: skip
"""Two values of each type."""


def value(kind: pa.DataType, number: int = 0) -> Any:
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, number) for field in kind}
    return VALUES[str(kind)][number]


def table(path: Path, form: Form, *, kind: str = "", without: str = "", also: str = "") -> None:
    """A table of one row, as another version would have written it."""
    made = pa.table(
        {field.name: pa.array([value(field.type)], field.type) for field in form.schema},
        schema=form.schema.with_metadata({b"penstock": (kind or form.kind).encode()}),
    )
    made = made.drop_columns([without]) if without else made
    pq.write_table(made.append_column(also, pa.array(["new"])) if also else made, path)


def rows(path: Path, form: Form, names: list[str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in read_batches(path, form, names=names) for row in batch.to_pylist()]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
def test_a_column_of_another_version_harms_nothing(tmp_path: Path, form: Form) -> None:
    path = tmp_path / "file"
    table(path, form)
    whole = rows(path, form)
    table(path, form, also="foreign")
    assert rows(path, form) == whole
    name = form.schema.names[-1]
    form.defaults.pop(name, None)
    table(path, form, without=name)
    with pytest.raises(FailedError, match=f'no column "{name}"') as told:
        rows(path, form)
    assert told.value.where == str(path)
    form.defaults[name] = default = value(form.schema.field(name).type, 1)
    assert rows(path, form) == [{**whole[0], name: default}]
    first = form.schema.names[0]
    assert list(rows(path, form, [name, first])[0].items()) == [(name, default), (first, whole[0][first])]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
def test_inode_numbers_that_were_stored_with_a_sign_are_read(tmp_path: Path, form: Form) -> None:
    path = tmp_path / "file"
    table(path, form)
    whole, made = rows(path, form), pq.read_table(path)
    for place, field in enumerate(made.schema):
        if field.type == pa.uint64():
            made = made.set_column(place, field.name, pa.array([7], pa.int64()))
            whole[0][field.name] = 7
    pq.write_table(made.replace_schema_metadata({b"penstock": form.kind.encode()}), path)
    assert rows(path, form) == whole
    for batch in read_batches(path, form):
        assert batch.schema.types == form.schema.types


def test_a_column_of_another_type_is_damage(tmp_path: Path) -> None:
    path, (form,) = tmp_path / "file", [one for one in FORMS if one.kind.startswith("manifest")]
    table(path, form)
    made = pq.read_table(path)
    made = made.set_column(made.schema.get_field_index("inode"), "inode", pa.array(["seven"]))
    pq.write_table(made, path)
    with pytest.raises(FailedError, match="cannot be read") as told:
        rows(path, form)
    assert told.value.where == str(path)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
def test_a_table_of_a_newer_format_is_refused_by_name(tmp_path: Path, form: Form) -> None:
    path, name = tmp_path / "file", form.kind.rpartition(" ")[0]
    assert form.kind == f"{name} 1"
    table(path, form, kind=f"{name} 2")
    with pytest.raises(NewerFormatError, match=f"this {name} is of a newer format") as told:
        rows(path, form)
    assert (told.value.where, told.value.exit_code) == (str(path), 3)
    assert "format 2" in told.value.why
    assert "a newer penstock is needed" in told.value.hint
    table(path, form, kind="something 1")
    with pytest.raises(FailedError, match="holds something else"):
        rows(path, form)


def test_every_kind_of_document_begins_at_format_1() -> None:
    assert {document.newest for document in DOCUMENTS} == {1}
    kinds = (row_codec.LISTING, row_codec.SHARD, row_codec.JOURNAL, row_codec.RECORDS, row_codec.MANIFEST)
    assert {row_codec.file_format(kind) for kind in kinds} == {1}
    assert {element_documents.FORMAT, controller_job.FORMAT, selftest.FORMAT} == {1}


READERS: dict[str, Callable[[bytes, str], object]] = {
    document.kind.__name__: document.from_json for document in DOCUMENTS
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_document_of_a_newer_format_is_refused_by_name(read: Callable[[bytes, str], object]) -> None:
    with pytest.raises(NewerFormatError, match="newer format") as told:
        read(b'{"format": 2, "penstock": "1.7.0"}', "/where/it/is")
    assert (told.value.where, told.value.exit_code) == ("/where/it/is", 3)
    assert "it has format 2" in told.value.why
    assert "reads up to 1" in told.value.why
    for content in (b"{}", b'{"format": null}', b'{"format": "1"}'):
        with pytest.raises(ValueError, match="`format` is no whole number"):
            read(content, "/where/it/is")


def test_a_list_of_empty_folders_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "empty-folders.json"
    path.write_text('{"format": 2, "folders": ["a"]}')
    with pytest.raises(NewerFormatError, match="newer format"):
        json_files.read_empty_folders(path)
    path.write_text('{"folders": ["a"]}')
    with pytest.raises(FailedError, match="empty folders"):
        json_files.read_empty_folders(path)
