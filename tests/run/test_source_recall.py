"""S16: plan counts files of a source whose data lies in an archive, and stops until they are allowed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.published import published
from tests.support.staging_runs import context_for, tree
from tests.vendors.tiers import RELEASED, Tiers

from penstock.core.errors import PreflightError
from penstock.fs import kinds
from penstock.fs.capabilities import facts
from penstock.fs.kinds import Kind
from penstock.host.kernel_facts import mount_of
from penstock.run import list_step, plan_step

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

FILES = {"a/one": b"1" * 5000, "a/two": b"2" * 6000, "b": b"", "c": b"c" * 7000}


def archived(monkeypatch: pytest.MonkeyPatch, folder: Path, **traits: object) -> None:
    """The file system of `folder` goes as one that has an archive behind it."""
    here = mount_of(os.path.realpath(folder)).type
    row = Kind("archived", types=(here,))._replace(
        **(facts(folder).traits._asdict() | {"name": "archived", "types": (here,)} | traits)
    )
    monkeypatch.setattr(kinds, "TABLE", (row, *kinds.TABLE))


def allow(context: Context, recall: int) -> None:
    dataset = replace(context.config.datasets["data"], recall=recall)
    context.config = replace(context.config, datasets={"data": dataset})


@pytest.fixture
def lfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiers:
    archived(monkeypatch, tmp_path, product="lustre", commands=True)
    return Tiers(tmp_path / "bin", "lfs", monkeypatch)


def test_s16_plan_stops_at_released_files_and_names_them(tmp_path: Path, lfs: Tiers) -> None:
    source = tree(tmp_path / "source", FILES)
    lfs.write({source / "a/one": RELEASED, source / "c": RELEASED, source / "a/two": 0x9})
    context = context_for(tmp_path, source)
    list_step.run(context, "data")
    for recall in (0, 11_999):
        allow(context, recall)
        list_step.run(context, "data")
        with pytest.raises(PreflightError) as caught:
            plan_step.run(context, "data")
        text = str(caught.value)
        for part in (
            "2 files, 11.7 KiB, offline", "a/one: offline, released to the archive, 4.88 KiB", "c: offline",
            "datasets.data.recall` to 12KiB", "exclude",
        ):  # fmt: skip
            assert part in text
        assert "a/two" not in text
        assert not context.layout("data").staging("any").parent.joinpath("data").exists()
    allow(context, 12_000)
    list_step.run(context, "data")
    result = plan_step.run(context, "data")
    assert [why for why in result["why"] if "2 files, 11.7 KiB, offline" in why]
    asked = [call for call in lfs.calls() if "hsm_state" in call]
    assert asked
    assert all(len(call) > 3 for call in asked), "many files by one command"


def test_s16_a_size_without_blocks_is_enough_where_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(monkeypatch, tmp_path, stubs=True)
    source = tree(tmp_path / "source", FILES)
    os.truncate(source / "c", 0)
    os.truncate(source / "c", 7000)
    context = context_for(tmp_path, source)
    list_step.run(context, "data")
    with pytest.raises(PreflightError, match=r"1 file, 6\.84 KiB, offline"):
        plan_step.run(context, "data")


def test_s16_what_is_linked_from_a_release_needs_no_recall(
    tmp_path: Path, lfs: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tree(tmp_path / "source", FILES)
    with published(tmp_path, source) as context:
        lfs.write({source / "a/one": RELEASED})
        tree(source, {"c": b"new" * 3000})
        list_step.run(context, "data")
        result = plan_step.run(context, "data")
        assert result["unchanged"] == 3
        lfs.write({source / "c": RELEASED})
        tree(source, {"c": b"newer" * 3000})
        list_step.run(context, "data")
        with pytest.raises(PreflightError, match=r"1 file, 14\.6 KiB, offline"):
            plan_step.run(context, "data")


def test_s16_file_systems_without_an_archive_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = Tiers(tmp_path / "bin", "lfs", monkeypatch)
    source = tree(tmp_path / "source", FILES)
    tool.write({source / "c": RELEASED})
    context = context_for(tmp_path, source)
    list_step.run(context, "data")
    plan_step.run(context, "data")
    assert tool.calls() == []
