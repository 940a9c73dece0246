"""What the client and the commands of the file system's vendor say of the target. They are asked before any
check that makes a file there: with a server away, such a call waits for minutes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.fs import store_checks
from penstock.host.mounts import mount_of
from penstock.target import modes

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check_servers(layout: DatasetLayout, looks: Looks) -> bool:
    """Whether no server of the target is known to be away, by what its client shows in /proc. Makes no call
    on the mount."""
    _, away = store_checks.servers_away(mount_of(os.path.abspath(layout.root)))
    if away:
        looks.gone(store_checks.away_error(layout.root, away), *away)
    return not away


def check(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> bool:
    """Whether the target's servers and targets are in order, as far as they are known; else no file may be
    made there. Of a target that does not answer, only the servers that the vendor's
    commands do not reach are reported. Reports nothing where the
    file system's vendor has no commands and nothing is to be striped. Raises PreflightError for a group that
    is not known."""
    if answers.silent(layout.root):
        away = store_checks.unreached_servers(mount_of(os.path.abspath(layout.root)))
        if away:
            looks.gone(store_checks.away_error(layout.root, away), *away)
        return not away
    target = context.config.target
    checks = store_checks.check_target(
        layout.releases,
        gid=modes.group_id(config.permissions),
        wish=target.striping,
        named=target.filesystem,
    )
    if checks.in_order:
        looks.saw(*checks.results, what="the target is not in order", where=str(layout.root))
    else:
        looks.gone(store_checks.away_error(layout.root, checks.results), *checks.results)
    return checks.in_order
