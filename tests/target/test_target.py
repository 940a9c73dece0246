"""The dataset's folders: modes, owners, refusals that change nothing."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

import pytest
from tests.support.accounts import give
from tests.support.forked import NOBODY, forked
from tests.target.conftest import need_root

from penstock.core.errors import PreflightError
from penstock.core.layout import DatasetLayout
from penstock.fs.owners import group_name, user_name
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mask", [0, 0o077])
def test_folders_and_their_modes(folder: Path, mask: int) -> None:
    os.umask(mask)
    layout = DatasetLayout(folder / "root", "set")
    for _ in range(2):
        dataset_folders.prepare(layout)
    assert [mode(p) for p in (layout.root, layout.folder, layout.releases)] == [0o755] * 3
    assert mode(layout.state) == 0o700
    data = dataset_folders.open_staging(layout, "r", 0o2550, None)
    assert data == layout.staging("r") / "data"
    assert (mode(layout.staging("r")), mode(data)) == (0o700, 0o2750)


def test_the_state_elsewhere(folder: Path) -> None:
    (folder / "state").mkdir(mode=0o755)
    layout = DatasetLayout(folder / "root", "set", folder / "state")
    dataset_folders.prepare(layout)
    assert mode(folder / "state/set/.penstock") == 0o700
    assert sorted(os.listdir(layout.folder)) == [".penstock", "releases"]
    assert layout.state_pointer.is_file()


def test_an_inherited_group_stays(folder: Path) -> None:
    need_root()
    give(folder, 0, 4242)
    folder.chmod(0o3775)
    layout = DatasetLayout(folder, "set")
    dataset_folders.prepare(layout)
    data = dataset_folders.open_staging(layout, "r", 0o2550, None)
    assert (layout.folder.stat().st_gid, mode(layout.folder)) == (4242, 0o2755)
    assert data.stat().st_gid == 4242


def test_refusals_change_nothing(folder: Path) -> None:
    (folder / "file").write_text("x")
    for root, why in ((folder / "file", "not a folder"), (folder / "no/where", "neither it nor")):
        with pytest.raises(PreflightError, match=why):
            dataset_folders.prepare(DatasetLayout(root, "set"))
    (folder / "set").symlink_to(folder)
    with pytest.raises(PreflightError, match="not a folder"):
        dataset_folders.prepare(DatasetLayout(folder, "set"))
    (folder / "open").mkdir(mode=0o777)
    with pytest.raises(PreflightError, match="everybody may write"):
        dataset_folders.prepare(DatasetLayout(folder, "open"))
    assert sorted(os.listdir(folder)) == ["file", "open", "set"]


def test_another_accounts_dataset(layout: DatasetLayout) -> None:
    need_root()
    with pytest.raises(PreflightError, match="belongs to root"):
        forked(lambda: dataset_folders.check_owner(layout), uid=NOBODY)
    with pytest.raises(PreflightError, match="belongs to root"):
        forked(lambda: dataset_folders.prepare(layout), uid=NOBODY)


def test_the_root_may_be_a_link(folder: Path) -> None:
    (folder / "real").mkdir(mode=0o755)
    (folder / "root").symlink_to("real")
    dataset_folders.prepare(DatasetLayout(folder / "root", "set"))
    assert (folder / "real/set/releases").is_dir()


def test_folders_that_hold_nothing_go_and_others_stay(tmp_path: Path) -> None:
    from penstock.target.tree_removal import remove_empty

    for path in ("a/b/c", "a/b/d", "e/f"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "e/kept").write_text("x")
    remove_empty(tmp_path, ["a/b/c/gone", "a/b/d/gone", "e/f/gone", "never/was", "top"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["e", "kept"]


@pytest.mark.parametrize(
    ("mode", "used"), [(0o755, True), (0o1777, True), (0o3775, True), (0o2775, False), (0o777, False)]
)
def test_a_root_in_which_others_may_rename_is_refused(layout: DatasetLayout, mode: int, used: bool) -> None:
    """Between two calls of a step the dataset's folder could become a link to anywhere (R11)."""
    dataset_folders.prepare(layout)
    give(layout.root, -1, 54321)
    layout.root.chmod(mode)
    refused = pytest.raises(PreflightError, match=r"(?s)open to others.*may rename.*chmod \+t")
    with contextlib.nullcontext() if used else refused:
        dataset_folders.check_owner(layout)


def test_a_root_of_the_owners_own_group_is_used(layout: DatasetLayout) -> None:
    """As umask 002 makes it where each account has a group of its own."""
    name = user_name(os.geteuid())
    if not name or group_name(os.getegid()) != name:
        pytest.skip("this account has no group of its own name")
    dataset_folders.prepare(layout)
    layout.root.chmod(0o775)
    dataset_folders.check_owner(layout)
