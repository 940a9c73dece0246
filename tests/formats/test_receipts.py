"""Receipts, marks and lines of other versions: older ones are read, newer ones refused by name."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from penstock.core.documents import (
    array_line,
    cancel_file,
    claim_file,
    element_receipt,
    step_results,
    taken_mark,
    throttle_file,
)
from penstock.core.documents.element_receipt import ElementReceipt
from penstock.core.documents.granted import Granted
from penstock.core.run_documents import plan_info, run_info
from penstock.errors import NewerFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

WHOLE = ElementReceipt(
    "copy",
    3,
    "run",
    "sha256:0",
    files=2,
    grades={"cold": 2},
    samples=((0.0, 0, 0), (1.5, 2, 9)),
    granted=Granted("0-3,8", 100 << 20),
)


def test_an_element_s_receipt_is_read_as_it_was_written() -> None:
    content = json.dumps(element_receipt.to_json(WHOLE)).encode()
    assert element_receipt.from_json(content, "here") == WHOLE


def test_a_receipt_without_later_fields_or_a_number_has_their_defaults() -> None:
    old = {name: value for name, value in asdict(WHOLE).items() if name in ("step", "index", "files")}
    found = element_receipt.from_json(json.dumps({**old, "of another time": [1]}).encode(), "here")
    assert found == ElementReceipt("copy", 3, files=2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("files", "2"),
        ("samples", [[0, 0]]),
        ("grades", {"cold": "2"}),
        ("warnings", [1]),
        ("host", 5),
        ("granted", {"cores": 4}),
    ],
)
def test_a_field_of_another_type_is_damage(field: str, value: object) -> None:
    content = json.dumps({**element_receipt.to_json(WHOLE), field: value}).encode()
    with pytest.raises(ValueError, match=field):
        element_receipt.from_json(content, "here")


def test_a_step_s_receipt_keeps_what_its_step_says() -> None:
    raw = {"step": "permissions", "ended": 5, "gid": None, "copies": "sha256:1", "unknown": 1, "format": 1}
    found = step_results.from_json("permissions", json.dumps(raw).encode(), "here")
    assert found == {"step": "permissions", "ended": 5, "gid": None, "copies": "sha256:1"}


@pytest.mark.parametrize(
    "read",
    [
        element_receipt.from_json,
        lambda content, where: step_results.from_json("copy", content, where),
        taken_mark.from_json,
        cancel_file.from_json,
        throttle_file.from_json,
        claim_file.from_json,
        run_info,
        plan_info,
        lambda content, where: array_line.from_json(json.loads(content), where),
    ],
    ids=["element", "step", "taken", "cancelled", "throttle", "claim", "run", "plan", "array"],
)
def test_a_newer_format_is_refused_by_name(read: Callable[[bytes, str], object]) -> None:
    with pytest.raises(NewerFormatError, match="newer format") as caught:
        read(b'{"format": 99}', "there.json")
    assert caught.value.where == "there.json"
