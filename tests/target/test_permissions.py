"""Final modes and groups: set where they differ, checked everywhere, refused with the reason."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.accounts import give
from tests.support.forked import NOBODY, forked
from tests.target.conftest import need_root

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import FailedError, PreflightError
from penstock.fs import tree
from penstock.fs.path_walk import walk
from penstock.target import modes, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.step_results import ModesSet


@pytest.fixture(params=[tree.WAITS, -1.0], ids=["at once", "waiting"], autouse=True)
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it on a file system that answers at once, and on one whose calls count as waiting."""
    monkeypatch.setattr(tree, "WAITS", request.param)


@pytest.fixture
def staging(folder: Path) -> Path:
    made = folder / "staging"
    (made / "data/d/e").mkdir(parents=True)
    for name, mode in (("f", 0o600), ("d/g", 0o440), ("d/e/h", 0o6777), ("d/e/none", 0)):
        (made / "data" / name).write_text(name)
        (made / "data" / name).chmod(mode)
    (made / "data/d/empty").mkdir(mode=0o777)
    return made


@pytest.mark.parametrize(
    ("file_mode", "dir_mode", "files", "folders"),
    [
        (0o440, 0o2550, 0o440, 0o2550),
        (0o444, 0o555, 0o444, 0o555),
        (0o640, 0o2750, 0o640, 0o2750),
        (0o7777, 0o7777, 0o775, 0o2775),
    ],
)
def test_all_of_it_is_as_the_policy_says(
    staging: Path, file_mode: int, dir_mode: int, files: int, folders: int
) -> None:
    policy = PermissionsConfig(file_mode=file_mode, dir_mode=dir_mode)
    counts = modes.set_permissions(staging, policy, None)
    assert (counts["files"], counts["folders"]) == (4, 3)
    for found in walk(staging / "data"):
        assert found.mode == (files if found.kind == "file" else folders), found
    assert stat.S_IMODE((staging / "data").stat().st_mode) == folders
    again = modes.set_permissions(staging, policy, None)
    assert (again["changed_files"], again["changed_folders"]) == (0, 0)


def test_nothing_is_touched_that_is_right(staging: Path) -> None:
    before = (staging / "data/d/g").stat().st_ctime_ns
    modes.set_permissions(staging, PermissionsConfig(), None)
    assert (staging / "data/d/g").stat().st_ctime_ns == before


def test_the_group_is_given(staging: Path) -> None:
    need_root()
    modes.set_permissions(staging, PermissionsConfig(), 4242)
    assert {f.gid for f in walk(staging / "data")} == {4242}
    assert (staging / "data").stat().st_gid == 4242


def test_a_group_that_one_may_not_give(staging: Path) -> None:
    need_root()
    for found in walk(staging / "data"):
        give(staging / "data" / found.path, NOBODY, NOBODY)
    give(staging / "data", NOBODY, NOBODY)
    with pytest.raises(FailedError, match="Operation not permitted") as caught:
        forked(lambda: modes.set_permissions(staging, PermissionsConfig(), 4242), uid=NOBODY)
    assert "group 4242" in str(caught.value)
    forked(lambda: modes.set_permissions(staging, PermissionsConfig(), NOBODY), uid=NOBODY)
    with pytest.raises(PermissionError):  # the fence against late attempts
        forked(lambda: (staging / "data/d/late").write_text("x"), uid=NOBODY)


def test_a_mode_that_is_not_kept(staging: Path) -> None:
    """The kernel drops setgid without an error when the folder's group is not one of the caller's."""
    need_root()
    for found in walk(staging / "data"):
        give(staging / "data" / found.path, NOBODY, NOBODY)
    give(staging / "data", NOBODY, NOBODY)
    give(staging / "data/d/e", NOBODY, 4242)
    with pytest.raises(FailedError, match="does not keep the permissions") as caught:
        forked(lambda: modes.set_permissions(staging, PermissionsConfig(dir_mode=0o2550), None), uid=NOBODY)
    assert caught.value.where == "d/e"
    assert "mode 0550 and group 4242 again; set were 2550" in caught.value.why


