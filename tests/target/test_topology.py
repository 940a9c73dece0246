"""The shape of a machine, by what /sys or lscpu says of it (L3)."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support import machines

from penstock.core import node_answer, range_lists
from penstock.core.node_answer import (
    FileValue,
    HeldCores,
    HostSeen,
    Machine,
    MountSeen,
    Nic,
    NodeAnswer,
    NodeCores,
)
from penstock.host import machine_settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.machines import Shape


@pytest.mark.parametrize(
    ("text", "cpus", "again"),
    [
        ("", (), ""),
        ("0\n", (0,), "0"),
        ("3-4,19", (3, 4, 19), "3-4,19"),
        ("19,4,3,4", (3, 4, 19), "3-4,19"),
        ("0-10:2/4", (0, 1, 4, 5, 8, 9), "0-1,4-5,8-9"),
    ],
)
def test_lists_of_cpus_as_the_kernel_writes_them(text: str, cpus: tuple[int, ...], again: str) -> None:
    assert range_lists.cpus(text) == cpus
    assert range_lists.listed(cpus) == again
    with pytest.raises(ValueError, match='"a" is no number of a CPU'):
        range_lists.cpus(text + ",a-b")


@pytest.mark.parametrize(
    ("shape", "sockets", "cores", "caches", "nodes"),
    [
        (machines.TWO_18, ["0-17", "18-35"], 36, 2, {0: "0-17", 1: "18-35"}),
        (machines.TWO_24_HT, ["0-23,48-71", "24-47,72-95"], 48, 2, {0: "0-23,48-71", 1: "24-47,72-95"}),
        (machines.EPYC, ["0-63", "64-127"], 128, 16, {0: "0-63", 1: "64-127"}),
        (
            machines.interleaved(4),
            ["0,2,4,6", "1,3,5,7"],
            8,
            2,
            {0: "0,2,4,6", 1: "1,3,5,7"},
        ),
        (machines.quarters(), ["0-27", "28-55"], 56, 4, {0: "0-13", 1: "14-27", 2: "28-41", 3: "42-55"}),
    ],
    ids=["2x18", "2x24 with siblings", "EPYC", "even and odd", "four NUMA nodes"],
)
def test_l3_the_shape_of_a_machine_by_sys_and_by_lscpu(
    tmp_path: Path, shape: Shape, sockets: list[str], cores: int, caches: int, nodes: dict[int, str]
) -> None:
    """L3."""
    machine = machine_settings.read_topology(machines.sys_tree(tmp_path, shape))
    assert [range_lists.listed(one) for one in machine.sockets] == sockets
    assert (len(machine.cores), len(machine.caches)) == (cores, caches)
    assert {number: range_lists.listed(one) for number, one in machine.nodes.items()} == nodes
    assert {nic.name: nic.node for nic in machine.nics} == shape.nics
    for quoted in (False, True):
        assert machine_settings.from_lscpu(machines.lscpu(shape, quoted=quoted), machine.nics) == machine


def test_what_says_nothing_is_empty(tmp_path: Path) -> None:
    assert machine_settings.read_topology(tmp_path) == Machine()
    for text in ("", "[]", "{}", '{"cpus": [{"cpu": 0}]}', '{"cpus": 3}', '{"lscpu": []}'):
        assert machine_settings.from_lscpu(text, [Nic("ib0", 1)]) == Machine(nics=(Nic("ib0", 1),)), text


def test_this_machine_by_sys_and_by_lscpu() -> None:
    """L3: what is read here, by both ways, is one machine."""
    machine = machine_settings.read_topology()
    told = subprocess.run(machine_settings.LSCPU, capture_output=True, text=True, check=True).stdout
    again = machine_settings.from_lscpu(told, machine.nics)
    assert machine.cores
    assert (again.cores, again.sockets) == (machine.cores, machine.sockets)


def test_a_node_says_its_cores_in_its_answer(tmp_path: Path) -> None:
    machine = machine_settings.read_topology(machines.sys_tree(tmp_path, machines.interleaved(2, nic=1)))
    files = (FileValue("/etc/wekaio/weka.conf", error="Permission denied"),)
    held = (HeldCores("client", (2, 3), "mount options", ("ib0",)),)
    cores = NodeCores(machine, True, held, False, files, FileValue("/etc/slurm/cgroup.conf", "yes"))
    answer = NodeAnswer(HostSeen("n1", "6", "x", 4, 1, 0, 0), MountSeen("/t"), (), cores=cores)
    content = json.dumps(node_answer.NODE_ANSWER.to_json(answer)).encode()
    assert node_answer.NODE_ANSWER.from_json(content, "n1") == answer
