from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.model import Record
from penstock.core.seal import (
    SEALED_FIELDS,
    Tree,
    canonical,
    included,
    leaf,
    leaves,
    proof,
)

RECORD = Record(
    "a/b", 10, "xxh3_128:00", 7, "a/b", "token", "", 0, "full", "crc64nvme:full:00", "cold", "direct",
    "h1", "h2", "attempt", 7, 8,
)  # fmt: skip


def naive(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1, word for word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\x01" + naive(leaves[:k]) + naive(leaves[k:])).digest()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=6), max_size=70), st.lists(st.integers(0, 40), max_size=5))
def test_the_streamed_root_is_that_of_the_rfc(records: list[bytes], sizes: list[int]) -> None:
    tree = Tree()
    at = 0
    for size in sizes:
        tree.extend([leaf(record) for record in records[at : at + size]])
        at += size
    tree.extend([leaf(record) for record in records[at:]])
    assert tree.root() == f"sha256:{naive(records).hex()}"
    assert tree.count == len(records)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=70), st.data())
def test_every_record_is_proven_and_no_other(records: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(records) - 1))
    tree = Tree()
    tree.extend([leaf(record) for record in records])
    way = proof([leaf(r) for r in records], index)
    assert included(records[index], index, len(records), way, tree.root())
    assert not included(records[index] + b"x", index, len(records), way, tree.root())
    assert not included(records[index], index, len(records), [*way, b"\0" * 32], tree.root())
    assert not included(records[index], len(records), len(records), way, tree.root())
    if way:
        assert not included(records[index], index, len(records), way[:-1], tree.root())


def test_any_changed_field_changes_the_canonical_bytes() -> None:
    for name in SEALED_FIELDS:
        old: Any = getattr(RECORD, name)
        new = old + (1 if isinstance(old, int) else b"x" if isinstance(old, bytes) else "x")
        assert canonical(RECORD._replace(**{name: new})) != canonical(RECORD), name


@pytest.mark.parametrize("name", sorted(set(Record._fields) - set(SEALED_FIELDS)))
def test_facts_of_one_file_system_are_not_sealed(name: str) -> None:
    old: Any = getattr(RECORD, name)
    assert canonical(RECORD._replace(**{name: old * 2})) == canonical(RECORD)


_TEXT = st.text(st.characters(codec="ascii"), max_size=5) | st.text("a\xe9\u65e5", max_size=3)
_NAME = _TEXT | st.text("a\udcff", max_size=3)
_NAMES = frozenset({"path", "key", "token", "version"})
_NUMBER = st.integers(-(2**63), 2**63)


RECORDS = st.builds(
    Record,
    *[
        _NUMBER if isinstance(value, int) else _NAME if name in _NAMES else _TEXT
        for name, value in zip(Record._fields[:17], RECORD, strict=False)
    ],
    parts=st.binary(max_size=3),
    digests=_TEXT,
)


@settings(deadline=None, max_examples=300)
@given(RECORDS)
def test_canonical_bytes_are_the_netstrings_of_the_fields(record: Record) -> None:
    values = [getattr(record, name) for name in SEALED_FIELDS]
    raw = [
        value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
        for value in values
    ]
    assert canonical(record) == b"".join(b"%d:%b," % (len(value), value) for value in raw)


def _changed(fields: dict[str, Any]) -> Record:
    return RECORD._replace(**fields)


LIKE = st.fixed_dictionaries(
    {
        "path": st.text("a%\xe9\udcff", max_size=3),
        "size": st.integers(0, 9),
        "method": st.text("%d", max_size=2),
    },
    optional={"parts": st.just(b"p"), "version": st.text("%", max_size=2), "modified_ns": _NUMBER},
)


@settings(deadline=None, max_examples=200)
@given(st.lists(RECORDS, max_size=4) | st.lists(LIKE.map(_changed), max_size=9))
def test_leaves_by_columns_are_those_of_each_record(records: list[Record]) -> None:
    columns = {name: [getattr(record, name) for record in records] for name in Record._fields}
    assert leaves(columns) == [leaf(canonical(record)) for record in records]


def test_fields_cannot_run_into_each_other() -> None:
    one = RECORD._replace(path="a", digest="b,1:c")
    other = RECORD._replace(path="a,1:b", digest="c")
    assert canonical(one) != canonical(other)


def test_names_that_are_not_utf8_have_canonical_bytes() -> None:
    assert b"a\xff" in canonical(RECORD._replace(path="a\udcff"))
