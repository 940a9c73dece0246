"""Compares what a node reports in the probe with what this machine sees, and checks the node's cores. The
elements of a job array (processes that copy) run on nodes, so nodes' mounts matter.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import penstock
from penstock.cluster.registry import constrained_cores
from penstock.core import human
from penstock.core.human import printable
from penstock.core.node_answer import NodeCores
from penstock.core.run_steps import VERDICTS, CheckResult
from penstock.fs import weka
from penstock.host import command, machine_settings
from penstock.host.kernel_facts import PROC, Root
from penstock.host.machine_settings import SYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.node_answer import MountSeen, NodeAnswer, OwnerSeen
    from penstock.core.run_steps import Verdict
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.results import Looks


WITHIN = 3.0  # seconds that lscpu may take


def of_this_node(proc: Root = PROC, sys: Root = SYS, root: Root = "/") -> NodeCores:
    """Describe this machine's cores, as far as this account can find out. Never raises."""
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


def check_cores(
    context: Context, steps: Sequence[str], heard: Mapping[str, NodeCores | None], looks: Looks
) -> None:
    """Compare the cores that nodes reported (`heard`) with the cluster's settings, and report the results.
    Raises TransientError and FailedError."""
    for node, results in context.cluster.core_results(steps, heard).items():
        looks.saw(*results, what="jobs would run on cores that others need", node=node)


# Compares a node's answer to the probe with this machine's view.

# Beginnings of mount options that describe the host or its connection. They may differ for the same mount.
OF_ONE_HOST = ("addr=", "clientaddr=", "mountaddr=", "mountport=", "port=", "container_name=")


def judged(
    node: str,
    answer: NodeAnswer,
    target: MountSeen,
    sources: Mapping[str, MountSeen],
    checks_here: Sequence[CheckResult],
) -> list[CheckResult]:
    """Judge the answer of this node. `target`, `sources` (by URL) and `checks_here` are this machine's view.
    The node's results that are also in `checks_here` are left out."""
    name = printable(node)
    results = mount_results(f"target on {name}", answer.target, target)
    for source in answer.sources:
        if source.error:
            continue  # the probe job itself reports an unreadable source, which stops the run
        if source.mount is not None:
            results += mount_results(f"source on {name}", source.mount, sources.get(source.url))
        else:
            results.append(CheckResult(f"source on {name}", printable(source.url)))
    repeated = {(check.about, check.found) for check in checks_here}
    checks = [row for row in answer.checks if (row.get("about"), row.get("found")) not in repeated]
    return results + [_handed_on(name, row) for row in checks]


def mount_results(about: str, remote: MountSeen, local: MountSeen | None) -> list[CheckResult]:
    """Compare a node's mount with this machine's mount at the same path. The first two rows exclude each
    other; each further row that applies adds its result.

    | on the node                                        | results                                       |
    |----------------------------------------------------|-----------------------------------------------|
    | nothing is known about the mount                   | a note                                        |
    | any other case                                     | the mount, ok                                 |
    | another file system than here                      | also a warning                                |
    | the same file system, with other options than here | also a note                                   |
    | reads provably bypass caches here, but not there   | also a warning                                |
    """
    where = printable(remote.path)
    if remote.error:
        return [CheckResult(about, f"{where}: not known ({printable(remote.error)})", "note")]
    results = [
        CheckResult(
            about,
            f"{where}, {remote.kind}, {human.size(remote.free_bytes)} free, durable by {remote.durability}",
        )
    ]
    if local is None or local.error:
        return results
    if remote.kind != local.kind:
        state = f"{_shown(remote)} on the node, {_shown(local)} on this machine"
        mend = "what holds on the nodes counts for copying and reading back; mount the same on both"
        results.append(CheckResult(about, state, "warning", "one file system under one path", mend))
    else:
        mine, theirs = _options(local), _options(remote)
        if mine != theirs:
            only = [f"on the node alone: {', '.join(sorted(theirs - mine))}"] if theirs - mine else []
            only += [f"on this machine alone: {', '.join(sorted(mine - theirs))}"] if mine - theirs else []
            results.append(CheckResult(about, printable(f"other mount options, {'; '.join(only)}"), "note"))
    if local.passable and not remote.passable:
        state = (
            f"{where} is {remote.kind} there: reads cannot be shown to pass the node's caches, so what is "
            "read back counts as `reread`, never as `cold`"
        )
        results.append(CheckResult(about, state, "warning"))
    return results


