"""What the file system's client and its vendor's commands say of the target.

They are asked before any check that makes a file there: with a server away, such a call waits for minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.fs import servers, store_checks
from penstock.target import modes

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks
    from penstock.fs.stores import StoreStatus


def check_servers(layout: DatasetLayout, looks: Looks) -> tuple[StoreStatus | None, bool]:
    """Return what the target's client shows of servers in /proc (or None), and whether none is away. Makes no
    call on the mount."""
    shown, away = servers.servers_away(layout.root)
    if away:
        looks.gone(servers.away_error(layout.root, away), *away)
    return shown, not away


def check(
    context: Context,
    config: DatasetConfig,
    layout: DatasetLayout,
    answers: Answers,
    looks: Looks,
    shown: StoreStatus | None,
) -> bool:
    """Return whether the target's servers are in order, beside what its client has `shown`; else no file may
    be made there. Of a silent target, only servers that the vendor's commands do not reach are reported.
    Raises PreflightError for an unknown group."""
    if answers.silent(layout.root):
        away = servers.unreached_servers(layout.root)
        if away:
            looks.gone(servers.away_error(layout.root, away), *away)
        return not away
    target = context.config.target
    checks = store_checks.check_target(
        layout.releases,
        gid=modes.group_id(config.permissions),
        wish=target.striping,
        named=target.filesystem,
        shown=shown,
    )
    if checks.in_order:
        looks.saw(*checks.results, what="the target is not in order", where=str(layout.root))
    else:
        looks.gone(servers.away_error(layout.root, checks.results), *checks.results)
    return checks.in_order
