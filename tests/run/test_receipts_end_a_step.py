"""A step whose receipts are all there ends, whatever the cluster says of its arrays, or does not say."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_cluster import DONE, LOST, RUNNING, Stage, good

from penstock.cluster.port import State, Status
from penstock.core.element_documents import SHARD_CLAIM, ShardClaim
from penstock.core.errors import FailedError, InterruptedRunError, TransientError
from penstock.dataset.context import Stop
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.host import waits
from penstock.jobs import array_runner, array_watch, element_outcomes
from penstock.jobs.array_runner import still_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


def how_of(status: Status) -> Callable[[int, int], Status]:
    return lambda *_: status


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Each element has its receipt at the first query, whatever is said of it."""
    monkeypatch.setattr(array_runner, "RECEIPT_GRACE", 0.2)
    made = Stage(tmp_path, how_of(Status(RUNNING)), queries_until_end=10**9)
    made.cluster.on_query = lambda: [made.receipt(index) for index in (0, 1)] and None  # type: ignore[func-returns-value]
    return made


def says(stage: Stage, status: Status | None) -> None:
    """The cluster, from now on, of all elements; None: it does not answer."""

    def states(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        stage.cluster.on_query()
        if array in stage.cluster.cancelled:
            return dict.fromkeys(indices, Status(State.CANCELLED, "CANCELLED"))
        if status is None:
            raise TransientError("squeue gave no answer within 120 s")
        return dict.fromkeys(indices, status)

    stage.cluster.states = states  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Status(RUNNING, completing=True), "the cluster still cleans up after its processes"),
        (None, "the cluster does not answer"),
    ],
)
def test_what_cannot_be_seen_to_end_is_not_waited_for(stage: Stage, status: Status | None, text: str) -> None:
    says(stage, status)
    stage.go([0, 1])
    assert f"all receipts are there: array 1 is not waited for ({text})" in stage.texts("note")
    assert not stage.cluster.cancelled
    assert ArrayBook(stage.run.arrays).open() == []
    assert still_alive(stage.context, "data", stage.run, "copy") == [], "the next step goes on"


def test_an_array_that_the_cluster_forgot_ends_with_its_receipts(stage: Stage) -> None:
    """slurmctld that lost its last seconds."""
    stage.cluster.forgets = 300.0
    says(stage, Status(LOST))
    begun = time.monotonic()
    stage.go([0, 1])
    assert time.monotonic() - begun < 5
    assert ArrayBook(stage.run.arrays).open() == []


@pytest.mark.parametrize("status", [Status(RUNNING), Status(State.PENDING, "BeginTime")])
def test_what_the_cluster_would_do_once_more_is_cancelled(stage: Stage, status: Status) -> None:
    """A requeue after the receipt: the step waited until the element had run again. What waits is cancelled
    at once, what runs once it had time to end."""
    says(stage, status)
    begun = time.monotonic()
    stage.go([0, 1])
    assert stage.cluster.cancelled == ["1"]
    if status.state is RUNNING:
        assert time.monotonic() - begun >= 0.2
        assert any("2 elements of array 1 did not end: cancelled" in text for text in stage.texts("note"))


