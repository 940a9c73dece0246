"""Which cores SLURM withholds from jobs, according to its own rules, slurm.conf and cgroup.conf; and which
cores suit WEKA's mount best. Pure.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.settings import AUTO_CORES
from penstock.core import range_lists
from penstock.core.human import nearest, printable
from penstock.core.run_steps import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.cluster.slurm.facts import Node, SlurmSettings
    from penstock.config.settings import JobOptions
    from penstock.core.node_answer import FileValue, Machine


# SLURM has its own ("abstract") numbers for CPUs: ordered by socket, then core, then thread, in hwloc's order
# (`hwloc-ls`, L#). `CpuSpecList` uses them. A core's number is that of its CPUs divided by the threads per
# core. Mount options, cpusets and WEKA use the kernel's numbers (P#). SLURM's and the kernel's numbers differ
# if the kernel's consecutive numbers alternate between sockets. They also differ if the kernel numbers the
# first thread of every core before any second thread.
#
# Sources: slurm.conf(5), CoreSpecCount, CpuSpecList, spec_cores_first; Slurm's `_select_spec_cores` of
# slurmd.c and `make_core_bitmap` of the select plugin, which agree; docs.weka.io, "Manage CPU allocations for
# WEKA and Slurm".

WISH = 2  # cores that `cluster.core_spec: auto` asks for, if it asks for any


def settled(options: JobOptions, nodes: Sequence[Node], *, allowed: bool) -> JobOptions:
    """Replace `core_spec: auto` in these options by a number or none. `nodes` are those that the job may use;
    `allowed` is AllowSpecResourcesUsage.

    | core_spec      | allowed | a node reserves cores     | all have more than WISH cores | asked for |
    |----------------|---------|---------------------------|-------------------------------|-----------|
    | a number, none | any     | any                       | any                           | the same  |
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
    """Explain why `core_spec: auto` asks for nothing on these nodes; "" if it asks for WISH cores."""
    if not allowed:
        return "AllowSpecResourcesUsage=no in slurm.conf"
    keeping = [node.name for node in nodes if node.reserved]
    if keeping:
        more = f" and {len(keeping) - 1} more keep" if len(keeping) > 1 else " keeps"
        return f"{keeping[0]}{more} cores by CpuSpecList or CoreSpecCount"
    small = [node.name for node in nodes if node.cores <= WISH]
    return f"{small[0]} has no more than {WISH} cores" if small else ""


def in_order(sockets: int, each: int, *, first: bool = False) -> Iterator[int]:
    """Iterate over SLURM's core numbers in the order in which SLURM reserves them. It takes the last core of
    each socket, from the last socket to the first, then the cores before these. With `spec_cores_first` it
    takes the first cores, from the first socket to the last. `each` is the number of cores in a socket."""
    cores, places = range(each), range(sockets)
    for core in cores if first else reversed(cores):
        for socket in places if first else reversed(places):
            yield socket * each + core


