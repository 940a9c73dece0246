"""Chooses the cluster that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cluster.port import Cluster
    from penstock.config.settings import ClusterConfig


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
