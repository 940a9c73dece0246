"""Workers that ran out of time, and nodes on which they fail: what follows, and what is said."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.support.one_shard import outcome_of
from tests.support.scripted_cluster import DONE, FAILED, LOST, Stage
from tests.support.staging_runs import events_of

from penstock.cluster.port import BAD_NODE, Cause, State, Status
from penstock.core.element_documents import SHARD_CLAIM, ElementOutcome, ShardClaim
from penstock.core.errors import FailedError, InterruptedRunError
from penstock.core.estimates import Estimate
from penstock.dataset import documents
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.engine.journal import Journal, gone_line
from penstock.jobs import array_watch, shard_claims, worker_ends
from penstock.jobs.element_outcomes import against_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.support.scripted_cluster import Worker

    from penstock.cluster.port import ArraySpec
    from penstock.core.layout import RunLayout
    from penstock.jobs.array_watch import Watch

MINUTE, HOUR = 60, 3600
TIMEOUT = Status(FAILED, "TIMEOUT: TimeLimit", "n0", cause=Cause.TIME)


def stage(tmp_path: Path, how: Callable[[Stage, int, int], State | Status], **cluster: object) -> Stage:
    box: list[Stage] = []
    box.append(Stage(tmp_path, lambda index, tries: how(box[0], index, tries), **cluster))
    return box[0]


def times(one: Stage) -> list[int]:
    return [spec.time for spec in one.cluster.arrays.values()]


def excluded(one: Stage) -> list[list[str]]:
    return [list(spec.exclude) for spec in one.cluster.arrays.values()]


def late(tries: int) -> Callable[[Stage, int, int], State | Status]:
    """Shard 0 outlasts the time of its worker so often; the others are good at once."""

    def how(one: Stage, index: int, count: int) -> State | Status:
        if index == 0 and count <= tries:
            return TIMEOUT
        one.receipt(index)
        return DONE

    return how


def recorded(one: Stage, index: int) -> None:
    """The worker that holds the shard has copied something of it."""
    journal = Journal(
        one.run.journals(index), shard_digest="d", run="r", attempt=one.claim(index).worker, host="n1"
    )
    journal.append(gone_line(0).encode())
    journal.close()


class TestTime:
    def test_with_progress_no_retry_is_used_however_often(self, tmp_path: Path) -> None:
        """S29. A payload that could not stop tidily, but had copied something."""

        def how(one: Stage, index: int, tries: int) -> State | Status:
            if index == 0 and tries <= 4:
                recorded(one, index)
                return TIMEOUT
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how)
        one.retries(0, time=MINUTE)
        one.go(range(3))
        assert one.cluster.tries == {0: 5, 1: 1, 2: 1}
        assert one.claim(0).charged == 0
        assert times(one) == [MINUTE] * len(one.arrays()), "the limit stays: another worker goes on"
        said = [text for text in one.texts("note") if "timed out" in text]
        assert len(said) == 4
        assert all(
            text.endswith("timed out: what was done is kept; shard 0 goes to another one") for text in said
        )
        states = {event.data["state"] for event in events_of(one.context) if event.kind == "element"}
        assert states == {"running", "stopped", "done"}, "that is no failure"

    def test_without_progress_it_uses_retries_and_ends_the_run(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(99), time_limit=float(HOUR))
        one.retries(2, time=HOUR)
        with pytest.raises(FailedError, match="its time ended before it had finished anything") as failed:
            one.go([0])
        assert "raise cluster.time" in str(failed.value)
        assert times(one) == [HOUR] * 3
        said = [text.partition("finished; ")[2] for text in one.texts("note") if "timed out" in text]
        assert said == ["shard 0 goes to another one"] * 2 + ["shard 0 is given up"]

    def test_a_tidy_stop_goes_on_in_a_further_array(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries <= 2:
                one.outcome(index, exit_code=143, stopped="time", progress=True, retry=True)
                return Status(FAILED, "exit 143", "n1", exit_code=143)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how)
        one.retries(0, time=HOUR)
        one.go([0])
        assert times(one) == [HOUR] * 3
        assert one.claim(0).charged == 0

    def test_that_pause_stood_is_no_failure(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries <= 3:
                one.outcome(index, exit_code=143, stopped="time", paused=True, retry=True)
                return Status(FAILED, "exit 143", "n1", exit_code=143)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how)
        one.retries(0, time=HOUR)
        one.go([0])
        assert one.cluster.tries == {0: 4}

    def test_s29_auto_asks_for_the_workers_part_of_what_is_open(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(0), slot_count=2)
        one.retries(0)
        one.go(range(3), expected=lambda index: Estimate(1000.0 * (index + 1), measured=True))
        assert times(one) == [90 * MINUTE], "15 min and one and a half times half of 6000 s"

    def test_s29_a_further_array_asks_for_what_is_left(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(1), slot_count=2, lasts=lambda index, _: 12 if index == 0 else 2)
        one.retries(1)
        one.go(range(5), expected=lambda index: Estimate(2000.0 if index else 3600.0, measured=True))
        first, then = times(one)
        assert first == 15 * MINUTE + 5800 * 1.5 // MINUTE * MINUTE
        assert then == 105 * MINUTE, "15 min and one and a half times 3600 s, by one worker"

    def test_s29_what_the_partition_allows_is_not_passed(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(0), time_limit=90.0 * MINUTE)
        one.retries(1)
        one.go(range(2), expected=lambda _: Estimate(20_000.0, measured=True))
        assert times(one) == [90 * MINUTE]

    def test_without_a_limit_of_penstocks_own_none_is_asked_for(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(1))
        one.retries(1, time=None)
        one.go([0])
        assert times(one) == [0, 0]


class TestJudgement:
    """The outcome that the controller writes for a worker that left none."""

    @pytest.mark.parametrize(
        ("status", "error", "free", "retry", "stopped"),
        [
            (TIMEOUT, "TIMEOUT: TimeLimit", False, True, "time"),
            (Status(FAILED, "PREEMPTED", "n0", cause=Cause.PREEMPTED), "PREEMPTED", True, True, ""),
            (Status(FAILED, "exit 6", "n0", exit_code=6), "exit 6", False, False, ""),
            (Status(FAILED, "signal 9", "n0", signal=9), "signal 9", False, True, ""),
            (Status(LOST), "lost", False, True, ""),
            (Status(DONE, "COMPLETED", "n0"), "it left no receipt", False, True, ""),
            (Status(State.CANCELLED, "CANCELLED", "n0"), "cancelled", True, True, ""),
        ],
    )
    def test_each_row(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        status: Status,
        error: str,
        free: bool,
        retry: bool,
        stopped: str,
    ) -> None:
        monkeypatch.setattr(worker_ends, "RECEIPT_GRACE", 0.05)
        one = stage(tmp_path, lambda one, index, _: one.receipt(index) or DONE if index else status)
        one.retries(0)
        judged: list[ElementOutcome] = []

        def look() -> None:
            outcome = outcome_of(one.run, 0)
            if outcome is not None and outcome.generation == 1:
                judged.append(outcome)
                one.context.stop.set(2)

        one.cluster.on_query = look
        with pytest.raises((FailedError, InterruptedRunError)):
            one.go([0, 1, 2, 3, 4])
        outcome = judged[0] if judged else outcome_of(one.run, 0)
        assert outcome is not None
        assert (outcome.error, outcome.free, outcome.retry, outcome.stopped) == (error, free, retry, stopped)
        assert (outcome.generation, outcome.host) == (1, "n0")
        assert outcome.attempt == shard_claims.read(one.run, "copy", 0, 1).worker

    def test_a_worker_whose_node_failed_holds_its_shard_no_more_though_slurm_starts_it_anew(
        self, tmp_path: Path
    ) -> None:
        one = stage(tmp_path, late(0), lasts=lambda index, _: 6 if index == 0 else 2)
        states, looks = one.cluster.states, iter(range(10**6))

        def losing(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
            shown = dict(states(array, indices))
            if next(looks) == 2:
                shown[0] = one.cluster.requeue(array, 0, "lost with node n0", "n0")
            return shown

        one.cluster.states = losing  # type: ignore[method-assign]
        one.go(range(4))
        assert one.claim(0).charged == 1
        assert shard_claims.standing(one.run, "copy")[0] == 2
        assert one.cluster.tries[0] == 1

    def test_a_shard_that_is_done_is_not_judged(self, tmp_path: Path) -> None:
        """Its worker died in the next one."""

        def how(one: Stage, index: int, tries: int) -> State | Status:
            if index == 1 and tries == 1:
                return Status(FAILED, "signal 9", "n0", signal=9)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, slot_count=1)
        one.go(range(3))
        assert outcome_of(one.run, 0) is None
        assert one.cluster.tries == {0: 1, 1: 2, 2: 1}


@pytest.mark.parametrize(
    ("status", "outcome", "counts"),
    [
        (Status(FAILED, cause=Cause.NODE), False, True),
        (Status(FAILED, cause=Cause.NODE), True, True),
        (Status(FAILED, cause=Cause.LAUNCH), False, True),
        (Status(FAILED, signal=9), False, True),
        (Status(FAILED, exit_code=127), False, True),
        (Status(FAILED, exit_code=6), False, False),
        (Status(FAILED, "PREEMPTED", cause=Cause.PREEMPTED), False, False),
        (Status(FAILED, "DEADLINE"), False, False),
        (Status(FAILED, "REVOKED"), False, False),
        (Status(FAILED, exit_code=1), True, False),
        (TIMEOUT, False, False),
        (Status(FAILED, out_of_memory=True), False, False),
        (Status(State.CANCELLED), False, False),
        (Status(LOST), False, False),
        (Status(DONE, exit_code=0), False, False),
    ],
)
def test_what_counts_against_a_node(status: Status, outcome: bool, counts: bool) -> None:
    assert against_node(status, outcome=outcome) is counts


class TestNodes:
    def bad(self, one: Stage, index: int, tries: int) -> State | Status:
        """n3 kills what runs on it: the first tries of all shards."""
        if tries == 1:
            return Status(FAILED, "exit 127", "n3", exit_code=127)
        one.receipt(index)
        return DONE

    def test_a_node_that_fails_twice_is_left_out_of_what_follows(self, tmp_path: Path) -> None:
        lasts = lambda index, tries: 2 + 2 * index if tries == 1 else 8  # noqa: E731
        one = stage(tmp_path, self.bad, nodes={"n3", "n4"}, lasts=lasts, slot_count=4, most=2)
        one.go(range(4))
        assert excluded(one)[0] == []
        assert excluded(one)[-1] == ["n3"]
        (said,) = (text for text in one.texts("note") if "is excluded" in text)
        why = "elements 0 (exit 127) and 2 (exit 127) failed there"
        assert said == f"node n3 is excluded from this run for 12 hours: {why}"

    def test_elements_that_wait_in_a_living_array_do_not_go_there(self, tmp_path: Path) -> None:
        one = stage(tmp_path, self.bad, nodes={"n3", "n4"}, slot_count=4)
        submit = one.cluster.submit

        def submitting(spec: ArraySpec) -> str:
            array = submit(spec)
            if array == "1":
                one.cluster.throttles.append((array, 1))  # the others wait for resources
            return array

        one.cluster.submit = submitting  # type: ignore[method-assign]
        one.go(range(4))
        assert ("1", ("n3",)) in one.cluster.kept_off

    def test_the_next_controller_knows_it(self, tmp_path: Path) -> None:
        one = stage(tmp_path, self.bad, nodes={"n3", "n4"})
        one.go(range(2))
        (line,) = (json.loads(x) for x in one.run.arrays.read_text().splitlines() if "excluded" in x)
        assert (line["excluded"], line["step"], line["format"]) == ("n3", "copy", 1)
        two = stage(tmp_path / "again", late(0), nodes={"n3", "n4"})
        two.run.arrays.write_bytes(one.run.arrays.read_bytes())
        two.go(range(2))
        assert excluded(two) == [["n3"]]
        three = stage(tmp_path / "last", late(0), nodes={"n3"})
        three.run.arrays.write_bytes(one.run.arrays.read_bytes())
        three.go(range(2))
        assert excluded(three) == [[]], "no other node is left"
        assert any("used again" in text for text in three.texts("note"))

    def test_what_fails_everywhere_leaves_few_nodes_out_and_not_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A target that is away fails workers on every node, before they write anything."""
        names = {f"n{number}" for number in range(8)}

        def everywhere(one: Stage, index: int, tries: int) -> Status:
            return Status(FAILED, "exit 1", f"n{(index + tries) % 8}", exit_code=1)

        one = stage(tmp_path, everywhere, nodes=names, slot_count=12)
        one.retries(3)
        with pytest.raises(FailedError):
            one.go(range(12))
        book = ArrayBook(one.run.arrays)
        assert len(book.excluded(0.0)) == 3
        assert any("elements fail on 4 nodes and 0 shards ended well" in text for text in one.texts("note"))
        two = stage(tmp_path / "again", late(0), nodes=names)
        two.run.arrays.write_bytes(one.run.arrays.read_bytes())
        monkeypatch.setattr("penstock.jobs.element_outcomes.HOURS", 0)
        two.go(range(2))
        assert excluded(two) == [[]]

    def test_beyond_three_a_node_is_left_out_for_each_shard_that_ended_well(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if index < 10 and tries == 1:
                return Status(FAILED, "exit 127", f"n{index // 2}", exit_code=127)
            one.receipt(index)
            return DONE

        lasts = lambda index, tries: 2 if index >= 10 else 4 if tries == 1 else 2  # noqa: E731
        one = stage(tmp_path, how, nodes={f"n{number}" for number in range(8)}, slot_count=12, lasts=lasts)
        one.go(range(12))
        assert sorted(excluded(one)[-1]) == ["n0", "n1", "n2", "n3", "n4"]

    def test_a_preempted_worker_uses_no_retry_and_its_node_is_not_to_blame(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries <= 4:
                return Status(FAILED, "PREEMPTED", "n3", cause=Cause.PREEMPTED)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, nodes={"n3", "n4"})
        one.retries(0)
        one.go([0])
        assert excluded(one) == [[]] * 5
        assert one.texts("note")[0] == "element 0 was preempted on n3; shard 0 goes to another one"
        assert one.texts("note")[1] == "1 element for 1 shard to be tried again"

    def test_the_last_node_is_never_left_out(self, tmp_path: Path) -> None:
        one = stage(tmp_path, self.bad, nodes={"n3"})
        one.go(range(2))
        assert excluded(one) == [[], []]
        (said,) = (text for text in one.texts("note") if "excluded" in text)
        assert said.startswith(
            "node n3 is not excluded, since the cluster finds no other one now: elements 0 "
        )

    def test_a_node_that_is_lost_under_a_worker_counts(self, tmp_path: Path) -> None:
        """SLURM itself starts the element again elsewhere."""
        one = stage(tmp_path, late(0), nodes={"n3", "n4"})
        states, looks = one.cluster.states, 0

        def losing(array: str, indices: Sequence[int]) -> Mapping[int, Status]:
            nonlocal looks
            looks += 1
            shown = dict(states(array, indices))
            if looks in (2, 4):
                shown[1] = one.cluster.requeue(array, 1, "lost with node n3", "n3")
            return shown

        one.cluster.states = losing  # type: ignore[method-assign]
        one.cluster.queries_until_end = 6
        one.go(range(2))
        assert any("elements 1 (lost with its node) and 1 (lost" in text for text in one.texts("note"))

    def test_what_names_its_failure_itself_is_not_held_against_its_node(self, tmp_path: Path) -> None:
        """While others of its worker's shards are done."""

        def how(one: Stage, index: int, tries: int) -> State | Status:
            if index % 2 and tries == 1:
                one.outcome(index, exit_code=1, retry=True, failed=1, failures=[("a", "reset by peer")])
                return Status(FAILED, "exit 1", "n3", exit_code=1)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, nodes={"n3", "n4"}, slot_count=1)
        one.go(range(4))
        assert excluded(one) == [[]]

    def test_a_node_on_which_a_worker_does_no_shard_is_left_out_at_once(self, tmp_path: Path) -> None:
        """Worker 0 fails each shard that it takes; they are not charged for it."""

        def how(one: Stage, index: int, _: int) -> State | Status:
            if one.claim(index).number == 0:
                one.outcome(index, exit_code=1, retry=True, error="no route to the store")
                return FAILED
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, nodes={f"n{number}" for number in range(8)}, slot_count=1)
        one.retries(1)
        one.go(range(5))
        assert one.arrays() == [1, 1]
        assert excluded(one) == [[], ["n0"]]
        assert [one.claim(index).charged for index in range(5)] == [0] * 5
        (said,) = (text for text in one.texts("note") if "excluded" in text)
        assert said.startswith("node n0 is excluded from this run for 12 hours: ")

    def test_where_workers_fail_on_every_node_the_step_ends_before_each_shard_was_tried(
        self, tmp_path: Path
    ) -> None:
        """The store is away. Nobody submits workers without end: the shards are not charged."""

        def how(one: Stage, index: int, _: int) -> State | Status:
            one.outcome(index, exit_code=1, retry=True, error="no route to the store")
            return FAILED

        one = stage(tmp_path, how, nodes={f"n{number}" for number in range(90)}, slot_count=2)
        with pytest.raises(FailedError, match="no route to the store"):
            one.go(range(40))
        assert sum(one.arrays()) <= 8
        assert ArrayBook(one.run.arrays).open() == []

    def test_what_earlier_commands_did_says_nothing_of_the_nodes(self, tmp_path: Path) -> None:
        """30 shards were done before the store went away."""

        def how(one: Stage, index: int, _: int) -> State | Status:
            one.outcome(index, exit_code=1, retry=True, error="no route to the store")
            return FAILED

        one = stage(tmp_path, how, nodes={f"n{number}" for number in range(90)}, slot_count=2)
        for index in range(30):
            one.receipt(index)
        with pytest.raises(FailedError, match="no route to the store"):
            one.go(range(70))
        assert sum(one.arrays()) <= 8
        assert len(ArrayBook(one.run.arrays).excluded(0.0)) == 3


