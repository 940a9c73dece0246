"""What the commands of the file system's vendor say of the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.fs import store_checks
from penstock.target import modes

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check(
    context: Context, config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks
) -> None:
    """Reports nothing where the file system's vendor has no commands and nothing is to be striped, and where
    the target does not answer. Raises PreflightError for a group that is not known."""
    if answers.silent(layout.root):
        return
    target = context.config.target
    results = store_checks.check_target(
        layout.releases,
        gid=modes.group_id(config.permissions),
        wish=target.striping,
        named=target.filesystem,
    )
    looks.saw(*results, what="the target is not in order", where=str(layout.root))
