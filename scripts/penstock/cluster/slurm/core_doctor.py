"""Checks whether SLURM keeps jobs off the cores that WEKA's client, or another service of a node, needs.

The checks read the cluster's configuration (`core_settings`), its nodes, and each node's own report. Each
finding names the setting to write, and the file it belongs in. Sources: slurm.conf(5), cgroup.conf(5),
Slurm's core_spec.html; docs.weka.io, "Manage CPU allocations for WEKA and Slurm".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm import core_settings
from penstock.cluster.slurm.core_settings import L3, NUMA, SOCKET
from penstock.core import range_lists
from penstock.core.human import printable
from penstock.core.run_steps import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.cluster.slurm.core_settings import Numbering
    from penstock.cluster.slurm.facts import Node, SlurmSettings
    from penstock.config.settings import JobOptions
    from penstock.core.node_answer import FileValue, HeldCores, NodeCores
    from penstock.core.run_steps import Verdict

WEKA_CONF = "/etc/wekaio/service.conf"  # file that sets isolate_cpusets, according to WEKA's documentation


class Job(NamedTuple):
    """The options of a step's jobs that matter here."""

    asked: int | None  # the number of --core-spec; None if the option is not used
    whole: bool  # whether a job has its node to itself, and so every core that SLURM gives out


def judge(
    settings: SlurmSettings,
    nodes: Sequence[Node],
    jobs: Sequence[tuple[JobOptions, Sequence[str]]],
    machines: Mapping[str, NodeCores | None],
) -> dict[str, list[CheckResult]]:
    """Return check results by node name; "" stands for the whole cluster. `jobs` holds the settled options of
    the run's jobs, each with the names of the nodes on which they may run."""
    books = {node.name: node for node in nodes}
    mine = [books[name] for name in dict.fromkeys(name for _, names in jobs for name in names)]
    asked = [options.spec_cores for options, _ in jobs]
    conf = next(
        (machine.constrain_cores for machine in machines.values() if machine and machine.constrain_cores),
        None,
    )
    by_node = {"": core_settings.results(settings, mine, asked, conf)}
    for name, cores in machines.items():
        if cores is None or name not in books:
            continue
        asking = [
            Job(options.spec_cores, options.whole_nodes or options.spec_cores is not None)
            for options, names in jobs
            if name in names
        ]
        by_node[name] = node_results(books[name], cores, settings, list(dict.fromkeys(asking)))
    return {name: results for name, results in by_node.items() if results}


def auto_result(options: JobOptions, why_none: str) -> CheckResult:
    """Report the number of cores that `core_spec: auto` comes to. `options` are settled."""
    asked = options.spec_cores
    if asked is None:
        return CheckResult("cluster.core_spec", f"auto: nothing is asked for, since {printable(why_none)}")
    return CheckResult("cluster.core_spec", f"auto: --core-spec={asked}, since no node keeps cores itself")


def node_results(
    node: Node, cores: NodeCores, settings: SlurmSettings, jobs: Sequence[Job]
) -> list[CheckResult]:
    """Compare a node's hardware with SLURM's record of the node, for these jobs."""
    numbers = core_settings.numbering(cores.machine, socket_is(settings))
    if numbers is not None and not numbers.fits(node):
        numbers = None
    results: list[CheckResult] = []
    for job in jobs:
        results += _core_results(node, cores, settings, job, numbers)
    if cores.weka:
        results += _place_results(node, cores, settings, numbers)
        results += isolation_results(f"isolate_cpusets on {printable(node.name)}", cores.isolate_cpusets)
    return list(dict.fromkeys(results))


def socket_is(settings: SlurmSettings) -> str:
    """Return the unit that SLURM counts as a socket, as SlurmdParameters sets it."""
    words = [word.lower() for word in settings.words("SlurmdParameters")]
    return next((word for word in (L3, NUMA) if word in words), SOCKET)