ENDLESS = 60
"""Arrays that a step which ends never needs in these tests."""


def bounded(one: Stage) -> None:
    """Fail where arrays are submitted without end."""

    def look() -> None:
        assert len(one.cluster.arrays) < ENDLESS, "arrays without end"

    one.cluster.on_query = look


class TestWorkersThatTakeNothing:
    @pytest.mark.parametrize("kind", ["local", "slurm"])
    def test_workers_that_end_before_they_took_a_shard_are_bounded_and_named(
        self, tmp_path: Path, kind: str
    ) -> None:
        one = stage(tmp_path, late(0), kind=kind)
        one.retries(2)
        bounded(one)
        one.run.logs.mkdir(parents=True)

        def dies(array: str, number: int, _: Worker) -> Status:
            base = one.cluster.arrays[array].base
            name = f"copy-from{base}-{array}_{number}.log" if base else f"copy-{array}_{number}.log"
            (one.run.logs / name).write_text("no module named penstock\n")
            return Status(FAILED, "exit 1", f"n{number + base}", exit_code=1)

        one.cluster.work = dies  # type: ignore[method-assign, assignment]
        with pytest.raises(FailedError, match="4 shards did not finish") as failed:
            one.go(range(4))
        assert one.arrays() == [2] * 5, "three for each slot or node, and for each of three tries"
        said = str(failed.value)
        assert "element 9 on n9 ended before it took a shard: exit 1" in said
        assert "no module named penstock" in said
        assert f"its log: {one.run.logs / 'copy-from8-5_1.log'}" in said
        assert ArrayBook(one.run.arrays).open() == []

    def test_a_shard_that_is_taken_begins_the_count_anew(self, tmp_path: Path) -> None:
        """Every third worker starts; the others die before their first claim."""
        one = stage(tmp_path, late(0), slot_count=1, queries_until_end=1)
        one.retries(0)
        bounded(one)
        work = one.cluster.work

        def dies(array: str, number: int, worker: Worker) -> Status | None:
            if int(array) % 3:
                return Status(FAILED, "exit 1", f"n{array}", exit_code=1)
            return Status(DONE) if worker.done else work(array, number, worker)

        one.cluster.work = dies  # type: ignore[method-assign]
        one.go(range(5))
        assert one.arrays() == [1] * 15


