"""A row is the same after its way to a worker, into a journal and into columns."""

from __future__ import annotations

import json
import marshal
from typing import Any

import pytest

from penstock.core import row_codec
from penstock.core.model import (
    TOUCHED,
    AuditedRow,
    Copied,
    Entry,
    Expected,
    Part,
    PartLine,
    Pin,
    Proof,
    RereadRow,
    Reuse,
    proof_of,
)

DIGEST = f"xxh3_128:{'0a' * 16}"
LINKED = Reuse("xxh3_128:00", "full", "md5:full:00", 7, "h1")
ENTRY = Entry("d/a\udcff", "k", 9, "t", 7, 1, "v", "md5:full:00", 2, 4, 5, LINKED)
OWED = Proof("full", "md5:full:00")
LINE = PartLine(3, ".p.00", 4, 1, "c" * 32, "crc32c:part:0a", "md5:full:00", "t")


@pytest.mark.parametrize(
    "row",
    [
        ENTRY,
        ENTRY._replace(reuse=None),
        Part(ENTRY, ".p.00", 2, 4, (LINE, LINE._replace(number=2))),
        Expected("d/a", 9, digest="xxh3_128/4:00", in_parts=True, owed="full md5:full:00"),
        RereadRow(3, "direct", 5, 6, b"\xff", "sha256:00", "full md5:full:00"),
        AuditedRow(3, why="other bytes"),
    ],
    ids=lambda row: type(row).__name__,
)
def test_it_comes_as_it_went(row: Any) -> None:
    kind, plain = marshal.loads(marshal.dumps(row_codec.to_wire([row, row])))
    found = row_codec.from_wire(kind, plain)
    assert found == [row, row]
    assert {type(one) for one in found} == {type(row)}
    if isinstance(row, Part):
        assert (type(found[0].range), type(found[0].lines[0])) == (Entry, PartLine)
    entry = getattr(found[0], "range", found[0])
    if isinstance(entry, Entry) and entry.reuse:
        assert type(entry.reuse) is Reuse


def test_no_rows_are_sent_as_none() -> None:
    assert row_codec.from_wire(*row_codec.to_wire([])) == []


def test_what_verify_expects_is_of_the_entry() -> None:
    found = row_codec.expecting(ENTRY, "xxh3_128:11", "md5:full:11", in_parts=True, owed="full md5:full:22")
    assert found._asdict() == {
        **{name: getattr(ENTRY, name) for name in set(Expected._fields) & set(Entry._fields)},
        "digest": "xxh3_128:11",
        "checksum": "md5:full:11",
        "in_parts": True,
        "owed": "full md5:full:22",
    }


@pytest.mark.parametrize(
    "copied",
    [
        Copied(7, "xxh3_128:" + "0" * 32, "full", "crc64nvme:full:0a", "h1", "a1"),
        Copied(7, "parts/8:" + "0" * 32, "size", "", "h1", "a1", Pin(1, "t", 2), owed=OWED),
        Copied(7, "parts/8:" + "0" * 32, "size", "", "h2", "a1", linked=True, staging="run", owed=OWED),
        Copied(7, "xxh3_128:" + "0" * 32, "size", "", "h2", "a1", linked=True),
        Copied(7, "xxh3_128:" + "0" * 32, "size", "", "", "a1", linked=True, staging="run"),
    ],
)
def test_a_line_says_all_of_a_row(copied: Copied) -> None:
    body = row_codec.body_of(row_codec.copied_line(copied).encode())
    assert body is not None
    assert row_codec.copied_of(json.loads(body), "h1", "a1", copied.pin) == copied


@pytest.mark.parametrize("checksum", ["", "sha256:full:" + "0" * 64])
def test_the_line_of_a_row_copied_in_one_piece(checksum: str) -> None:
    made = Copied(7, "xxh3_128:" + "0" * 32, "full", checksum)
    assert row_codec.fresh_line(7, "0" * 32, "full", checksum) == row_codec.copied_line(made)


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize(
    "there",
    [
        Reuse(DIGEST, "full", "crc64nvme:full:0011223344556677", 123, "node-1"),
        Reuse(DIGEST),
        Reuse(DIGEST, "size", "", 5, 'a"quote'),
        Reuse(DIGEST, "size", "", None, "h\u00e9"),
        Reuse(DIGEST, "composite", "sha256:composite:ab-3/5 md5:full:cd", 1, ""),
        Reuse("parts/8:" + "0" * 32, "size", "full md5:full:00", None, "h2", "run"),
    ],
)
def test_the_line_of_a_row_that_is_reused(there: Reuse, touched: bool) -> None:
    checksum, owed = proof_of(there.source_proof)
    made = Copied(
        7,
        there.digest,
        there.source_grade,
        checksum,
        there.written_host,
        linked=True,
        staging=there.staging,
        owed=owed,
        touched=TOUCHED if touched else "",
    )
    assert row_codec.reused_line(7, there, touched=touched) == row_codec.copied_line(made)


def test_a_column_that_journals_get_later_stands_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_codec, "NAMED", ("copy_attempt",))
    monkeypatch.setitem(row_codec.BY_NAME, "copy_attempt", row_codec.BY_NAME["touched"])
    one = Copied(7, "xxh3_128:" + "0" * 32, "size", "", copy_attempt="a9")
    line = row_codec.copied_line(one)
    assert json.loads(line[9:]) == [7, "0" * 32, "size", "", {"copy_attempt": "a9"}]
    assert row_codec.copied_line(one._replace(copy_attempt="")).count("{") == 0
    linked = json.loads(row_codec.copied_line(one._replace(linked=True, written_host="h"))[9:])
    assert linked == [7, "0" * 32, "size", "", "h", {"copy_attempt": "a9"}]


def test_a_torn_line_is_none() -> None:
    line = row_codec.part_line(LINE).encode()
    assert row_codec.parts_of(line) == [LINE]
    assert row_codec.body_of(line[:-1]) is None
    assert row_codec.body_of(line.replace(b"t", b"u")) is None


def test_columns_are_rows_again() -> None:
    some = [ENTRY, ENTRY._replace(path="d/b", size=1)]
    assert row_codec.rows(Entry, row_codec.by_field(Entry, some)) == some
    assert row_codec.by_field(Entry, [])["path"] == ()
    (one,) = row_codec.filled(Expected, {"path": ["a"], "size": [3]}, 1)
    assert one == Expected("a", 3)


def test_lines_are_spelled_as_in_every_version() -> None:
    """As d98f93c wrote them."""
    plain = "xxh3_128:" + "0" * 32
    rows = [
        Copied(7, plain, "full", "crc64nvme:full:0a", "h1", "a1"),
        Copied(8, "parts/8:" + "0" * 32, "size", "", owed=OWED),
        Copied(9, plain, "size", "", "h2", linked=True),
        Copied(9, plain, "size", "", "", linked=True, staging="run"),
    ]
    assert [json.loads(row_codec.line_of(row)[9:]) for row in (*rows, LINE)] == [
        [7, "0" * 32, "full", "crc64nvme:full:0a"],
        [8, "parts/8:" + "0" * 32, "size", "full md5:full:00"],
        [9, "0" * 32, "size", "", "h2"],
        [9, "0" * 32, "size", "", "", "run"],
        ["part", 3, ".p.00", 4, 1, "c" * 32, "crc32c:part:0a", "md5:full:00", "t"],
    ]
