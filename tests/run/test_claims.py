"""A claim belongs to a run: who may claim a dataset, and what a run that was overtaken may still do."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.in_process import InProcess
from tests.support.scripted_cluster import staged
from tests.support.staging_runs import tree
from tests.support.standing import begin
from tests.support.whole_way import content, go, texts

from penstock.cluster.port import State, Status
from penstock.core.errors import FailedError, LockedError, NewerFormatError
from penstock.dataset import dataset_lock, run_store
from penstock.dataset import holder as holders
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.host import waits as heartbeat
from penstock.jobs import array_orders, dataset_state
from penstock.jobs.array_runner import still_alive
from penstock.jobs.dataset_state import holding
from penstock.target import reveal, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


STANDING = True


def test_a_claim_rises_by_one_and_the_same_run_goes_on(context: Context, source: Path) -> None:
    layout = context.layout("data")
    assert dataset_lock.highest_claim(layout) is None
    first = begin(context, upto="plan")["run"]
    for number in (2, 3):
        assert go(context, upto="list")["run"] == first
        standing = dataset_lock.highest_claim(layout)
        assert standing is not None
        assert (standing.number, standing.run) == (number, first)
    tree(source, {"new": b"file"})
    second = go(context, upto="list")["run"]
    assert f"run {second} takes over from run {first}" in "\n".join(texts(context, "note"))
    for _ in range(12):
        go(context, upto="list")
    assert sorted(os.listdir(layout.claims)) == [f"{n:08d}.json" for n in range(9, 17)]


def test_one_of_two_that_claim_at_once_is_overtaken(context: Context) -> None:
    layout = context.layout("data")
    first = go(context, upto="list")["run"]
    above = dataset_lock.highest_claim(layout)
    dataset_lock.make_claim(layout, "0" * 16, above, "")
    with pytest.raises(LockedError, match=f"overtaken by run {'0' * 16}"):
        dataset_lock.make_claim(layout, first, above, "")
    with pytest.raises(LockedError, match=f"run {first} of dataset data was overtaken"):
        dataset_lock.check_claim(layout, first)
    # A claim that cannot be read overtakes too, and does not keep list from going on.
    (layout.claims / "00000003.json").write_bytes(b"")
    with pytest.raises(LockedError, match="overtaken by run that cannot be read"):
        dataset_lock.check_claim(layout, "0" * 16)
    assert go(context)["run"] == first


def test_a_claim_is_judged_by_its_file_not_by_an_old_listing_of_the_folder(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = context.layout("data")
    first = str(go(context, upto="list")["run"])
    above = dataset_lock.highest_claim(layout)
    dataset_lock.make_claim(layout, "0" * 16, above, "")
    monkeypatch.setattr(dataset_lock, "highest_claim", lambda _: above)
    with pytest.raises(LockedError, match=f"overtaken by run {'0' * 16}"):
        dataset_lock.make_claim(layout, first, above, "")


def test_a_late_line_of_the_history_has_the_claim_of_its_own_run(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overtaken between the last look and the line."""
    layout = context.layout("data")
    begin(context, upto="verify")
    look = context.assert_held

    def overtaken_after() -> None:
        look()
        if layout.current.exists():
            overtake(layout)

    monkeypatch.setattr(context, "assert_held", overtaken_after)
    go(context, after="verify")
    (told,) = layout.history.read_text().splitlines()
    assert json.loads(told)["claim"] == 1


def test_what_may_not_be_claimed_is_not_marked_as_replaced(context: Context, source: Path) -> None:
    layout = context.layout("data")
    begin(context)
    tree(source, {"new": b"file"})
    go(context, upto="list")
    controller(layout, f"{os.getppid()}.{holders.start_time(os.getppid())}")
    (source / "new").unlink()
    context.new_release = True
    with pytest.raises(LockedError, match="is being staged by run"):
        go(context, upto="list")
    assert not layout.replaced.exists()