def test_what_this_command_gave_up_stays_so_below_an_older_commands_claim(tmp_path: Path) -> None:
    """The older command's worker tries shard 0 once more, after this command's, which failed for good."""

    def how(one: Stage, index: int, tries: int) -> State | Status:
        if index == 0:
            one.outcome(index, exit_code=1, retry=False, failed=1, failures=[("a", "no such object")])
            return FAILED
        one.receipt(index)
        return DONE

    one = stage(tmp_path, how, lasts=lambda index, _: 8 if index == 1 else 2)
    bounded(one)
    one.submitted([1, 0], 1)
    with pytest.raises(FailedError, match="1 shard did not finish") as failed:
        one.go([0, 1])
    assert "no such object" in str(failed.value)
    assert shard_claims.standing(one.run, "copy") == {0: 2, 1: 1}
    assert one.claim(0).call == "before"
    assert one.arrays() == [1, 1]


def test_a_claim_that_appears_after_its_workers_end_was_judged_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's listing may be a minute old on NFS."""
    died: list[int] = []

    def how(one: Stage, index: int, tries: int) -> State | Status:
        if index == 0 and tries == 1:
            died.append(one.cluster.queries)
            return Status(FAILED, "signal 9", "n0", signal=9)
        one.receipt(index)
        return DONE

    one = stage(tmp_path, how)

    def old(run: RunLayout, step: str) -> dict[int, int]:
        names = shard_claims.standing(run, step)
        if not died or one.cluster.queries < died[0] + 3:
            names.pop(0, None)
        return names

    late_view = SimpleNamespace(standing=old, read=shard_claims.read)
    monkeypatch.setattr(array_watch, "shard_claims", late_view)
    one.go(range(3))
    assert one.cluster.tries == {0: 2, 1: 1, 2: 1}
    outcome = documents.find_outcome(one.run, "copy", 0, 1)
    assert outcome is not None
    assert (outcome.error, outcome.host) == ("signal 9", "n0")
    assert one.claim(0).charged == 1


