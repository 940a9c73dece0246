"""Workers that time out, and nodes that fail: what the next submission asks for.

PENSTOCK_TEST_TIMEOUTS=4 has the first test's worker time out four times in a row.
"""

from __future__ import annotations

import html
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import signal_to

from penstock.engine import journal

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm

TIMEOUTS = int(os.environ.get("PENSTOCK_TEST_TIMEOUTS", "1"))
SIGSTOP = 19


def asked(place: Place, array: str, field: str) -> set[str]:
    """What SLURM shows of an array's elements, by a field of `squeue -O`."""
    answer = place.machine.run("squeue", "-h", "--states=all", "-j", array, "-O", f"{field}:40").stdout
    return {line.strip() for line in answer.splitlines()}


def report(place: Place) -> str:
    """The words of the report's page."""
    place.ends(place.penstock("report", "a", "--html", "report.html"))
    return html.unescape((place.work / "report.html").read_text())


@pytest.mark.later_release
@pytest.mark.timeout(300 + 120 * TIMEOUTS)
def test_s29_a_worker_that_times_out_with_progress_uses_no_retry(place: Place) -> None:
    """A payload that is stopped can end by itself no more: SLURM kills it at its limit."""
    place.fill("a", 60)
    place.configure(
        ["a"], cluster={"time": "1min", "retries": 0}, plan={"shard_files": 60}, engine={"limit": "200KiB/s"}
    )
    place.planned("a")
    process = place.penstock("step", "copy", "a")
    limits: dict[str, set[str]] = {}
    states: dict[str, set[str]] = {}

    def look() -> None:
        """SLURM forgets an array 5 minutes after its end."""
        arrays = [array for array, _ in place.submissions("a", "copy") if array]
        limits.update({array: asked(place, array, "TimeLimit") for array in arrays if array not in limits})
        states.update({array: asked(place, array, "State") for array in arrays[:-1] if array not in states})

    def progress(array: str) -> bool:
        """Whether the array's worker noted files as done."""
        before = {name for name, _ in place.submissions("a", "copy")} - {array}
        folders = place.target.glob("a/.penstock/runs/*/journal/00000")
        names = {name for folder in folders for name in journal.names(folder)}
        earlier = {name for name in names if name.partition("_")[0] in before}
        return any(
            journal.records_more(folder, earlier)
            for folder in place.target.glob("a/.penstock/runs/*/journal/00000")
        )

    def stopped() -> bool:
        """SLURM wakes it when it signals the end of its time: it is stopped anew each time."""
        look()
        arrays = place.submissions("a", "copy")
        if len(arrays) > TIMEOUTS:
            return True
        node = place.running().get(f"{arrays[-1][0]}_0") if arrays else None
        for pid in place.machine.payload(node) if node and progress(arrays[-1][0]) else ():
            signal_to(pid, SIGSTOP)
        return False

    place.until(stopped, "the last array", process, seconds=120 + 120 * TIMEOUTS)
    said = place.ends(process)
    assert said.count("shard 0 goes to another") == TIMEOUTS, said
    assert "element 0 failed" not in said
    look()
    arrays = place.workers("a", "copy")
    assert [workers for _, workers in arrays] == [1] * (TIMEOUTS + 1)
    assert {frozenset(limit) for limit in limits.values()} == {frozenset({"1:00"})}
    # COMPLETED: between two stops it could end tidily.
    assert set.union(*(states[array] for array, _ in arrays[:-1])) <= {"TIMEOUT", "COMPLETED"}
    assert asked(place, arrays[-1][0], "State") == {"COMPLETED"}
    assert {claim["charged"] for _, _, claim in place.claims("a", "copy")} == {0}
    place.ends(place.staging("a"))
    place.published("a")


@pytest.mark.timeout(420)
def test_a_node_on_which_elements_fail_twice_gets_none_any_more(place: Place) -> None:
    place.fill("a", 240)
    place.configure(
        ["a"],
        cluster={"max_elements": 4, "time": "auto"},
        plan={"shard_files": 20},
        engine={"limit": "150KiB/s", "workers": 1, "streams": 2},
    )
    place.planned("a")
    process = place.penstock("step", "copy", "a")
    bad = "n3"
    seen: set[str] = set()

    def killed() -> bool:
        """Those that run on that node are killed, once each: one may have ended just before."""
        for element, node in place.running().items():
            if node == bad and element not in seen and place.machine.payload(node):
                place.machine.kill_payload(node)
                seen.add(element)
        return f"node {bad} is excluded from this run" in place.output(process)

    place.until(killed, "the node to be excluded", process)
    first = seen.copy()
    said = place.ends(process)
    assert f"node {bad} is excluded from this run for 12 hours: elements " in said
    assert len(first) >= 2
    arrays = [array for array, _ in place.submissions("a", "copy")]
    shown = place.machine.run("scontrol", "show", "job", arrays[-1]).stdout
    assert f"ExcNodeList={bad}" in shown, said + shown
    began = {line for array in arrays for line in asked(place, array, "NodeList")}
    assert began - {bad}
    again = {f"{array}_{index}" for array in arrays[1:] for index in range(12)}
    assert not {e for e in again if place.running().get(e) == bad}
    limits = set.union(*(asked(place, array, "TimeLimit") for array in arrays))
    assert limits == {"30:00"}, "the least, not UNLIMITED"
    place.ends(place.staging("a"))
    place.published("a")
    assert f"Node {bad} was excluded (copy: elements " in report(place)


ASKS = """\
import json, sys
from pathlib import Path
from penstock.cluster.port import ArraySpec
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.config.settings import ClusterConfig, JobOptions

options = JobOptions(partition="closed", core_spec=None, max_elements=2, time=600)
cluster = SlurmCluster(ClusterConfig(backend="slurm", options=options))
names = ["penstock-hidden-one", "penstock-hidden-two"]
specs = [ArraySpec(name, "copy", (0, 1), ("/bin/sleep", "300"), Path(sys.argv[1])) for name in names]
arrays = [cluster.submit(spec) for spec in specs]
states = cluster.states_of({array: (0, 1) for array in arrays})
print(json.dumps({
    "arrays": arrays,
    "found": [found for name in names for found in cluster.find(name)],
    "states": sorted({status.state.value for some in states.values() for status in some.values()}),
    "longest": cluster.longest("copy"),
    "nodes": sum("closed" in node.partitions for node in cluster._slurm.nodes()),
}))
for array in arrays:
    cluster.cancel(array)
"""


@pytest.mark.later_release
def test_arrays_in_a_hidden_partition_are_seen(place: Place) -> None:
    """slurmctld shows an ordinary account its own jobs of a hidden partition only where it is asked for one
    job, or for all."""
    words = ("PartitionName=closed", "Nodes=n[1-4]", "Hidden=YES", "MaxTime=02:00:00", "State=UP")
    made = place.machine.run("scontrol", "create", *words)
    assert made.returncode == 0, made.stderr
    try:
        told = json.loads(place.ends(place.start(sys.executable, "-c", ASKS, str(place.folder))))
        place.machine.wait_idle()
    finally:
        place.machine.run("scontrol", "delete", "PartitionName=closed")
    assert told["found"] == told["arrays"]
    assert set(told["states"]) <= {"pending", "running"}
    assert told["longest"] == 7200.0
    assert told["nodes"] == 4
