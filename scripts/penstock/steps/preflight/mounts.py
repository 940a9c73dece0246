"""What this machine's mounts of the target, and of the sources that are folders, say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER_SCHEMES
from penstock.core.checks import told
from penstock.core.text import printable
from penstock.filesystem.capabilities import facts
from penstock.filesystem.clients.registry import check_mount
from penstock.sources.registry import folder, scheme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core.checks import CheckResult
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, looks: Looks) -> None:
    """Raises ConfigError for a source whose URL cannot be one."""
    looks.saw(*found(context.config.target, config), what="a mount is not in order")


def found(target: TargetConfig, config: DatasetConfig) -> list[CheckResult]:
    """Of this machine, each result once. Raises ConfigError for a source whose URL cannot be one."""
    found = check_mount(target.root, named=target.filesystem, ephemeral=target.ephemeral)
    if target.state_root is not None:
        found += check_mount(target.state_root, ephemeral=target.ephemeral)
    for source in config.sources:
        if scheme(source.url) in FOLDER_SCHEMES:
            found += check_mount(folder(source.url), source=True)
    return list(dict.fromkeys(found))


def kind(target: TargetConfig) -> str:
    """The kind of file system that the target is on this machine."""
    return facts(target.root).kind


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
    here = kind(target)
    graver = [told(one) for one in found(target, config) if one.verdict in ("warning", "stop")]
    texts = [text for text in graver if text not in known]
    if here != kind_there:
        texts.insert(0, f"{printable(str(target.root))} is {here}, and {kind_there} where preflight runs")
    return texts
