"""What a waiting step reports, and how often."""

from __future__ import annotations

import time

import pytest

from penstock.cluster.port import State, Status
from penstock.jobs.element_outcomes import Element, WaitReport

PENDING, RUNNING = State.PENDING, State.RUNNING


def waiting(*statuses: Status) -> list[Element]:
    return [Element("12", index, status, index) for index, status in enumerate(statuses)]


def said(report: WaitReport, seconds: range, elements: list[Element]) -> list[tuple[int, str]]:
    """(second, line) with a look each second in which nothing moves."""
    return [(second, line) for second in seconds for line in report.look(second, elements, (0, 0))]


def test_a_line_within_a_minute_while_everything_waits_in_the_queue() -> None:
    elements = waiting(Status(PENDING, "Priority"), Status(PENDING, "Licenses"), Status(PENDING, "Priority"))
    lines = said(WaitReport(), range(200), elements)
    assert [second for second, _ in lines] == [10, 55, 100, 145, 190]
    assert lines[0][1] == (
        "nothing has moved for 10 s: 3 elements in the queue: Priority (2), Licenses (1), "
        "no start is foreseen yet"
    )


def test_the_start_that_the_cluster_expects() -> None:
    start = time.time() + 3600
    elements = waiting(Status(PENDING, "Resources", expected=start), Status(PENDING, "x", expected=1.0))
    ((_, line),) = said(WaitReport(), range(11), elements)
    clock = time.strftime("%H:%M:%S", time.localtime(start))
    assert line.endswith(f", the first is expected to start at {clock}")


def test_nothing_is_said_while_something_moves() -> None:
    report = WaitReport()
    elements = waiting(Status(RUNNING, node="n1"), Status(PENDING, "Priority"))
    assert not [line for second in range(300) for line in report.look(second, elements, second // 20)]


def test_elements_that_run_without_moving_anything() -> None:
    elements = waiting(Status(RUNNING, node="n1"), Status(RUNNING, node="n2"))
    lines = said(WaitReport(), range(150), elements)
    assert [second for second, _ in lines] == [45, 90, 135]
    assert "2 elements on n1, n2 run without finishing anything" in lines[0][1]


def test_elements_whose_nodes_are_switched_on() -> None:
    elements = waiting(Status(RUNNING, node="n4", starting=True), Status(RUNNING, node="n1"))
    ((_, line),) = said(WaitReport(), range(46), elements)
    assert line == (
        "nothing has moved for 45 s: 1 element on n4 waits for the cluster to switch on or prepare "
        "its node; 1 element on n1 runs without finishing anything"
    )


def test_elements_that_the_cluster_does_not_know_are_not_said_to_run() -> None:
    elements = waiting(Status(RUNNING, unknown=True), Status(RUNNING, unknown=True))
    lines = said(WaitReport(), range(60), elements)
    assert [second for second, _ in lines] == [10, 55]
    assert "2 elements of array 12 are not known to the cluster now" in lines[0][1]
    assert "without finishing" not in lines[0][1]


def test_why_nothing_is_submitted_is_said_where_nothing_waits() -> None:
    """A queue that is full of other jobs, or PAUSE: a step was silent until it had passed."""
    report = WaitReport()
    lines = [line for second in range(110) for line in report.look(second, [], 0, "the queue is full: QOS")]
    assert len(lines) == 3
    assert lines[0] == "nothing has moved for 10 s: the queue is full: QOS"
    assert not report.look(300, [], 0)


def test_what_is_held_is_said_at_once_and_then_with_the_rest() -> None:
    report = WaitReport()
    elements = waiting(Status(RUNNING, node="n1"), Status(PENDING, "JobHeldAdmin", held=True))
    lines = said(report, range(100), elements)
    assert lines[0] == (0, "element 1 is held (JobHeldAdmin): `scontrol release 12_1` lets it go on")
    assert [second for second, _ in lines] == [0, 45, 90]
    assert "`scontrol release 12_1`" in lines[1][1]
    released = waiting(Status(RUNNING, node="n1"), Status(RUNNING, node="n2"))
    assert not report.look(101, released, (0, 0))


@pytest.mark.parametrize(
    ("causes", "line"),
    [
        (["preempted on n2"], "element 0 was preempted on n2: the cluster starts it again by itself"),
        (
            ["lost with node n1"] * 2,
            "2 elements (0, 1) were lost with node n1: the cluster starts them again by itself",
        ),
    ],
)
def test_what_the_cluster_starts_again(causes: list[str], line: str) -> None:
    elements = waiting(*(Status(PENDING, "BeginTime", requeued=cause) for cause in causes))
    assert WaitReport().look(0, elements, 0) == [line]
