"""What may still live of another run: with clocks that differ, and clusters that do not answer."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from tests.support.abandoned import intend
from tests.support.in_process import InProcess
from tests.support.scripted_cluster import DONE, LOST, Stage, staged
from tests.support.staging_runs import events_of
from tests.support.whole_way import content, go

from penstock.cluster.port import State, Status
from penstock.core.errors import FailedError, LockedError, TransientError
from penstock.dataset import dataset_lock, run_store
from penstock.dataset import holder as holders
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.host import waits as heartbeat
from penstock.jobs import array_watch, dataset_state
from penstock.jobs.array_runner import still_alive
from penstock.jobs.array_watch import CLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.dataset.context import Context


def submitted(stage: Stage, ago: float) -> ArrayBook:
    """An array that this cluster does not know, noted as submitted so many seconds ago."""
    book = ArrayBook(stage.run.arrays)
    book.intend("penstock-data-r-copy-1", "copy", "slurm", [0], "alpha", workers=1, call="before")
    book.submitted("penstock-data-r-copy-1", "777")
    lines = [json.loads(line) for line in stage.run.arrays.read_text().splitlines()]
    stage.run.arrays.write_text("".join(json.dumps(x | {"at": x["at"] - ago}) + "\n" for x in lines))
    return book


@pytest.mark.parametrize(
    ("ago", "lives"),
    [(-CLOCKS, True), (0, True), (300 + CLOCKS / 2, True), (300 + CLOCKS + 60, False)],
)
def test_an_array_that_a_cluster_does_not_know_lives_while_clocks_may_differ(
    tmp_path: Path, ago: float, lives: bool
) -> None:
    stage = staged(tmp_path)
    stage.cluster.forgets = 300.0
    submitted(stage, ago)
    assert still_alive(stage.context, "data", stage.run, "copy") == (["777"] if lives else [])


def test_what_was_not_known_for_as_long_as_a_cluster_remembers_goes_again(tmp_path: Path) -> None:
    """However far ahead the clock was of who submitted it."""
    stage = staged(tmp_path)
    stage.cluster.forgets = 0.3
    book = submitted(stage, -3600)
    begun = time.monotonic()
    assert stage.go([0])[1].state is DONE
    assert time.monotonic() - begun >= 0.3
    assert book.open() == []
    assert LOST not in {status.state for status in stage.go([0]).values()}


def test_a_cluster_that_never_forgets_may_lose_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MinJobAge=0. An array that it does not know counts as alive, however old it is, but not for ever."""
    stage = staged(tmp_path)
    stage.cluster.forgets = math.inf
    submitted(stage, 86400.0)
    assert still_alive(stage.context, "data", stage.run, "copy") == ["777"]
    monkeypatch.setattr(array_watch, "DOUBT", 0.1)
    assert stage.go([0])[1].state is DONE


def test_local_elements_of_a_node_whose_clock_is_behind_are_watched(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files' times look an hour old, and they are at work."""
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.5)
    monkeypatch.setattr(heartbeat, "HEARTBEAT", 0.02)
    go(context, upto="plan")
    folder = run_store.open_run(context.layout("data")).folder
    by = replace(holders.this_process("", "copy"), host="node17", boot="another")
    line = {"format": 1, "intent": "n", "step": "copy", "kind": "local", "indices": [0], "workers": 1}
    folder.arrays.write_text(json.dumps(line | {"by": asdict(by)}) + "\n")
    progress = folder.progress("copy", 0)
    progress.parent.mkdir(parents=True)
    progress.write_text("{}")
    behind = time.time() - 3600
    os.utime(progress, (behind, behind))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        threading.Event().wait(seconds)
        if len(waits) == 3:
            progress.write_text('{"files": 1}')
            os.utime(progress, (behind + 10, behind + 10))

    monkeypatch.setattr(context.stop, "wait", wait)
    with pytest.raises(LockedError, match="elements of copy may still run on"):
        dataset_state.arrays_of(context, "data", folder)


class Slurm(InProcess):
    """A cluster whose array 7 is in the state that it is told; None: it does not answer."""

    kind = "slurm"

    def __init__(self, state: State | None) -> None:
        super().__init__()
        self.state = state

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        if array != "7":
            return super().states(array, indices)
        if self.state is None:
            raise TransientError("slurmctld does not answer")
        return dict.fromkeys(indices, Status(self.state))


def test_the_state_of_a_run_stays_while_its_elements_may_write_though_its_tree_is_gone(
    context: Context,
) -> None:
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    info, folder = run.info, run.folder
    context.cluster = Slurm(State.RUNNING)
    intend(ArrayBook(folder.arrays), context.cluster.kind)
    before = content(folder.folder)
    shutil.rmtree(context.layout("data").staging(info.release))
    with pytest.raises(FailedError, match="elements of it may still write") as told:
        go(context, upto="list")
    assert "is gone" in told.value.why
    assert content(folder.folder) == before
    context.cluster = Slurm(State.FAILED)
    go(context, upto="plan")
    context.cluster = InProcess()
    assert go(context, after="plan")["published"]


def test_a_scheduler_that_does_not_answer_holds_no_published_release_up(
    context: Context, source: Path
) -> None:
    go(context, upto="copy")
    run = run_store.open_run(context.layout("data"))
    first, folder = run.info, run.folder
    (source / "new").write_bytes(b"new")
    go(context, upto="verify")
    context.cluster = Slurm(None)
    intend(ArrayBook(folder.arrays), context.cluster.kind)
    assert go(context, after="verify")["published"]
    told = [str(e.data["text"]) for e in events_of(context) if e.kind == "warning"]
    assert any("stays" in text and "does not answer" in text for text in told)
    assert context.layout("data").staging(first.release).is_dir()


def test_claims_that_were_removed_by_hand_go_on_above_what_was_published(
    context: Context, source: Path
) -> None:
    layout = context.layout("data")
    for _ in range(3):
        go(context, upto="list")
    assert go(context)["published"]
    before = dataset_lock.claim_number(layout)
    shutil.rmtree(layout.claims)
    (source / "new").write_bytes(b"new")
    go(context, upto="list")
    assert dataset_lock.claim_number(layout) == before + 1
    assert go(context)["moved"]


@pytest.mark.parametrize("damage", ["no dataset", "no sources"])
def test_a_damaged_description_of_another_run_stops_no_plan(
    context: Context, source: Path, damage: str
) -> None:
    go(context, upto="copy")
    folder = run_store.open_run(context.layout("data")).folder
    raw = json.loads(folder.run_file.read_text())
    if damage == "no dataset":
        del raw["config"]["dataset"]
    else:
        raw["config"]["dataset"]["sources"] = None
    folder.run_file.write_text(json.dumps(raw))
    (source / "new").write_bytes(b"new")
    assert go(context, upto="plan")["taken"] == 0
    assert go(context, after="plan")["published"]
