from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.one_shard import write_receipt
from tests.support.scripted_cluster import DONE, FAILED, LOST, RUNNING, Stage, staged
from tests.support.staging_runs import events_of

from penstock.cluster.port import State, Status
from penstock.core.element_documents import ElementReceipt
from penstock.core.errors import (
    FailedError,
    InterruptedRunError,
    LockedError,
    NoSpaceError,
    SourceChangedError,
)
from penstock.core.run_steps import Progressed
from penstock.dataset.receipts import Reporter
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.fs.capabilities import facts
from penstock.host import interpreter
from penstock.jobs import shard_claims, worker_ends
from penstock.jobs.array_runner import ARRAYS, still_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec


def scripted(tmp_path: Path, how: Callable[[Stage, int, int], State | Status], **cluster: object) -> Stage:
    box: list[Stage] = []
    box.append(Stage(tmp_path, lambda index, tries: how(box[0], index, tries), **cluster))
    return box[0]


def generations(stage: Stage) -> Mapping[int, int]:
    return shard_claims.standing(stage.run, "copy")


def test_only_shards_without_a_receipt_are_done(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.receipt(1)
    stage.go([0, 1, 2])
    assert stage.arrays() == [2]
    assert stage.cluster.tries == {0: 1, 2: 1}
    (line,) = ArrayBook(stage.run.arrays).all()
    assert (line.indices, line.workers) == ((0, 2), 2)
    stage.go([0, 1, 2])
    assert stage.arrays() == [2]
    assert ArrayBook(stage.run.arrays).open() == []


def test_a_workers_command_names_the_runs_folder_and_the_configured_root(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    target = stage.context.config.target
    stage.go([0])
    spec = stage.cluster.arrays["1"]
    command = list(spec.command)
    assert command[0].startswith("/")
    assert command[: command.index("element")] == interpreter.command("penstock")
    assert command[command.index("element") :] == [
        "element", "--run", str(stage.run.folder),
        "--root", str(stage.context.config.target.root), "--step", "copy", "--retries", "2",
        "--keep-free", str(target.kept(facts(target.root).total_bytes)), "--read-back",
        "--array", spec.name,
    ]  # fmt: skip


def test_copy_reports_what_its_workers_read_back(tmp_path: Path) -> None:
    """Of shards that are copied: of those read back by their receipts, of others as far as they are."""

    def how(stage: Stage, index: int, _: int) -> State:
        stage.receipt(index)
        if index == 0:
            write_receipt(stage.run, ElementReceipt("verify", 0, files=1, bytes=10))
        elif index == 1:
            reading = stage.run.progress("verify", 1)
            reading.parent.mkdir(parents=True, exist_ok=True)
            Reporter(reading, every=0.0)(0, 4, 0)
        return DONE

    stage = scripted(tmp_path, how, slot_count=1)
    write_receipt(stage.run, ElementReceipt("verify", 2, files=1, bytes=10))  # of an earlier copy
    stage.go([0, 1, 2, 3])
    told = [event.read_back_bytes for event in events_of(stage.context) if isinstance(event, Progressed)]
    assert told == sorted(told, key=lambda size: size or 0)
    assert set(told) <= {0, 10, 14, 24}
    assert told[-1] == 24


@pytest.mark.parametrize(("shards", "slots", "workers"), [(7, 3, 3), (2, 5, 2), (1, 1, 1)])
def test_shards_are_divided_over_the_workers_that_may_live(
    tmp_path: Path, shards: int, slots: int, workers: int
) -> None:
    stage = staged(tmp_path, slot_count=slots)
    statuses = stage.go(range(shards))
    assert stage.arrays() == [workers]
    assert stage.cluster.tries == dict.fromkeys(range(shards), 1)
    assert {stage.claim(index).number for index in range(shards)} == set(range(workers))
    assert {number: status.state for number, status in statuses.items()} == dict.fromkeys(
        range(workers), DONE
    )


def test_a_slow_worker_holds_up_its_own_shard_alone(tmp_path: Path) -> None:
    stage = staged(tmp_path, lasts=lambda index, _: 12 if index == 0 else 2, slot_count=2)
    stage.go(range(10))
    assert [stage.claim(index).number for index in range(10)] == [0, *[1] * 9]


def test_a_failed_shard_is_tried_again_by_the_workers_that_live(tmp_path: Path) -> None:
    def how(stage: Stage, index: int, tries: int) -> State:
        if index == 1 and tries < 3:
            stage.outcome(index, exit_code=1, retry=True, error="reset by peer")
            return FAILED
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how, kind="local")
    stage.go([0, 1, 2])
    assert stage.arrays() == [2], "no further array is submitted for it"
    assert stage.cluster.tries == {0: 1, 1: 3, 2: 1}
    assert generations(stage) == {0: 1, 1: 3, 2: 1}
    assert stage.claim(1).charged == 2


def test_a_worker_that_dies_leaves_its_shard_to_another_one_within_one_look(tmp_path: Path) -> None:
    """No beat of it is waited for: the cluster says that it ended."""

    def how(stage: Stage, index: int, tries: int) -> State:
        if index == 0 and tries == 1:
            died.append(stage.cluster.queries)
            return FAILED
        stage.receipt(index)
        return DONE

    died: list[int] = []
    stage = scripted(tmp_path, how, lasts=lambda index, _: 3 if index == 0 else 6)
    claimed: dict[int, int] = {}
    stage.cluster.on_query = lambda: claimed.setdefault(generations(stage).get(0, 0), stage.cluster.queries)
    stage.go(range(5))
    # Judged after that query, claimed at the next one, which the test sees at the one after that.
    assert claimed[2] == died[0] + 2
    assert stage.claim(0).number != 0
    assert stage.claim(0).charged == 1


def test_a_worker_takes_the_place_of_one_that_ended(tmp_path: Path) -> None:
    def how(stage: Stage, index: int, tries: int) -> State:
        if index == 0 and tries == 1:
            return FAILED
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how, lasts=lambda index, _: 2 if index == 0 else 6, slot_count=3)
    alive: list[int] = []
    stage.cluster.on_query = lambda: alive.append(stage.cluster.running())
    stage.go(range(9))
    assert stage.arrays() == [3, 1]
    assert [spec.base for spec in stage.cluster.arrays.values()] == [0, 3]
    assert max(alive) == 3
    assert len({spec.name for spec in stage.cluster.arrays.values()}) == 2
    assert "1 element for 1 shard to be tried again" in stage.texts("note")
    assert ArrayBook(stage.run.arrays).open() == []


