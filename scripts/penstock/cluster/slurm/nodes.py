"""The cluster's nodes: parsed from `scontrol show node`, and judged whether a job may run there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm.answer_lines import fields
from penstock.core import range_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import JobOptions

MIB = 1 << 20
# states in which an idle node starts no job at once
ELSEWHERE = frozenset(
    {
        "RESERVED", "MAINT", "MAINTENANCE", "PLANNED", "BLOCKED", "FUTURE", "COMPLETING", "INVAL",
        "INVALID_REG", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP",
        "REBOOT_ISSUED", "REBOOT_REQUESTED",
    }
)  # fmt: skip
AWAY = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "UNKNOWN"})
# states of a node that SLURM switches off while nobody needs it, and on for the next job
SAVING = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"})
# the same as sinfo shows them, behind a state: off, coming up, about to go off, going off
SAVING_MARKS = frozenset("~#!%")


_REASON = re.compile(r" Reason=(.*?)(?: \[[^\]]*\])?(?: (?:Comment|Extra)=.*)?\s*$")


class Node(NamedTuple):
    """A node, as SLURM has it in its books."""

    name: str
    cpus: int
    cores: int
    reserved: int  # cores that the site itself keeps (for WEKA's client, say): CoreSpecCount, or CpuSpecList
    memory: int  # bytes
    partitions: frozenset[str]
    features: frozenset[str]
    state: str = ""  # SLURM's words, such as IDLE+DRAIN
    reason: str = ""  # why it is drained or down: the text of the person or program that did so
    gpus: str = ""  # its GPUs, as in Gres
    sockets: int = 0  # as SLURM counts them, `threads` for each core; 0: unknown
    threads: int = 0
    # CpuSpecList: the CPUs that it keeps, in SLURM's own numbers. Slurm shows it for CoreSpecCount, too.
    cpu_spec: str = ""
    memory_spec: int = 0  # MemSpecLimit, in bytes: memory that the node keeps for the system; 0: none

    @property
    def away(self) -> bool:
        """Whether no job can start on it until it comes back or somebody resumes it.

        | state, such as                       | away | why                                        |
        |--------------------------------------|------|--------------------------------------------|
        | IDLE+DRAIN, DOWN, FAIL, UNKNOWN      | yes  | a person or a program has to resume it     |
        | DOWN+POWERED_DOWN, DOWN~             | yes  | it did not come up when last started       |
        | IDLE+NOT_RESPONDING, IDLE*           | yes  | it does not answer                         |
        | IDLE+POWERED_DOWN, IDLE~             | no   | SLURM switches it on for the next job      |
        | ALLOCATED+NOT_RESPONDING+POWERING_UP | no   | it does not answer yet: it is coming up    |
        | IDLE, ALLOCATED, MIXED, RESERVED     | no   |                                            |
        """
        silent = "NOT_RESPONDING" in self._words or "*" in self.state
        return not AWAY.isdisjoint(self._words) or (silent and not self.saving)

    @property
    def saving(self) -> bool:
        """Whether it is switched off to save power, or on its way to that or back."""
        return not (SAVING.isdisjoint(self._words) and SAVING_MARKS.isdisjoint(self.state))

    @property
    def idle(self) -> bool:
        """Whether a small job would start on it at once, without switching it on."""
        idle = "IDLE" in self._words and ELSEWHERE.isdisjoint(self._words)
        return idle and not self.away and not self.saving

    @property
    def _words(self) -> list[str]:
        return re.findall(r"[A-Z_]+", self.state)


def fits(options: JobOptions, node: Node) -> bool:
    """Return whether the node is large enough for such a job, whatever its state."""
    cores = options.spec_cores
    cpus = node.cpus - (cores or 0) * (node.cpus // max(1, node.cores))
    return (
        (options.cpus or 1) <= cpus
        and (options.memory or 0) <= node.memory
        and (cores is None or node.cores > cores)
    )


def is_lost(state: str) -> bool:
    """Return whether a node of this state is lost to its jobs: down, or without an answer. No answer is a
    star: at the end in `sinfo -o %T` (`drained*`), or before flags (`idle*+drain`). A node that is off to
    save power (`idle~`, `powered_down`) is not lost."""
    return "down" in re.findall(r"[a-z_]+", state) or "*" in state


def spread(nodes: Sequence[Node], most: int) -> list[str]:
    """Choose at most so many idle nodes, by name: the first, the last and others between, since neighbours
    often share a switch and a mount."""
    idle = [node.name for node in nodes if node.idle]
    if most < 2 or len(idle) <= most:
        return idle[:most]
    return [idle[round(number * (len(idle) - 1) / (most - 1))] for number in range(most)]


def read_nodes(text: str) -> list[Node]:
    """Parse `scontrol show node --oneliner`."""
    nodes = []
    for line in text.splitlines():
        words = fields(line)
        if "NodeName" not in words:
            continue
        sockets, threads = int(words.get("Sockets", "1")), int(words.get("ThreadsPerCore", "1"))
        cores = int(words.get("CoresPerSocket", "1")) * sockets
        # `scontrol` of some releases writes CPUSpecList.
        listed = words.get("CPUSpecList", words.get("CpuSpecList", ""))
        listed = listed if re.fullmatch(r"[\d,-]*\d", listed) else ""
        nodes.append(
            Node(
                name=words["NodeName"],
                cpus=int(words.get("CPUTot", "0")),
                cores=cores,
                reserved=_reserved(words.get("CoreSpecCount", "0"), listed, threads),
                memory=int(words.get("RealMemory", "0")) * MIB,
                partitions=frozenset(words.get("Partitions", "").split(",")),
                features=frozenset(words.get("AvailableFeatures", "").split(",")),
                state=words.get("State", ""),
                reason=reason[1] if (reason := _REASON.search(line)) else "",
                gpus=words.get("Gres", "") if "gpu" in words.get("Gres", "") else "",
                sockets=sockets,
                threads=threads,
                cpu_spec=listed,
                memory_spec=int(words.get("MemSpecLimit", "0")) * MIB,
            )
        )
    return nodes


def _reserved(count: str, listed: str, threads: int) -> int:
    """Count cores by CoreSpecCount, else by the CPUs of CpuSpecList."""
    return int(count) or len({cpu // max(1, threads) for cpu in range_lists.cpus(listed)})
