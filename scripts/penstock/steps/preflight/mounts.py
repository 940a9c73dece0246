"""What this machine's mounts of the target, and of the sources that are folders, say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER_SCHEMES
from penstock.filesystem.clients.registry import check_mount
from penstock.sources.registry import folder, scheme

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context
    from penstock.steps.preflight.looks import Looks


def check(context: Context, config: DatasetConfig, layout: DatasetLayout, looks: Looks) -> None:
    """Reports each result once. Raises ConfigError for a source whose URL cannot be one."""
    target = context.config.target
    found = check_mount(layout.root, named=target.filesystem, ephemeral=target.ephemeral)
    if layout.state_root is not None:
        found += check_mount(layout.state_root, ephemeral=target.ephemeral)
    for source in config.sources:
        if scheme(source.url) in FOLDER_SCHEMES:
            found += check_mount(folder(source.url), source=True)
    looks.saw(*dict.fromkeys(found), what="a mount is not in order")