def test_workers_that_wait_are_cancelled_when_every_shard_is_held(tmp_path: Path) -> None:
    """They would start for nothing; nobody is told of it."""
    stage = staged(tmp_path, slot_count=4, throttles=[("1", 2)], lasts=lambda *_: 6)
    stage.go(range(6))
    assert stage.arrays() == [4]
    assert sorted(stage.cluster.workers["1"]) == [0, 1], "those that ran"
    assert stage.cluster.cancelled == ["1"]
    states = {event.data["state"] for event in events_of(stage.context) if event.kind == "element"}
    assert states == {"running", "pending", "done"}


def test_in_place_of_workers_that_were_cancelled_for_want_of_shards_others_are_submitted(
    tmp_path: Path,
) -> None:
    def how(stage: Stage, index: int, tries: int) -> State:
        if index == 2 and tries == 1:
            return FAILED
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how, slot_count=2, throttles=[("1", 1)], lasts=lambda *_: 6)
    stage.go(range(3))
    assert stage.arrays() == [2, 1]
    assert stage.claim(2).charged == 1


def test_three_workers_that_one_shard_kills_end_the_step_and_it_is_named(tmp_path: Path) -> None:
    def how(stage: Stage, index: int, _: int) -> State:
        if index == 3:
            return FAILED
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how, reason="signal 9", slot_count=2)
    with pytest.raises(FailedError) as failed:
        stage.go(range(6))
    text = str(failed.value)
    assert text.startswith("copy: 1 shard did not finish [data]\n")
    assert "shard 3 on n" in text
    assert ": signal 9" in text
    assert generations(stage) == {0: 1, 1: 1, 2: 1, 3: 3, 4: 1, 5: 1}
    assert all(stage.has(index) for index in range(6) if index != 3), "the others are done before it ends"
    assert ArrayBook(stage.run.arrays).open() == []


