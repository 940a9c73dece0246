"""The target: its folders, its file system, its room, and whether it holds a lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import NoSpaceError, PreflightError
from penstock.filesystem.capabilities import facts
from penstock.locks import dataset_lock
from penstock.views import human

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context


def check(context: Context, layout: DatasetLayout, warnings: list[str]) -> str:
    context.storage.check_root(layout.root)
    if layout.state_root is not None:
        context.storage.check_root(layout.state_root)
    context.storage.check_owner(layout)
    seen = facts(layout.root)
    if seen.read_only:
        raise PreflightError(
            "the target is mounted read-only",
            where=str(layout.root),
            hint="correct `target.root`, or the mount",
        )
    keep = context.config.target.keep_free
    if seen.free_bytes <= keep:
        raise NoSpaceError(
            "the target has no room",
            where=str(layout.root),
            why=f"{human.size(seen.free_bytes)} are free, and target.keep_free is {human.size(keep)}",
            hint="make room, or lower target.keep_free",
        )
    if not seen.passable:
        warnings.append(
            f"{layout.root} is {seen.kind}: reads cannot be shown to pass this machine's caches there, so "
            "what is read back counts as `reread`, never as `cold`"
        )
    if os.geteuid() == 0:
        warnings.append(
            "this is root (uid 0): no folder's mode fences a late writer of root, and most network mounts "
            "squash root; stage by an account of its own"
        )
    for folder in (layout.state, layout.state.parent, layout.state.parent.parent):
        if folder.is_dir():
            dataset_lock.try_out(folder, layout.dataset)
            break
    room = f"{human.size(seen.free_bytes)} free"
    return f"target: {layout.root}, {seen.kind}, {room}, durable by {seen.durability}"
