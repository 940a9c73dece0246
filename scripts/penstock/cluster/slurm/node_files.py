"""Reads SLURM's configuration files as a node has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host.machine_settings import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.node_answer import FileValue

# Folders of cgroup.conf, beside slurm.conf, where SLURM_CONF is unset. A node without own files
# (`configless`) keeps copies in the first two.
FOLDERS = ("run/slurm/conf", "var/spool/slurmd/conf-cache", "etc/slurm", "etc/slurm-llnl", "usr/local/etc")


def constrained_cores(environment: Mapping[str, str], root: str | os.PathLike[str] = "/") -> FileValue | None:
    """Read ConstrainCores from this machine's cgroup.conf; None without such a file. Never raises."""
    conf = environment.get("SLURM_CONF", "")
    folders = [Path(conf).parent] if conf else []
    for folder in [*folders, *(Path(root, name) for name in FOLDERS)]:
        path = folder / "cgroup.conf"
        if os.path.lexists(path):
            return setting(path, "ConstrainCores")
    return None
