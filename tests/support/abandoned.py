"""A dataset of which one run was staged and given up for another."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.settings import PlanConfig
from penstock.dataset import run_store

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.submitted_arrays import ArrayBook

FILES = {f"d{i % 4}/{i:03d}": bytes([i]) * (100 * i + 1) for i in range(40)}
PLAN = PlanConfig(shard_files=13)
"""Some shards of them."""


def opened(context: Context) -> tuple[str, RunLayout]:
    """The release and the state of the run that was listed last."""
    run = run_store.open_run(context.layout("data"))
    info, folder = run.info, run.folder
    return info.release, folder


def inodes(root: Path) -> dict[str, int]:
    """Path to inode number, of every file below `root`."""
    return {str(p.relative_to(root)): p.stat().st_ino for p in root.rglob("*") if p.is_file()}


def stagings(context: Context) -> list[str]:
    """Names of the staging folders that stand."""
    return [name for name in os.listdir(context.layout("data").releases) if name.endswith(".staging")]


def named(context: Context, release: str) -> None:
    """Configure the release's name."""
    data = context.config.datasets["data"]
    context.config = replace(context.config, datasets={"data": replace(data, release=release)})


def intend(book: ArrayBook, backend: str = "local") -> None:
    """Note array 7 as that of copy."""
    book.intend("name", "copy", backend, [0], workers=1, call="before")
    book.submitted("name", "7")