def test_the_next_command_tries_what_was_given_up(tmp_path: Path) -> None:
    def how(stage: Stage, index: int, tries: int) -> State:
        if index == 1 and tries <= 3:
            return FAILED
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how)
    with pytest.raises(FailedError, match="1 shard did not finish"):
        stage.go([0, 1])
    stage.go([0, 1])
    assert generations(stage)[1] == 4
    assert stage.claim(1).charged == 0, "what failed under another command is not charged"


def test_when_tries_are_used_up_everything_that_failed_is_named(tmp_path: Path) -> None:
    def how(stage: Stage, index: int, _: int) -> State:
        if index == 0:
            stage.receipt(0)
            return DONE
        failures = [["a/b", "404"], ["odd\nname", "404"]]
        stage.outcome(index, exit_code=1, retry=True, failed=30, failures=failures)
        return FAILED

    stage = scripted(tmp_path, how, kind="local")
    stage.retries(1)
    with pytest.raises(FailedError) as failed:
        stage.go([0, 1])
    text = str(failed.value)
    assert failed.value.exit_code == 1
    assert text.startswith("copy: 1 shard did not finish [data]\n")
    assert "shard 1 on n1: exit 1" in text
    assert '"odd\\nname": 404' in text
    assert "and 28 more" in text
    assert stage.cluster.tries[1] == 2


@pytest.mark.parametrize(
    ("codes", "kind"),
    [((5, 5), SourceChangedError), ((5, 1), FailedError), ((6, 1), NoSpaceError), ((1, 1), FailedError)],
)
def test_the_exit_status_follows_from_all_failures(
    tmp_path: Path, codes: tuple[int, int], kind: type[Exception]
) -> None:
    def how(stage: Stage, index: int, _: int) -> State:
        stage.outcome(index, exit_code=codes[index], retry=False, error="why")
        return FAILED

    stage = scripted(tmp_path, how)
    with pytest.raises(kind) as failed:
        stage.go([0, 1])
    assert type(failed.value) is kind
    assert stage.cluster.tries == {0: 1, 1: 1}, "what cannot help is not tried again"


def test_a_target_too_full_for_an_outcome_is_told_by_the_exit_status(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: FAILED, reason="exit 6", exit_code=6)
    with pytest.raises(NoSpaceError, match="copy: 2 shards did not finish") as failed:
        stage.go([0, 1])
    text = str(failed.value)
    assert "shard 0 on n0: exit 6: the target has no space, inodes or quota left" in text
    assert "free now" in text
    assert stage.cluster.tries == {0: 1, 1: 1}, "what cannot help is not tried again"


def test_of_many_shards_that_failed_some_are_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: FAILED, slot_count=80)
    stage.retries(0)
    with pytest.raises(FailedError, match="copy: 80 shards did not finish") as failed:
        stage.go(range(80))
    lines = str(failed.value).splitlines()
    assert sum("shard 4" in line for line in lines) == 11
    assert not any("shard 50" in line for line in lines)
    assert any("and 30 shards more" in line for line in lines)


def test_a_reason_is_for_people_and_is_not_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: FAILED, reason="exit 6")
    with pytest.raises(FailedError) as failed:
        stage.go([0])
    assert type(failed.value) is FailedError
    assert stage.cluster.tries == {0: 3}, "it may have been killed: that is tried again"


def test_done_without_a_receipt_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_ends, "RECEIPT_GRACE", 0.05)
    stage = Stage(tmp_path, lambda _i, _t: DONE, kind="local")
    with pytest.raises(FailedError, match="did not finish"):
        stage.go([0])
    assert stage.cluster.tries == {0: 3}


def test_a_receipt_counts_when_the_cluster_has_forgotten_the_worker(tmp_path: Path) -> None:
    def how(stage: Stage, index: int, _: int) -> State:
        stage.receipt(index)
        return LOST

    assert scripted(tmp_path, how).go([0])[0].state is LOST


def test_a_late_receipt_is_waited_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path, lambda _i, _t: DONE)
    threading.Timer(0.3, stage.receipt, [0]).start()
    stage.go([0])
    assert len(stage.cluster.arrays) == 1


