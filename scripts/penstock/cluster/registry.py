"""Opens the configured cluster, and reads the job environment of this process.

Backends are imported only here, when needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cluster.slurm import environment as slurm
from penstock.host.kernel_facts import GIVEN_CPUS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.cluster.port import Cluster
    from penstock.cluster.slurm.site import NewOptions
    from penstock.config.settings import ClusterConfig
    from penstock.core.node_answer import FileValue
    from penstock.host.kernel_facts import JobEnvironment


def read_job_environment(environment: Mapping[str, str] = os.environ) -> JobEnvironment:
    """Read the job environment of this process. No variable names the backend that started it, and a local
    element may run inside a SLURM job. So SLURM's variables are always read. If they give no number of CPUs,
    `PENSTOCK_CPUS` is used."""
    job = slurm.read(environment)
    cpus = environment.get(GIVEN_CPUS, "")
    if job.cpus is None and cpus.isdecimal() and int(cpus) > 0:
        job = job._replace(cpus=int(cpus), cpus_from=GIVEN_CPUS)
    return job


def constrained_cores(environment: Mapping[str, str], root: str | os.PathLike[str] = "/") -> FileValue | None:
    """Read from the scheduler's own file on this machine whether jobs are confined to their cores; None if
    the file does not exist."""
    from penstock.cluster.slurm.environment import constrained_cores as constrained

    return constrained(environment, root)


def open_cluster(
    config: ClusterConfig,
    target: Path | None = None,
    *,
    changed: Callable[[], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Cluster:
    """Open the cluster of `config.backend`, without a query. `target` is the folder that preflight checks on
    a node. The local cluster calls `changed`, from any thread, when an element's state has changed; SLURM
    reports no changes. `warn` gets warnings about the way to SLURM, from any thread; if it is None, the log
    gets them."""
    if config.backend == "slurm":
        from penstock.cluster.slurm import open_slurm

        return open_slurm(config, target, warn)
    from penstock.cluster.local import LocalCluster

    return LocalCluster(config, changed=changed)


def new_options(config: ClusterConfig, steps: Sequence[str], allowed: Sequence[str]) -> NewOptions | None:
    """Choose options of SLURM for a new configuration, which add to those of `config`; None without SLURM on
    this machine. `allowed` are the partitions of the site's file; () allows any. Raises PreflightError if
    SLURM does not answer."""
    from penstock.cluster.slurm import site

    return site.find(config, steps, allowed) if site.is_here() else None


def start_together(
    config: ClusterConfig, words: Sequence[str], nodes: int, seconds: int
) -> subprocess.Popen[bytes] | None:
    """Start `penstock <words>` on each of `nodes` nodes, for at most `seconds`, and return one process that
    stands for all. Its standard input goes to all nodes, and its standard output has the output of all. None
    if the backend has no other nodes. Raises PreflightError."""
    if config.backend == "slurm":
        from penstock.cluster.slurm.submission import start

        return start(config, words, nodes, seconds)
    return None
