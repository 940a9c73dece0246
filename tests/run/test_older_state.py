"""A dataset that a version before 1.0 staged: each command refuses it by name and changes nothing; moved
aside, its files are adopted."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.published import publish
from tests.support.staging_runs import context_for, tree
from tests.support.whole_way import STEPS, content

from penstock.cli.main import main
from penstock.core.errors import FailedError, NewerFormatError, OlderVersionError
from penstock.dataset import gate
from penstock.jobs import array_orders
from penstock.keep import audit_step, gate_repair, repair_step, retention_steps
from penstock.run import adopt_step, list_step
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

FILES = {"a": b"aa", "d/b": b"b" * 5000}
IN_BOTH = pytest.mark.parametrize("staged", ["beside", "apart"], indirect=True)


@pytest.fixture
def staged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    """A published dataset whose state lies in its folder, or (`IN_BOTH`) below a state root."""
    context = context_for(tmp_path, tree(tmp_path / "source", FILES))
    if getattr(request, "param", "beside") == "apart":
        (tmp_path / "states").mkdir()
        target = replace(context.config.target, state_root=tmp_path / "states")
        context.config = replace(context.config, target=target)
    publish(context)
    yield context
    context.cluster.close()  # type: ignore[attr-defined]
    tree_removal.remove_tree(tmp_path / "target")


def make_older(layout: DatasetLayout) -> None:
    """Let the state and the seals be as a version before 1.0 left them."""
    layout.state_marker.unlink()
    for path in layout.releases.glob("*/release.json"):
        seal = json.loads(path.read_text()) | {"penstock": "0.1.0", "format": 4}
        path.parent.chmod(0o700)
        path.chmod(0o600)
        path.write_text(json.dumps(seal))


def standing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, mode and change time of everything below a folder."""
    found = {}
    for top, folders, files in os.walk(folder):
        for path in (os.path.join(top, name) for name in (*folders, *files)):
            seen = os.lstat(path)
            found[path] = (seen.st_ino, seen.st_mode, seen.st_ctime_ns)
    return found


def test_the_first_file_of_a_state_says_which_version_made_it(staged: Context) -> None:
    layout = staged.layout("data")
    marker = json.loads(layout.state_marker.read_text())
    assert (marker["format"], marker["penstock"][:2]) == (1, "1.")
    assert list_step.run(staged, "data")["published"]


@IN_BOTH
def test_every_command_refuses_a_state_of_before_1_0_and_changes_nothing(
    staged: Context, tmp_path: Path
) -> None:
    layout = staged.layout("data")
    make_older(layout)
    copy = tree(tmp_path / "copy", FILES)
    before = standing(tmp_path)
    works = [*STEPS.values(), audit_step.run, repair_step.run, gate_repair.run, array_orders.cancel]
    works += [partial(adopt_step.run, request=adopt_step.Request(copy, seal=seal)) for seal in (False, True)]
    works += [partial(retention_steps.rollback, release=None)]
    works += [lambda _, name: gate.passed(staged.layout(name))]
    for work in works:
        with pytest.raises(OlderVersionError, match="state is of a penstock before") as told:
            work(staged, "data")
        assert (told.value.exit_code, told.value.where) == (3, str(layout.state))
        assert f"mv {layout.folder} {layout.folder}.old" in told.value.hint
        moved = layout.state_root is not None and f"mv {layout.state.parent} {layout.state.parent}.old"
        assert not moved or moved in told.value.hint
        assert standing(tmp_path) == before


def test_commands_end_with_3_and_views_show_it_in_a_line(
    staged: Context, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = staged.layout("data")
    make_older(layout)
    root = {"state_root": str(layout.state_root)} if layout.state_root else {}
    target = {"root": str(layout.root), "keep_free": 0, **root}
    datasets = {"data": {"source": str(tmp_path / "source")}}
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"target": target, "datasets": datasets}))
    for words, status in (
        ("gate data", 3), ("path data", 3), ("audit data", 3), ("repair data", 3), ("gc data", 3),
        ("rollback data", 3), ("releases data", 0), ("show data", 0), ("status data", 0),
    ):  # fmt: skip
        assert main(["--config", str(config), "--progress", "off", *words.split()]) == status
        said = " ".join("".join(capsys.readouterr()).split())
        assert "the dataset's state is of a penstock before 1.0" in said, words


def test_an_account_that_may_not_look_into_the_state_goes_by_the_seal(staged: Context) -> None:
    layout = staged.layout("data")
    make_older(layout)
    layout.state.rename(layout.state.with_name("closed"))
    assert not dataset_folders.check_marker(layout)
    with pytest.raises(OlderVersionError, match="seal is of a penstock before") as told:
        gate.passed(layout)
    assert "penstock 0.1.0 wrote it" in told.value.why
    layout.state.with_name("closed").rename(layout.state)


@IN_BOTH
def test_moved_aside_its_files_are_adopted(staged: Context, tmp_path: Path) -> None:
    layout = staged.layout("data")
    make_older(layout)
    inode = (layout.current / "data/a").stat().st_ino
    old = layout.folder.rename(layout.root / "data.old")
    if layout.state_root is not None:
        layout.state.parent.rename(layout.state_root / "data.old")
    (data,) = old.glob("releases/*/data")
    data.parent.chmod(0o700)
    data.chmod(0o700)
    copy = data.rename(layout.root / "data.tree")
    config = tmp_path / "config.yaml"
    root = {"state_root": str(layout.state_root)} if layout.state_root else {}
    target = {"root": str(layout.root), "keep_free": 0, **root}
    datasets = {"data": {"source": str(tmp_path / "source")}}
    config.write_text(json.dumps({"target": target, "datasets": datasets}))
    words = ["adopt", "data", str(copy), "--read-source", "--seal"]
    assert main(["--config", str(config), "--progress", "off", *words]) == 0
    assert content(layout.current / "data") == content(tmp_path / "source")
    assert (layout.current / "data/a").stat().st_ino == inode
    assert dataset_folders.check_marker(layout)


def test_what_is_no_state_of_before_1_0_is_not_taken_for_one(staged: Context) -> None:
    layout = staged.layout("data")
    fresh = replace(layout, dataset="fresh")
    assert not dataset_folders.check_marker(fresh)
    fresh.state.mkdir(parents=True)
    fresh.releases.mkdir(parents=True, exist_ok=True)
    (fresh.state / "lock").write_text("")
    (fresh.state / ".ended.room").write_text("")
    assert not dataset_folders.check_marker(fresh)
    dataset_folders.mark_state(fresh)
    (fresh.state / "runs").mkdir()
    assert dataset_folders.check_marker(fresh)
    fresh.state_marker.write_text('{"format": 2, "penstock": "1.7.0"}')
    with pytest.raises(NewerFormatError, match="a dataset's state is of a newer format") as told:
        dataset_folders.check_marker(fresh)
    assert "use 1.7.0, which wrote it" in told.value.hint
    fresh.state_marker.write_text("{")
    with pytest.raises(FailedError, match="a state file is damaged"):
        dataset_folders.check_marker(fresh)