def test_a_live_array_is_met_again_by_its_id(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=4)
    stage.context.stop.set(15)
    stage.cluster.on_query = lambda: stage.context.stop.set(15)
    stage.context.stop.event.clear()
    with pytest.raises(InterruptedRunError):
        stage.go([0, 1])
    assert stage.cluster.cancelled == []
    assert "penstock cancel data" in stage.texts("warning")[0]
    stage.context.stop.event.clear()
    stage.cluster.on_query = lambda: None
    assert still_alive(stage.context, "data", stage.run, "copy") == ["1"]
    stage.go([0, 1])
    assert list(stage.cluster.arrays) == ["1"]


def test_an_array_whose_id_was_lost_is_found_by_its_name(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=3)
    submit = stage.cluster.submit

    def die_before_it_is_written_down(spec: ArraySpec) -> str:
        submit(spec)
        raise KeyboardInterrupt

    stage.cluster.submit = die_before_it_is_written_down  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        stage.go([0, 1])
    stage.cluster.submit = submit  # type: ignore[method-assign]
    stage.go([0, 1])
    assert list(stage.cluster.arrays) == ["1"]


def test_an_intent_that_was_never_carried_out_is_submitted_anew(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.submitted([0], 1, noted=False)
    assert {number: status.state for number, status in stage.go([0]).items()} == {1: DONE}
    assert list(stage.cluster.arrays) == ["1"]


def test_arrays_of_a_local_controller_that_died_are_forgotten(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    book = ArrayBook(stage.run.arrays)
    book.intend("penstock-x", "copy", "local", [0], workers=1, call="before")
    book.submitted("penstock-x", "local-1-1")
    stage.go([0])
    assert list(stage.cluster.arrays) == ["1"]


def test_arrays_on_slurm_are_not_doubled_by_a_local_run(tmp_path: Path) -> None:
    stage = staged(tmp_path, kind="local")
    book = ArrayBook(stage.run.arrays)
    book.intend("penstock-x", "copy", "slurm", [0], workers=1, call="before")
    book.submitted("penstock-x", "77")
    with pytest.raises(LockedError, match="array 77"):
        stage.go([0])


def test_an_array_of_an_earlier_version_is_refused_by_name_until_it_has_ended(tmp_path: Path) -> None:
    """Its elements each do the shard of their number, and know nothing of claims."""
    stage = staged(tmp_path)
    lines: list[Mapping[str, object]] = [
        {"intent": "penstock-x", "step": "copy", "kind": "slurm", "indices": [2, 3], "base": 2}
        | {"cluster": "alpha"},
        {"submitted": "penstock-x", "array": "77"},
    ]
    stage.run.arrays.write_text("".join(json.dumps({"format": 1, "at": 1.0} | line) + "\n" for line in lines))
    ended, workers = [False, True], stage.cluster.states

    def states(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        if array != "77":
            return workers(array, indices)
        return {number: Status(DONE if ended[number] else RUNNING) for number in indices}

    stage.cluster.states = states  # type: ignore[method-assign]
    with pytest.raises(LockedError, match="an older version submitted have not ended") as refused:
        stage.go([2, 3])
    assert "array 77" in refused.value.why
    assert "cancel data" in refused.value.hint
    assert not stage.cluster.arrays
    ended[0] = True
    stage.go([2, 3])
    assert stage.has(2)
    assert ArrayBook(stage.run.arrays).open() == []


def test_a_silent_controller_is_told_of_once_and_ends_nothing(tmp_path: Path) -> None:
    stage = staged(tmp_path, silent=5)
    stage.go([0])
    assert len(stage.texts("warning")) == 1
    assert "does not answer" in stage.texts("warning")[0]
    assert stage.texts("note") == ["the cluster answers again"]
    assert len(stage.cluster.arrays) == 1


@pytest.mark.parametrize(
    ("most", "slots", "arrays"),
    [(3, 5, [(3, 0), (2, 3)]), (1, 3, [(1, 0), (1, 1), (1, 2)]), (100, 5, [(5, 0)])],
)
def test_an_array_has_no_more_workers_than_max_array_size(
    tmp_path: Path, most: int, slots: int, arrays: list[tuple[int, int]]
) -> None:
    stage = staged(tmp_path, most=most, slot_count=slots, queries_until_end=8)
    stage.go(range(9))
    assert [(len(spec.indices), spec.base) for spec in stage.cluster.arrays.values()] == arrays
    assert {stage.claim(index).number for index in range(9)} == set(range(slots))


def test_no_more_than_some_arrays_of_a_step_live(tmp_path: Path) -> None:
    """MaxArraySize=1, and 19 workers may run."""
    stage = staged(tmp_path, most=1, slot_count=19, queries_until_end=60)
    most = 0

    def look() -> None:
        nonlocal most
        ended = stage.cluster.ended
        most = max(most, sum(not ended.get(array) for array in stage.cluster.arrays))

    stage.cluster.on_query = look
    stage.go(range(60))
    assert most == ARRAYS
    assert stage.cluster.tries == dict.fromkeys(range(60), 1)


def test_an_array_of_workers_beyond_the_first_is_met_again(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=4)
    for index in (0, 1, 2):
        stage.receipt(index)
    stage.submitted(range(3), 3, name="penstock-before")
    ArrayBook(stage.run.arrays).ended("penstock-before")
    stage.cluster.on_query = lambda: stage.context.stop.set(15)
    with pytest.raises(InterruptedRunError):
        stage.go(range(5))
    stage.context.stop.event.clear()
    stage.cluster.on_query = lambda: None
    noted = [json.loads(line) for line in stage.run.arrays.read_text().splitlines() if "intent" in line][-1]
    assert (noted["indices"], noted["base"], noted["workers"], noted["format"]) == ([3, 4], 3, 2, 1)
    (left,) = ArrayBook(stage.run.arrays).open("copy")
    assert (left.indices, left.numbers) == ((3, 4), [0, 1])
    assert {number: status.state for number, status in stage.go(range(5)).items()} == {3: DONE, 4: DONE}
    assert list(stage.cluster.arrays) == ["1", "2"]


def test_what_an_earlier_controllers_workers_do_is_not_done_again(tmp_path: Path) -> None:
    """The array of the first controller lives, and ends amid its shards; further workers go on."""

    def how(stage: Stage, index: int, tries: int) -> State | Status:
        if index in (0, 3) and tries == 1:
            return Status(FAILED, "signal 9", "n0", signal=9)
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how, queries_until_end=3)
    stage.cluster.on_query = lambda: stage.context.stop.set(15)
    with pytest.raises(InterruptedRunError):
        stage.go(range(6))
    stage.cluster.on_query = lambda: None
    stage.context.stop.event.clear()
    stage.go(range(6))
    assert stage.cluster.tries == {0: 2, 1: 1, 2: 1, 3: 2, 4: 1, 5: 1}
    assert len(stage.arrays()) == 2


def test_claims_of_arrays_that_are_over_are_taken_at_once(tmp_path: Path) -> None:
    """Their controller died before it judged their ends."""
    stage = staged(tmp_path)
    stage.submitted([0, 1], 2, name="penstock-before")
    stage.cluster.move("1")
    ArrayBook(stage.run.arrays).ended("penstock-before")
    stage.cluster.cancel("1")
    assert generations(stage) == {0: 1, 1: 1}
    stage.go([0, 1])
    assert generations(stage) == {0: 2, 1: 2}
    assert [stage.claim(index).charged for index in (0, 1)] == [0, 0]


def test_all_arrays_of_a_step_are_asked_of_in_one_query(tmp_path: Path) -> None:
    """S26."""
    stage = staged(tmp_path, most=2, slot_count=4, queries_until_end=9)
    stage.go(range(4))
    assert stage.arrays() == [2, 2]
    assert min(stage.cluster.asked.values()) >= 9
    assert stage.cluster.queries <= max(stage.cluster.asked.values()) + 1, "one query asked of both"


def test_shards_that_wait_for_a_worker_cost_no_reads(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=10)
    reads: dict[int, int] = {}
    had = stage.has

    def has(index: int) -> bool:
        reads[index] = reads.get(index, 0) + 1
        return had(index)

    stage.has = has  # type: ignore[method-assign]
    stage.go(range(6))
    assert max(reads.values()) <= 2, reads


def test_a_stop_ends_local_workers(tmp_path: Path) -> None:
    stage = staged(tmp_path, kind="local", queries_until_end=100)
    stage.cluster.on_query = lambda: stage.context.stop.set(2)
    with pytest.raises(InterruptedRunError) as stopped:
        stage.go([0])
    assert stopped.value.exit_code == 130
    assert stage.cluster.cancelled == ["1"]


def test_progress_is_monotonic_and_ends_with_the_receipts(tmp_path: Path) -> None:
    stage = staged(tmp_path, queries_until_end=5)
    seen = 0

    def running() -> None:
        nonlocal seen
        seen += 1
        path = stage.run.progress("copy", 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"files": 0, "bytes": 9 - 3 * (seen % 2), "failed": 0}))

    stage.cluster.on_query = running
    stage.go([0, 1])
    counts = [e.data["bytes"] for e in events_of(stage.context) if e.kind == "progress"]
    assert counts == sorted(counts)
    assert counts[-1] == 20
    states = [(e.data["index"], e.data["state"]) for e in events_of(stage.context) if e.kind == "element"]
    assert states[:2] == [(0, "running"), (1, "running")]
    assert sorted(states[2:]) == [(0, "done"), (1, "done")]