def controller(layout: DatasetLayout, above: str, by: holders.Holder | None = None) -> None:
    """Let the claim that stands say that this workflow is above its list."""
    standing = dataset_lock.highest_claim(layout)
    assert standing is not None
    path = layout.claims / f"{standing.number:08d}.json"
    raw = json.loads(path.read_bytes())
    raw["controller"] = above
    if by is not None:
        raw["by"] = dataclasses.asdict(by)
    path.write_text(json.dumps(raw))


def test_a_living_controller_keeps_its_claim_from_other_runs(context: Context, source: Path) -> None:
    layout = context.layout("data")
    first = go(context, upto="list")["run"]
    tree(source, {"new": b"file"})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        controller(layout, f"{child.pid}.{holders.start_time(child.pid)}")
        with pytest.raises(LockedError) as caught:
            go(context, upto="list")
        assert f"is being staged by run {first}" in str(caught.value)
        assert f"process {child.pid}" in str(caught.value)
        assert os.listdir(layout.runs) == [first], "what was listed in vain is gone"
        # The controller's own next listing is no other's, and a published run is nobody's any more.
        context.controller = f"{child.pid}.{holders.start_time(child.pid)}"
        second = go(context)["run"]
        context.controller = ""
        tree(source, {"newer": b"file"})
        assert go(context, upto="list")["run"] not in (first, second)
        child.communicate(b"\n")


@pytest.mark.parametrize("name", ["run.json", "plan.json"])
def test_s36_the_run_of_a_newer_penstock_is_not_taken_over(context: Context, source: Path, name: str) -> None:
    layout = context.layout("data")
    first = begin(context, upto="plan")["run"]
    path = layout.run(first).folder / name
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"format": 99, "penstock": "9.9.0"}))
    tree(source, {"new": b"file"})
    with pytest.raises(NewerFormatError, match=r"use 9\.9\.0, which wrote it"):
        go(context, upto="list")
    assert os.listdir(layout.claims) == ["00000001.json"]


@pytest.mark.parametrize(
    ("ended", "cluster", "refused"),
    [(False, "alpha", True), (True, "alpha", False), (None, "alpha", False), (False, "beta", False)],
)
def test_a_controller_in_a_job_lives_as_its_own_cluster_says(
    context: Context, source: Path, ended: bool | None, cluster: str, refused: bool
) -> None:
    layout = context.layout("data")
    go(context, upto="list")
    away = dataclasses.replace(
        holders.this_process("", "list"), host="node17", boot="another", job="4711", cluster="alpha"
    )
    controller(layout, "17.1", away)
    tree(source, {"new": b"file"})

    class OfJobs(InProcess):
        def name(self) -> str:
            return cluster

        def holder_ended(self, job: str) -> bool | None:  # type: ignore[override]
            return ended

    context.cluster = OfJobs()
    if refused:
        with pytest.raises(LockedError, match="SLURM job 4711 of cluster alpha"):
            go(context, upto="list")
    else:
        go(context, upto="list")


class Slurm(InProcess):
    """A cluster `alpha` whose arrays are in the states that it is told."""

    kind = "slurm"

    def __init__(self, state: State, name: str = "alpha") -> None:
        super().__init__()
        self.state, self.asked, self.named = state, 0, name

    def name(self) -> str:
        return self.named

    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        self.asked += 1
        return {index: Status(self.state) for index in indices}


@pytest.mark.parametrize(
    ("state", "cluster", "words"),
    [
        (State.RUNNING, "alpha", "array 555 of copy has not ended"),
        (State.RUNNING, "beta", "may still run on cluster alpha"),
        (State.LOST, "beta", "may still run on cluster alpha"),
        (State.FAILED, "alpha", ""),
    ],
)
def test_nothing_of_another_run_is_taken_while_its_array_may_live(
    context: Context, source: Path, state: State, cluster: str, words: str
) -> None:
    """Also under a configured name, where plan would set aside the other run's state and staging (R9)."""
    context.config = replace(
        context.config,
        datasets={"data": replace(context.config.datasets["data"], release="v1")},
    )
    layout = context.layout("data")
    begin(context, upto="plan")
    folder = run_store.open_run(layout).folder
    book = ArrayBook(folder.arrays)
    book.intend("penstock-data-x-copy-1", "copy", "slurm", [0, 1], "alpha", workers=2, call="before")
    book.submitted("penstock-data-x-copy-1", "555")
    before = content(folder.folder)
    tree(source, {"new": b"file"})
    context.cluster = Slurm(state, cluster)
    if words:
        with pytest.raises(LockedError, match=words):
            go(context, upto="plan")
        assert content(folder.folder) == before
        # The same, where the claim is another's already: plan asks each run whose staging it would set aside.
        dataset_lock.make_claim(layout, "0" * 16, dataset_lock.highest_claim(layout), "")
        with pytest.raises(LockedError, match=words):
            go(context, upto="plan")
        assert content(folder.folder) == before
    else:
        go(context, upto="plan")
        assert (layout.releases / f".v1.{folder.folder.name}.staging").is_dir()


