"""What the report counts: a file that was there before an attempt began is counted once."""

from __future__ import annotations

import pytest

from penstock.core.documents.element_receipt import ElementReceipt
from penstock.run.report_step import reused


@pytest.mark.parametrize(
    ("unchanged", "copies", "linked", "taken"),
    [
        # One attempt: 30 rows linked of 50.
        (30, [ElementReceipt(files=50, done_files=50, linked=30)], 30, 0),
        # Links were refused, and all was copied.
        (30, [ElementReceipt(files=50, done_files=50)], 0, 0),
        # Killed when 34 were done: the 30 that were linked, and 4 that were copied.
        (30, [ElementReceipt(files=50, done_files=16)], 30, 0),
        # Killed while it linked.
        (30, [ElementReceipt(files=50, done_files=38, linked=18)], 30, 0),
        # 20 of the 30 are taken over from another run's staging.
        (10, [ElementReceipt(files=50, done_files=50, linked=30, taken=20)], 10, 20),
        (10, [ElementReceipt(files=50, done_files=16)], 10, 20),
    ],
)
def test_what_earlier_attempts_reused_is_not_copied(
    unchanged: int, copies: list[ElementReceipt], linked: int, taken: int
) -> None:
    assert reused(unchanged, {0: 30}, copies) == (linked, taken)
