"""The memory of a submitted controller: by what was listed last; and the end of a run that outgrows it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support.published import published
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.staging_runs import context_for

from penstock.cluster.port import State
from penstock.core.errors import FailedError
from penstock.dataset import run_store
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.jobs import controller_memory
from penstock.jobs.controller_memory import LEAST, last_listing, needed
from penstock.run import list_step, previous_release
from penstock.target import tree_removal

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text(name)
    return folder


def test_many_files_take_more_and_few_the_least() -> None:
    assert needed([3]) == needed([100_000]) == needed([None]) == LEAST
    assert LEAST < needed([1_000_000]) < needed([10_000_000]) < needed([100_000_000])
    assert needed([None] * 8) > LEAST
    assert controller_memory.RENAMES == previous_release.MOST


def test_as_many_datasets_count_as_have_a_step_at_once() -> None:
    many = [1_000_000] * 40
    assert needed(many) == needed(many[: controller_memory.AT_ONCE])
    assert needed(many, 2) == needed(many[:2])
    assert needed([1, 50_000_000, None], 1) == needed([50_000_000])
    profile = yaml.safe_load((ROOT / "profiles/default/config.v8+.yaml").read_text())
    assert profile["cores"] == controller_memory.AT_ONCE


def counted(layout: DatasetLayout, files: int) -> None:
    """Have the dataset's last listing say another number."""
    (path,) = layout.runs.glob("*/run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "files": files}))


def test_what_was_listed_last_is_known_from_the_run_or_the_release(tmp_path: Path, source: Path) -> None:
    layout = context_for(tmp_path, source).layout("data")
    assert last_listing(layout) is None
    with published(tmp_path, source) as context:
        assert last_listing(layout) == 3
        counted(layout, 70_000_000)
        assert last_listing(layout) == 70_000_000
        tree_removal.remove_tree(layout.runs)
        assert last_listing(layout) == 3
        (source / "d").write_text("d")
        list_step.run(context, "data")
        assert last_listing(layout) == 4


@pytest.mark.parametrize(
    ("job", "kind", "ends"),
    [
        (JobEnvironment(job="7", proven=True, memory=300 * MIB), "slurm", True),
        (JobEnvironment(job="7", proven=True, memory=500 * MIB), "slurm", False),
        (JobEnvironment(job="7", proven=True), "slurm", False),
        (JobEnvironment(job="7", memory=300 * MIB), "slurm", False),
        (JobEnvironment(job="7", proven=True, memory=300 * MIB), "local", False),
        (JobEnvironment(), "slurm", False),
    ],
)
def test_a_listing_that_outgrows_its_job_ends_by_name(
    tmp_path: Path,
    source: Path,
    job: JobEnvironment,
    kind: str,
    ends: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = context_for(tmp_path, source)
    monkeypatch.setattr(kernel_facts, "_entered_job", [job])
    context.cluster = ScriptedCluster(lambda index, attempt: State.DONE, kind=kind)
    if not ends:
        assert list_step.run(context, "data")["files"] == 3
        return
    with pytest.raises(FailedError, match="the listing outgrows the memory of the controller's job") as error:
        list_step.run(context, "data")
    assert error.value.why == "3 files were listed, for which 464 MiB are needed; job 7 has 300 MiB"
    assert "penstock run --submit data` asks for more now" in error.value.hint
    assert last_listing(context.layout("data")) == 3


def test_a_release_to_compare_with_takes_more(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million files fit into the job of a first run, and not beside as many of a release."""
    with published(tmp_path, source) as context:
        run = run_store.open_run(context.layout("data"))
        many = replace(run, info=replace(run.info, files=10_000_000))
        monkeypatch.setattr(
            kernel_facts, "_entered_job", [JobEnvironment(job="7", proven=True, memory=LEAST)]
        )
        there = replace(context, cluster=ScriptedCluster(lambda index, attempt: State.DONE))
        with pytest.raises(FailedError, match="outgrows"):
            controller_memory.refuse_outgrown(there, many)
        context.layout("data").current.unlink()
        controller_memory.refuse_outgrown(there, many)
