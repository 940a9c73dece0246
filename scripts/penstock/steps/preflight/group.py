"""The group of the release's files: whether this account may give files to it."""

from __future__ import annotations

import grp
import os
from typing import TYPE_CHECKING

from penstock.errors import PreflightError

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.state.context import Context


def check(context: Context, config: DatasetConfig) -> str:
    gid = context.storage.group_id(config.permissions)
    if gid is None:
        return "group: as the target gives it"
    mine = {os.getegid(), *os.getgroups()}
    if os.geteuid() != 0 and gid not in mine:
        names = ", ".join(sorted(_name(one) for one in mine))
        raise PreflightError(
            f"this account may not give files to group {config.permissions.group!r}",
            where=f"datasets.{config.name}.permissions.group",
            why=f"it is in {names}",
            hint="have it added to the group, or name one of these",
        )
    return f"group: {config.permissions.group} ({gid})"


def _name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
