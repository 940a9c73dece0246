"""Machines of several shapes, as folders with what /sys says of them, and as SLURM has them in its books."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.facts import Node
from penstock.core import range_lists

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Thread(NamedTuple):
    """One CPU of the kernel, and where it is."""

    socket: int
    core: int
    """Of the socket."""
    node: int
    l3: int


class Shape(NamedTuple):
    """By the kernel's numbers of the CPUs."""

    threads: Mapping[int, Thread]
    nics: Mapping[str, int | None]

    def node(self, **more: object) -> Node:
        """The same machine in SLURM's books, with sockets that are the machine's."""
        sockets = len({one.socket for one in self.threads.values()})
        cores = len({(one.socket, one.core) for one in self.threads.values()})
        cpus = len(self.threads)
        node = Node("n1", cpus, cores, 0, 1 << 38, frozenset({"data"}), frozenset())
        return node._replace(sockets=sockets, threads=cpus // cores)._replace(**more)  # type: ignore[arg-type]


def plain(sockets: int, each: int, threads: int = 1, l3: int = 1, nics: int | None = None) -> Shape:
    """Numbered as most machines are: the cores of one socket after those of another, then the second threads.
    `l3`: caches of a socket; `nics`: the NUMA node of ib0. A NUMA node is a socket."""
    found = {}
    for thread in range(threads):
        for socket in range(sockets):
            for core in range(each):
                cpu = (thread * sockets + socket) * each + core
                found[cpu] = Thread(socket, core, socket, socket * l3 + core * l3 // each)
    return Shape(found, {"ib0": nics, "eno1": None} if nics is not None else {"eno1": None})


def interleaved(each: int, nic: int | None = None) -> Shape:
    """Two sockets, with even CPUs on the one and odd ones on the other."""
    found = {cpu: Thread(cpu % 2, cpu // 2, cpu % 2, cpu % 2) for cpu in range(2 * each)}
    return Shape(found, {"ib0": nic} if nic is not None else {})


def quarters() -> Shape:
    """Two sockets of two NUMA nodes each, 14 cores a node, and ib0 on node 1: the machine of WEKA's page."""
    found = {cpu: Thread(cpu // 28, cpu % 28, cpu // 14, cpu // 14) for cpu in range(56)}
    return Shape(found, {"ib0": 1})


TWO_18 = plain(2, 18)
TWO_24_HT = plain(2, 24, threads=2)
EPYC = plain(2, 64, l3=8)
EVEN_ODD = interleaved(32)


def sys_tree(root: Path, shape: Shape) -> Path:
    """What /sys says of such a machine; the folder."""

    def put(name: str, text: object) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    put("devices/system/cpu/online", range_lists.listed(shape.threads))
    nodes: dict[int, set[int]] = {}
    for cpu, one in shape.threads.items():
        at = f"devices/system/cpu/cpu{cpu}"
        siblings = {other for other, two in shape.threads.items() if two[:2] == one[:2]}
        below = {other for other, two in shape.threads.items() if two.l3 == one.l3}
        put(f"{at}/topology/core_cpus_list", range_lists.listed(siblings))
        put(f"{at}/topology/physical_package_id", one.socket)
        put(f"{at}/cache/index0/level", 1)
        put(f"{at}/cache/index0/shared_cpu_list", range_lists.listed(siblings))
        put(f"{at}/cache/index3/level", 3)
        put(f"{at}/cache/index3/shared_cpu_list", range_lists.listed(below))
        nodes.setdefault(one.node, set()).add(cpu)
    for number, cpus in nodes.items():
        put(f"devices/system/node/node{number}/cpulist", range_lists.listed(cpus))
    put("devices/system/node/online", "0")
    for name, number in shape.nics.items():
        put(f"class/net/{name}/device/numa_node", -1 if number is None else number)
    (root / "class/net/lo").mkdir(parents=True)
    return root


def lscpu(shape: Shape, *, quoted: bool = False) -> str:
    """What `lscpu -J -e` prints of it; `quoted`: as util-linux before 2.33 writes numbers."""
    rows = []
    for cpu, one in shape.threads.items():
        core = one.socket * 1000 + one.core
        values = {
            "cpu": cpu, "node": one.node, "socket": one.socket, "core": core,
            "l1d:l1i:l2:l3": f"{core}:{core}:{core}:{one.l3}", "online": True,
        }  # fmt: skip
        rows.append({k: str(v) for k, v in values.items()} | {"online": "yes"} if quoted else values)
    return json.dumps({"cpus": rows})