def watched(one: Stage, shards: Sequence[int]) -> Watch:
    """What a controller knows before its first look; its own array is `own`."""
    watch = array_watch.watch_of(one.context, "data", one.run, "copy", one.has, shards)
    watch.own_arrays.add("own")
    one.run.claims("copy").mkdir(parents=True)
    one.run.outcome("copy", 0, 0).parent.mkdir(parents=True, exist_ok=True)
    return watch


def claim_of(watch: Watch, index: int, number: int) -> ShardClaim:
    """A claim of a worker of the controller's own array."""
    claim = ShardClaim(f"own_{number}_0-{index}", array="own", number=number, call=watch.call, host="n3")
    path = watch.run.claim("copy", index, 1)
    path.unlink(missing_ok=True)
    assert documents.create(SHARD_CLAIM, path, claim)
    return claim


def ended_so(watch: Watch, number: int, status: Status) -> None:
    """The cluster's answer: this worker of the controller's own array ended so."""
    (line,) = (line for line in watch.book.all() if line.name == "own")
    live = array_watch.WatchedArray(line, "1", 1)
    live.statuses = {number: status}
    watch.live = [live]
    watch.statuses[number] = status


def test_an_empty_claim_is_its_workers_when_its_content_comes(tmp_path: Path) -> None:
    one = stage(tmp_path, late(0))
    one.submitted([0], 1, name="own")
    watch = watched(one, [0])
    one.run.claim("copy", 0, 1).touch()
    worker_ends.judge(watch)
    assert [index for index, _ in watch.standing()] == [0]
    assert watch.held() == {}
    assert documents.find_outcome(one.run, "copy", 0, 1) is None
    assert not watch.began
    claim = claim_of(watch, 0, 3)
    worker_ends.judge(watch)
    assert watch.claims[0] == (1, claim)
    assert watch.held() == {3: [0]}
    assert watch.began == {3}
    ended_so(watch, 3, Status(FAILED, "signal 9", "n3", signal=9))
    worker_ends.judge(watch)
    outcome = documents.find_outcome(one.run, "copy", 0, 1)
    assert outcome is not None
    assert (outcome.attempt, outcome.error) == (claim.worker, "signal 9")


