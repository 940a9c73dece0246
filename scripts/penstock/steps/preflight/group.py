"""The group of the release's files: whether this account may give files to it."""

from __future__ import annotations

import grp
import os
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.text import in_quotes, printable
from penstock.errors import PreflightError

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, looks: Looks) -> None:
    """Raises PreflightError for a group to which this account may not give files."""
    gid = context.storage.group_id(config.permissions)
    if gid is None:
        looks.saw(CheckResult("group", "as the target gives it"))
        return
    mine = {os.getegid(), *os.getgroups()}
    if os.geteuid() != 0 and gid not in mine:
        names = ", ".join(sorted(_name(one) for one in mine))
        raise PreflightError(
            f"this account may not give files to group {in_quotes(config.permissions.group)}",
            where=f"datasets.{config.name}.permissions.group",
            why=f"it is in {names}",
            hint="have it added to the group, or name one of these",
        )
    looks.saw(CheckResult("group", printable(f"{config.permissions.group} ({gid})")))


def _name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
