"""JSON of other accounts: read as the library reads it, or refused before it takes memory."""

from __future__ import annotations

import json
import resource

import pytest
from tests.support.filled import bare

from penstock.core import typed_json
from penstock.core.findings import FetchedFile
from penstock.core.run_documents import PlanInfo

HOSTILE = {
    "deep": lambda: b"[" * 100_000 + b"]" * 100_000,
    "deep-objects": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "NaN": lambda: b'{"a": NaN}',
    "Infinity": lambda: b'{"a": -Infinity}',
    "digits": lambda: b'{"a": ' + b"9" * 5000 + b"}",
    "lists": lambda: b"[" + b"[]," * 5_000_000 + b"[]]",
    "objects": lambda: b"[" + b'{"":0},' * 2_000_000 + b"{}]",
    "wide": lambda: b'["' + "\U0001f600".encode() + b"x" * 45_000_000 + b'"]',
    "no-utf8": lambda: b'{"a": "\xff"}',
    "half": lambda: b'{"a": ',
}
"""Made by the test: they are 70 MB, which each worker would hold from its collection to its end."""


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_harm_its_reader_is_refused(name: str) -> None:
    text = HOSTILE[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r".") as told:
        typed_json.bounded_loads(text)
    assert not isinstance(told.value, RecursionError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "\udcff \U0001f600"]}, [], "x", 10**300, 0])
def test_what_penstock_writes_is_read(value: object) -> None:
    assert typed_json.bounded_loads(json.dumps(value).encode()) == value


@pytest.mark.parametrize("number", [10**30, -(10**30), 1 << 63])
def test_a_document_holds_no_number_that_no_table_holds(number: int) -> None:
    """Seconds and sizes go to the C library, which raises OverflowError."""
    from penstock.core.seal import Amount

    with pytest.raises(ValueError, match="`files`: it is too large a number"):
        typed_json.read(Amount, {"files": number, "bytes": 0})


@pytest.mark.parametrize("number", [0, 1, (1 << 63) - 1, 1 << 63, 12055943503389264730, (1 << 64) - 1])
def test_a_document_holds_each_inode_number(number: int) -> None:
    read = typed_json.read(FetchedFile, typed_json.bounded_loads(b'{"path": "a", "inode": %d}' % number))
    assert read.inode == number
    stagings = typed_json.bounded_loads(b'{"staging_inodes": {"run": %d}}' % number)
    fields = typed_json.plain(bare(PlanInfo)) | stagings
    assert typed_json.read(PlanInfo, fields).staging_inodes == {"run": number}


@pytest.mark.parametrize("number", [-1, 1 << 64, 10**30])
def test_what_is_no_inode_number_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="`inode`: it is no number of 64 bits"):
        typed_json.read(FetchedFile, {"path": "a", "inode": number})
    with pytest.raises(ValueError, match="`inode`: it is no whole number"):
        typed_json.read(FetchedFile, {"path": "a", "inode": "7"})


def test_an_endless_exponent_is_no_number_of_a_document() -> None:
    from penstock.core.run_documents import ListingSegment

    fields = dict.fromkeys(ListingSegment._fields, "") | {"rows": 1}
    with pytest.raises(ValueError, match="`listed`: it is too large a number"):
        typed_json.read(ListingSegment, {**fields, **typed_json.bounded_loads(b'{"listed": 1e999}')})