def test_the_book_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "arrays.jsonl"
    book = ArrayBook(path)
    book.intend("a", "copy", "slurm", [0, 1], workers=2, call="before")
    book.submitted("a", "7")
    with path.open("ab") as stream:
        stream.write(b'{"intent": "b", "st')
    book.intend("c", "verify", "slurm", [2], workers=1, call="before")
    assert [(s.name, s.array, list(s.indices)) for s in book.open()] == [("a", "7", [0, 1]), ("c", "", [2])]
    assert [s.name for s in book.open("verify")] == ["c"]
    book.ended("a")
    assert [s.name for s in book.open()] == ["c"]


def test_a_worker_that_began_since_the_cluster_was_asked_is_not_cancelled(tmp_path: Path) -> None:
    """The cluster's answer has it PENDING; its claim says that it works."""
    stage = staged(tmp_path, queries_until_end=6)
    states = stage.cluster.states

    def stale(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        shown = dict(states(array, indices))
        if stage.cluster.queries <= 4:
            shown[1] = Status(State.PENDING, "Priority")
        return shown

    stage.cluster.states = stale  # type: ignore[method-assign]
    stage.go([0, 1])
    assert stage.cluster.cancelled == []
    assert stage.cluster.tries == {0: 1, 1: 1}
    assert generations(stage) == {0: 1, 1: 1}


def test_on_a_full_target_no_further_array_is_submitted(tmp_path: Path) -> None:
    """What lives may end: it may need no more room."""

    def how(stage: Stage, index: int, _: int) -> State:
        if index == 0:
            stage.outcome(index, exit_code=6, retry=False, error="no space left")
            return FAILED
        stage.receipt(index)
        return DONE

    stage = scripted(tmp_path, how, slot_count=3, lasts=lambda index, _: 2 if index == 0 else 4)
    with pytest.raises(NoSpaceError, match="1 shard did not finish") as failed:
        stage.go(range(9))
    assert failed.value.exit_code == 6
    assert stage.arrays() == [3]
    assert [stage.has(index) for index in range(9)] == [False, *[True] * 8]
    assert ArrayBook(stage.run.arrays).open() == []


@pytest.mark.parametrize(("deaths", "arrays"), [(3, [20, 20]), (5, [20, 20, 4])])
def test_few_ends_among_many_workers_are_replaced_together(
    tmp_path: Path, deaths: int, arrays: list[int]
) -> None:
    """40 workers live; each death is seen by a query of its own. Where others take what the dead ones left
    before a tenth is missing, no further array is submitted."""

    def how(stage: Stage, index: int, tries: int) -> State:
        if index in dying and tries == 1:
            return FAILED
        stage.receipt(index)
        return DONE

    def lasts(index: int, tries: int) -> int:
        return 2 + index // 5 if index in dying and tries == 1 else 12

    dying = range(0, 5 * deaths, 5)

    stage = scripted(tmp_path, how, slot_count=40, most=20, lasts=lasts)
    stage.go(range(100))
    assert stage.arrays() == arrays
    assert stage.cluster.tries == {index: 1 + (index in dying) for index in range(100)}
