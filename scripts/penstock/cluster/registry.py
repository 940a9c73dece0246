"""Chooses the cluster that the configuration names, and reads what a cluster told this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cluster.slurm import environment as slurm
from penstock.runtime.job_environment import GIVEN_CPUS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.cluster.port import Cluster
    from penstock.config.settings import ClusterConfig
    from penstock.runtime.job_environment import JobEnvironment


def read_job_environment(environment: Mapping[str, str] = os.environ) -> JobEnvironment:
    """What the cluster told this process. A process is not told which backend started it, and a local element
    may run inside a SLURM job: so SLURM's words are read wherever they are set, and `PENSTOCK_CPUS` says how
    many CPUs where SLURM does not."""
    found = slurm.read(environment)
    given = environment.get(GIVEN_CPUS, "")
    if found.cpus is None and given.isdecimal() and int(given) > 0:
        found = found._replace(cpus=int(given), cpus_from=GIVEN_CPUS)
    return found


def open_cluster(
    config: ClusterConfig, target: Path | None = None, *, changed: Callable[[], None] | None = None
) -> Cluster:
    """The cluster of `config.backend`. It is not asked anything yet. `target` is the folder that
    preflight looks for from a node. `changed` is called, from any thread, when an element's state
    changed, where the cluster hears of it by itself (here; SLURM has to be asked)."""
    if config.backend == "slurm":
        from penstock.cluster.slurm import open_slurm

        return open_slurm(config, target)
    from penstock.cluster.local import LocalCluster

    return LocalCluster(config, changed=changed)
