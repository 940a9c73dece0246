from __future__ import annotations

import grp
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import PermissionsConfig, SourceConfig, TargetConfig
from penstock.errors import ConfigError, NoSpaceError, PreflightError
from penstock.steps import preflight_step

if TYPE_CHECKING:
    from penstock.state.context import Context


def changed(context: Context, **changes: object) -> Context:
    dataset = replace(context.config.datasets["data"], **changes)  # type: ignore[arg-type]
    context.config = replace(context.config, datasets={"data": dataset})
    return context


def test_it_lists_what_it_looked_at_and_creates_nothing(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    context = context_for(tmp_path, source)
    receipt = preflight_step.run(context, "data")
    assert receipt["dataset"] == "data"
    kinds = [line.partition(":")[0] for line in receipt["checked"]]
    assert kinds == ["interpreter", "target", "group", "source", "cluster"]
    assert str(source) in receipt["checked"][3]
    assert sorted(os.listdir(tmp_path)) == ["source"]
    assert [event.kind for event in events_of(context) if event.kind != "warning"] == ["start", "end"]


def test_it_warns_of_root(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    warnings = preflight_step.run(context, "data")["warnings"]
    assert any("uid 0" in text for text in warnings) == (os.geteuid() == 0)


def test_each_thing_that_cannot_work_is_named(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"1"})
    with pytest.raises(PreflightError, match="source folder cannot be read"):
        preflight_step.run(context_for(tmp_path, tmp_path / "none"), "data")
    with pytest.raises(PreflightError, match="no group 'no-such-group'"):
        preflight_step.run(
            changed(context_for(tmp_path, source), permissions=PermissionsConfig(group="no-such-group")),
            "data",
        )
    with pytest.raises(ConfigError, match="exclude"):
        preflight_step.run(context_for(tmp_path, source, exclude=("!",)), "data")
    two = (SourceConfig(str(source)), SourceConfig(str(source), "a"))
    with pytest.raises(ConfigError, match="share a folder"):
        preflight_step.run(context_for(tmp_path, source, sources=two), "data")
    with pytest.raises(NoSpaceError, match="no room"):
        preflight_step.run(context_for(tmp_path, source, keep_free=1 << 62), "data")
    with pytest.raises(PreflightError, match="lie in one another"):
        preflight_step.run(context_for(tmp_path, tmp_path / "target" / "data" / ".."), "data")
    (tmp_path / "target").write_bytes(b"")
    with pytest.raises(PreflightError, match="not a folder"):
        preflight_step.run(context_for(tmp_path, source), "data")
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


def test_the_own_group_may_be_given(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    try:
        name = grp.getgrgid(os.getegid()).gr_name
    except KeyError:
        name = str(os.getegid())
    receipt = preflight_step.run(changed(context, permissions=PermissionsConfig(group=name)), "data")
    assert f"group: {name} ({os.getegid()})" in receipt["checked"]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    sources = tuple(SourceConfig(str(tmp_path / name), name) for name in ("one", "two"))
    context = context_for(tmp_path, "x", sources=sources, keep_free=1 << 62)
    context = changed(context, permissions=PermissionsConfig(group="no-such-group"))
    with pytest.raises(PreflightError, match="4 things stop the run") as caught:
        preflight_step.run(context, "data")
    for part in ("no room", "no-such-group", str(tmp_path / "one"), str(tmp_path / "two")):
        assert part in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_file_system_of_the_kernel_holds_no_files(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    context.config = replace(context.config, target=TargetConfig(Path("/proc/x")))
    with pytest.raises(PreflightError, match="no file can be kept there"):
        preflight_step.run(context, "data")
