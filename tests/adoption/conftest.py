"""A source, a copy of it by rsync, and a dataset whose target is elsewhere."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.support.published import content
from tests.support.staging_runs import context_for, tree
from tests.target.conftest import need

from penstock.config.settings import PlanConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

GIANTS = PlanConfig(giant_bytes=4 << 20, part_bytes=1 << 20)
FILES = {
    **{f"d{i % 3}/f{i:02d}": content(i, 5000 + i) for i in range(30)},
    "big/giant": content(99, (5 << 20) + 7),
    "a-between": b"x",
    "a/below": b"y",
    "empty": b"",
}


@dataclass
class Place:
    """Where a copy is compared with its source."""

    source: Path
    copy: Path
    context: Context


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., Path]:
    """Makes a copy of a folder by rsync, as people do, with its times; the copy."""

    def copy(source: Path, name: str = "copy") -> Path:
        target = tmp_path / name
        subprocess.run([need("rsync"), "-a", f"{source}/", f"{target}/"], check=True, timeout=120)
        return target

    return copy


@pytest.fixture
def place(tmp_path: Path, copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """34 files and their copy; a giant of 6 parts among them. The target holds nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = tree(tmp_path / "source", FILES)
    context = context_for(tmp_path, source, plan=GIANTS)
    yield Place(source, copied(source), context)
    context.cluster.close()  # type: ignore[attr-defined]
