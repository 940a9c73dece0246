"""A dataset with two releases, published step by step; each test works on a copy of its root."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.published import content, publish, published
from tests.support.staging_runs import tree

from penstock.config.settings import PermissionsConfig
from penstock.core.layout import DatasetLayout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEFORE = {
    "same/a": content(1, 5000),
    "same/b": content(2, 300),
    "changed": content(3, 900),
    "gone": content(4, 77),
    "moved/from": content(5, 4321),
}
AFTER = {
    "same/a": BEFORE["same/a"],
    "same/b": BEFORE["same/b"],
    "changed": content(13, 901),
    "came": content(6, 78),
    "moved/to": BEFORE["moved/from"],
}


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `target` has the dataset `data` with two releases: BEFORE, then AFTER."""
    top = tmp_path_factory.mktemp("catalogue")
    source = tree(top / "source", BEFORE)
    for_all = PermissionsConfig(file_mode=0o444, dir_mode=0o555)
    with published(top, source, permissions=for_all) as context:
        for name in ("changed", "gone", "moved/from"):
            (source / name).unlink()
        tree(source, {name: AFTER[name] for name in ("changed", "came", "moved/to")})
        publish(context)
    return top


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Iterator[Path]:
    """A target of its own, which every account may look into as far as its modes let it."""
    copy = tmp_path / "target"
    shutil.copytree(original / "target", copy, symlinks=True, copy_function=shutil.copy2)
    opened = [*tmp_path.parents, tmp_path]
    modes = {one: one.stat().st_mode for one in opened if one.stat().st_mode & 0o001 == 0}
    for one in modes:
        one.chmod(0o755)
    yield copy
    for folder in copy.rglob("*"):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o755)
    for one, mode in modes.items():
        one.chmod(mode & 0o7777)


@pytest.fixture
def layout(root: Path) -> DatasetLayout:
    return DatasetLayout(root, "data")
