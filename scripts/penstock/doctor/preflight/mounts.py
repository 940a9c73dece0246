"""This machine's mounts of the target, and of sources that are folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.doctor.preflight.mount_answers import folders
from penstock.fs.mount_checks import check_mount

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core.events import CheckResult
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.mount_answers import Answers
    from penstock.doctor.preflight.results import Looks


def check(context: Context, config: DatasetConfig, answers: Answers, looks: Looks) -> None:
    """Report all mounts of folders that answer."""
    looks.saw(*checks(context.config.target, config, answers), what="a mount is not in order")


def checks(target: TargetConfig, config: DatasetConfig, answers: Answers) -> list[CheckResult]:
    """Return each result once, for folders that answer."""
    results = []
    if not answers.silent(target.root):
        results += check_mount(target.root)
    if target.state_root is not None and not answers.silent(target.state_root):
        results += check_mount(target.state_root)
    for folder in folders(config.sources):
        if not answers.silent(folder):
            results += check_mount(folder, source=True)
    return list(dict.fromkeys(results))