@pytest.mark.parametrize("retries", [0, 2])
def test_what_a_bad_node_failed_is_free_for_the_controller_too(tmp_path: Path, retries: int) -> None:
    """It read the shards' outcomes before their worker knew that its node is to blame."""
    one = stage(tmp_path, late(0), nodes={"n3", "n4"})
    one.retries(retries)
    one.submitted([0, 1], 1, name="own")
    watch = watched(one, [0, 1])
    failed = {}
    for index in (0, 1):
        claim = claim_of(watch, index, 0)
        failed[index] = ElementOutcome(claim.worker, 1, exit_code=1, retry=True, error="no route", host="n3")
        documents.write_outcome(one.run, "copy", index, failed[index])
    worker_ends.judge(watch)
    assert [watch.ends.given_up(index, watch.call) for index in (0, 1)] == [not retries] * 2
    for index in (0, 1):
        documents.write_outcome(one.run, "copy", index, failed[index]._replace(free=True))
    ended_so(watch, 0, Status(FAILED, f"exit {BAD_NODE}", "n3", exit_code=BAD_NODE))
    worker_ends.judge(watch)
    assert [watch.ends.fates[index].outcome.free for index in (0, 1)] == [True, True]
    assert not any(watch.ends.given_up(index, watch.call) for index in (0, 1))
    assert watch.excluded == ["n3"]
