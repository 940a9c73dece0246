"""Opens the cluster that the configuration names, and reads the job environment of this process.

For commands, elements and preflight: the only way to a backend, whose modules are imported when they are
needed. `start_together` and `new_options` start SLURM's commands; the other functions read the environment
and files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cluster.slurm import environment as slurm
from penstock.host.job_environment import GIVEN_CPUS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Cluster
    from penstock.cluster.slurm.new_options import NewOptions
    from penstock.config.settings import ClusterConfig
    from penstock.core.documents.node_cores import FileValue
    from penstock.host.job_environment import JobEnvironment


def read_job_environment(environment: Mapping[str, str] = os.environ) -> JobEnvironment:
    """The job environment of this process. Nothing says which backend started it, and a local element may run
    inside a SLURM job: so SLURM's variables are read wherever they are set, and `PENSTOCK_CPUS` gives the
    number of CPUs where SLURM's do not."""
    job = slurm.read(environment)
    given = environment.get(GIVEN_CPUS, "")
    if job.cpus is None and given.isdecimal() and int(given) > 0:
        job = job._replace(cpus=int(given), cpus_from=GIVEN_CPUS)
    return job


def constrained_cores(environment: Mapping[str, str], root: str | os.PathLike[str] = "/") -> FileValue | None:
    """What the scheduler's own file on this machine says of whether jobs are confined to their cores; None
    where there is no such file."""
    from penstock.cluster.slurm.node_files import constrained_cores as constrained

    return constrained(environment, root)


def open_cluster(
    config: ClusterConfig,
    target: Path | None = None,
    *,
    changed: Callable[[], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Cluster:
    """The cluster of `config.backend`. No query is made yet. `target` is the folder whose presence preflight
    checks on a node. `changed` is called, from any thread, when an element's state changed: by the local
    cluster alone, since SLURM reports no changes by itself. `warn` is called, from any thread, with what a
    person should know of how SLURM is talked to; None: the log has it."""
    if config.backend == "slurm":
        from penstock.cluster.slurm import open_slurm

        return open_slurm(config, target, warn)
    from penstock.cluster.local import LocalCluster

    return LocalCluster(config, changed=changed)


def new_options(config: ClusterConfig, steps: Sequence[str], allowed: Sequence[str]) -> NewOptions | None:
    """What a new configuration of SLURM asks for, beside what this one does. `allowed`: the partitions that
    the site's file gives; (): any. None where this machine has no
    SLURM. Raises PreflightError where SLURM does not answer."""
    from penstock.cluster.slurm import new_options

    return new_options.find(config, steps, allowed) if new_options.is_here() else None


def start_together(
    config: ClusterConfig, words: Sequence[str], nodes: int, seconds: int
) -> subprocess.Popen[bytes] | None:
    """`penstock <words>` once on each of so many nodes of the cluster, for so many seconds at most, as one
    process here: its standard input goes to all of them, and what they print comes from its standard output.
    None where the backend has no other nodes. Raises PreflightError."""
    if config.backend == "slurm":
        from penstock.cluster.slurm.multi_node_command import start

        return start(config, words, nodes, seconds)
    return None
