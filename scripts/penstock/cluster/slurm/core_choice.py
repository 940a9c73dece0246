"""Which cores SLURM keeps its jobs off, by its own rules; and which cores suit WEKA's mount best.

SLURM numbers cores itself ("abstract"): by socket, then core, then thread, in hwloc's order (`hwloc-ls`, L#).
`CpuSpecList` has these numbers; mount options, cpusets and WEKA have the kernel's (P#). They differ where the
kernel numbers across sockets or threads.

Sources: slurm.conf(5), CoreSpecCount, CpuSpecList, spec_cores_first; Slurm's `_select_spec_cores` of slurmd.c
and `make_core_bitmap` of the select plugin, which agree; docs.weka.io, "Manage CPU allocations for WEKA and
Slurm".
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.settings import AUTO_CORES
from penstock.core import range_lists

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.cluster.slurm.nodes import Node
    from penstock.config.settings import JobOptions
    from penstock.core.node_answer import Machine

WISH = 2  # the cores that `cluster.core_spec: auto` asks for, where it asks for any


def settled(options: JobOptions, nodes: Sequence[Node], *, allowed: bool) -> JobOptions:
    """Settle `core_spec: auto` in these options. `nodes`: those of the job; `allowed`:
    AllowSpecResourcesUsage.

    | core_spec      | allowed | a node keeps cores itself | all have more than WISH cores | asked for |
    |----------------|---------|---------------------------|-------------------------------|-----------|
    | a number, none | any     | any                       | any                           | that      |
    | auto           | no      | any                       | any                           | none      |
    | auto           | yes     | yes                       | any                           | none      |
    | auto           | yes     | no                        | no                            | none      |
    | auto           | yes     | no                        | yes                           | WISH      |
    """
    if options.core_spec != AUTO_CORES:
        return options
    wish = not against(nodes, allowed=allowed)
    return dataclasses.replace(options, core_spec=WISH if wish else None)


def against(nodes: Sequence[Node], *, allowed: bool) -> str:
    """Explain why `core_spec: auto` asks for nothing on these nodes; "" where it asks for WISH cores."""
    if not allowed:
        return "AllowSpecResourcesUsage=no in slurm.conf"
    keeping = [node.name for node in nodes if node.reserved]
    if keeping:
        more = f" and {len(keeping) - 1} more keep" if len(keeping) > 1 else " keeps"
        return f"{keeping[0]}{more} cores by CpuSpecList or CoreSpecCount"
    small = [node.name for node in nodes if node.cores <= WISH]
    return f"{small[0]} has no more than {WISH} cores" if small else ""


def in_order(sockets: int, each: int, *, first: bool = False) -> Iterator[int]:
    """Iterate over SLURM's core numbers in the order in which it reserves them. The last core of each socket,
    the last socket first, then the cores before these. With `spec_cores_first`: the first cores, from the
    first socket on. `each`: cores of a socket."""
    cores, places = range(each), range(sockets)
    for core in cores if first else reversed(cores):
        for socket in places if first else reversed(places):
            yield socket * each + core


def reserved(node: Node, *, first: bool = False) -> tuple[int, ...]:
    """Return the cores that the node itself keeps, in SLURM's numbers, sorted. CpuSpecList, with the whole of
    each named core; else the first CoreSpecCount in order. () where it keeps none, or its shape is unknown.
    """
    if not node.threads:
        return ()
    if node.cpu_spec:
        return tuple(sorted({cpu // node.threads for cpu in range_lists.cpus(node.cpu_spec)}))
    order = in_order(node.sockets, node.cores // max(1, node.sockets), first=first)
    return tuple(sorted(itertools.islice(order, node.reserved)))


def kept(node: Node, asked: int | None, *, allowed: bool, first: bool = False) -> tuple[int, ...]:
    """Return the cores that a job with `--core-spec=<asked>` (None: without) does not get: SLURM's numbers,
    sorted.

    | asked               | AllowSpecResourcesUsage | kept from the job                                 |
    |---------------------|-------------------------|---------------------------------------------------|
    | any                 | no                      | what the node keeps                               |
    | nothing             | yes                     | what the node keeps                               |
    | less than node's    | yes                     | so many of the node's, the lowest numbers         |
    | as many, or more    | yes                     | the node's, and further ones in order             |
    """
    own = reserved(node, first=first)
    if asked is None or not allowed:
        return own
    if asked <= len(own):
        return own[:asked]
    order = in_order(node.sockets, node.cores // max(1, node.sockets), first=first)
    further = (core for core in order if core not in own)
    return tuple(sorted([*own, *itertools.islice(further, asked - len(own))]))


class Numbering(NamedTuple):
    """SLURM's numbering of a machine."""

    # By SLURM's number of the socket, then of the core in it: the kernel's numbers of the core's CPUs.
    sockets: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def cores(self) -> list[tuple[int, ...]]:
        """The cores, by SLURM's numbers."""
        return [core for socket in self.sockets for core in socket]

    @property
    def threads(self) -> int:
        """Threads of the first core."""
        return len(self.sockets[0][0])

    def fits(self, node: Node) -> bool:
        """Return whether SLURM's books have the node as the machine is."""
        shape = {(len(socket), len(core)) for socket in self.sockets for core in socket}
        each = node.cores // max(1, node.sockets)
        return len(self.sockets) == node.sockets and shape == {(each, node.threads)}

    def cpus(self, cores: Iterable[int]) -> frozenset[int]:
        """Return the kernel's numbers of all CPUs of these cores."""
        all_cores = self.cores
        return frozenset(cpu for core in cores for cpu in all_cores[core])

    def cores_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Return SLURM's numbers of the cores that have one of these CPUs, sorted."""
        wanted = set(cpus)
        return tuple(number for number, core in enumerate(self.cores) if wanted.intersection(core))

    def spec_list(self, cores: Iterable[int]) -> str:
        """Return what `CpuSpecList=` takes for these cores: SLURM's numbers of all their CPUs."""
        width = self.threads
        return range_lists.listed(core * width + thread for core in cores for thread in range(width))

    def mount_options(self, cores: Iterable[int]) -> str:
        """Return WEKA's mount options for these cores: the first CPU of each. WEKA keeps siblings free
        itself."""
        all_cores = self.cores
        return ",".join(f"core={all_cores[core][0]}" for core in cores)


