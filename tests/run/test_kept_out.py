"""A controller whose own job keeps its elements out ends with 3, and says so before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_cluster import DONE, Stage, good

from penstock.cluster.port import State, Status
from penstock.core.errors import PreflightError
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.jobs import array_supervision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WHY = "each node that elements may use now (n1) holds a controller's job: job 70"


class Waiting(Stage):
    """All elements wait in the queue for so many queries."""

    queries = 10**9
    asked = 0

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path, good([self]), keeps_out=WHY)
        answer = self.cluster.states

        def states(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
            self.asked += 1
            if self.asked <= self.queries:
                return dict.fromkeys(indices, Status(State.PENDING, "Resources"))
            return answer(array, indices)

        self.cluster.states = states  # type: ignore[method-assign]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Waiting:
    monkeypatch.setattr(kernel_facts, "_entered_job", [JobEnvironment(job="70", proven=True, node="n1")])
    monkeypatch.setattr(array_supervision, "ASKED", 0.02)
    monkeypatch.setattr(array_supervision, "BOUND", 0.2)
    return Waiting(tmp_path)


def test_it_ends_with_its_reason_and_leaves_the_array_in_the_queue(stage: Waiting) -> None:
    with pytest.raises(PreflightError, match="the controller's own job keeps its elements") as raised:
        stage.go([0, 1])
    assert raised.value.exit_code == 3
    assert raised.value.why == WHY
    assert any(f"elements cannot start: {WHY}" in text for text in stage.texts("note"))
    assert not stage.cluster.cancelled
    assert any("array 1 runs on" in text for text in stage.texts("warning"))


def test_what_passes_is_no_reason_to_end(stage: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_supervision, "BOUND", 3600.0)
    stage.queries = 100
    assert stage.go([0])[0].state is DONE


def test_outside_a_job_the_queue_is_waited_for(stage: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_facts, "_entered_job", [JobEnvironment(job="70", proven=False)])
    stage.queries = 200
    assert stage.go([0])[0].state is DONE