def test_many_folders_are_closed_in_parts_the_deepest_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modes, "TOGETHER", 5)
    order: list[str] = []
    real = modes._set

    def noted(root: int, path: str, mode: int, gid: int | None) -> bool:
        order.append(path)
        return real(root, path, mode, gid)

    monkeypatch.setattr(modes, "_set", noted)
    for number in range(30):
        (folder / f"s/data/{number % 7}/{number}/x").mkdir(parents=True)
        (folder / f"s/data/{number % 7}/{number}/f").touch(0o600)
    counts = modes.set_permissions(folder / "s", PermissionsConfig(), None)
    assert counts["changed_folders"] == 7 + 30 + 30 + 1
    assert counts["changed_files"] == 30
    folders = [path for path in order if not path.endswith("/f")]
    assert len(folders) == len(set(folders)) == 68
    place = {path: number for number, path in enumerate(folders)}
    assert all(place[path] < place[path.rpartition("/")[0]] for path in folders if path)
    assert {found.mode for found in walk(folder / "s/data") if found.kind == "dir"} == {0o2550}


@pytest.mark.parametrize("giants", [None, ()], ids=["each file", "by names"])
@pytest.mark.parametrize("mode", [0o640, 0], ids=["not entered", "not read"])
def test_a_folder_that_its_owner_may_not_enter_is_swept_and_mended(
    staging: Path, mode: int, giants: tuple[str, ...] | None
) -> None:
    need_root()
    (staging / "data/d/e/.p.0123456789abcdef").touch()
    for found in walk(staging / "data"):
        give(staging / "data" / found.path, NOBODY, NOBODY)
    give(staging / "data", NOBODY, NOBODY)
    (staging / "data/d").chmod(mode)
    for above in (staging, staging.parent):
        above.chmod(0o755)
    policy = PermissionsConfig()
    counts = forked(lambda: modes.set_permissions(staging, policy, None, giants=giants), uid=NOBODY)
    assert (counts["files"], counts["swept"]) == (4, 1)
    assert {found.mode for found in walk(staging / "data") if found.kind == "dir"} == {0o2550}


def test_files_are_met_by_name_where_their_writers_set_them(staging: Path) -> None:
    """But for giants: those are set, unless nothing is there."""
    before = {found.path: found for found in walk(staging / "data") if found.kind == "file"}
    (staging / "data/d/.p.0123456789abcdef").touch()
    giants = ("d/e/h", "d/none")
    counts = modes.set_permissions(staging, PermissionsConfig(), None, giants=giants)
    assert (counts["files"], counts["folders"], counts["swept"]) == (4, 3, 1)
    assert (counts["changed_files"], counts["changed_folders"]) == (1, 4)
    for found in walk(staging / "data"):
        if found.kind == "dir" or found.path in giants:
            assert found.mode == (0o2550 if found.kind == "dir" else 0o440), found
        else:
            assert found == before[found.path]
    again = modes.set_permissions(staging, PermissionsConfig(), None, giants=giants)
    assert (again["changed_files"], again["changed_folders"], again["swept"]) == (0, 0, 0)


@pytest.mark.parametrize("giants", [None, ("d/e/h",)], ids=["each file", "by names"])
def test_killed_before_each_change_and_done_again(staging: Path, giants: tuple[str, ...] | None) -> None:
    need_root()
    (staging / "data/d/e/.p.0123456789abcdef").touch()
    give(staging / "data", NOBODY, NOBODY)
    for found in walk(staging / "data"):
        give(staging / "data" / found.path, NOBODY, NOBODY)
    for above in (staging, staging.parent):
        above.chmod(0o755)

    def set_until(change: int) -> ModesSet:
        changes = itertools.count()

        def spend(_: int) -> None:
            if next(changes) == change:
                os._exit(9)

        return modes.set_permissions(staging, PermissionsConfig(), None, spend, giants=giants)

    for change in range(7):
        with contextlib.suppress(EOFError):
            forked(partial(set_until, change), uid=NOBODY)
    assert forked(partial(set_until, 99), uid=NOBODY)["changed_folders"] == 0
    for found in walk(staging / "data"):
        if found.kind == "dir" or giants is None or found.path in giants:
            assert found.mode == (0o2550 if found.kind == "dir" else 0o440), found
    assert not (staging / "data/d/e/.p.0123456789abcdef").exists()


