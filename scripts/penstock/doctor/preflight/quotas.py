"""The kernel's quotas for the owner of the release's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.fs import quotas as kernel_quotas
from penstock.fs.quotas import unnamed_group
from penstock.host.proc import nearest
from penstock.target import modes

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check(config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks) -> None:
    """Check the quotas of a target that answers. Raises PreflightError for an unknown group."""
    if answers.silent(layout.root):
        return
    gid = modes.group_id(config.permissions)
    quotas = kernel_quotas.of_new_files(layout.releases, None, gid)
    checks = kernel_quotas.check(quotas)
    if gid is None:
        checks += unnamed_group(nearest(layout.root), enforced="group" in quotas.enforced)
    looks.saw(*checks, what="the target is not in order", where=str(layout.root))
