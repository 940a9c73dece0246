"""The shape of this machine: sockets, cores, siblings, NUMA nodes, caches of level 3, network devices. From
/sys, or from `lscpu -J -e` where /sys lacks it (some containers). Preflight compares WEKA's cores with
SLURM's."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import cpu_lists
from penstock.core.documents.node_cores import Machine, Nic
from penstock.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

SYS = "/sys"
LSCPU = ("lscpu", "-J", "-e")  # the command whose output `from_lscpu` reads


def read(sys: str | os.PathLike[str] = SYS) -> Machine:
    """Return the machine by /sys, as any account may read it. What /sys lacks is empty."""
    folder = Path(sys, "devices/system/cpu")
    online = _list(folder / "online")
    cores: dict[Hashable, list[int]] = {}
    sockets: dict[Hashable, list[int]] = {}
    caches: dict[Hashable, list[int]] = {}
    for cpu in online:
        at = folder / f"cpu{cpu}"
        siblings = _list(at / "topology/core_cpus_list") or _list(at / "topology/thread_siblings_list")
        if not siblings:
            return Machine(nics=_nics(sys))
        cores.setdefault(siblings, []).append(cpu)
        if (socket := _number(at / "topology/physical_package_id")) is not None:
            sockets.setdefault(socket, []).append(cpu)
        if below := _below_l3(at / "cache"):
            caches.setdefault(below, []).append(cpu)
    here = frozenset(online)
    nodes = {number: tuple(sorted(here & cpus)) for number, cpus in _numa_nodes(sys).items() if here & cpus}
    return Machine(_groups(cores), _groups(sockets), _groups(caches), nodes, _nics(sys))


def from_lscpu(out: str, nics: Iterable[Nic] = ()) -> Machine:
    """Return the machine by the output of `LSCPU`, with these network devices; empty for any other text."""
    try:
        rows = json.loads(out)["cpus"]
        cores: dict[Hashable, list[int]] = {}
        sockets: dict[Hashable, list[int]] = {}
        caches: dict[Hashable, list[int]] = {}
        nodes: dict[int, list[int]] = {}
        for row in rows:
            if row.get("online") in (False, "no"):
                continue
            cpu = int(row["cpu"])
            socket = row.get("socket")
            cores.setdefault((socket, row["core"]), []).append(cpu)
            if _given(socket):
                sockets.setdefault(socket, []).append(cpu)
            if _given(row.get("node")):
                nodes.setdefault(int(row["node"]), []).append(cpu)
            # Names and numbers of caches, joined by colons: "l1d:l1i:l2:l3" is "0:0:0:0".
            names = next((name for name in row if name.lower().endswith("l3")), "")
            last = str(row.get(names) or "").rpartition(":")[2]
            if last.isdecimal():
                caches.setdefault(last, []).append(cpu)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Machine(nics=tuple(nics))
    return Machine(
        _groups(cores),
        _groups(sockets),
        _groups(caches),
        {node: tuple(sorted(cpus)) for node, cpus in sorted(nodes.items())},
        tuple(nics),
    )


def _numa_nodes(sys: str | os.PathLike[str]) -> dict[int, frozenset[int]]:
    """Return the CPUs of each node that has any, by its number, ascending; {}: not known."""
    folder = f"{sys}/devices/system/node"
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    nodes: dict[int, frozenset[int]] = {}
    for number in sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)):
        try:
            with open(f"{folder}/node{number}/cpulist", encoding="ascii") as stream:
                cpus = frozenset(cpu_lists.cpus(stream.read()))
        except (OSError, ValueError):
            return {}
        if cpus:
            nodes[number] = cpus
    return nodes


def _groups(members: Mapping[Hashable, list[int]]) -> tuple[tuple[int, ...], ...]:
    """Sort the groups by their lowest CPUs."""
    return tuple(sorted(tuple(sorted(cpus)) for cpus in members.values()))


def _below_l3(caches: Path) -> tuple[int, ...]:
    for index in _entries(caches):
        if _number(caches / index / "level") == 3:
            return _list(caches / index / "shared_cpu_list")
    return ()


def _nics(sys: str | os.PathLike[str]) -> tuple[Nic, ...]:
    """Return physical network devices, without `lo`, bridges and VLANs."""
    folder = Path(sys, "class/net")
    nics = []
    for name in sorted(_entries(folder)):
        if not (folder / name / "device").is_dir():
            continue
        node = _number(folder / name / "device/numa_node")
        # The kernel writes -1 for "not known".
        nics.append(Nic(printable(name), node if node is not None and node >= 0 else None))
    return tuple(nics)


def network_speed(sys: str | os.PathLike[str] = SYS) -> float | None:
    """Return bytes a second of the fastest active network device; None: not stated, as if virtual."""
    speeds = [_number(Path(sys, "class/net", nic.name, "speed")) for nic in _nics(sys)]
    megabits = max((speed for speed in speeds if speed), default=-1)
    return megabits * 1e6 / 8 if megabits > 0 else None


def _given(value: object) -> bool:
    return value not in (None, "", "-")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _list(path: Path) -> tuple[int, ...]:
    try:
        return cpu_lists.cpus(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return ()


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