def _core_results(
    node: Node, cores: NodeCores, settings: SlurmSettings, job: Job, numbers: Numbering | None
) -> list[CheckResult]:
    """Compare WEKA's cores with the cores that SLURM withholds from this job.

    | WEKA's cores        | SLURM's record fits the node  | kept from the job          | result         |
    |---------------------|-------------------------------|----------------------------|----------------|
    | none known          | any                           | nothing                    | none           |
    | none known          | yes                           | some                       | ok: which CPUs |
    | none known          | no                            | some                       | a note         |
    | known               | no                            | any                        | a warning      |
    | known               | yes                           | all of WEKA's              | ok             |
    | known               | yes                           | not all, job of whole node | stop           |
    | known               | yes                           | not all, another job       | a warning      |
    | known, but not sure | yes                           | not all                    | a warning      |
    """
    about = f"cores on {printable(node.name)}"
    first, allowed = core_settings.cores_first(settings), core_settings.allows(settings)
    kept = core_settings.kept(node, job.asked, allowed=allowed, first=first)
    held = sorted({cpu for holder in cores.held for cpu in holder.cpus})
    if not held and not kept:
        return []
    if numbers is None:
        return [_not_comparable(about, node, cores, held)]
    by = _by(node, job)
    free = numbers.cpus(kept)
    if not held:
        text = f"SLURM keeps its jobs off {_cpus(free)} ({by})" if free else ""
        return [CheckResult(about, text)] if text else []
    holders = _holders(cores.held)
    weka = numbers.cores_of(held)
    bare = sorted(numbers.cpus(weka) - free)
    if not bare:
        text = f"{holders}; SLURM keeps its jobs off {_cpus(free)} ({by})"
        if siblings := numbers.cpus(weka) - set(held):
            text += f", the siblings {range_lists.listed(siblings)} of WEKA's among them"
        return [CheckResult(about, text, wanted="every core of WEKA kept from jobs")]
    text = f"{holders}; jobs are given {_cpus(bare)} of these cores: "
    text += f"SLURM keeps its jobs off {_cpus(free)} ({by})" if free else f"SLURM keeps none ({by})"
    if node.cpu_spec and set(held) <= set(range_lists.cpus(node.cpu_spec)):
        text += (
            "; CpuSpecList has the kernel's numbers, and SLURM counts by socket, core and thread "
            "(L# of `hwloc-ls`)"
        )
    sure = numbers.cores_of(cpu for holder in cores.held if holder.sure for cpu in holder.cpus)
    verdict: Verdict = "stop" if job.whole and not numbers.cpus(sure) <= free else "warning"
    wanted = f"CpuSpecList={numbers.spec_list(weka)}, which is {_cpus(numbers.cpus(weka))} of the kernel"
    return [CheckResult(about, text, verdict, wanted, _mend(node, cores, kept, weka, numbers))]


def _mend(node: Node, cores: NodeCores, kept: Sequence[int], weka: Sequence[int], numbers: Numbering) -> str:
    written = f"CpuSpecList={numbers.spec_list(weka)}"
    place = "in place of CpuSpecList or CoreSpecCount" if node.reserved else "with MemSpecLimit"
    text = (
        f"write {written} in the line of slurm.conf that has NodeName={printable(node.name)}, {place}, and "
        "restart slurmctld and slurmd"
    )
    usable = [core for core in kept if 0 not in numbers.cores[core]]
    if len(usable) >= len(weka):
        near = _near(cores)
        beside = set(numbers.cores_of(cores.machine.nodes.get(near, ()))) if near is not None else set()
        best = sorted(usable, key=lambda core: (core not in beside, -core))[: len(weka)]
        text += f"; or give WEKA's mount cores that SLURM keeps: {numbers.mount_options(best)}"
    return text


def _not_comparable(about: str, node: Node, cores: NodeCores, held: Sequence[int]) -> CheckResult:
    each = node.cores // max(1, node.sockets)
    text = f"SLURM has {node.sockets} x {each} cores of {node.threads} threads in its books, "
    machine = cores.machine
    text += (
        f"the machine {len(machine.cores)} cores in {len(machine.sockets)} sockets: which CPUs SLURM keeps "
        "is not known"
        if machine.cores
        else "and the machine's own shape is not known"
    )
    if held:
        text = f"{_holders(cores.held)}; {text}"
    mend = (
        f"compare `slurmd -C` on {printable(node.name)} with its NodeName line in slurm.conf (Sockets, "
        "CoresPerSocket, ThreadsPerCore), and SlurmdParameters (l3cache_as_socket, numa_node_as_socket)"
    )
    return CheckResult(about, text, "warning" if held else "note", "", mend)


