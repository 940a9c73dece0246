"""What the site's SLURM allows: limits and settings, checked before anything is submitted.

Each refusal quotes SLURM's own words and names the key of the configuration to change.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cluster.slurm import probe_job
from penstock.cluster.slurm.client import Answer, ask, call, problem
from penstock.cluster.slurm.nodes import MIB, Node, fits, read_nodes
from penstock.cluster.slurm.nodes import candidates as able
from penstock.cluster.slurm.submission import job_arguments
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.probe_job import Probe
    from penstock.config.settings import ClusterConfig, JobOptions


class Facts(NamedTuple):
    """What `scontrol show config` says, as far as it matters here."""

    version: str
    max_array: int
    allows_core_spec: bool
    confines: bool
    """task/cgroup is there: reserved cores are kept free of the job's processes."""
    accounting: bool
    """slurmdbd can be asked for jobs that the controller has forgotten."""
    cluster: str = ""
    """ClusterName: two clusters count their jobs alike."""
    min_job_age: float = 300.0
    """Seconds that the controller keeps a job after its end: before that it forgets none."""


def facts() -> Facts:
    """Raises TransientError or FailedError (SLURM's own words) when the controller cannot be
    asked."""
    found = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", ask("scontrol", "show", "config"), re.MULTILINE))
    return Facts(
        version=found.get("SLURM_VERSION", ""),
        max_array=int(found.get("MaxArraySize", "1001")),
        allows_core_spec=found.get("AllowSpecResourcesUsage", "").lower() in ("yes", "1"),
        confines="task/cgroup" in found.get("TaskPlugin", ""),
        accounting=found.get("AccountingStorageType", "").endswith("slurmdbd"),
        cluster=found.get("ClusterName", ""),
        min_job_age=float(found.get("MinJobAge", "").partition(" ")[0] or 300),
    )


def reachable() -> Facts:
    """`facts`, but a controller that does not answer raises PreflightError."""
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():
        raise PreflightError(
            "SLURM's configuration is not there",
            where=f"SLURM_CONF={conf}",
            hint="unset SLURM_CONF, or let it name the cluster's slurm.conf",
        )
    try:
        return facts()
    except (TransientError, FailedError) as error:
        raise PreflightError(
            "SLURM's controller does not answer",
            where="cluster.backend",
            why=error.why or error.what,
            hint="`scontrol ping` says whether slurmctld is up; the same command goes on when it is",
        ) from error


def check(
    config: ClusterConfig,
    steps: Sequence[str],
    known: Facts,
    probe: Probe,
    *,
    met: bool,
) -> list[str]:
    """Checks everything that can be known before arrays are submitted; returns warnings. `met`: elements
    still live, so refusals become warnings and no probe is submitted."""
    warnings: list[str] = []
    nodes = read_nodes(ask("scontrol", "show", "node", "--oneliner"))
    asked: dict[JobOptions, str] = {}
    for step in steps:
        asked.setdefault(config.of(step), step)
    tried: dict[tuple[object, ...], JobOptions] = {}
    for options, step in asked.items():
        try:
            warnings += _check_options(options, step, known, nodes)
        except PreflightError as error:
            if not met:
                raise
            warnings.append(f"for elements that are still to be submitted: {error}")
        if not all(node.away for node in able(options, nodes)):
            tried.setdefault((options.partition, options.constraint, options.reservation), options)
    if config.probe and tried and not met:
        warnings += probe_job.run(probe, list(tried.values()))
    return list(dict.fromkeys(warnings))


def _check_options(options: JobOptions, step: str, known: Facts, nodes: Sequence[Node]) -> list[str]:
    where = f"cluster, for the step {step}"
    warnings = []
    candidates = able(options, nodes)
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
    warnings += _check_by_sbatch(options, where, candidates)
    warnings += _gpus(options, candidates)
    if options.time is not None and options.partition is not None:
        warnings += _time_limit(options.time, options.partition)
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


