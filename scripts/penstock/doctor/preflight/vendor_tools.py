"""What the client and the commands of the file system's vendor say of the target. They are asked before any
check that makes a file there: with a server away, such a call waits for minutes."""

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
    from penstock.fs.stores.facts import StoreStatus


def check_servers(layout: DatasetLayout, looks: Looks) -> tuple[StoreStatus | None, bool]:
    """What the target's client shows of servers in /proc (None: nothing), and whether none is known to be
    away. Makes no call on the mount."""
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
    """Whether the target's servers and targets are in order, as far as they are known, beside what its client
    has `shown`; else no file may be made there. Of a target that does not answer, only the servers that the
    vendor's commands do not reach are reported. Reports nothing where the file system's vendor has no
    commands and nothing is to be striped. Raises PreflightError for a group that is not known."""
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