def reserved(node: Node, *, first: bool = False) -> tuple[int, ...]:
    """Return SLURM's numbers of the cores that the node reserves, sorted. These are all cores with a CPU in
    CpuSpecList, else the first CoreSpecCount of `in_order`. () if it reserves none, or its shape is unknown.
    """
    if not node.threads:
        return ()
    if node.cpu_spec:
        return tuple(sorted({cpu // node.threads for cpu in range_lists.cpus(node.cpu_spec)}))
    order = in_order(node.sockets, node.cores // max(1, node.sockets), first=first)
    return tuple(sorted(itertools.islice(order, node.reserved)))


def kept(node: Node, asked: int | None, *, allowed: bool, first: bool = False) -> tuple[int, ...]:
    """Return SLURM's numbers, sorted, of the cores that a job with `--core-spec=<asked>` does not get.
    `asked` is None for a job without the option. "The node's cores" are those of `reserved`.

    | asked for                 | AllowSpecResourcesUsage | kept from the job                           |
    |---------------------------|-------------------------|---------------------------------------------|
    | any number                | no                      | the node's cores                            |
    | None                      | yes                     | the node's cores                            |
    | fewer than the node's     | yes                     | the first `asked` of the node's cores       |
    | as many as these, or more | yes                     | the node's cores, then others of `in_order` |
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

    # The kernel's numbers of each core's CPUs. Sockets, and the cores of each, are in SLURM's order.
    sockets: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def cores(self) -> list[tuple[int, ...]]:
        """The CPUs of each core, in SLURM's order of cores."""
        return [core for socket in self.sockets for core in socket]

    @property
    def threads(self) -> int:
        """The number of threads of the first core."""
        return len(self.sockets[0][0])

    def fits(self, node: Node) -> bool:
        """Return whether SLURM's record of the node agrees with the machine."""
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
        """Return the value of `CpuSpecList=` for these cores: SLURM's numbers of all their CPUs."""
        width = self.threads
        return range_lists.listed(core * width + thread for core in cores for thread in range(width))

    def mount_options(self, cores: Iterable[int]) -> str:
        """Return WEKA's mount options for these cores. They name only the first CPU of each core, since WEKA
        keeps that CPU's hyperthread siblings free by itself."""
        all_cores = self.cores
        return ",".join(f"core={all_cores[core][0]}" for core in cores)


SOCKET, NUMA, L3 = "socket", "numa_node_as_socket", "l3cache_as_socket"


def numbering(machine: Machine, socket_is: str = SOCKET) -> Numbering | None:
    """Return SLURM's numbering of this machine; None if its shape is unknown. `socket_is` is the unit that
    SLURM counts as a socket (`SlurmdParameters`): a socket, a NUMA node or a cache of level 3. hwloc orders
    each level by the lowest CPU, and numbers all cores of one group before those of the next."""
    named = {NUMA: list(machine.nodes.values()), L3: list(machine.caches)}
    sockets = [set(cpus) for cpus in named.get(socket_is, list(machine.sockets))]
    if not sockets or not machine.cores:
        return None
    levels = [[set(cpus) for cpus in groups] for groups in named.values()]
    # The level with the larger groups encloses the other.
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
    """Propose `count` cores for a mount, in SLURM's numbers; fewer if the machine has fewer.

    The core of CPU 0 is never proposed, since it serves interrupts of all kinds. `near` is the NUMA node of
    the network device.

    | near      | the cores                                                                          |
    |-----------|------------------------------------------------------------------------------------|
    | not known | those that SLURM would reserve for CoreSpecCount or --core-spec, in that order     |
    | known     | the `count` highest-numbered cores of that NUMA node, in ascending order; if these |
    |           | are too few, then further cores as in the row above                                |
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


# Judges the settings for reserved cores in slurm.conf and cgroup.conf.
#
# A node's reserved cores are those that SLURM gives to no job. If no node reserves cores and no job asks for
# `--core-spec`, only words unknown to SLURM are reported.

OFF_SPEC = "SlurmdOffSpec"
# values of TaskPluginParam in releases from 14.11 to 26.05 (slurm.conf(5))
PARAMETERS = (
    "None", "Sockets", "Cores", "Threads", "Boards", "LDoms", "Cpusets", "Sched", "Verbose", "Autobind",
    "OOMKillStep", OFF_SPEC,
)  # fmt: skip
# further values that `scontrol show config` prints
_PRINTED = re.compile(r"\(.*|autobind=.*|(mask|rank|map)\w*|quiet", re.IGNORECASE)
MOST = 8  # nodes that a message names


def allows(settings: SlurmSettings) -> bool:
    """Return AllowSpecResourcesUsage. Without it SLURM ignores --core-spec; with it a job may leave the node
    fewer cores than it reserves."""
    return settings.values.get("AllowSpecResourcesUsage", "").lower() in ("yes", "1")


def cores_first(settings: SlurmSettings) -> bool:
    """Return whether SLURM reserves a node's first cores first (`spec_cores_first`)."""
    return "spec_cores_first" in settings.words("SchedulerParameters")


def results(
    settings: SlurmSettings, nodes: Sequence[Node], asked: Iterable[int | None], conf: FileValue | None = None
) -> list[CheckResult]:
    """Judge the configuration. `nodes` are those that the run's jobs may use. `asked` holds the jobs' numbers
    of --core-spec (None if unused). `conf` is ConstrainCores in a node's own cgroup.conf."""
    keeping = [node for node in nodes if node.reserved]
    wishes = [count for count in asked if count is not None]
    results = _misspelt(settings)
    if not keeping and not wishes:
        return results
    results += _written_twice(settings)
    results += _usage(settings, keeping, wishes)
    results += _off_spec(settings, keeping)
    results.append(_select(settings))
    results += _confined(settings, conf)
    results += _memory(keeping)
    return results


def meant(word: str) -> str:
    """Return the value of TaskPluginParam that was probably meant; "" if no value is similar."""
    words = {name.lower(): name for name in PARAMETERS}
    return words.get(nearest(word.lower(), words), "")


def misspelling(words: str) -> str:
    """Return what to do about a word that SLURM reports as wrong (`Bad TaskPluginParam: x`); "" if `words`
    hold no such report."""
    wrong = re.search(r"Bad TaskPluginParam: (\S+)", words)
    if wrong is None:
        return ""
    right = meant(wrong[1])
    note = f" ({right} is misspelt)" if right else ""
    return f"write TaskPluginParam={right or OFF_SPEC} in slurm.conf on all nodes{note}"


def _misspelt(settings: SlurmSettings) -> list[CheckResult]:
    """Warn of each unknown word of TaskPluginParam, in the controller's configuration and in this machine's
    slurm.conf. With such a file no daemon or command of SLURM starts (22.05: `fatal: Unable to process
    configuration file`)."""
    places = {"the controller's": settings.words("TaskPluginParam")}
    for match in re.finditer(
        r"^[ \t]*TaskPluginParam[ \t]*=([^#\n]*)", settings.written, re.IGNORECASE | re.MULTILINE
    ):
        places[settings.values.get("SLURM_CONF", "slurm.conf")] = [
            word.strip() for word in match[1].split(",") if word.strip()
        ]
    valid = {word.lower() for word in PARAMETERS}
    results = {}
    for place, words in places.items():
        for word in words:
            if word.lower() in valid or _PRINTED.fullmatch(word):
                continue
            right = meant(word)
            text = f"{printable(word)} ({printable(place)}) is no word that SLURM knows"
            mend = f"write TaskPluginParam={right or OFF_SPEC} in slurm.conf on all nodes"
            if right:
                text += f": {right} is misspelt"
            results[word] = CheckResult(
                "TaskPluginParam",
                f"{text}; none of its daemons starts with it",
                "warning",
                right,
                mend,
            )
    return list(results.values())


def _written_twice(settings: SlurmSettings) -> list[CheckResult]:
    """Warn if this machine's slurm.conf gives a node both CoreSpecCount and CpuSpecList. SLURM reports an
    error (22.05: `CoreSpecCount=1 is invalid with CPUSpecList, reset to 0`)."""
    lines = [
        line
        for line in re.sub(r"\\\n", " ", settings.written).splitlines()
        if re.match(r"\s*NodeName\s*=", line, re.IGNORECASE)
    ]
    both = [
        line.split()[0]
        for line in lines
        if re.search(r"\bCoreSpecCount=", line, re.IGNORECASE)
        and re.search(r"\bCpuSpecList=", line, re.IGNORECASE)
    ]
    if not both:
        return []
    text = f"both CoreSpecCount and CpuSpecList: {printable(', '.join(both[:MOST]))}; SLURM drops the former"
    mend = "keep CpuSpecList, which says which cores, in slurm.conf"
    return [CheckResult("NodeName lines", text, "warning", "one of the two", mend)]


def _usage(settings: SlurmSettings, keeping: Sequence[Node], wishes: Sequence[int]) -> list[CheckResult]:
    """Judge AllowSpecResourcesUsage. A job "asks" if its options have --core-spec, which SLURM may ignore.

    | AllowSpecResourcesUsage | nodes keep cores | a job asks | result                                   |
    |-------------------------|------------------|------------|------------------------------------------|
    | yes                     | some             | any        | a warning: every user may take the cores |
    | yes                     | none             | any        | ok                                       |
    | no                      | any              | no         | ok                                       |
    | no                      | any              | yes        | none here: the module `site` stops       |
    """
    about = "AllowSpecResourcesUsage"
    if allows(settings) and keeping:
        text = (
            f"yes, and {_names(keeping)} keep cores for themselves: every user may take these by asking for "
            "less (`sbatch --core-spec=0`)"
        )
        mend = (
            "write AllowSpecResourcesUsage=no in slurm.conf: the nodes then keep their cores whatever a job "
            "asks for (and set cluster.core_spec: auto or none)"
        )
        return [CheckResult(about, text, "warning", "no, where nodes keep cores", mend)]
    if allows(settings):
        return [CheckResult(about, "yes: --core-spec is obeyed, and no node keeps cores for itself")]
    if wishes:
        return []
    return [CheckResult(about, f"no: no job gets the cores that {_names(keeping)} keep")]


def _off_spec(settings: SlurmSettings, keeping: Sequence[Node]) -> list[CheckResult]:
    """
    | TaskPluginParam has SlurmdOffSpec | nodes keep cores | result                                       |
    |-----------------------------------|------------------|----------------------------------------------|
    | yes                               | any              | ok; on cgroup v2 a note on slurmstepd        |
    | no                                | some             | a warning: slurmd is confined to these cores |
    | no                                | none             | a note                                       |
    """
    about, wanted = "TaskPluginParam", OFF_SPEC
    mend = f"write TaskPluginParam={OFF_SPEC} in slurm.conf on all nodes, and restart slurmctld and slurmd"
    if OFF_SPEC.lower() in (word.lower() for word in settings.words("TaskPluginParam")):
        if settings.values.get("CgroupPlugin", "").endswith("v2"):
            text = f"{OFF_SPEC}: slurmd stays off the kept cores; under cgroup v2 slurmstepd is not covered"
            return [CheckResult(about, text, "note", wanted)]
        return [CheckResult(about, f"{OFF_SPEC}: slurmd stays off the cores that nodes keep", wanted=wanted)]
    if keeping:
        text = (
            f"no {OFF_SPEC}: slurmd runs ON the cores that {_names(keeping)} keep (under cgroup v1 "
            "slurmstepd, too), beside WEKA's client where these are its cores"
        )
        return [CheckResult(about, text, "warning", wanted, mend)]
    text = f"no {OFF_SPEC}: it has no effect until a node keeps cores by CoreSpecCount or CpuSpecList"
    return [CheckResult(about, text, "note", wanted, mend)]


def _select(settings: SlurmSettings) -> CheckResult:
    """
    | SelectType           | result    |
    |----------------------|-----------|
    | cons_tres, cons_res  | ok        |
    | not shown            | a note    |
    | another              | a warning |
    """
    about, wanted = "SelectType", "select/cons_tres"
    value = settings.values.get("SelectType", "")
    if "cons_" in value:
        return CheckResult(about, printable(value), wanted=wanted)
    mend = f"write SelectType={wanted} in slurm.conf, and restart slurmctld"
    if not value:
        return CheckResult(about, "not known", "note", wanted, mend)
    text = f"{printable(value)}: it does not keep jobs off single cores"
    return CheckResult(about, text, "warning", wanted, mend)


def _confined(settings: SlurmSettings, conf: FileValue | None) -> list[CheckResult]:
    """Judge TaskPlugin and ConstrainCores. Without both, no process is really kept off reserved cores.

    | TaskPlugin      | ConstrainCores, of the controller, else of a node's cgroup.conf | result     |
    |-----------------|-----------------------------------------------------------------|------------|
    | no task/cgroup  | any                                                             | a warning  |
    | task/cgroup     | yes                                                             | ok         |
    | task/cgroup     | no, or not set in a file that was read                          | a warning  |
    | task/cgroup     | not known                                                       | a note     |
    """
    if "task/cgroup" not in settings.words("TaskPlugin"):
        text = "no task/cgroup: cores are reserved in the books only, and nothing keeps processes off them"
        mend = (
            "write TaskPlugin=task/affinity,task/cgroup and ProctrackType=proctrack/cgroup in slurm.conf, "
            "and ConstrainCores=yes in cgroup.conf"
        )
        return [CheckResult("TaskPlugin", text, "warning", "task/affinity,task/cgroup", mend)]
    about, wanted = "ConstrainCores", "yes"
    mend = "write ConstrainCores=yes in cgroup.conf on all nodes, and restart slurmd"
    value, place = settings.values.get("ConstrainCores"), "the controller's cgroup.conf"
    if value is None and conf is not None and not conf.error:
        value, place = conf.value or "not set, so no", conf.path
    if value is None:
        return [CheckResult(about, "not known", "note", wanted, "look at cgroup.conf on a node")]
    text = f"{printable(value)} ({printable(place)})"
    if value.lower() == "yes":
        return [CheckResult(about, text, wanted=wanted)]
    return [CheckResult(about, f"{text}: nothing keeps processes off kept cores", "warning", wanted, mend)]


def _memory(keeping: Sequence[Node]) -> list[CheckResult]:
    """Return a note naming the nodes that reserve cores but no memory (MemSpecLimit); ok if all of `keeping`
    reserve both; no result if `keeping` is empty."""
    without = [node for node in keeping if not node.memory_spec]
    if without:
        text = f"{_names(without)} keep cores and no memory for the same services"
        mend = "write MemSpecLimit=<MiB> beside CpuSpecList or CoreSpecCount in slurm.conf"
        return [CheckResult("MemSpecLimit", text, "note", "what WEKA's client and the system need", mend)]
    if keeping:
        least = min(node.memory_spec for node in keeping) >> 20
        return [CheckResult("MemSpecLimit", f"{least} MiB and more on nodes that keep cores")]
    return []


def _names(nodes: Sequence[Node]) -> str:
    names = [printable(node.name) for node in nodes[:MOST]]
    return ", ".join(names) + (f" and {len(nodes) - MOST} more" if len(nodes) > MOST else "")