def overtake(layout: DatasetLayout) -> None:
    dataset_lock.make_claim(layout, "f" * 16, dataset_lock.highest_claim(layout), "")


@pytest.mark.parametrize("step", ["plan", "copy", "permissions", "verify", "publish"])
def test_every_step_of_a_run_that_was_overtaken_ends_with_7(context: Context, step: str) -> None:
    layout = context.layout("data")
    steps = ["list", "plan", "copy", "permissions", "verify", "publish"]
    begin(context, upto=steps[steps.index(step) - 1])
    overtake(layout)
    context.run = os.listdir(layout.runs)[0]
    with pytest.raises(LockedError, match=f"overtaken by run {'f' * 16}") as caught:
        go(context, upto=step, after=steps[steps.index(step) - 1])
    assert caught.value.exit_code == 7
    assert not layout.current.exists()
    assert not layout.history.exists()


@pytest.mark.parametrize("step", ["permissions", "verify"])
@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_a_step_that_is_overtaken_amid_its_work_ends_with_7(context: Context, step: str, ends: str) -> None:
    run = go(context, upto="list")["run"]

    def work() -> None:
        overtake(context.layout("data"))
        if ends == "with an error":
            raise FailedError("the staging is gone")

    with pytest.raises(LockedError, match=r"overtaken by run f+"), holding(context, "data", run, step):
        work()


@pytest.mark.parametrize("step", ["permissions", "verify"])
def test_a_step_of_a_run_that_was_overtaken_does_not_begin_its_work(context: Context, step: str) -> None:
    run = go(context, upto="list")["run"]
    overtake(context.layout("data"))
    with pytest.raises(LockedError, match=r"overtaken by run f+"), holding(context, "data", run, step):
        pytest.fail("its work began")


def test_a_run_whose_state_is_removed_by_whoever_overtook_it_says_so(context: Context) -> None:
    layout = context.layout("data")
    context.run = begin(context, upto="plan")["run"]
    overtake(layout)
    tree_removal.remove_tree(layout.run(context.run).folder)
    with pytest.raises(LockedError, match=f"overtaken by run {'f' * 16}"):
        go(context, upto="copy", after="plan")


@pytest.mark.parametrize(("rename", "shown"), [(1, False), (2, True)])
def test_overtaken_right_before_a_rename_readers_see_nothing_of_it(
    context: Context, rename: int, shown: bool
) -> None:
    """Before the first one, which reveals the release, and before the second, which moves `current`."""
    layout = context.layout("data")
    begin(context, upto="verify")
    info = run_store.open_run(layout).info
    looks: list[int] = []

    def at(number: int, then: Callable[[], None]) -> Callable[[], None]:
        def look() -> None:
            looks.append(1)
            if len(looks) == number:
                overtake(layout)
            then()

        return look

    # Looks of publish: before the manifests get their names, before each rename.
    original = context.assert_held
    context.assert_held = at(rename + 1, original)  # type: ignore[method-assign]
    with pytest.raises(LockedError, match="overtaken"):
        go(context, after="verify")
    assert layout.release(info.release).exists() is shown
    assert not layout.current.exists()
    assert not layout.history.exists()


