"""What this machine's mounts of the target, and of the sources that are folders, say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.source_kinds import FOLDER_SCHEMES
from penstock.core import events
from penstock.core.checks import told
from penstock.errors import PreflightError
from penstock.filesystem.clients.registry import check_mount
from penstock.sources.registry import folder, scheme

if TYPE_CHECKING:
    from penstock.config.settings import DatasetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context


def check(context: Context, config: DatasetConfig, layout: DatasetLayout, warnings: list[str]) -> None:
    """What this machine's mounts of the target, and of the sources that are folders, say: warnings are added,
    notes are events. Raises PreflightError where one of them stops the run."""
    target = context.config.target
    found = check_mount(layout.root, named=target.filesystem, ephemeral=target.ephemeral)
    if layout.state_root is not None:
        found += check_mount(layout.state_root, ephemeral=target.ephemeral)
    for source in config.sources:
        if scheme(source.url) in FOLDER_SCHEMES:
            found += check_mount(folder(source.url), source=True)
    found = list(dict.fromkeys(found))
    for one in found:
        if one.verdict == "warning":
            warnings.append(told(one))
        elif one.verdict == "note":
            context.emit(events.Noted(config.name, "preflight", told(one)))
    for one in found:
        if one.verdict == "stop":
            raise PreflightError(one.found, where=one.about, why=f"wanted: {one.wanted}", hint=one.mend)
