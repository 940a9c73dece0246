"""What this machine's mounts of the target, and of the sources that are folders, say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.checks import told
from penstock.core.text import printable
from penstock.filesystem.clients.registry import check_mount
from penstock.steps.preflight.answers import Answers, folders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core.checks import CheckResult
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, answers: Answers, looks: Looks) -> None:
    """Reports nothing of folders that do not answer."""
    looks.saw(*found(context.config.target, config, answers), what="a mount is not in order")


def found(target: TargetConfig, config: DatasetConfig, answers: Answers) -> list[CheckResult]:
    """Of this machine, each result once; nothing of folders that do not answer."""
    found = []
    if not answers.silent(target.root):
        found += check_mount(target.root, named=target.filesystem, ephemeral=target.ephemeral)
    if target.state_root is not None and not answers.silent(target.state_root):
        found += check_mount(target.state_root, ephemeral=target.ephemeral)
    for folder in folders(config.sources):
        if not answers.silent(folder):
            found += check_mount(folder, source=True)
    return list(dict.fromkeys(found))


def kind(target: TargetConfig, answers: Answers) -> str:
    """The kind of file system that the target is on this machine. Raises as `Answers.facts`."""
    return answers.facts(target.root, "the target").kind


def elsewhere(
    target: TargetConfig, config: DatasetConfig, known: Sequence[str], kind_there: str
) -> list[str]:
    """Warnings about this node's mounts, for the machine that preflight runs on.

    | this node sees                                   | answer                                          |
    |--------------------------------------------------|-------------------------------------------------|
    | a warning that the other machine has too (known) | nothing                                         |
    | another warning, or what would stop the run      | that, as a warning                              |
    | the target on another kind of file system        | a warning that names both                       |
    """
    answers = Answers([target.root, *folders(config.sources)])
    here = kind(target, answers)
    graver = [told(one) for one in found(target, config, answers) if one.verdict in ("warning", "stop")]
    texts = [text for text in graver if text not in known]
    if here != kind_there:
        texts.insert(0, f"{printable(str(target.root))} is {here}, and {kind_there} where preflight runs")
    return texts
