"""SLURM: native job arrays, core-spec reservations, one query for all. How one talks to it is a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.slurm.cluster import SlurmCluster
    from penstock.config.settings import ClusterConfig


def open_slurm(config: ClusterConfig, target: Path | None = None) -> SlurmCluster:
    """The cluster that this machine's SLURM commands speak to. With `target`, preflight's probe job checks on
    a node that this folder is there."""
    from penstock.cluster.slurm.cluster import SlurmCluster

    return SlurmCluster(config, target)
