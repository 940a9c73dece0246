"""Whether a controller's own job keeps its elements out, by nodes and by limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cluster_port.test_slurm_rules import Scripted, cluster_of

from penstock.cluster.slurm import facts
from penstock.cluster.slurm.facts import Node, QueuedJob
from penstock.config.settings import JobOptions
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment

GIB = 1 << 30
WHOLE = JobOptions(core_spec=2)
SHARED = JobOptions(core_spec=None, cpus=4, memory=GIB)


def node(name: str, state: str = "MIXED") -> Node:
    return Node(name, 8, 8, 0, 8 * GIB, frozenset({"data"}), frozenset(), state)


def runs(
    job: str, where: str, *, name: str = "penstock-submit-1", user: str = "me", account: str = "ml"
) -> QueuedJob:
    return QueuedJob(job, job, True, user, account, "normal", frozenset({where}), "None", name)


def waits(reason: str) -> QueuedJob:
    return QueuedJob("90", "90", False, "me", "ml", "normal", frozenset(), reason, "penstock-a-r-copy-1")


ONE, TWO = [node("n1")], [node("n1"), node("n2")]
OWN, LATER, EARLIER = runs("70", "n1"), runs("71", "n2", user="you"), runs("69", "n2", user="you")
ORDINARY = runs("60", "n2", name="train")


@pytest.mark.parametrize(
    ("elements", "nodes", "jobs", "reason", "kept"),
    [
        (WHOLE, ONE, [OWN], "Resources", True),
        (WHOLE, TWO, [OWN], "Resources", False),
        (WHOLE, TWO, [OWN, ORDINARY], "Resources", False),
        (WHOLE, TWO, [OWN, EARLIER], "Priority", True),
        (WHOLE, TWO, [OWN, LATER], "Priority", False),
        (WHOLE, [node("n1"), node("n2", "IDLE+DRAIN")], [OWN], "Resources", True),
        (WHOLE, [node("n1", "MIXED+DRAIN")], [OWN], "Resources", False),
        (WHOLE, ONE, [OWN], "Licenses", False),
        (WHOLE, ONE, [OWN], "BeginTime", False),
        (SHARED, ONE, [OWN], "Resources", False),
        (replace(SHARED, cpus=8), ONE, [OWN], "Resources", True),
        (replace(SHARED, memory=8 * GIB), ONE, [OWN], "Resources", True),
        (replace(SHARED, memory=None), ONE, [OWN], "Resources", True),
        (WHOLE, TWO, [OWN], "QOSMaxJobsPerUserLimit", True),
        (WHOLE, TWO, [OWN], "QOSMaxNodePerUserLimit", True),
        (WHOLE, TWO, [OWN], "AssocMaxJobsLimit", True),
        (WHOLE, TWO, [OWN], "QOSMaxCpuPerJobLimit", False),
        (WHOLE, TWO, [OWN, runs("60", "n2", name="train")], "QOSMaxJobsPerUserLimit", False),
        (WHOLE, TWO, [OWN, LATER], "QOSMaxJobsPerUserLimit", True),
        (WHOLE, TWO, [OWN, runs("71", "n2")], "QOSMaxJobsPerUserLimit", False),
        (WHOLE, TWO, [OWN], "QOSGrpJobsLimit", True),
        (WHOLE, TWO, [OWN, LATER], "QOSGrpJobsLimit", False),
        (WHOLE, TWO, [OWN, EARLIER], "QOSGrpJobsLimit", True),
        (WHOLE, TWO, [OWN, EARLIER, ORDINARY], "QOSGrpJobsLimit", False),
        (WHOLE, TWO, [OWN], "AssocGrpJobsLimit", True),
        (WHOLE, TWO, [OWN, runs("60", "n2", name="train", user="you")], "AssocGrpJobsLimit", False),
        (WHOLE, TWO, [OWN, runs("60", "n2", name="train", account="bio")], "AssocGrpJobsLimit", True),
        (WHOLE, TWO, [OWN], "MaxJobsPerAccount", True),
        (WHOLE, TWO, [runs("70", "n1", account="bio")], "AssocGrpJobsLimit", False),
        (WHOLE, ONE, [runs("69", "n1")], "Resources", False),
    ],
)
def test_the_last_of_controllers_that_keep_all_nodes_is_kept_out(
    elements: JobOptions, nodes: list[Node], jobs: list[QueuedJob], reason: str, kept: bool
) -> None:
    every = [*jobs, waits(reason)]
    why = facts.why_kept_out(elements, nodes, every, ["90"], "70", GIB, shares_memory=False)
    assert bool(why) is kept, why
    begun = [*every, replace_running(waits("None"))]
    assert not facts.why_kept_out(elements, nodes, begun, ["90"], "70", GIB, shares_memory=False)


def replace_running(job: QueuedJob) -> QueuedJob:
    return job._replace(job="91", running=True, nodes=frozenset({"n3"}))


def test_memory_that_nobody_asks_for_is_all_of_a_node_where_there_is_no_default() -> None:
    free = replace(SHARED, memory=None)
    assert not facts.stop_on_only_node(free, ONE, ["n1"], GIB, shares_memory=True)
    assert facts.stop_on_only_node(free, ONE, ["n1"], GIB, shares_memory=False)


@pytest.mark.parametrize(
    ("proven", "where", "stops"), [(True, "n1", True), (False, "n1", False), (True, "n9", False)]
)
def test_preflight_in_a_job_looks_at_its_node(
    monkeypatch: pytest.MonkeyPatch, proven: bool, where: str, stops: bool
) -> None:
    """Also of a `penstock run` in a batch job that a person wrote."""

    class Single(Scripted):
        def nodes(self) -> list[Node]:
            return ONE

    monkeypatch.setattr(kernel_facts, "_entered_job", [JobEnvironment(job="70", proven=proven, node=where)])
    cluster = cluster_of(Single())
    cluster.check(["copy"], met=True)
    found = [one for one in cluster.start_results(["copy", "verify"]) if one.about == "the controller's node"]
    assert [one.verdict for one in found] == ["stop"] * stops


@pytest.mark.parametrize(("memory", "stops"), [(None, False), (4 * GIB, False), (5 * GIB, True)])
def test_an_element_needs_what_the_controller_leaves_of_memory(memory: int | None, stops: bool) -> None:
    elements = replace(SHARED, memory=4 * GIB)
    found = facts.stop_on_only_node(elements, ONE, ["n1"], memory, shares_memory=True)
    assert bool(found) is stops
