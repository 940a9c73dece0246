"""The NUMA nodes of this machine. `sys` is the folder to read: tests give one of their own."""

from __future__ import annotations

import os
import re

from penstock.core import cpu_lists

SYS = "/sys"


def numa_nodes(sys: str | os.PathLike[str] = SYS) -> dict[int, frozenset[int]]:
    """The CPUs of each node by its number, ascending; a node without CPUs is left out. {} where the kernel
    does not say."""
    folder = f"{sys}/devices/system/node"
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found: dict[int, frozenset[int]] = {}
    for number in sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name)):
        try:
            with open(f"{folder}/node{number}/cpulist", encoding="ascii") as stream:
                cpus = frozenset(cpu_lists.cpus(stream.read()))
        except (OSError, ValueError):
            return {}
        if cpus:
            found[number] = cpus
    return found
