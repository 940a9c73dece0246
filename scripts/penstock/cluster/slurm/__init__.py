"""SLURM: native job arrays, cores that jobs leave to their node (`--core-spec`), one query for all elements.

`cluster` implements the port. `commands` talks to SLURM, by SLURM's commands or by pyslurm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.cluster.slurm.cluster import SlurmCluster
    from penstock.config.settings import ClusterConfig


def open_slurm(
    config: ClusterConfig,
    target: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> SlurmCluster:
    """Open the cluster of this machine's SLURM commands, in the way that `cluster.slurm_api` sets. With
    `target`, preflight's probe job checks this folder on a node. `warn` gets a line if that way is abandoned,
    and while a command does not answer; if it is None, the log gets these lines."""
    from penstock.cluster.slurm import client
    from penstock.cluster.slurm.cluster import SlurmCluster

    if warn is not None:
        client.warn_by(warn)
    if config.slurm_api == "commands":
        return SlurmCluster(config, target)
    from penstock.cluster.slurm.commands import SlurmBindings

    wanted = config.slurm_api == "pyslurm"
    return SlurmCluster(config, target, SlurmBindings(config.pyslurm_python, wanted=wanted, warn=warn))
