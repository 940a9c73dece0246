"""What a step does while its arrays live: shards that go again, cancels, slots, what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_cluster import DONE, FAILED, LOST, RUNNING, Stage, good
from tests.support.staging_runs import events_of

from penstock.cluster.port import State, Status
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.errors import FailedError, InterruptedRunError, PreflightError, QueueFullError
from penstock.dataset import submitted_arrays
from penstock.dataset.submitted_arrays import ArrayBook

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cluster.port import ArraySpec

PROGRAM = "penstock --config my.yaml --backend slurm"


def stage(tmp_path: Path, how: Callable[[Stage, int, int], State], **cluster: object) -> Stage:
    box: list[Stage] = []
    box.append(Stage(tmp_path, lambda index, tries: how(box[0], index, tries), **cluster))
    box[0].context.program = PROGRAM
    box[0].context.layout("data").state.mkdir(parents=True)
    return box[0]


def first_fails(one: Stage, index: int, tries: int) -> State:
    if index == 0 and tries == 1:
        return FAILED
    one.receipt(index)
    return DONE


class TestGoingAgain:
    def test_what_a_worker_left_goes_again_while_others_run(self, tmp_path: Path) -> None:
        lasts = lambda index, tries: 2 if index == 0 and tries == 1 else 6 + 4 * index  # noqa: E731
        one = stage(tmp_path, first_fails, lasts=lasts, slot_count=4)
        alive: list[int] = []
        submit = one.cluster.submit

        def submitting(spec: object) -> str:
            alive.append(one.cluster.running())
            return submit(spec)  # type: ignore[arg-type]

        one.cluster.submit = submitting  # type: ignore[method-assign, assignment]
        one.go(range(8))
        assert one.arrays() == [4, 1]
        assert alive == [0, 3], "the second array went while the others of the first one ran"
        said = [(e.data["index"], e.data["state"]) for e in events_of(one.context) if e.kind == "element"]
        assert [state for number, state in said if number == 0] == ["running", "failed"]
        assert [state for number, state in said if number == 4] == ["running", "done"]
        assert ArrayBook(one.run.arrays).open() == []

    def test_all_arrays_of_a_step_keep_within_the_slots(self, tmp_path: Path) -> None:
        lasts = lambda index, tries: 2 if index == 0 and tries == 1 else 3 + 3 * index  # noqa: E731
        one = stage(tmp_path, first_fails, lasts=lasts, slot_count=2)
        running: list[int] = []
        one.cluster.on_query = lambda: running.append(one.cluster.running())
        one.go(range(6))
        assert max(running) == 2
        assert one.arrays() == [2, 1]
        assert one.cluster.tries == {0: 2, **dict.fromkeys(range(1, 6), 1)}

    @pytest.mark.parametrize(
        ("kinds", "text"),
        [
            ([FAILED], "1 element for 1 shard to be tried again"),
            ([LOST, LOST], "2 elements for 2 shards to be tried again"),
            ([FAILED, LOST], "2 elements for 2 shards to be tried again"),
        ],
    )
    def test_the_words(self, tmp_path: Path, kinds: list[State], text: str) -> None:
        def how(one: Stage, index: int, tries: int) -> State:
            if tries == 1:
                return kinds[index]
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how)
        one.go(range(len(kinds)))
        assert text in one.texts("note")


class TestMemory:
    """What is said of a worker that ran out of memory: how much it had, and which key to raise."""

    @pytest.mark.parametrize(
        ("asked", "of_copy", "told"),
        [
            (100 << 20, 100 << 20, "it had 100 MiB; raise cluster.memory"),
            (None, None, "it had what the cluster gives where nothing is asked for; set cluster.memory"),
            (100 << 20, 300 << 20, "it had 300 MiB; raise cluster.steps.copy.memory"),
        ],
    )
    def test_one_line_each(self, tmp_path: Path, asked: int | None, of_copy: int | None, told: str) -> None:
        one = stage(tmp_path, lambda *_: FAILED, reason="OUT_OF_MEMORY: OutOfMemory", out_of_memory=True)
        options = JobOptions(memory=asked)
        cluster = ClusterConfig(retries=1, options=options, steps={"copy": replace(options, memory=of_copy)})
        one.context.config = replace(one.context.config, cluster=cluster)
        with pytest.raises(FailedError) as failed:
            one.go([3])
        # Of the last try: its worker was the second one.
        line = f"shard 3 on n1: OUT_OF_MEMORY: {told}"
        assert str(failed.value).count("OUT_OF_MEMORY") == 1
        assert line in [text.strip() for text in str(failed.value).splitlines()]
        assert "its log" not in str(failed.value), "the line says all"
        assert "the same command goes on" in str(failed.value)

    def test_one_that_had_enough_the_second_time_is_done(self, tmp_path: Path) -> None:
        one = stage(tmp_path, first_fails, reason="OUT_OF_MEMORY", out_of_memory=True)
        assert [status.state for status in one.go([0]).values()] == [FAILED, DONE]


class TestTimeSlots:
    def test_a_tidy_stop_with_progress_uses_up_no_retry(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State:
            if tries < 6:
                one.outcome(index, exit_code=143, stopped="time", progress=True, retry=True)
                return FAILED
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, reason="exit 143", exit_code=143)
        one.retries(0)
        one.go([0])
        assert one.arrays() == [1] * 6
        assert one.claim(0).charged == 0

    def test_without_progress_it_is_a_failure_that_says_what_to_change(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, _: int) -> State:
            one.outcome(index, exit_code=143, stopped="time", progress=False, retry=True)
            return FAILED

        one = stage(tmp_path, how, reason="exit 143", exit_code=143)
        one.retries(1, time=None)
        with pytest.raises(FailedError) as failed:
            one.go([0])
        assert one.cluster.tries == {0: 2}
        assert "its time ended before it had finished anything" in str(failed.value)
        assert "cluster.time" in str(failed.value)


class TestCancel:
    def test_the_mark_of_cancel_stops_the_controller(self, tmp_path: Path) -> None:
        one = stage(tmp_path, first_fails, lasts=lambda _i, _t: 1000)
        queries = 0

        def cancelled_meanwhile() -> None:
            nonlocal queries
            queries += 1
            if queries == 3:
                submitted_arrays.order_cancel(one.context.layout("data"))

        one.cluster.on_query = cancelled_meanwhile
        with pytest.raises(FailedError) as failed:
            one.go([0, 1])
        assert failed.value.exit_code == 1
        assert str(failed.value).startswith("copy was cancelled [data]: by ")
        assert "the same command goes on" in str(failed.value)
        assert one.cluster.cancelled == ["1"]
        assert one.arrays() == [2], "nothing is submitted again"
        assert ArrayBook(one.run.arrays).open() == []
        assert not one.texts("warning"), "nothing runs on"

    def test_a_later_call_goes_on(self, tmp_path: Path) -> None:
        one = stage(tmp_path, first_fails)
        submitted_arrays.order_cancel(one.context.layout("data"))
        one.go([1])
        assert one.has(1)

    def test_later_steps_of_the_cancelled_workflow_do_not_begin(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(submitted_arrays.INVOCATION, "1")
        one = stage(tmp_path, first_fails)
        submitted_arrays.order_cancel(one.context.layout("data"))
        with pytest.raises(FailedError, match="copy was cancelled"):
            one.go([1])
        assert not one.cluster.arrays
        submitted_arrays.clear_cancel(one.context.layout("data"))
        one.go([1])

    def test_neither_does_one_without_elements(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one = stage(tmp_path, first_fails)
        layout = one.context.layout("data")
        submitted_arrays.order_cancel(layout)
        submitted_arrays.refuse_cancelled(layout, "publish")  # by hand: somebody asks for it now
        monkeypatch.setenv(submitted_arrays.INVOCATION, "1")
        submitted_arrays.refuse_cancelled(layout, "list")
        with pytest.raises(FailedError, match="publish was cancelled"):
            submitted_arrays.refuse_cancelled(layout, "publish")

    def test_no_other_takes_the_place_of_a_worker_that_a_person_cancelled(self, tmp_path: Path) -> None:
        """Its shard goes to those that are left."""

        def how(one: Stage, index: int, tries: int) -> State:
            if index == 1 and tries == 1:
                return State.CANCELLED
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, reason="CANCELLED", slot_count=2)
        one.retries(0)
        one.go(range(6))
        assert one.arrays() == [2]
        assert one.cluster.tries == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 5: 1}
        assert one.claim(1).charged == 0

    def test_where_a_person_cancelled_all_workers_none_is_submitted(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, _: int) -> State:
            if index in (0, 3):
                return State.CANCELLED
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, reason="CANCELLED", slot_count=2)
        with pytest.raises(FailedError) as failed:
            one.go(range(6))
        assert one.arrays() == [2]
        text = str(failed.value)
        assert text.startswith("copy: 2 elements were cancelled [data]\n")
        assert "scancel" in text
        assert "fail" not in text
        one.cluster.script = lambda index, _: one.receipt(index) or DONE
        one.go(range(6))
        assert one.arrays() == [2, 2], "a new command goes on"

    def test_nor_for_what_a_person_cancels_while_a_later_controller_watches(self, tmp_path: Path) -> None:
        """Worker 0 was cancelled before that controller began, worker 1 while it watches."""

        def how(one: Stage, index: int, tries: int) -> State:
            if tries == 1:
                return State.CANCELLED
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, reason="CANCELLED", lasts=lambda index, _: 1 if index == 0 else 4)
        one.cluster.on_query = lambda: one.context.stop.set(2)
        with pytest.raises(InterruptedRunError):
            one.go([0, 1])
        one.cluster.on_query = lambda: None
        one.context.stop.event.clear()
        with pytest.raises(FailedError, match="2 elements were cancelled"):
            one.go([0, 1])
        assert one.arrays() == [2]

    def test_met_again_and_left_are_said_with_the_command_as_it_was_called(self, tmp_path: Path) -> None:
        one = stage(tmp_path, first_fails, lasts=lambda _i, _t: 4)
        one.cluster.on_query = lambda: one.context.stop.set(2)
        with pytest.raises(BaseException, match="SIGINT"):
            one.go([1, 2])
        (left,) = one.texts("warning")
        assert f"`{PROGRAM} cancel data` ends it" in left
        one.context.stop.event.clear()
        one.cluster.on_query = lambda: None
        one.go([1, 2])
        assert any(
            t.startswith("array 1 of an earlier controller lives and is watched: 2 of 2 elements")
            for t in one.texts("note")
        )


def test_an_array_has_no_more_elements_than_the_cluster_takes_in_one(tmp_path: Path) -> None:
    """max_array_tasks: fewer than MaxArraySize has numbers."""
    box: list[Stage] = []
    box.append(Stage(tmp_path, good(box), slot_count=12, tasks=5, queries_until_end=8))
    box[0].go(range(12))
    assert box[0].arrays() == [5, 5, 2]


def test_a_stopped_worker_uses_no_retry_after_a_full_queue_either(tmp_path: Path) -> None:
    def how(one: Stage, index: int, tries: int) -> State:
        if tries < 3:
            one.outcome(index, exit_code=143, stopped="time", progress=True, retry=True)
            return FAILED
        one.receipt(index)
        return DONE

    one = stage(tmp_path, how)
    takes, refusals = one.cluster.submit, [True, True, False, True, False]

    def submit(spec: ArraySpec) -> str:
        if len(one.cluster.arrays) and refusals and refusals.pop():
            raise QueueFullError("SLURM takes no more jobs of this account now")
        return takes(spec)

    one.cluster.submit = submit  # type: ignore[method-assign]
    one.retries(0)
    one.go([0])
    assert one.arrays() == [1, 1, 1]
    assert one.claim(0).charged == 0


def test_a_full_queue_takes_less_later_while_what_lives_is_followed(tmp_path: Path) -> None:
    """Jobs of other runs wait in the queue, too, where this account may have so many in all."""
    box: list[Stage] = []
    box.append(Stage(tmp_path, good(box), slot_count=20, queries_until_end=8))
    cluster = box[0].cluster
    takes, others, sizes = cluster.submit, [5], list[int]()

    def submit(spec: ArraySpec) -> str:
        sizes.append(len(spec.indices))
        alive = sum(len(s.indices) - len(cluster.ended.get(a, {})) for a, s in cluster.arrays.items())
        if alive + others[0] + len(spec.indices) > 8:
            raise QueueFullError("SLURM takes no more jobs of this account now", where="MaxSubmit of a")
        return takes(spec)

    cluster.submit = submit  # type: ignore[method-assign]
    box[0].go(range(12))
    assert sizes[:3] == [12, 6, 3]
    assert cluster.tries == dict.fromkeys(range(12), 1)
    (told,) = {text for text in box[0].texts("warning") if "the queue is full, asking on" in text}
    assert told.endswith("SLURM takes no more jobs of this account now [MaxSubmit of a]")
    assert "the queue takes elements again" in box[0].texts("note")
    assert ArrayBook(box[0].run.arrays).open() == []


def test_elements_beyond_a_limit_of_each_job_end_the_step(tmp_path: Path) -> None:
    """They waited without end. The others of the array are left to a further controller."""
    stage = Stage(tmp_path, lambda *_: RUNNING, slot_count=3)
    beyond = Status(State.PENDING, "QOSMaxCpuPerJobLimit", beyond_limit=True)
    ended: list[tuple[str, list[int]]] = []
    stage.cluster.states = lambda _, indices: {i: beyond if i else Status(RUNNING) for i in indices}  # type: ignore[method-assign]
    stage.cluster.cancel = lambda array, indices: ended.append((array, list(indices)))  # type: ignore[method-assign]
    with pytest.raises(PreflightError) as raised:
        stage.go([0, 1, 2])
    assert raised.value.why == "QOSMaxCpuPerJobLimit; 2 elements of array 1 are cancelled"
    assert ended == [("1", [1, 2])]