def _check_by_sbatch(options: JobOptions, where: str, candidates: Sequence[Node]) -> list[str]:
    """SLURM's own judgement of partition, account, QOS, reservation, licences and sizes. It also
    refuses to judge a job whose nodes are all drained or down, which it would queue: a warning."""
    answer = call(
        "sbatch",
        "--test-only",
        "--export=ALL",
        "--chdir=/",
        "--output=/dev/null",
        *job_arguments(options),
        stdin="#!/bin/sh\nexit 0\n",
    )
    if answer.code == 0:
        return []
    error = problem("sbatch", answer)
    if isinstance(error, TransientError):
        raise error
    large = [node for node in candidates if fits(options, node)]
    if large and all(node.away for node in large) and AWAY_WORDS.search(answer.words):
        shown = ", ".join(f"{node.name} {node.state}" for node in large[:8])
        reasons = ", ".join(sorted({node.reason for node in large if node.reason}))
        more = ", ..." if len(large) > 8 else ""
        told = f"{shown}{more}: {reasons}" if reasons else f"{shown}{more}"
        return [f"no node for such jobs is available now ({told}): elements wait in the queue until one is"]
    raise PreflightError(
        "SLURM refuses such a job", where=where, why=_first_reason(answer), hint=advice(answer.words)
    )


AWAY_WORDS = re.compile(r"node configuration|nodes? .*(unavail|not avail|down|drain)", re.IGNORECASE)


def _gpus(options: JobOptions, candidates: Sequence[Node]) -> list[str]:
    """Whole nodes take their GPUs with them, which training jobs then wait for."""
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


def _first_reason(answer: Answer) -> str:
    return answer.words.replace("sbatch: error: ", "").replace("allocation failure: ", "")


ADVICE = (
    ("partition", "cluster.partition: `sinfo -s` lists the partitions"),
    ("account", "cluster.account: `sacctmgr show associations user=$USER` lists the accounts"),
    ("qos", "cluster.qos: `sacctmgr show qos` lists them"),
    ("license", "cluster.licenses: `scontrol show licenses` lists them"),
    ("feature", "cluster.constraint: `sinfo -o '%n %f'` lists the nodes' features"),
    ("reservation", "cluster.reservation: `scontrol show reservation` lists them"),
    (
        "node configuration",
        "no node of the partition has that much: cluster.memory, cpus, core_spec or constraint",
    ),
    ("array", "MaxArraySize: larger plan.shard_bytes and plan.shard_files give fewer elements"),
    ("memory", "cluster.memory: what one element may use"),
    ("time", "cluster.time: `sinfo -o '%P %l'` shows the partitions' limits"),
)


def advice(words: str) -> str:
    """What to change in the configuration when SLURM says this; empty when nothing fits."""
    lowered = words.lower()
    return next((hint for word, hint in ADVICE if word in lowered), "")


def _time_limit(seconds: int, partition: str) -> list[str]:
    """A job above the partition's limit would wait for ever. Raises PreflightError."""
    text = ask("sinfo", "-h", "-o", "%l", f"--partition={partition}").split()
    limits = [limit for limit in (read_time(word) for word in text) if limit]
    if limits and max(limits) < seconds and len(limits) == len(text):
        raise PreflightError(
            f"{seconds} s are more than the partition {partition} allows",
            where="cluster.time",
            why=f"its TimeLimit is {', '.join(sorted(set(text)))}",
            hint="set cluster.time lower (an element goes on where it stopped), or another partition",
        )
    return []


def read_time(word: str) -> float:
    """Seconds of SLURM's `[days-]hours:minutes:seconds`; 0 for `infinite` and the like."""
    days, _, clock = word.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        total = 0
        for part in [0] * (3 - len(parts)) + parts:
            total = total * 60 + part
        return float(int(days or 0) * 86400 + total)
    except ValueError:
        return 0.0
