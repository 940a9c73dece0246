"""Submissions whose outcome nobody knows: no worker is in two arrays, and none is left to itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.scripted_cluster import ScriptedCluster, Stage, good

from penstock.core.errors import FailedError, TransientError
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs import array_orders
from penstock.jobs.array_runner import still_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec


@dataclass
class Late(ScriptedCluster):
    """Its first submissions have no answer, and are carried out at the `appears`-th `find`, if ever."""

    unanswered: int = 0
    appears: int = 0
    queued_spec: list[ArraySpec] = field(default_factory=list)
    refuses: bool = False
    on_find: Callable[[], object] = lambda: None

    def submit(self, spec: ArraySpec) -> str:
        if self.refuses:
            raise FailedError("SLURM refuses")
        if self.unanswered:
            self.unanswered -= 1
            self.queued_spec.append(spec)
            raise TransientError("Socket timed out on send/recv operation")
        return super().submit(spec)

    def find(self, name: str) -> Sequence[str]:
        if self.queued_spec and self.finds + 1 == self.appears:
            self.arrays[str(len(self.arrays) + 1)] = self.queued_spec.pop()
        self.on_find()
        return super().find(name)


def stage(tmp_path: Path, **cluster: Any) -> tuple[Stage, Late]:
    box: list[Stage] = []
    box.append(Stage(tmp_path, good(box)))
    late = Late(box[0].cluster.script, **cluster)
    box[0].cluster = box[0].context.cluster = late
    return box[0], late


def killed(one: Stage, late: Late, ago: float = 0.0) -> str:
    """A controller was killed while it submitted an array."""
    spec = one.submitted([0, 1], 2, noted=False)
    if ago:
        line = json.loads(one.run.arrays.read_text())
        one.run.arrays.write_text(json.dumps(line | {"at": line["at"] - ago}) + "\n")
    late.queued_spec.append(spec)
    return spec.name


def test_what_a_killed_controller_submitted_is_waited_for(tmp_path: Path) -> None:
    one, late = stage(tmp_path, late=10.0, appears=4)
    name = killed(one, late)
    one.go([0, 1])
    assert [spec.name for spec in late.arrays.values()] == [name], "it was not submitted a second time"
    assert late.recalled == {"1": (name, None)}
    assert "may yet appear" in "".join(one.texts("warning"))


def test_what_never_appears_is_submitted_anew_when_it_can_appear_no_more(tmp_path: Path) -> None:
    one, late = stage(tmp_path, late=100.0)
    name = killed(one, late)
    with pytest.raises(TransientError, match="may yet appear"):
        still_alive_at_once(one)
    late.late = 0.1
    one.go([0, 1])
    assert [spec.name == name for spec in late.arrays.values()] == [False]
    assert late.finds > 1
    one, late = stage(tmp_path / "old", late=100.0)
    killed(one, late, ago=301.0)
    one.go([0, 1])
    assert (len(late.arrays), late.finds) == (1, 1), "long ago"


def still_alive_at_once(one: Stage) -> list[str]:
    return still_alive(one.context, "data", one.run, "copy", patient=False)


def test_a_submission_without_an_answer_is_not_repeated_while_it_may_be_carried_out(tmp_path: Path) -> None:
    one, late = stage(tmp_path, late=10.0, unanswered=1, appears=3)
    one.go([0, 1])
    assert (len(late.arrays), late.finds >= 3) == (1, True)
    assert late.cancelled == []
    one, late = stage(tmp_path / "never", late=0.5, unanswered=1)
    one.go([0, 1])
    assert len(late.arrays) == 1
    assert late.finds > 1
    intents = [line for line in map(json.loads, one.run.arrays.read_text().splitlines()) if "intent" in line]
    assert len(intents) == 2, "a controller that is killed now counts from the second try"
    assert intents[0]["at"] < intents[1]["at"]
    assert len(ArrayBook(one.run.arrays).all()) == 1


def test_an_array_that_has_ended_before_it_is_found_is_not_submitted_again(tmp_path: Path) -> None:
    """A machine that is busy looks seconds after the answer was lost: an element may be done by then."""
    one, late = stage(tmp_path, late=10.0, unanswered=1, appears=2, queries_until_end=1)
    late.on_find = lambda: [late.states(array, [0, 1]) for array in late.arrays]
    one.go([0, 1])
    assert len(late.arrays) == 1
    assert one.run.arrays.read_text().count('"intent"') == 1


def test_of_two_arrays_of_one_name_one_stays(tmp_path: Path) -> None:
    """The first request is carried out after the second one."""
    one, late = stage(tmp_path, late=0.05, unanswered=1, queries_until_end=6)

    def carried_out() -> None:
        if late.queued_spec:
            late.arrays["2"] = late.queued_spec.pop()

    late.on_query = carried_out
    one.go([0, 1])
    assert late.cancelled == ["2"]
    (text,) = [text for text in one.texts("warning") if "is cancelled" in text]
    assert text.startswith("array 2 has the elements of array 1: ")


def test_the_oldest_stays_of_two_that_are_found(tmp_path: Path) -> None:
    one, late = stage(tmp_path, late=10.0)
    killed(one, late)
    late.arrays = {"1": late.queued_spec[0], "2": late.queued_spec.pop()}
    one.go([0, 1])
    assert late.cancelled == ["2"]


def test_a_refused_submission_is_not_waited_for(tmp_path: Path) -> None:
    one, _ = stage(tmp_path, late=100.0, refuses=True)
    with pytest.raises(FailedError, match="SLURM refuses"):
        one.go([0])
    assert ArrayBook(one.run.arrays).open() == []


def test_cancel_says_what_the_cluster_may_yet_take(tmp_path: Path) -> None:
    one, _ = stage(tmp_path, late=10.0)
    layout = one.context.layout("data")
    folder = layout.run("0123456789abcdef").folder
    folder.mkdir(parents=True)
    layout.state_marker.write_text('{"format": 1, "penstock": "1.0.0"}')
    ArrayBook(folder / "arrays.jsonl").intend(
        "a-name", "copy", "slurm", [0], "alpha", workers=1, call="before"
    )
    (told,) = array_orders.cancel(one.context, "data")
    assert told.startswith("NOT an array of copy that the cluster may yet take")
    assert "give the same command again in" in told
