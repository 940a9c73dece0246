"""Which nodes an element may run on, and what their states mean: by SLURM's own answers, without a SLURM."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.slurm import facts
from penstock.cluster.slurm.facts import Node, is_lost, read_nodes
from penstock.config.settings import JobOptions


def node(name: str, **over: Any) -> Node:
    plain: dict[str, Any] = {
        "cpus": 8, "cores": 8, "reserved": 0, "memory": 8 << 30, "partitions": frozenset({"data"}),
        "features": frozenset({"fast"}), "state": "IDLE",
    }  # fmt: skip
    return Node(name, **{**plain, **over})


NODES = [node("n1"), node("n2"), node("n3", partitions=frozenset({"data", "cpu"})), node("n4")]


def options(**over: Any) -> JobOptions:
    return JobOptions(**{"core_spec": None, "time": None, **over})


@pytest.mark.parametrize(
    ("over", "asked"),
    [
        ({"core_spec": 2}, "a whole node, less 2 of its cores (--core-spec=2)"),
        ({"core_spec": 2, "cpus": 4}, "a whole node, less 2 of its cores (--core-spec=2)"),
        ({}, "a whole node (--exclusive; `cluster.cpus` asks for less)"),
        ({"cpus": 4}, "4 CPUs of a node that it shares (--cpus-per-task=4)"),
    ],
)
def test_what_an_element_takes_of_a_node_is_said(over: dict[str, Any], asked: str) -> None:
    assert facts.asked(options(**over)) == asked


NODE = (
    "NodeName=n4 Arch=x86_64 CoresPerSocket=8  CPUAlloc=1 CPUEfctv=8 CPUTot=8 AvailableFeatures=plain "
    "ActiveFeatures=plain Gres=(null) RealMemory=8000 Sockets=1 Boards=1 State={state} ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Partitions=data,cpu,urgent "
)


@pytest.mark.parametrize(
    "state", ["IDLE+POWERING_DOWN", "IDLE+POWERED_DOWN", "MIXED+NOT_RESPONDING+POWERING_UP"]
)
def test_states_of_a_real_node_that_was_switched_off(state: str) -> None:
    (seen,) = read_nodes(NODE.format(state=state))
    assert (seen.away, seen.idle, seen.saving) == (False, False, True)


@pytest.mark.parametrize(
    ("over", "names"),
    [
        ({}, "n1 n2 n3 n4"),
        ({"partition": "cpu"}, "n3"),
        ({"exclude": "n[1-2]"}, "n3 n4"),
        ({"exclude": "n[1-4]"}, ""),
        ({"constraint": "slow"}, ""),
    ],
)
def test_which_nodes_an_element_may_run_on(over: dict[str, Any], names: str) -> None:
    assert [one.name for one in facts.able(options(**over), NODES, "data")] == names.split()


@pytest.mark.parametrize(
    ("state", "away", "idle"),
    [
        ("IDLE", False, True),
        ("ALLOCATED", False, False),
        ("IDLE+DRAIN", True, False),
        ("DOWN", True, False),
        ("DOWN+POWERED_DOWN", True, False),
        ("IDLE+NOT_RESPONDING", True, False),
        ("IDLE*", True, False),
        ("IDLE+CLOUD+POWERED_DOWN", False, False),
        ("IDLE~", False, False),
        ("IDLE#", False, False),
        ("ALLOCATED#", False, False),
        ("IDLE%", False, False),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", False, False),
        ("IDLE+POWERING_DOWN", False, False),
        ("IDLE+POWER_DOWN", False, False),
    ],
)
def test_a_node_that_saves_power_is_not_away(state: str, away: bool, idle: bool) -> None:
    seen = node("n1", state=state)
    assert (seen.away, seen.idle) == (away, idle)


def test_which_nodes_are_lost_to_their_jobs() -> None:
    lost = ["down", "down*", "idle*", "allocated*", "down~"]
    kept = [
        "idle",
        "idle~",
        "idle%",
        "idle!",
        "allocated#",
        "powered_down",
        "powering_down",
        "mixed",
        "draining",
    ]
    assert [word for word in lost + kept if is_lost(word)] == lost