def _place_results(
    node: Node, cores: NodeCores, settings: SlurmSettings, numbers: Numbering | None
) -> list[CheckResult]:
    """Judge the position of WEKA's cores in the machine, and propose the best cores for a mount.

    | WEKA's cores                                             | result                                 |
    |----------------------------------------------------------|----------------------------------------|
    | not known, or none (UDP)                                 | a note that proposes the best cores    |
    | the core of CPU 0 among them                             | a note that proposes the best cores    |
    | none on the NUMA node of the network device, if known    | a note that proposes the best cores    |
    | any other cores                                          | nothing                                |
    """
    about = f"WEKA's cores on {printable(node.name)}"
    if numbers is None:
        return []
    first, near = core_settings.cores_first(settings), _near(cores)
    held = {cpu for holder in cores.held for cpu in holder.cpus}
    count = len(numbers.cores_of(held)) or node.reserved or core_settings.WISH
    best = core_settings.proposal(numbers, cores.machine, count, near, first=first)
    side = f"beside {_device(cores)} (NUMA node {near})" if near is not None else "as SLURM chooses them"
    mend = (
        f"mount with {numbers.mount_options(best)}, {side}, and write CpuSpecList={numbers.spec_list(best)}"
    )
    if not held:
        text = (
            "its client has no core of its own (net=udp)" if cores.udp else "which ones it holds is not known"
        )
        return [CheckResult(about, text, "note", "", mend)]
    text = ""
    if any(0 in core and held.intersection(core) for core in numbers.cores):
        text = "it holds the core of CPU 0, which serves interrupts of all kinds"
    elif near is not None and held.isdisjoint(cores.machine.nodes.get(near, ())):
        text = f"{_cpus(held)} is on another NUMA node than {_device(cores)} (node {near})"
    return [CheckResult(about, text, "note", "", mend)] if text else []


def isolation_results(about: str, files: Sequence[FileValue]) -> list[CheckResult]:
    """Judge the setting isolate_cpusets of WEKA's agent, in both files that may contain it.

    If it is true, the agent makes its own cpusets, which conflict with SLURM's. True is also its default.

    | the files                                          | result                        |
    |----------------------------------------------------|-------------------------------|
    | at least one sets it; every value is false         | ok                            |
    | at least one sets it to another value than false   | a warning that names the file |
    | no file sets it, and all were read                 | a warning                     |
    | no file sets it, and one cannot be read            | a note                        |
    """
    wanted = "isolate_cpusets=false"
    mend = f"write {wanted} in {WEKA_CONF}, then `systemctl restart weka-agent`"
    said = {file.path: file.value for file in files if file.value is not None}
    wrong = [path for path, value in said.items() if value.strip().lower() != "false"]
    text = ", ".join(f"{printable(value)} in {printable(path)}" for path, value in said.items())
    if wrong:
        mend = f"write {wanted} in {', '.join(map(printable, wrong))}, then `systemctl restart weka-agent`"
        return [CheckResult(about, text, "warning", wanted, mend)]
    if said:
        return [CheckResult(about, text, wanted=wanted)]
    unread = [f"{printable(file.path)}: {printable(file.error)}" for file in files if file.error]
    if unread or not files:
        unknown = f"not known ({'; '.join(unread) or 'this version of penstock there does not look'})"
        mend = f"as root there: `grep isolate_cpusets {' '.join(printable(file.path) for file in files)}`"
        return [CheckResult(about, unknown, "note", wanted, mend)]
    return [CheckResult(about, "not set, so true: the agent moves cpusets", "warning", wanted, mend)]


def _near(cores: NodeCores) -> int | None:
    """Return the NUMA node of WEKA's network device. If that device is unknown, take the only network device
    whose NUMA node is known."""
    named = {name for holder in cores.held for name in holder.net}
    nics = [nic for nic in cores.machine.nics if nic.name in named] or cores.machine.nics
    nodes = {nic.node for nic in nics if nic.node is not None}
    return nodes.pop() if len(nodes) == 1 else None


def _device(cores: NodeCores) -> str:
    near = _near(cores)
    named = {name for holder in cores.held for name in holder.net}
    names = [nic.name for nic in cores.machine.nics if nic.node == near]
    return printable(", ".join(name for name in names if name in named) or ", ".join(names))


def _by(node: Node, job: Job) -> str:
    """Return a readable phrase naming the settings that withhold cores from the job."""
    phrases = []
    if node.cpu_spec:
        phrases.append(f"CpuSpecList {printable(node.cpu_spec)} in SLURM's numbers")
    elif node.reserved:
        phrases.append(f"CoreSpecCount {node.reserved}")
    if job.asked is not None:
        phrases.append(f"--core-spec={job.asked}")
    return ", ".join(phrases) or "neither CpuSpecList, nor CoreSpecCount, nor --core-spec"


def _holders(held: Sequence[HeldCores]) -> str:
    phrases = []
    for holder in held:
        name = f"container {printable(holder.container)}" if holder.container else "client"
        phrases.append(f"WEKA's {name} holds {_cpus(holder.cpus)} (by {printable(holder.by)})")
    return ", ".join(phrases)


def _cpus(numbers: Iterable[int]) -> str:
    return f"CPU {range_lists.listed(numbers)}"
