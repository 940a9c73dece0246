"""What the site's SLURM allows: limits and settings, checked before anything is submitted.

Each refusal quotes SLURM's own words and names the key of the configuration to change.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cluster.slurm import placement, probe_job
from penstock.cluster.slurm.advice import advice
from penstock.cluster.slurm.nodes import MIB, Node, fits, spread
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.port import Facts, Slurm
    from penstock.cluster.slurm.probe_job import Probe
    from penstock.config.settings import ClusterConfig, JobOptions

PROBED = 4
"""Nodes that the probe looks at, at most, of those with the same options: a node whose mounts differ from the
others' is found by looking at several."""


def reachable(slurm: Slurm) -> Facts:
    """`Slurm.facts`, but a controller that does not answer raises PreflightError."""
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        raise PreflightError(
            "SLURM's configuration is not there",
            where=f"SLURM_CONF={conf}",
            hint="unset SLURM_CONF, or let it name the cluster's slurm.conf",
        )
    try:
        return slurm.facts()
    except (TransientError, FailedError) as error:
        raise PreflightError(
            "SLURM's controller does not answer",
            where="cluster.backend",
            why=error.why or error.what,
            hint="`scontrol ping` says whether slurmctld is up; the same command goes on when it is",
        ) from error


def check(
    slurm: Slurm,
    config: ClusterConfig,
    steps: Sequence[str],
    known: Facts,
    probe: Probe,
    *,
    met: bool,
) -> list[str]:
    """Checks everything that can be known before arrays are submitted; returns warnings. `met`: elements of
    an earlier submission still live, so refusals become warnings and no probe is submitted."""
    warnings: list[str] = []
    nodes = slurm.nodes()
    asked: dict[JobOptions, str] = {}
    for step in steps:
        asked.setdefault(config.of(step), step)
    tried: dict[tuple[object, ...], tuple[JobOptions, list[str]]] = {}
    for options, step in asked.items():
        try:
            warnings += _check_options(slurm, options, step, known, nodes)
        except PreflightError as error:
            if not met:
                raise
            warnings.append(f"for elements that are still to be submitted: {error}")
        able = _able(slurm, options, nodes)
        if not all(node.away for node in able):
            place = (options.partition, options.constraint, options.reservation)
            tried.setdefault(place, (options, _probed(options, able)))
    if config.probe and tried and not met:
        warnings += probe_job.run(slurm, probe, list(tried.values()))
    return list(dict.fromkeys(warnings))


def _check_options(
    slurm: Slurm, options: JobOptions, step: str, known: Facts, nodes: Sequence[Node]
) -> list[str]:
    where = f"cluster, for the step {step}"
    warnings = []
    candidates = _able(slurm, options, nodes)
    if options.core_spec is not None:
        if not known.allows_core_spec:
            raise PreflightError(
                f"this cluster ignores --core-spec={options.core_spec}",
                where=where,
                why="AllowSpecResourcesUsage=No in its slurm.conf",
                hint="set cluster.core_spec: none (elements then share nodes), or ask the site to allow it",
            )
        _check_core_spec(options.core_spec, where, candidates)
        if not known.confines:
            warnings.append(
                "core specialization is not enforced on this cluster (no task/cgroup in TaskPlugin): "
                f"--core-spec={options.core_spec} reserves the cores, but nothing keeps processes off them"
            )
    if options.memory is not None and candidates:
        largest = max(candidates, key=lambda node: node.memory)
        if largest.memory < options.memory:
            raise PreflightError(
                f"no node has {options.memory // MIB} MiB of memory",
                where=f"{where}: memory",
                why=f"the largest, {largest.name}, has RealMemory={largest.memory // MIB}",
                hint="set cluster.memory lower, or another cluster.partition",
            )
    warnings += _judged(slurm, options, where, candidates)
    warnings += _gpus(options, candidates)
    return warnings


def _check_core_spec(wanted: int, where: str, candidates: Sequence[Node]) -> None:
    if candidates and all(node.cores <= wanted for node in candidates):
        largest = max(candidates, key=lambda node: node.cores)
        raise PreflightError(
            f"--core-spec={wanted} leaves no core of any node for the job",
            where=f"{where}: core_spec",
            why=f"the largest node, {largest.name}, has {largest.cores} cores (CPUTot={largest.cpus})",
            hint="set cluster.core_spec lower, or none",
        )
    below = [node for node in candidates if wanted < node.reserved]
    if below:
        names = ", ".join(node.name for node in below[:8]) + (", ..." if len(below) > 8 else "")
        raise PreflightError(
            f"--core-spec={wanted} would hand the job cores that the site keeps for itself",
            where=f"{where}: core_spec",
            why=f"CoreSpecCount={max(node.reserved for node in below)} on {names}",
            hint="set cluster.core_spec to at least that number, or none",
        )


def _able(slurm: Slurm, options: JobOptions, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that such a job may run on."""
    return placement.able(options, nodes, options.partition or slurm.default_partition())


def _probed(options: JobOptions, able: Sequence[Node]) -> list[str]:
    """The nodes that the probe is sent to by name: as many as elements run at once, at most PROBED. None
    where it is not known which nodes the job may run on, or where no such node is idle: SLURM chooses one."""
    if options.reservation is not None or not (
        options.constraint is None or placement.PLAIN.fullmatch(options.constraint)
    ):
        return []
    return spread(able, min(PROBED, options.max_elements))


def _judged(slurm: Slurm, options: JobOptions, where: str, candidates: Sequence[Node]) -> list[str]:
    """SLURM's own judgement of partition, account, QOS, reservation, licences and sizes. SLURM refuses to
    judge a job whose nodes are all drained or down, though it would queue the job: that is a warning. Raises
    PreflightError for any other refusal."""
    words = slurm.refusal(options)
    if not words:
        return []
    large = [node for node in candidates if fits(options, node)]
    if large and all(node.away for node in large) and AWAY_WORDS.search(words):
        shown = ", ".join(f"{node.name} {node.state}" for node in large[:8])
        reasons = ", ".join(sorted({node.reason for node in large if node.reason}))
        more = ", ..." if len(large) > 8 else ""
        told = f"{shown}{more}: {reasons}" if reasons else f"{shown}{more}"
        return [f"no node for such jobs is available now ({told}): elements wait in the queue until one is"]
    raise PreflightError(
        "SLURM refuses such a job", where=where, why=_first_reason(words), hint=advice(words)
    )


AWAY_WORDS = re.compile(r"node configuration|nodes? .*(unavail|not avail|down|drain)", re.IGNORECASE)


def _gpus(options: JobOptions, candidates: Sequence[Node]) -> list[str]:
    """A warning where elements take whole nodes that have GPUs: training jobs then wait for these GPUs."""
    found = [node for node in candidates if node.gpus]
    if not found or not (options.whole_nodes or options.core_spec is not None):
        return []
    return [
        f"elements take whole nodes, and {found[0].name} and {len(found) - 1} more have GPUs "
        f"({found[0].gpus}): choose others by cluster.partition or cluster.constraint"
        if len(found) > 1
        else f"elements take whole nodes, and {found[0].name} has GPUs ({found[0].gpus}): "
        "choose others by cluster.partition or cluster.constraint"
    ]


def _first_reason(words: str) -> str:
    return words.replace("sbatch: error: ", "").replace("allocation failure: ", "")