def version_results(about: str, version: str) -> list[CheckResult]:
    """Return a stop if a node would run another version of penstock. `version` is the node's; "" if unknown,
    which gives no result."""
    if version in ("", penstock.__version__):
        return []
    state = f"it is of version {printable(version)}, and this one of {penstock.__version__}"
    mend = "have this version under that path on all nodes, or name its interpreter there in cluster.python"
    return [CheckResult(about, state, "stop", "one version for a run", mend)]


WHERE_IDS_ARE_MAPPED = (
    "compare the accounts of both machines; numbers are mapped by mounts with the option `idmapped`, by "
    "Lustre's nodemap (`lctl get_param 'nodemap.*'` on its MGS), by NFS's idmapd, and in containers"
)


def owner_results(about: str, on_node: OwnerSeen, local: OwnerSeen) -> list[CheckResult]:
    """Compare the owner and group of a file that a node made for this account, as seen on both machines.

    A name is "" if the machine has no name for the number.

    | number      | name                          | results                                            |
    |-------------|-------------------------------|----------------------------------------------------|
    | the same    | the same, or a name is ""     | ok                                                 |
    | the same    | different                     | a warning: one number, two accounts                |
    | different   | the same                      | a note: id-mapped, names are compared              |
    | different   | different, or a name is ""    | a warning: id-mapped, and names cannot be compared |
    """
    results = []
    pairs = (
        ("owner", (on_node.uid, on_node.user), (local.uid, local.user)),
        ("group", (on_node.gid, on_node.group), (local.gid, local.group)),
    )
    for what, (number, name), (mine, my_name) in pairs:
        owners = (
            f"the {what} of a file that it made is {_numbered(number, name)} there and "
            f"{_numbered(mine, my_name)} here"
        )
        named = bool(name and my_name)
        if number != mine:
            by_name = named and name == my_name
            state = f"id-mapped: {owners}"
            state += "; audits compare it by name" if by_name else "; an audit elsewhere finds another owner"
            verdict: Verdict = "note" if by_name else "warning"
            results.append(
                CheckResult(about, printable(state), verdict, "one number for one file", WHERE_IDS_ARE_MAPPED)
            )
        elif named and name != my_name:
            results.append(
                CheckResult(
                    about, printable(owners), "warning", "one name for one number", WHERE_IDS_ARE_MAPPED
                )
            )
    both = (
        f"owner {_numbered(local.uid, local.user)}, group {_numbered(local.gid, local.group)}, there as here"
    )
    return results or [CheckResult(about, printable(both))]


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)


def _shown(mount: MountSeen) -> str:
    return printable(f"{mount.kind} ({mount.device})" if mount.device else mount.kind)


def _options(mount: MountSeen) -> set[str]:
    return {option for option in mount.options.split(",") if option and not option.startswith(OF_ONE_HOST)}


def _handed_on(name: str, row: Mapping[str, str]) -> CheckResult:
    """Return the result of a check that ran on the node, from a row of its answer. An unknown verdict becomes
    a note."""
    verdict: Verdict = next((word for word in VERDICTS if word == row.get("verdict")), "note")
    return CheckResult(
        about=printable(f"{row.get('about', '')} on {name}"),
        found=printable(row.get("found", "")),
        verdict=verdict,
        wanted=printable(row.get("wanted", "")),
        mend=printable(row.get("mend", "")),
    )
