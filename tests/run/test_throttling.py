"""How many workers run at once, where a person changes it while they run: `limit DATASET --nodes N`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.scripted_cluster import DONE, FAILED, Stage
from tests.support.staging_runs import tree

from penstock.cli.main import main
from penstock.core.layout import DatasetLayout, RunLayout
from penstock.dataset import submitted_arrays
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs.array_supervision import read_slots, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.cluster.port import State


@pytest.mark.parametrize(
    ("alive", "running", "most", "then"),
    [
        ([100], [4], 2, [2]),
        ([100], [4], 8, [8]),
        ([5], [4], 8, [8]),
        ([100, 1], [3, 0], 8, [7, 1]),
        ([2, 100], [1, 3], 8, [2, 6]),
        ([100, 100], [3, 5], 8, [3, 5]),
        ([100, 100], [3, 5], 4, [2, 2]),
        ([9, 9, 9], [0, 0, 0], 1, [1, 1, 1]),
        ([9, 9], [2, 0], -3, [1, 1]),
        ([], [], 3, []),
    ],
)
def test_the_shares_of_several_arrays(
    alive: Sequence[int], running: Sequence[int], most: int, then: list[int]
) -> None:
    assert shares(alive, running, most) == then


# The controller ----------------------------------------------------------------------------


def stage(tmp_path: Path, how: Callable[[Stage, int, int], State], **cluster: object) -> Stage:
    box: list[Stage] = []
    box.append(Stage(tmp_path, lambda index, tries: how(box[0], index, tries), **cluster))
    box[0].context.layout("data").state.mkdir(parents=True)
    return box[0]


def done(one: Stage, index: int, _: int) -> State:
    one.receipt(index)
    return DONE


def first_fails(one: Stage, index: int, tries: int) -> State:
    return FAILED if index == 0 and tries == 1 else done(one, index, tries)


def after(one: Stage, queries: int, at_once: int) -> None:
    """A person throttles the run once the cluster was asked so often."""
    asked = 0

    def look() -> None:
        nonlocal asked
        asked += 1
        if asked == queries:
            submitted_arrays.order_throttle(one.run, at_once)

    one.cluster.on_query = look


class OpsHold:
    """Keeps for how many processes a share of target.ops is asked for."""

    holder = "0123456789abcdef"

    def __init__(self) -> None:
        self.processes: list[int] = []

    def begin(self, processes: int, *_: object, **__: object) -> None:
        self.processes.append(processes)


@pytest.mark.parametrize(("said", "shared"), [(1, [2, 1]), (4, [2, 4, 1])])
def test_a_living_array_gets_what_a_person_said(tmp_path: Path, said: int, shared: list[int]) -> None:
    one = stage(tmp_path, done, lasts=lambda index, _: 4 + 2 * index, slot_count=2)
    after(one, 2, said)
    one.context.ops_hold = hold = cast("Any", OpsHold())
    one.go(range(6))
    assert hold.processes == shared, "the share grows before more workers run"
    assert any(f"at most {said} element" in text for text in one.texts("note"))


def watched(one: Stage) -> list[int]:
    """How many workers run at each query from now on; what was to be done at a query is done first."""
    running: list[int] = []
    before = one.cluster.on_query

    def look() -> None:
        before()
        running.append(one.cluster.running())

    one.cluster.on_query = look
    return running


def test_a_higher_number_is_a_further_array(tmp_path: Path) -> None:
    one = stage(tmp_path, done, queries_until_end=4, slot_count=2)
    after(one, 3, 5)
    running = watched(one)
    one.go(range(30))
    assert one.arrays() == [2, 3]
    assert max(running) == 5
    assert one.cluster.tries == dict.fromkeys(range(30), 1)


def test_of_a_lower_number_the_highest_end_between_two_shards(tmp_path: Path) -> None:
    one = stage(tmp_path, done, queries_until_end=4, slot_count=5)
    after(one, 6, 2)
    running = watched(one)
    statuses = one.go(range(30))
    assert one.arrays() == [5]
    assert set(running[12:-2]) == {2}, running
    assert {status.state for status in statuses.values()} == {DONE}, "none is cancelled"
    assert not one.cluster.cancelled
    assert {one.claim(index).number for index in range(30) if index not in range(12)} >= {0, 1}
    assert one.cluster.tries == dict.fromkeys(range(30), 1), "no shard is given up for it"


def test_down_and_up_again(tmp_path: Path) -> None:
    """The numbers of workers that were let go are not used again."""
    one = stage(tmp_path, done, queries_until_end=4, slot_count=4)
    asked = 0

    def look() -> None:
        nonlocal asked
        asked += 1
        if asked in (4, 30):
            submitted_arrays.order_throttle(one.run, 1 if asked == 4 else 3)

    one.cluster.on_query = look
    running = watched(one)
    one.go(range(40))
    assert running[20] == 1
    assert max(running[32:]) == 3
    assert one.arrays() == [4, 2]
    assert one.cluster.arrays["2"].base == 4


def test_with_a_lower_number_not_all_that_end_are_replaced(tmp_path: Path) -> None:
    one = stage(tmp_path, first_fails, lasts=lambda index, _: 4 if index == 0 else 8, slot_count=5)
    after(one, 2, 2)
    running = watched(one)
    one.go(range(20))
    assert max(running[12:]) == 2, running
    assert len(one.arrays()) <= 2


def test_workers_that_wait_start_where_others_end(tmp_path: Path) -> None:
    """A cluster that starts an array's elements one by one."""
    one = stage(tmp_path, done, slot_count=4, lasts=lambda index, _: 3 + index % 7)
    array = one.submitted(range(40), 4, at_once=1)
    running = watched(one)
    one.go(range(40))
    assert array.at_once == 1
    assert one.cluster.throttles[0] == ("1", 4), "an array of an earlier controller gets all slots"
    assert max(running) == 4


