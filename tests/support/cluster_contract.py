"""What every cluster must do: one suite, run over each implementation and over a real one.

It looks behind the port: what an element did is seen in files that it wrote itself.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.cluster.port import ArraySpec, State, abilities_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Cluster, Status

DEADLINE = 120.0

# Argument vector: interpreter, this program, what to do, a folder both sides see, the index.
ELEMENT = """
import json, os, pathlib, signal, sys, time
what, folder, index = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
def say(kind):
    path = folder / f".{kind}-{index}-{os.getpid()}"
    cpus = os.environ.get("PENSTOCK_CPUS")
    path.write_text(json.dumps({"pid": os.getpid(), "group": os.getpgid(0), "cpus": cpus}))
    path.rename(folder / f"{kind}-{index}")
def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.02)
if what == "learn":
    from penstock.cluster.registry import read_job_environment
    path = folder / f".learned-{index}"
    path.write_text(json.dumps({**read_job_environment()._asdict(), "host": os.uname().nodename}))
    path.rename(folder / f"learned-{index}")
if what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what == "tidy":
    signal.signal(signal.SIGTERM, lambda *_: (say("tidied"), sys.exit(143)))
say("began")
print(f"element {index} speaks", flush=True)
if what in ("wait", "tidy", "stubborn"):
    wait_for("go")
