"""Elements that ran out of time, and nodes on which they fail: what follows, and what is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.scripted_cluster import DONE, FAILED, LOST, Stage
from tests.support.staging_runs import events_of

from penstock.cluster.port import ArraySpec, Cause, State, Status
from penstock.core.errors import FailedError
from penstock.core.job_time import Estimate
from penstock.dataset.submission_log import ArrayBook
from penstock.engine.records.journal import Journal, gone_line
from penstock.jobs.arrays.node_failures import against_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MINUTE, HOUR = 60, 3600
TIMEOUT = Status(FAILED, "TIMEOUT: TimeLimit", "n1", cause=Cause.TIME)


def stage(tmp_path: Path, how: Callable[[Stage, int, int], State | Status], **cluster: object) -> Stage:
    box: list[Stage] = []
    box.append(Stage(tmp_path, lambda index, tries: how(box[0], index, tries), **cluster))
    return box[0]


def times(one: Stage) -> list[int]:
    return [spec.time for spec in one.cluster.arrays.values()]


def excluded(one: Stage) -> list[list[str]]:
    return [list(spec.exclude) for spec in one.cluster.arrays.values()]


def late(tries: int) -> Callable[[Stage, int, int], State | Status]:
    """Element 0 times out so often; the others are good at once."""

    def how(one: Stage, index: int, count: int) -> State | Status:
        if index == 0 and count <= tries:
            return TIMEOUT
        one.receipt(index)
        return DONE

    return how


class TestTime:
    def test_s29_four_timeouts_in_a_row_use_no_retry_and_end_right(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(4))
        one.retries(0, time=MINUTE)
        one.go(range(3))
        assert times(one) == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE, 16 * MINUTE]
        notes = one.texts("note")
        raised = [text for text in notes if "timed out" in text]
        assert raised[0] == (
            "element 0 timed out after 1 min 00 s: the limit is raised from 1 min 00 s to 2 min 00 s; "
            "no retry is used"
        )
        assert len(raised) == 4
        assert notes.count("1 timed-out element is submitted again") == 4
        changes = [event.data for event in events_of(one.context) if event.kind == "element"]
        states = {change["state"] for change in changes if change["index"] == 0}
        assert states == {"running", "stopped", "done"}, "that is no failure"

    def test_s29_the_next_controller_asks_for_what_was_raised(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(2))
        one.retries(0, time=MINUTE)
        one.go(range(2))
        for name, index, asked in (("again", 0, 4 * MINUTE), ("other", 1, MINUTE)):
            then = stage(tmp_path / name, late(0))
            then.run.arrays.write_bytes(one.run.arrays.read_bytes())
            then.retries(0, time=MINUTE)
            then.go([index])
            assert times(then) == [asked]

    def test_s29_auto_asks_by_the_estimate_of_the_largest_shard_of_the_array(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(1))
        one.retries(0)
        one.go(range(3), expected=lambda index: Estimate(1000.0 * (index + 1), measured=True))
        assert times(one) == [165 * MINUTE, 330 * MINUTE], "15 min and three times 3000 s, then twice as much"

    def test_s29_what_the_partition_allows_is_not_passed(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(2), time_limit=90.0 * MINUTE)
        one.retries(1, time=HOUR)
        one.go(range(2))
        assert times(one) == [HOUR, 90 * MINUTE, 90 * MINUTE]
        said, again = one.texts("note")[-2:]
        why = "nothing that stays was finished, and the limit is not raised further: that is a failure"
        assert said == f"element 0 timed out after 1 h 30 min: {why}"
        assert again == "1 failed element is submitted again"

    def test_at_the_longest_limit_without_progress_it_uses_retries_and_ends_the_run(
        self, tmp_path: Path
    ) -> None:
        one = stage(tmp_path, late(99), time_limit=float(HOUR))
        one.retries(2, time=HOUR)
        with pytest.raises(FailedError, match="TIMEOUT"):
            one.go([0])
        assert times(one) == [HOUR] * 3

    def test_at_the_longest_limit_with_progress_no_retry_is_used(self, tmp_path: Path) -> None:
        """A payload that could not stop tidily, but had copied something."""

        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries <= 4:
                array = list(one.cluster.arrays)[-1]
                journal = Journal(
                    one.run.journals(index), shard_digest="d", run="r", attempt=f"{array}_0_0-00", host="n1"
                )
                journal.append(gone_line(0).encode())
                journal.close()
                return TIMEOUT
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, time_limit=float(HOUR))
        one.retries(0, time=HOUR)
        one.go([0])
        assert times(one) == [HOUR] * 5
        said = "element 0 timed out after 1 h 00 min: what was done is kept; no retry is used"
        assert one.texts("note").count(said) == 4

    def test_one_that_hangs_is_raised_so_often_and_not_for_ever(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(99))
        one.retries(0, time=MINUTE)
        with pytest.raises(FailedError):
            one.go([0])
        assert times(one) == [MINUTE << n for n in range(5)]

    def test_a_tidy_stop_with_nothing_finished_gets_more_time_too(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries <= 2:
                one.outcome(index, exit_code=143, stopped="time", progress=False, retry=True)
                return Status(FAILED, "exit 143", "n1", exit_code=143)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how)
        one.retries(0, time=HOUR)
        one.go([0])
        assert times(one) == [HOUR, 2 * HOUR, 4 * HOUR]

    def test_without_a_limit_of_penstocks_own_a_timeout_is_a_failure(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(1))
        one.retries(1, time=None)
        one.go([0])
        assert times(one) == [0, 0]
        assert any("that is a failure" in text for text in one.texts("note"))

    def test_the_next_controller_raises_what_this_one_had_asked_for(self, tmp_path: Path) -> None:
        one = stage(tmp_path, late(1))
        one.retries(0, time=HOUR)
        ArrayBook(one.run.arrays).intend("penstock-a", "copy", "slurm", [0], "alpha", time=2 * HOUR)
        ArrayBook(one.run.arrays).submitted("penstock-a", "1")
        one.cluster.arrays["1"] = ArraySpec("penstock-a", "copy", (0,), (), tmp_path)
        one.go([0])
        assert times(one) == [0, 4 * HOUR]


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
        """n3 kills what runs on it: the first tries of all elements."""
        if tries == 1:
            return Status(FAILED, "exit 127", "n3", exit_code=127)
        one.receipt(index)
        return DONE

    def test_a_node_that_fails_twice_is_left_out_of_what_follows(self, tmp_path: Path) -> None:
        lasts = lambda index, tries: 2 + 2 * index if tries == 1 else 2  # noqa: E731
        one = stage(tmp_path, self.bad, nodes={"n3", "n4"}, lasts=lasts, slot_count=2)
        one.go(range(4))
        assert excluded(one)[0] == []
        assert excluded(one)[-1] == ["n3"]
        (said,) = (text for text in one.texts("note") if "excluded" in text)
        why = "elements 0 (exit 127) and 1 (exit 127) failed there"
        assert said == f"node n3 is excluded from this run for 12 hours: {why}"
        assert ("1", ("n3",)) in one.cluster.kept_off, "elements that wait in a living array do not go there"

    def test_the_next_controller_knows_it(self, tmp_path: Path) -> None:
        one = stage(tmp_path, self.bad, nodes={"n3", "n4"})
        one.go(range(2))
        (line,) = (json.loads(x) for x in one.run.arrays.read_text().splitlines() if "excluded" in x)
        assert (line["excluded"], line["step"], line["format"]) == ("n3", "copy", 1)
        two = stage(tmp_path / "again", lambda one, index, _: one.receipt(index) or DONE, nodes={"n3", "n4"})
        two.run.arrays.write_bytes(one.run.arrays.read_bytes())
        two.go(range(2))
        assert excluded(two) == [["n3"]]
        three = stage(tmp_path / "last", lambda one, index, _: one.receipt(index) or DONE, nodes={"n3"})
        three.run.arrays.write_bytes(one.run.arrays.read_bytes())
        three.go(range(2))
        assert excluded(three) == [[]], "no other node is left"
        assert any("used again" in text for text in three.texts("note"))

    def test_what_fails_everywhere_leaves_few_nodes_out_and_not_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A target that is away fails elements on every node, before they write anything."""
        names = {f"n{number}" for number in range(8)}

        def everywhere(one: Stage, index: int, tries: int) -> Status:
            return Status(FAILED, "exit 1", f"n{(index + tries) % 8}", exit_code=1)

        one = stage(tmp_path, everywhere, nodes=names, slot_count=12)
        one.retries(3)
        with pytest.raises(FailedError):
            one.go(range(12))
        book = ArrayBook(one.run.arrays)
        assert len(book.excluded(0.0)) == 3
        assert any("elements fail on 4 nodes and 0 ended well" in text for text in one.texts("note"))
        two = stage(tmp_path / "again", lambda one, index, _: one.receipt(index) or DONE, nodes=names)
        two.run.arrays.write_bytes(one.run.arrays.read_bytes())
        monkeypatch.setattr("penstock.jobs.arrays.node_failures.HOURS", 0)
        two.go(range(2))
        assert excluded(two) == [[]]

    def test_beyond_three_a_node_is_left_out_for_each_element_that_ended_well(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if index < 10 and tries == 1:
                return Status(FAILED, "exit 127", f"n{index // 2}", exit_code=127)
            one.receipt(index)
            return DONE

        lasts = lambda index, tries: 2 if index >= 10 else 4 if tries == 1 else 2  # noqa: E731
        one = stage(tmp_path, how, nodes={f"n{number}" for number in range(8)}, slot_count=12, lasts=lasts)
        one.go(range(12))
        assert sorted(excluded(one)[-1]) == ["n0", "n1", "n2", "n3", "n4"]

    def test_a_preempted_element_uses_no_retry_and_its_node_is_not_to_blame(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries <= 4:
                return Status(FAILED, "PREEMPTED", "n3", cause=Cause.PREEMPTED)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, nodes={"n3", "n4"})
        one.retries(0)
        one.go([0])
        assert excluded(one) == [[]] * 5
        assert one.texts("note")[0] == "element 0 was preempted on n3: no retry is used"
        assert one.texts("note")[1] == "1 preempted element is submitted again"

    def test_the_last_node_is_never_left_out(self, tmp_path: Path) -> None:
        one = stage(tmp_path, self.bad, nodes={"n3"})
        one.go(range(2))
        assert excluded(one) == [[], []]
        (said,) = (text for text in one.texts("note") if "excluded" in text)
        assert said.startswith(
            "node n3 is not excluded, since the cluster finds no other one now: elements 0 "
        )

    def test_a_node_that_is_lost_under_an_element_counts(self, tmp_path: Path) -> None:
        """SLURM itself starts the element again elsewhere."""
        one = stage(tmp_path, lambda one, index, _: one.receipt(index) or DONE, nodes={"n3", "n4"})
        states, looks = one.cluster.states, 0

        def losing(array: str, indices: object) -> object:
            nonlocal looks
            looks += 1
            found = dict(states(array, indices))  # type: ignore[arg-type]
            if looks in (2, 4):
                found[1] = Status(State.PENDING, requeued="lost with node n3", restarts=looks, lost_node="n3")
            return found

        one.cluster.states = losing  # type: ignore[method-assign, assignment]
        one.cluster.queries_until_end = 6
        one.go(range(2))
        assert any("elements 1 (lost with its node) and 1 (lost" in text for text in one.texts("note"))

    def test_what_names_its_failure_itself_is_not_held_against_its_node(self, tmp_path: Path) -> None:
        def how(one: Stage, index: int, tries: int) -> State | Status:
            if tries == 1:
                one.outcome(index, exit_code=1, retry=True, failed=1, failures=[("a", "reset by peer")])
                return Status(FAILED, "exit 1", "n3", exit_code=1)
            one.receipt(index)
            return DONE

        one = stage(tmp_path, how, nodes={"n3", "n4"})
        one.go(range(3))
        assert excluded(one) == [[], []]
