"""What a node says of its cores, and what the cluster's settings make of that."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cluster.registry import constrained_cores
from penstock.core.node_answer import NodeCores
from penstock.fs import weka
from penstock.host import command, machine_settings
from penstock.host.machine_settings import SYS
from penstock.host.proc import PROC, Root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.dataset.context import Context
    from penstock.doctor.preflight.results import Looks

WITHIN = 3.0  # seconds for lscpu


def of_this_node(proc: Root = PROC, sys: Root = SYS, root: Root = "/") -> NodeCores:
    """Describe this machine's cores, as far as this account may know them. Never raises."""
    machine = machine_settings.read_topology(sys)
    if not machine.cores:
        machine = machine_settings.from_lscpu(
            command.run(machine_settings.LSCPU, deadline=WITHIN).out, machine.nics
        )
    answer = NodeCores(machine, constrain_cores=constrained_cores(os.environ, root))
    if not weka.is_there(proc, root):
        return answer
    udp = any(mount.core_count == 0 and "udp" in mount.net for mount in weka.weka_mounts(proc))
    return answer._replace(
        weka=True, held=weka.held_cores(proc, sys), udp=udp, isolate_cpusets=weka.isolation(root)
    )


def check(
    context: Context, steps: Sequence[str], heard: Mapping[str, NodeCores | None], looks: Looks
) -> None:
    """Report nodes' cores beside the cluster's settings. Raises TransientError and FailedError."""
    for node, results in context.cluster.core_results(steps, heard).items():
        looks.saw(*results, what="jobs would run on cores that others need", node=node)
