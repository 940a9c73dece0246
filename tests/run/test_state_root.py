"""`target.state_root`: a dataset has one state, and where that is not here, nothing begins."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.published import publish, published
from tests.support.staging_runs import context_for, tree
from tests.support.whole_way import STEPS

from penstock.core.errors import FailedError, PreflightError
from penstock.keep import audit_step, gate_repair
from penstock.run import adopt_step, list_step, plan_step
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

FILES = {"a": b"a", "b/c": b"bc"}


def configured(context: Context, **target: object) -> Context:
    context.config = replace(context.config, target=replace(context.config.target, **target))
    return context


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A dataset that nobody has staged; its state root is there and empty."""
    made = context_for(tmp_path, tree(tmp_path / "source", FILES))
    (tmp_path / "state").mkdir()
    yield configured(made, state_root=tmp_path / "state")
    made.cluster.close()  # type: ignore[attr-defined]


def unmount(state: Path) -> None:
    """What a node sees that does not mount it."""
    state.rename(state.with_name("away"))
    state.mkdir()


def test_the_first_run_needs_no_further_step_and_binds_the_state(context: Context, tmp_path: Path) -> None:
    assert publish(context)["published"]
    layout = context.layout("data")
    pointer, state = json.loads(layout.state_pointer.read_text()), json.loads(layout.root_pointer.read_text())
    assert pointer == {"format": 1, "id": state["id"], "state_root": str(tmp_path / "state")}
    assert len(state["id"]) == 16
    assert layout.state_pointer.stat().st_mode & 0o777 == 0o644
    assert list_step.run(context, "data")["published"]


@pytest.mark.parametrize("published_before", [False, True])
def test_a_state_root_that_is_not_mounted_ends_each_command_and_nothing_is_made(
    context: Context, tmp_path: Path, published_before: bool
) -> None:
    """Before the first release, too: another node stages it now (K4)."""
    list_step.run(context, "data")
    if published_before:
        publish(context)
    unmount(tmp_path / "state")
    copy = tree(tmp_path / "copy", FILES)
    works = [list_step.run, plan_step.run]
    works += [partial(adopt_step.run, request=adopt_step.Request(copy, seal=seal)) for seal in (False, True)]
    if published_before:
        works += [audit_step.run, gate_repair.run]
    for work in works:
        with pytest.raises(PreflightError, match="the dataset's state is missing") as told:
            work(context, "data")
        assert "mkdir -p -m 700" in told.value.hint
    assert not os.listdir(tmp_path / "state")
    (tmp_path / "state").rmdir()
    (tmp_path / "away").rename(tmp_path / "state")
    assert publish(context)["published"]


def test_of_two_nodes_that_make_the_first_state_at_once_one_goes_on(context: Context, tmp_path: Path) -> None:
    """One of them does not see the state root, and makes its own."""
    list_step.run(context, "data")
    unmount(tmp_path / "state")
    layout = context.layout("data")
    pointer = layout.state_pointer.read_bytes()
    layout.state_pointer.unlink()  # as before the first node had bound it
    dataset_folders.prepare(layout)
    layout.state_pointer.write_bytes(pointer)
    for step in (list_step.run, plan_step.run):
        with pytest.raises(PreflightError, match="this state folder is not the dataset's"):
            step(context, "data")


def test_a_state_that_is_lost_is_made_anew_in_a_folder_made_by_hand(context: Context, tmp_path: Path) -> None:
    publish(context)
    unmount(tmp_path / "state")
    layout = context.layout("data")
    layout.state.mkdir(parents=True, mode=0o700)
    assert publish(context)["published"]
    assert (
        json.loads(layout.state_pointer.read_text())["id"]
        == json.loads(layout.root_pointer.read_text())["id"]
    )


def test_without_the_key_the_state_is_not_made_a_second_time(context: Context, tmp_path: Path) -> None:
    publish(context)
    configured(context, state_root=None)
    for step in STEPS.values():
        with pytest.raises(PreflightError, match="the dataset's state lies elsewhere") as told:
            step(context, "data")
        assert told.value.hint == f"set `target.state_root: {tmp_path / 'state'}`"


def test_with_the_key_a_state_in_the_datasets_folder_is_not_left_behind(tmp_path: Path) -> None:
    with published(tmp_path, tree(tmp_path / "source", FILES)) as context:
        before = context.layout("data").state
        configured(context, state_root=tmp_path / "state")
        with pytest.raises(PreflightError, match="the dataset has a state in its own folder") as told:
            list_step.run(context, "data")
        layout: DatasetLayout = context.layout("data")
        assert f"mv {before} {layout.state.parent}/" in told.value.hint
        layout.state.parent.mkdir(parents=True)
        before.rename(layout.state)
        assert list_step.run(context, "data")["published"]
        assert layout.state_pointer.is_file()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"id": 1}', b"[" * 100_000])
def test_a_damaged_pointer_is_named(context: Context, content: bytes) -> None:
    list_step.run(context, "data")
    context.layout("data").state_pointer.write_bytes(content)
    with pytest.raises(FailedError, match="a state file is damaged"):
        list_step.run(context, "data")