SOCKET, NUMA, L3 = "socket", "numa_node_as_socket", "l3cache_as_socket"


def numbering(machine: Machine, socket_is: str = SOCKET) -> Numbering | None:
    """Return SLURM's numbering of this machine; None where its shape is unknown. `socket_is`: sockets, or by
    `SlurmdParameters` NUMA nodes or caches of level 3. hwloc orders each level by the lowest CPU. Cores of a
    group inside a larger group never mix with those of another."""
    named = {NUMA: list(machine.nodes.values()), L3: list(machine.caches)}
    sockets = [set(cpus) for cpus in named.get(socket_is, list(machine.sockets))]
    if not sockets or not machine.cores:
        return None
    levels = [[set(cpus) for cpus in groups] for groups in named.values()]
    # The level with the larger groups is the outer one.
    levels.sort(key=len)

    def place(core: Sequence[int]) -> list[int]:
        within = [next((min(group) for group in groups if core[0] in group), -1) for groups in levels]
        return [*within, min(core)]

    sockets_in_order = []
    for socket in sorted(sockets, key=min):
        inside = [tuple(sorted(core)) for core in machine.cores if core[0] in socket]
        sockets_in_order.append(tuple(sorted(inside, key=place)))
    return Numbering(tuple(cores for cores in sockets_in_order if cores)) if all(sockets_in_order) else None


def proposal(
    numbers: Numbering, machine: Machine, count: int, near: int | None = None, *, first: bool = False
) -> tuple[int, ...]:
    """Propose so many cores for a mount, in SLURM's numbers; fewer where the machine has fewer.

    Never the core of CPU 0, which serves interrupts of all kinds. `near`: the NUMA node of the network
    device.

    | near      | the cores                                                                         |
    |-----------|-----------------------------------------------------------------------------------|
    | not known | those that SLURM reserves by CoreSpecCount or --core-spec, in that order          |
    | known     | the last ones of that NUMA node, lowest number first; then as if it were not known |
    """
    order = [core for core in in_order_of(numbers, first=first) if 0 not in numbers.cores[core]]
    beside = set(machine.nodes.get(near, ())) if near is not None else set()
    here = [core for core in numbers.cores_of(beside) if 0 not in numbers.cores[core]]
    nearest = here[-count:] if count else []
    return tuple([*nearest, *(core for core in order if core not in nearest)][:count])


def in_order_of(numbers: Numbering, *, first: bool) -> list[int]:
    """Return `in_order` of this machine, whose sockets may differ in size."""
    each = max(map(len, numbers.sockets))
    starts = list(itertools.accumulate((len(socket) for socket in numbers.sockets), initial=0))
    cores = []
    for place in in_order(len(numbers.sockets), each, first=first):
        socket, core = divmod(place, each)
        if core < len(numbers.sockets[socket]):
            cores.append(starts[socket] + core)
    return cores