@pytest.mark.parametrize("giants", [None, ()], ids=["each file", "by names"])
@pytest.mark.parametrize("make", [lambda path: path.symlink_to("g"), os.mkfifo], ids=["link", "FIFO"])
def test_links_and_specials_are_refused(
    staging: Path, make: Callable[[Path], None], giants: tuple[str, ...] | None
) -> None:
    make(staging / "data/d/odd")
    with pytest.raises(FailedError, match="neither a file nor a folder") as caught:
        modes.set_permissions(staging, PermissionsConfig(), None, giants=giants)
    assert f"remove {staging}/data/d/odd" in caught.value.hint


@pytest.mark.parametrize("giants", [None, ("f",)], ids=["each file", "a giant"])
def test_what_another_release_shares_is_never_changed(
    staging: Path, folder: Path, giants: tuple[str, ...] | None
) -> None:
    os.link(staging / "data/f", folder / "published")
    with pytest.raises(FailedError, match="shared with another release"):
        modes.set_permissions(staging, PermissionsConfig(), None, giants=giants)
    assert stat.S_IMODE((folder / "published").stat().st_mode) == 0o600


def test_groups_by_name_and_number() -> None:
    assert modes.group_id(PermissionsConfig()) is None
    assert modes.group_id(PermissionsConfig(group="root")) == 0
    assert modes.group_id(PermissionsConfig(group="4242")) == 4242
    with pytest.raises(PreflightError, match='no group "no such group"'):
        modes.group_id(PermissionsConfig(group="no such group"))


@pytest.mark.parametrize("closed", [0o2550, 0o2440, 0], ids=oct)
def test_read_only_trees_can_be_removed(staging: Path, closed: int) -> None:
    for found in walk(staging / "data"):
        give(staging / "data" / found.path, NOBODY, NOBODY)
    for path in (staging, staging / "data"):
        give(path, NOBODY, NOBODY)
    staging.parent.chmod(0o777)
    outside = staging.parent / "outside"
    outside.write_text("canary")
    (staging / "link").symlink_to(outside)

    def child() -> None:
        modes.set_permissions(staging, PermissionsConfig(), None)
        (staging / "data/d").chmod(closed)
        tree_removal.remove_tree(staging)
        tree_removal.remove_tree(staging)

    forked(child, uid=NOBODY)
    assert not staging.exists()
    assert outside.read_text() == "canary"


@pytest.mark.parametrize("remove", [tree_removal.remove_tree, tree_removal.remove_release])
@pytest.mark.parametrize("closed", [0, 0o200, 0o400, 0o500], ids=oct)
def test_a_tree_whose_top_folder_is_closed_to_its_owner_is_removed(
    staging: Path, closed: int, remove: Callable[[Path], None]
) -> None:
    for found in walk(staging / "data"):
        give(staging / "data" / found.path, NOBODY, NOBODY)
    for path in (staging, staging / "data"):
        give(path, NOBODY, NOBODY)
    staging.parent.chmod(0o777)
    (staging / "data").chmod(closed)
    staging.chmod(closed)
    forked(lambda: remove(staging), uid=NOBODY)
    assert not staging.exists()


def test_a_folder_of_another_account_stays_closed_and_is_named(staging: Path) -> None:
    need_root()
    staging.chmod(0)
    staging.parent.chmod(0o777)

    def child() -> str:
        with pytest.raises(FailedError) as caught:
            tree_removal.remove_tree(staging)
        return str(caught.value)

    assert str(staging) in forked(child, uid=NOBODY)
    assert stat.S_IMODE(staging.stat().st_mode) == 0
