from __future__ import annotations

from penstock.core.documents.element_receipt import ElementReceipt
from penstock.core.events import Progressed, Started
from penstock.steps.report_step import _earlier
from penstock.views import summary
from penstock.views.event_totals import Tally


def test_a_step_that_counts_files_alone_has_its_share() -> None:
    """U9: publish's bar stayed at 0 %."""
    tally = Tally()
    tally.take(Started("d", "publish", 4, 1 << 30), 0.0)
    task = tally.take(Progressed("d", "publish", 3), 1.0)
    assert task.share() == 0.75
    assert task.amount() == "3 of 4 files"
    tally.take(Started("d", "copy", 4, 1 << 30), 0.0)
    copied = tally.take(Progressed("d", "copy", 1), 1.0)
    assert copied.share() == 0.0


def test_what_an_earlier_command_copied_is_no_speed_of_this_one() -> None:
    """U9: 5.53 MiB/s beside a chart at 512 KiB/s."""
    receipt = {"ended": 1000.0, "seconds": 50.0}
    elements = [
        ElementReceipt(bytes=700, done_bytes=700, ended=900.0),  # by the command before
        ElementReceipt(bytes=500, done_bytes=200, ended=990.0),  # resumed by this one
        ElementReceipt(bytes=300, done_bytes=300, ended=999.0),
    ]
    assert _earlier(receipt, elements) == 1000
    assert _earlier(None, elements) == 300


def test_the_time_of_a_resumed_run_says_so() -> None:
    """U9: 53 s for 2 min 46 s."""
    told = summary.render({"dataset": "d", "status": "PASSED", "seconds": 53.0, "resumed": {"files": 2}})
    assert "Total time    53 s since the run was resumed\n" in told
    assert "Total time    53 s\n" in summary.render({"dataset": "d", "status": "PASSED", "seconds": 53.0})