def test_receipts_are_read_while_the_next_query_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A squeue of 5 s: the elements had ended after 13 s, and the step looked again after 100 s."""
    monkeypatch.setattr(array_runner, "BETWEEN", 0.05)
    box: list[Stage] = []
    box.append(stage := Stage(tmp_path, good(box), queries_until_end=2))
    stage.cluster.interval = lambda _: 60.0  # type: ignore[method-assign]
    timer = threading.Timer(0.3, stage.receipt, [0])
    timer.start()
    begun = time.monotonic()
    assert stage.go([0])[0].state is DONE
    timer.join()
    assert time.monotonic() - begun < 20


def test_a_slow_answer_and_none_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_watch, "SLOW", 0.0)
    monkeypatch.setattr(array_watch, "EVERY", 0.0)
    monkeypatch.setattr(array_watch, "SAID", 0.0)
    box: list[Stage] = []
    box.append(stage := Stage(tmp_path, good(box), silent=3))
    stage.go([0])
    first, *more = stage.texts("warning")
    assert first == "the cluster does not answer, asking on: slurmctld does not answer"
    assert len(more) == 2
    assert all(text.startswith("the cluster has not answered for ") for text in more)
    noted = stage.texts("note")
    assert "the cluster answers again" in noted
    assert any(text.startswith("the cluster answers slowly: the last query took ") for text in noted)


class Forgotten:
    """A cluster that lost an array while its workers work on: worker 0 moves the progress of shard 0, and is
    done with it at the 40th look."""

    def __init__(self, tmp_path: Path) -> None:
        box: list[Stage] = []
        box.append(stage := Stage(tmp_path, good(box), slot_count=1))
        self.stage, self.looks, self.dies = stage, 0, False
        stage.cluster.states = self.states  # type: ignore[method-assign]

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        stage = self.stage
        stage.cluster.on_query()
        if array != "1":
            return type(stage.cluster).states(stage.cluster, array, indices)
        self.looks += 1
        if self.looks == 1:
            claim = ShardClaim("1_0_0-a", stage.cluster.arrays["1"].name, 0, "before", "n0")
            path = stage.run.claim("copy", 0, 1)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(SHARD_CLAIM.to_json(claim)))
        if self.looks < 40:
            progress = stage.run.progress("copy", 0)
            progress.parent.mkdir(parents=True, exist_ok=True)
            progress.write_text(f'{{"files": {self.looks}}}')
            os.utime(progress, (self.looks, time.time() + self.looks / 10))
        elif not self.dies:
            stage.receipt(0)
        return dict.fromkeys(indices, Status(LOST))


def test_a_shard_whose_worker_is_at_work_goes_to_no_other(tmp_path: Path) -> None:
    """An array that was renamed, or lost by slurmctld: a worker that moves its progress file is at work,
    however long the cluster does not know it."""
    lost = Forgotten(tmp_path)
    lost.stage.go([0])
    assert lost.looks >= 40
    assert lost.stage.arrays() == [1]
    assert lost.stage.claim(0).worker == "1_0_0-a"


def test_a_later_controller_waits_for_it_too(tmp_path: Path) -> None:
    lost = Forgotten(tmp_path)
    lost.stage.submitted([0], 1)
    assert still_alive(lost.stage.context, "data", lost.stage.run, "copy") == ["1"]
    lost.stage.go([0])
    assert lost.looks >= 40
    assert lost.stage.arrays() == [1]
    assert lost.stage.claim(0).worker == "1_0_0-a"


def test_once_it_stands_still_another_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "PATIENCE", 0.5)
    lost = Forgotten(tmp_path)
    lost.dies = True
    lost.stage.go([0])
    assert lost.stage.arrays() == [1, 1]
    assert lost.stage.claim(0).number == 1


def test_after_six_hours_without_an_answer_a_step_ends_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known without a query, such as the most elements of an array, is no answer."""
    monkeypatch.setattr(array_watch, "SILENT", 0.3)
    monkeypatch.setattr(element_outcomes, "EVERY", 0.0)
    monkeypatch.setattr(element_outcomes, "FIRST", 0.0)
    stage = Stage(tmp_path, how_of(Status(State.FAILED)), silent=10**9)
    with pytest.raises(FailedError) as raised:
        stage.go([0, 1])
    assert str(raised.value).startswith("the cluster has not answered for ")
    assert raised.value.where == "data"
    assert "slurmctld does not answer" in raised.value.why
    assert not stage.texts("note"), "neither that it answers again, nor why elements would wait"


def test_an_answer_now_and_then_is_not_said_each_time(tmp_path: Path) -> None:
    box: list[Stage] = []
    box.append(stage := Stage(tmp_path, good(box), queries_until_end=20))
    answer, looks = stage.cluster.states, iter(range(10**6))

    def states(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        if next(looks) % 2:
            raise TransientError("squeue failed")
        return answer(array, indices)

    stage.cluster.states = states  # type: ignore[method-assign]
    stage.go([0])
    assert len(stage.texts("warning")) == stage.texts("note").count("the cluster answers again") == 1


@pytest.mark.parametrize("cut_off", [{0}, {0, 1}])
def test_what_an_answer_lacks_was_not_forgotten(tmp_path: Path, cut_off: set[int]) -> None:
    """Of an array that is older than the cluster's memory: elements that wait in its queue were submitted a
    second time."""
    box: list[Stage] = []
    box.append(stage := Stage(tmp_path, good(box), queries_until_end=8, forgets=30.0))
    answer, looks = stage.cluster.states, iter(range(10**6))

    def states(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        if (look := next(looks)) == 0:
            lines = [json.loads(line) for line in stage.run.arrays.read_text().splitlines()]
            old = [json.dumps({**line, "at": line["at"] - 86_400}) for line in lines]
            stage.run.arrays.write_text("\n".join(old) + "\n")
        shown = answer(array, indices)
        return {i: Status(LOST) if i in cut_off and look % 3 == 0 and look else s for i, s in shown.items()}

    stage.cluster.states = states  # type: ignore[method-assign]
    stage.cluster.on_query = stage_stops(stage)
    with pytest.raises(InterruptedRunError):
        stage.go([0, 1])
    stage.cluster.on_query = lambda: None
    stage.context.stop = Stop()
    stage.go([0, 1])
    assert list(stage.cluster.arrays) == ["1"]


def stage_stops(stage: Stage) -> Callable[[], None]:
    """A signal at the second query."""

    def stops() -> None:
        if stage.cluster.queries == 2:
            stage.context.stop.set(signal.SIGTERM)

    return stops
