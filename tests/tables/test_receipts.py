"""Receipts of elements and of steps: what is read of them, and what is damage."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from penstock.core import element_documents, step_results
from penstock.core.element_documents import ElementReceipt

WHOLE = ElementReceipt(
    "copy",
    3,
    "run",
    "sha256:0",
    files=2,
    grades={"cold": 2},
    samples=((0.0, 0, 0), (1.5, 2, 9)),
)


def test_an_element_s_receipt_is_read_as_it_was_written() -> None:
    content = json.dumps(element_documents.ELEMENT_RECEIPT.to_json(WHOLE)).encode()
    assert element_documents.ELEMENT_RECEIPT.from_json(content, "here") == WHOLE


def test_a_receipt_without_later_fields_has_their_defaults() -> None:
    known = {name: value for name, value in asdict(WHOLE).items() if name in ("step", "index", "files")}
    told = {**known, "format": 1, "of another time": [1]}
    found = element_documents.ELEMENT_RECEIPT.from_json(json.dumps(told).encode(), "here")
    assert found == ElementReceipt("copy", 3, files=2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("files", "2"),
        ("samples", [[0, 0]]),
        ("grades", {"cold": "2"}),
        ("warnings", [1]),
        ("host", 5),
    ],
)
def test_a_field_of_another_type_is_damage(field: str, value: object) -> None:
    content = json.dumps({**element_documents.ELEMENT_RECEIPT.to_json(WHOLE), field: value}).encode()
    with pytest.raises(ValueError, match=field):
        element_documents.ELEMENT_RECEIPT.from_json(content, "here")


def test_a_step_s_receipt_keeps_what_its_step_says() -> None:
    raw = {"step": "permissions", "ended": 5, "gid": None, "copies": "sha256:1", "unknown": 1, "format": 1}
    found = step_results.RECEIPTS["permissions"].from_json(json.dumps(raw).encode(), "here")
    assert found == {"step": "permissions", "ended": 5, "gid": None, "copies": "sha256:1"}