say("ended")
sys.exit(3 if what == "fail" or (what == "odd" and index % 2) else 0)
"""


class ClusterContract:
    """Subclasses give `cluster` and `shared`, a folder that the elements' machine sees too."""

    def spec(self, shared: Path, what: str, indices: Sequence[int], name: str = "an-array") -> ArraySpec:
        command = (sys.executable, "-c", ELEMENT, what, str(shared))
        return ArraySpec(name, "copy", tuple(indices), command, shared / "logs")

    def until(
        self,
        cluster: Cluster,
        array: str,
        indices: Sequence[int],
        enough: Callable[[Mapping[int, Status]], bool],
    ) -> Mapping[int, Status]:
        deadline = time.monotonic() + DEADLINE
        while True:
            statuses = cluster.states(array, indices)
            if enough(statuses):
                return statuses
            assert time.monotonic() < deadline, f"still {statuses}"
            time.sleep(min(0.2, cluster.interval(0.0)))

    def ended(self, cluster: Cluster, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return self.until(cluster, array, indices, lambda s: all(x.state.ended for x in s.values()))

    def said(self, shared: Path, kind: str, index: int) -> dict[str, Any]:
        path = shared / f"{kind}-{index}"
        deadline = time.monotonic() + DEADLINE
        while not path.exists():
            assert time.monotonic() < deadline, f"{path.name} never came"
            time.sleep(0.02)
        told: dict[str, Any] = json.loads(path.read_text())
        return told

    def test_every_element_runs_once_with_its_own_index(self, cluster: Cluster, shared: Path) -> None:
        indices = [0, 2, 5, 6]
        array = cluster.submit(self.spec(shared, "run", indices))
        statuses = self.ended(cluster, array, indices)
        assert {i: s.state for i, s in statuses.items()} == dict.fromkeys(indices, State.DONE)
        assert sorted(p.name for p in shared.glob("ended-*")) == [f"ended-{i}" for i in indices]
        assert all(s.node and s.started <= s.ended for s in statuses.values())

    def test_states_are_each_elements_own(self, cluster: Cluster, shared: Path) -> None:
        indices = [0, 1, 2, 3]
        array = cluster.submit(self.spec(shared, "odd", indices))
        statuses = self.ended(cluster, array, indices)
        assert [statuses[i].state for i in indices] == [State.DONE, State.FAILED, State.DONE, State.FAILED]
        assert "3" in statuses[1].reason
        assert [(statuses[i].exit_code, statuses[i].signal) for i in indices] == [(0, None), (3, None)] * 2

    def test_several_arrays_are_looked_at_in_one_query(self, cluster: Cluster, shared: Path) -> None:
        """S26."""
        one = cluster.submit(self.spec(shared, "run", [0, 1], "array-one"))
        two = cluster.submit(self.spec(shared, "odd", [1, 3], "array-two"))
        self.ended(cluster, one, [0, 1])
        self.ended(cluster, two, [1, 3])
        found = cluster.states_of({one: [0, 1], two: [1, 3], "1999999999": [0]})
        assert {array: {i: s.state for i, s in states.items()} for array, states in found.items()} == {
            one: dict.fromkeys([0, 1], State.DONE),
            two: dict.fromkeys([1, 3], State.FAILED),
            "1999999999": {0: State.LOST},
        }

    def test_an_array_may_stand_for_indices_beyond_its_numbers(self, cluster: Cluster, shared: Path) -> None:
        """MaxArraySize bounds the numbers of SLURM's elements, not the indices that penstock gives them."""
        array = cluster.submit(replace(self.spec(shared, "run", [0, 2]), base=1001))
        statuses = self.ended(cluster, array, [0, 2])
        assert {i: s.state for i, s in statuses.items()} == dict.fromkeys([0, 2], State.DONE)
        assert sorted(p.name for p in shared.glob("ended-*")) == ["ended-1001", "ended-1003"]
        assert any("element 1003 speaks" in path.read_text() for path in (shared / "logs").iterdir())

    def test_output_goes_to_the_logs(self, cluster: Cluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "run", [1]))
        self.ended(cluster, array, [1])
        text = "".join(path.read_text() for path in (shared / "logs").iterdir())
        assert "element 1 speaks" in text

    def test_no_more_run_at_once_than_there_are_slots(self, cluster: Cluster, shared: Path) -> None:
        slots = cluster.slots("copy")
        indices = list(range(slots + 2))
        array = cluster.submit(self.spec(shared, "wait", indices))
        self.until(
            cluster,
            array,
            indices,
            lambda s: sum(x.state is State.RUNNING for x in s.values()) == slots,
        )
        for index in indices[:slots]:
            self.said(shared, "began", index)
        assert len(list(shared.glob("began-*"))) == slots
        (shared / "go").touch()
        self.ended(cluster, array, indices)
        assert len(list(shared.glob("ended-*"))) == len(indices)

    def test_cancelled_elements_end_tidily_and_waiting_ones_never_begin(
        self, cluster: Cluster, shared: Path
    ) -> None:
        slots = cluster.slots("copy")
        indices = list(range(slots + 1))
        array = cluster.submit(self.spec(shared, "tidy", indices))
        self.said(shared, "began", 0)
        cluster.cancel(array)
        statuses = self.ended(cluster, array, indices)
        assert not any(s.state is State.DONE for s in statuses.values())
        assert statuses[indices[-1]].state is State.CANCELLED
        self.said(shared, "tidied", 0)
        assert not list(shared.glob("ended-*"))

    def test_one_element_can_be_cancelled_alone(self, cluster: Cluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "wait", [0, 1]))
        self.said(shared, "began", 0)
        cluster.cancel(array, [1])
        self.until(cluster, array, [1], lambda s: s[1].state.ended)
        assert cluster.states(array, [0])[0].state is State.RUNNING
        (shared / "go").touch()
        assert self.ended(cluster, array, [0])[0].state is State.DONE

    def test_waiting_elements_that_are_cancelled_by_index_count_as_cancelled(
        self, cluster: Cluster, shared: Path
    ) -> None:
        """SLURM keeps no record of them."""
        slots = cluster.slots("copy")
        waiting = [slots, slots + 1]
        array = cluster.submit(self.spec(shared, "wait", range(slots + 2)))
        self.said(shared, "began", 0)
        cluster.cancel(array, waiting)
        statuses = self.until(cluster, array, waiting, lambda s: all(x.state.ended for x in s.values()))
        assert {status.state for status in statuses.values()} == {State.CANCELLED}
        (shared / "go").touch()
        self.ended(cluster, array, range(slots))
        assert len(list(shared.glob("ended-*"))) == slots

    def test_a_throttled_array_starts_no_more_than_that(self, cluster: Cluster, shared: Path) -> None:
        indices = [0, 1, 2]
        array = cluster.submit(replace(self.spec(shared, "wait", indices), at_once=1))
        self.said(shared, "began", 0)
        assert len(list(shared.glob("began-*"))) == 1
        cluster.throttle(array, 2)
        self.until(cluster, array, indices, lambda s: sum(x.state is State.RUNNING for x in s.values()) == 2)
        (shared / "go").touch()
        self.ended(cluster, array, indices)
        cluster.throttle(array, 1)

    def test_an_element_that_waits_or_runs_has_no_exit_status(self, cluster: Cluster, shared: Path) -> None:
        indices = list(range(cluster.slots("copy") + 1))
        array = cluster.submit(self.spec(shared, "wait", indices))
        self.said(shared, "began", 0)
        statuses = cluster.states(array, indices)
        assert {(s.exit_code, s.signal) for s in statuses.values()} == {(None, None)}
        (shared / "go").touch()
        self.ended(cluster, array, indices)

    def test_its_abilities_are_those_of_its_name(self, cluster: Cluster) -> None:
        assert cluster.abilities == abilities_of(cluster.kind)

    def test_an_element_learns_its_job_node_and_cpus(self, cluster: Cluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "learn", [2, 4], "penstock-learns"))
        statuses = self.ended(cluster, array, [2, 4])
        for index in (2, 4):
            learned = self.said(shared, "learned", index)
            assert (learned["node"] or learned["host"]) == statuses[index].node
            assert learned["cpus"] >= 1
            assert learned["cpus_from"]
            assert learned["restarts"] == 0
            named = (learned["array"], learned["array_name"], learned["element"], learned["proven"])
            if cluster.abilities.has_nodes:
                assert named == (array, "penstock-learns", index, True)
                assert learned["cluster"] == cluster.name()
            else:
                assert named == ("", "", None, False)

    def test_an_unknown_array_is_lost(self, cluster: Cluster) -> None:
        statuses = cluster.states("1999999999", [0, 1])
        assert {(s.state, s.exit_code, s.signal) for s in statuses.values()} == {(State.LOST, None, None)}

    def test_a_name_that_was_never_submitted_is_not_found(self, cluster: Cluster) -> None:
        assert list(cluster.find("penstock-never-submitted")) == []

    def test_an_array_without_an_answer_is_waited_for_longer_where_its_controller_was_killed(
        self, cluster: Cluster
    ) -> None:
        assert 0.0 <= cluster.appears_within(ended=True) <= cluster.appears_within(ended=False)

    def test_cancelling_twice_or_too_late_is_no_error(self, cluster: Cluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "run", [0]))
        self.ended(cluster, array, [0])
        cluster.cancel(array)
        cluster.cancel(array, [0])
        assert cluster.states(array, [0])[0].state is State.DONE

    def test_a_job_that_is_not_known_counts_as_alive(self, cluster: Cluster) -> None:
        assert not cluster.holder_ended("1999999999")

    def test_the_pause_between_questions_stays_within_reason(self, cluster: Cluster) -> None:
        pauses = [cluster.interval(waited) for waited in (0.0, 1.0, 60.0, 3600.0)]
        assert all(0.0 < pause <= 60.0 for pause in pauses)
        assert pauses == sorted(pauses)