def test_frozen_between_the_look_and_the_rename_current_is_not_moved(context: Context, source: Path) -> None:
    """The new link is there, the look was passed: then another run claims, publishes, and this one wakes."""
    layout = context.layout("data")
    first = begin(context)["release"]
    tree(source, {"new": b"file"})
    second = go(context)["release"]
    run = run_store.open_run(layout).info.run
    with pytest.raises(LockedError, match="overtaken"):
        reveal.point(layout, first, Frozen(layout, run))
    assert os.readlink(layout.current) == f"releases/{second}"
    assert [n for n in os.listdir(layout.folder) if n.startswith(".current")] == []


class Frozen:
    """The look of a run that is overtaken right after it."""

    def __init__(self, layout: DatasetLayout, run: str) -> None:
        self.layout, self.run, self.looks = layout, run, 0

    def __call__(self) -> None:
        self.looks += 1
        if self.looks == 1:
            overtake(self.layout)
        else:
            dataset_lock.check_claim(self.layout, self.run)


def test_what_slurm_cannot_have_forgotten_yet_is_not_lost(tmp_path: Path) -> None:
    """Within MinJobAge of its submission an array that nobody knows is another controller's (R10)."""
    stage = staged(tmp_path)
    book = ArrayBook(stage.run.arrays)
    book.intend("penstock-data-r-copy-1", "copy", "slurm", [0], "alpha", workers=1, call="before")
    book.submitted("penstock-data-r-copy-1", "777")
    stage.cluster.forgets = 300.0
    assert still_alive(stage.context, "data", stage.run, "copy") == ["777"]
    assert [one.array for one in book.open()] == ["777"]
    stage.cluster.forgets = 0.0
    assert still_alive(stage.context, "data", stage.run, "copy") == []
    assert book.open() == []


def test_cancel_ends_nothing_on_another_cluster(context: Context) -> None:
    begin(context, upto="plan")
    folder = run_store.open_run(context.layout("data")).folder
    book = ArrayBook(folder.arrays)
    book.intend("penstock-data-x-copy-1", "copy", "slurm", [0], "alpha", workers=1, call="before")
    book.submitted("penstock-data-x-copy-1", "777")
    context.cluster = cluster = Slurm(State.RUNNING, "beta")
    told = array_orders.cancel(context, "data")
    assert cluster.asked == 0
    assert "NOT array 777 of copy: it is on cluster alpha, and this is beta" in told[0]


@pytest.mark.parametrize(
    ("where", "moves", "lives"), [("dead", 1, 0), ("alive", 0, 1), ("away", 0, 0), ("away", 1, 1)]
)
def test_local_elements_of_a_controller_that_may_be_frozen(
    context: Context, monkeypatch: pytest.MonkeyPatch, where: str, moves: int, lives: int
) -> None:
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.3)
    monkeypatch.setattr(heartbeat, "HEARTBEAT", 0.02)
    go(context, upto="plan")
    layout = context.layout("data")
    folder = run_store.open_run(layout).folder
    me = holders.this_process("", "copy")
    by = {
        "dead": dataclasses.replace(me, pid=2**22 + 1),
        "alive": dataclasses.replace(me, pid=os.getppid(), start=holders.start_time(os.getppid()) or ""),
        "away": dataclasses.replace(me, host="node17", boot="another"),
    }[where]
    line = {
        "format": 1,
        "intent": "n",
        "step": "copy",
        "kind": "local",
        "indices": [0],
        "workers": 1,
        "by": dataclasses.asdict(by),
    }
    folder.arrays.write_text(json.dumps(line) + "\n")
    progress = folder.progress("copy", 0)
    progress.parent.mkdir(parents=True)
    progress.write_text("{}")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        threading.Event().wait(seconds)
        if moves and len(waits) == 3:
            progress.write_text('{"files": 1}')

    monkeypatch.setattr(context.stop, "wait", wait)
    if lives:
        with pytest.raises(LockedError, match="elements of copy may still run on"):
            dataset_state.arrays_of(context, "data", folder)
    else:
        assert dataset_state.arrays_of(context, "data", folder) == ""
    assert bool(waits) == (where == "away")
