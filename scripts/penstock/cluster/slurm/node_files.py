"""Reads SLURM's configuration files as a node has them, for preflight's look at a node's cores. Changes
nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.host.setting_files import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.core.documents.node_cores import FileValue

FOLDERS = ("run/slurm/conf", "var/spool/slurmd/conf-cache", "etc/slurm", "etc/slurm-llnl", "usr/local/etc")
"""Where cgroup.conf lies, beside slurm.conf, where SLURM_CONF does not say it. A node without files of its
own (`configless`) keeps copies in the first two."""


def constrained_cores(environment: Mapping[str, str], root: str | os.PathLike[str] = "/") -> FileValue | None:
    """ConstrainCores of this machine's cgroup.conf; None where none is found. Never raises."""
    given = environment.get("SLURM_CONF", "")
    folders = [Path(given).parent] if given else []
    for folder in [*folders, *(Path(root, name) for name in FOLDERS)]:
        path = folder / "cgroup.conf"
        if os.path.lexists(path):
            return setting(path, "ConstrainCores")
    return None
