"""A target's root that was moved, copied or mounted elsewhere; a link where a dataset's folder was."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.whole_way import STEPS, content, go

from penstock.config.settings import PlanConfig
from penstock.core.errors import PreflightError
from penstock.dataset import run_store

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

PLAN = PlanConfig(shard_files=3)


def elsewhere(context: Context, **changes: Any) -> None:
    context.config = replace(context.config, target=replace(context.config.target, **changes))


@pytest.mark.parametrize(("how", "upto"), [("copied", "plan"), ("copied", "verify"), ("moved", "copy")])
def test_a_root_that_is_another_now_is_staged_to_its_end(
    context: Context, source: Path, tmp_path: Path, upto: str, how: str
) -> None:
    """A snapshot that was restored beside the root, or the root under another path (R8)."""
    go(context, upto=upto)
    old, new = context.config.target.root, tmp_path / "new" / "root"
    new.parent.mkdir()
    if how == "copied":
        shutil.copytree(old, new, symlinks=True)
        for path in new.rglob("*"):  # what is dirty is read from the cache, and proven less by it
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        before = content(old)
    else:
        old.rename(new)
    elsewhere(context, root=new)
    assert go(context)["published"]
    assert content(new / "data" / "current" / "data") == content(source)
    assert run_store.open_run(context.layout("data")).info.root == str(new)
    if how == "copied":
        assert content(old) == before
    else:
        assert not old.exists()


def test_a_state_root_is_of_one_root(context: Context, source: Path, tmp_path: Path) -> None:
    one, two = context.config.target.root, tmp_path / "two"
    elsewhere(context, state_root=tmp_path / "state")
    go(context)
    before = content(tmp_path / "state")
    elsewhere(context, root=two)
    for step in STEPS:
        with pytest.raises(PreflightError, match="this state folder is another root's") as caught:
            go(context, upto=step, after="" if step == "list" else list(STEPS)[list(STEPS).index(step) - 1])
        assert str(one) in str(caught.value)
        assert str(two) in str(caught.value)
    assert content(tmp_path / "state") == before
    assert not two.exists()
    # The root itself was moved: a person says so.
    one.rename(two)
    context.layout("data").root_pointer.unlink()
    assert go(context)["published"]
    assert content(two / "data" / "current" / "data") == content(source)


@pytest.mark.parametrize("step", ["plan", "copy", "permissions", "verify", "publish"])
def test_a_link_in_the_place_of_the_datasets_folder_is_not_followed(
    context: Context, tmp_path: Path, step: str
) -> None:
    """Somebody who may write in the root renames the folder between two steps, and links it (R11)."""
    go(context, upto=list(STEPS)[list(STEPS).index(step) - 1])
    folder, victim = context.layout("data").folder, tmp_path / "home" / "backup_of_data"
    victim.parent.mkdir()
    folder.rename(victim)
    folder.symlink_to(victim)
    before = content(victim)
    with pytest.raises(PreflightError, match="links are not followed below the root"):
        go(context, upto=step, after=list(STEPS)[list(STEPS).index(step) - 1])
    assert content(victim) == before
    assert os.path.islink(folder)