def test_it_holds_in_further_arrays(tmp_path: Path) -> None:
    one = stage(tmp_path, first_fails, lasts=lambda index, _: 3 + 3 * index, slot_count=4)
    submitted_arrays.order_throttle(one.run, 2)
    one.go(range(6))
    assert [spec.at_once for spec in one.cluster.arrays.values()] == [2, 1]


def test_a_later_controller_keeps_to_it(tmp_path: Path) -> None:
    """It was said while no controller was at work: more run than may."""
    one = stage(tmp_path, done, queries_until_end=4, slot_count=4)
    one.submitted(range(20), 4)
    submitted_arrays.order_throttle(one.run, 3)
    running = watched(one)
    one.go(range(20))
    assert max(running[12:]) == 3, running
    assert one.arrays() == [4]


def test_back_to_what_the_configuration_says(tmp_path: Path) -> None:
    one = stage(tmp_path, done, lasts=lambda index, _: 6 + 2 * index, slot_count=3)
    submitted_arrays.order_throttle(one.run, 1)
    after(one, 3, 0)
    one.go(range(6))
    assert one.arrays() == [1, 2]


def test_an_audit_is_never_raised_above_the_configuration(tmp_path: Path) -> None:
    one = stage(tmp_path, done, slot_count=3)
    assert read_slots(one.context, one.run, "audit") == 3
    submitted_arrays.order_throttle(one.run, 9)
    assert [read_slots(one.context, one.run, step) for step in ("audit", "copy")] == [3, 9]
    submitted_arrays.order_throttle(one.run, 2)
    assert [read_slots(one.context, one.run, step) for step in ("audit", "copy")] == [2, 2]


def test_a_mark_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    run = RunLayout(tmp_path)
    assert submitted_arrays.read_throttle(run).at_once == 0
    run.throttle.write_text("{")
    assert submitted_arrays.read_throttle(run).at_once == 0


# The command -------------------------------------------------------------------------------

SQUEUE = """\
#!/bin/sh
echo "8|0|RUNNING|0:0|0|N/A|1795263274|NONE|n2|None|"
echo "8|1|PENDING|0:0|0|N/A|N/A|N/A||JobArrayTaskLimit|"
"""
SCONTROL = """\
#!/bin/sh
echo "$*" >> @LOG@
"""


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetLayout:
    """A dataset with an array that runs; `local` is configured, with four elements at once."""
    tree(tmp_path / "source", {"a": b"1"})
    document = {
        "target": {"root": "target"},
        "datasets": {"d": {"source": str(tmp_path / "source")}},
        "cluster": {"max_elements": 4},
    }
    (tmp_path / "my.yaml").write_text(json.dumps(document))
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, text in (("squeue", SQUEUE), ("scontrol", SCONTROL.replace("@LOG@", str(tmp_path / "told")))):
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return DatasetLayout(tmp_path / "target", "d")


def running(layout: DatasetLayout, step: str = "copy") -> RunLayout:
    run = layout.run("0123456789abcdef")
    run.folder.mkdir(parents=True)
    layout.state_marker.write_text('{"format": 1, "penstock": "1.0.0"}')
    book = ArrayBook(run.arrays)
    book.intend("name-8", step, "slurm", [0, 1], workers=2, call="before")
    book.submitted("name-8", "8")
    return run


def throttle(*words: str) -> int:
    return main(["--config", "my.yaml", "limit", words[0], "--nodes", *words[1:]])


def test_a_lower_number_is_told_to_the_cluster_at_once(
    layout: DatasetLayout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = running(layout)
    assert throttle("d", "2") == 0
    assert (tmp_path / "told").read_text() == "update JobId=8 ArrayTaskThrottle=2\n"
    assert submitted_arrays.read_throttle(run).at_once == 2
    said = capsys.readouterr().out
    assert "array 8 of copy: no more than 2 at once" in said
    assert "no controller is at work: the next `penstock run` keeps to it" in said


@pytest.mark.parametrize("words", ["8", "auto"])
def test_a_higher_number_is_the_controllers(layout: DatasetLayout, tmp_path: Path, words: str) -> None:
    run = running(layout)
    assert throttle("d", words) == 0
    assert not (tmp_path / "told").exists()
    assert submitted_arrays.read_throttle(run).at_once == (8 if words == "8" else 0)


def test_nothing_is_under_way(layout: DatasetLayout, capsys: pytest.CaptureFixture[str]) -> None:
    assert throttle("d", "2") == 1
    assert "nothing is under way" in capsys.readouterr().err


def test_a_step_on_a_node_is_one_element_anyway(layout: DatasetLayout) -> None:
    running(layout, "plan")
    assert throttle("d", "2") == 1


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", ""])
def test_what_is_no_number(layout: DatasetLayout, number: str) -> None:
    assert throttle("d", number) == 2
