"""Queue wait, whole nodes, totals and worst elements: a test for each row of the tables."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from penstock.core.element_documents import (
    ElementRow,
    Wait,
    by_step,
    queue_wait,
    spans,
    whole_node,
    worst,
)


@dataclass(frozen=True)
class Known:
    booked: float | None = None
    submitted: float = 0.0
    seen: float = 0.0
    began: float = 0.0
    ran_before: float = 0.0


@pytest.mark.parametrize(
    ("known", "wait"),
    [
        (Known(booked=7.0, submitted=100.0, seen=150.0, began=151.0), Wait(7.0, "slurmdbd")),
        (Known(booked=0.0), Wait(0.0, "slurmdbd")),
        (Known(submitted=100.0, seen=150.0, began=151.0), Wait(50.0, "controller")),
        (Known(submitted=100.0, seen=150.0, began=151.0, ran_before=30.0), Wait(20.0, "controller")),
        (Known(submitted=100.0, began=151.0), Wait(51.0, "element")),
        (Known(submitted=100.0, began=151.0, ran_before=11.0), Wait(40.0, "element")),
        (Known(submitted=100.0, began=99.0), Wait(0.0, "element")),  # the node's clock is behind
        (Known(submitted=100.0), Wait()),
        (Known(began=151.0, seen=150.0), Wait()),
    ],
)
def test_queue_wait(known: Known, wait: Wait) -> None:
    assert (
        queue_wait(
            booked=known.booked,
            submitted=known.submitted,
            start_time=known.seen,
            began=known.began,
            ran_before=known.ran_before,
        )
        == wait
    )


@pytest.mark.parametrize(
    ("nodes", "asked", "cpus", "has", "whole"),
    [
        (False, True, 8, 8, False),
        (True, True, 6, 8, True),
        (True, False, 8, 8, True),
        (True, False, 4, 8, False),
        (True, False, 4, 0, False),
        (True, None, 8, 8, True),
        (True, None, 4, 8, None),
        (True, None, 4, 0, None),
    ],
)
def test_whole_nodes(nodes: bool, asked: bool | None, cpus: int, has: int, whole: bool | None) -> None:
    assert whole_node(asked, cpus, has, nodes=nodes) is whole


def row(step: str, element: int, **more: object) -> ElementRow:
    return ElementRow(step, element)._replace(**more)


def test_totals_are_by_step_and_of_all() -> None:
    rows = [
        row("copy", 0, queue_wait=2.0, seconds=3600.0, node_hours=1.0, core_hours=8.0, cpu_seconds=7200.0,
            cpu_efficiency=0.25, granted_seconds=28_800.0, memory_peak=5),
        row("copy", 1, queue_wait=10.0, seconds=1800.0, core_hours=4.0, cpu_seconds=7200.0,
            cpu_efficiency=0.5, granted_seconds=14_400.0, memory_peak=9),
        row("verify", 0, seconds=60.0),
    ]  # fmt: skip
    copy, verify, both = by_step(rows)
    assert (copy.step, copy.elements, copy.node_hours, copy.core_hours) == ("copy", 2, 1.0, 12.0)
    # 14,400 s used of 28,800 and 14,400 s that were granted.
    assert copy.cpu_efficiency == pytest.approx(14_400 / 43_200)
    assert (copy.memory_peak, copy.wait_median, copy.wait_longest) == (9, 6.0, 10.0)
    assert (verify.node_hours, verify.cpu_efficiency, verify.wait_median) == (None, None, None)
    assert (both.step, both.elements, both.run_median, both.run_longest) == ("", 3, 1800.0, 3600.0)
    assert [line.step for line in by_step(rows[:2])] == ["copy"]
    assert by_step([]) == []


def test_an_element_that_only_waited_for_its_share_lowers_the_efficiency_of_its_step() -> None:
    rows = [
        row("copy", 0, cpu_seconds=1800.0 * 64, granted_seconds=3600.0 * 64, cpu_efficiency=0.5),
        row("copy", 1, cpu_seconds=40.0, granted_seconds=4 * 3600.0 * 64, cpu_efficiency=0.0),
    ]
    assert by_step(rows)[0].cpu_efficiency == pytest.approx((1800 * 64 + 40) / (5 * 3600 * 64))


def test_spans_are_of_elements_whose_wait_is_known() -> None:
    rows = [
        row("copy", 0, queue_wait=5.0, started=20.0, ended=30.0),
        row("copy", 1, queue_wait=2.0, started=10.0, ended=30.0),
        row("copy", 2, started=10.0, ended=30.0),
        row("copy", 3, queue_wait=2.0, started=10.0),
    ]
    assert spans(rows) == [(8.0, 10.0, 30.0), (15.0, 20.0, 30.0)]


def test_the_worst_elements_are_named() -> None:
    rows = [
        row("copy", 0, node="n1", queue_wait=1.0, seconds=50.0, memory_peak=5, cpu_efficiency=0.9),
        row("copy", 1, node="n2", queue_wait=9.0, seconds=20.0, memory_peak=7, cpu_efficiency=0.3),
        row("verify", 0, node="n3", seconds=2.0, cpu_efficiency=0.01),  # too short to say anything
    ]
    assert [(one.column, one.step, one.element, one.value) for one in worst(rows)] == [
        ("queue_wait", "copy", 1, 9.0),
        ("seconds", "copy", 0, 50.0),
        ("memory_peak", "copy", 1, 7),
        ("cpu_efficiency", "copy", 1, 0.3),
    ]
    assert worst(rows[:1]) == []
    assert worst([row("copy", 0), row("copy", 1)]) == []
