"""What a published run keeps of its state."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import killed_at_line
from tests.support.published import flip
from tests.support.staging_runs import tree
from tests.support.standing import begin
from tests.support.whole_way import content, go

from penstock.core.errors import FindingsError
from penstock.dataset import run_store
from penstock.jobs import run_cleanup
from penstock.keep import audit_step, repair_step
from penstock.look import status_report
from penstock.run import list_step, publish_step, report_step
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run

STANDING = True
COVERED = {"journal", "records", "shards", "listing.parquet"}
FILES = {f"d{n % 3}/{n:02}": bytes([n]) * (n * 700) for n in range(24)}


def run_of(context: Context) -> Run:
    return run_store.open_run(context.layout("data"))


def test_a_published_run_keeps_nothing_that_its_manifest_covers(context: Context) -> None:
    begin(context, upto="verify")
    folder = run_of(context).folder
    assert set(os.listdir(folder.folder)) >= COVERED
    go(context, after="verify")
    assert not set(os.listdir(folder.folder)) & COVERED
    kept = sum(path.stat().st_size for path in folder.folder.rglob("*") if path.is_file())
    assert folder.run_file.exists()
    assert kept < 40_000


def test_nothing_is_done_again_for_a_run_whose_state_was_pruned(context: Context, tmp_path: Path) -> None:
    first = begin(context)
    before = content(context.layout("data").folder / "releases")
    assert go(context) == first
    assert content(context.layout("data").folder / "releases") == before
    result = report_step.run(context, "data", html=tmp_path / "report.html")
    assert (result["status"], result["copied"]["files"]) == ("PASSED", len(FILES))
    assert len(result["elements"]) == 2 * len(run_of(context).indices)
    assert status_report.run(context, "data")["state"] == "published"


def test_a_pruned_release_is_audited_repaired_and_linked_from(context: Context, source: Path) -> None:
    begin(context)
    layout = context.layout("data")
    flip(layout.current.resolve() / "data/d1/22")
    assert audit_step.run(context, "data")["counts"] == {"changed": 1}
    assert [path for path, _ in repair_step.run(context, "data")["repaired"]] == ["d1/22"]
    assert not audit_step.run(context, "data")["counts"]
    tree(source, {"d1/new": b"new"})
    go(context, upto="plan")
    assert run_of(context).plan.unchanged == len(FILES)
    go(context, after="plan")
    assert content(layout.current / "data") == content(source)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_pruning_that_was_killed_anywhere_is_ended_by_the_next_list(context: Context, every: int) -> None:
    begin(context, upto="verify")
    folder, layout = run_of(context).folder, context.layout("data")
    saved = layout.folder.parent / "saved"
    shutil.copytree(folder.folder, saved)
    go(context, after="verify")
    shutil.copytree(folder.folder / "receipts", saved / "receipts", dirs_exist_ok=True)
    before = content(layout.releases)
    for line in range(1, 60, every):
        shutil.rmtree(folder.folder)
        shutil.copytree(saved, folder.folder)
        context.assert_held = lambda: None  # type: ignore[method-assign]
        killed = killed_at_line(lambda: run_cleanup.prune(context, layout), ("jobs/run_cleanup.py",), line)
        del context.assert_held
        assert list_step.run(context, "data")["published"]
        assert not run_cleanup.covered(folder)
        assert publish_step.run(context, "data")["published"]
        if not killed:
            break
    assert not killed
    assert line > 10
    assert content(layout.releases) == before


def test_the_state_of_a_run_that_an_older_version_published_is_pruned_too(
    context: Context, source: Path
) -> None:
    begin(context, upto="verify")
    folder, layout = run_of(context).folder, context.layout("data")
    saved = layout.folder.parent / "saved"
    shutil.copytree(folder.folder, saved)
    go(context, after="verify")
    shutil.copytree(saved, folder.folder, dirs_exist_ok=True)
    tree(source, {"d1/new": b"new"})
    go(context)
    assert not run_cleanup.covered(folder)


def test_a_run_whose_release_was_removed_is_made_anew(context: Context, source: Path) -> None:
    first = begin(context)
    layout = context.layout("data")
    release = layout.release(first["release"])
    for path in [release, *release.rglob("*")]:
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(release)
    assert go(context)["run"] == first["run"]
    assert content(layout.current / "data") == content(source)


def test_a_release_with_a_damaged_seal_is_not_made_anew(context: Context) -> None:
    first = begin(context)
    layout = context.layout("data")
    release = layout.release(first["release"])
    seal = json.loads((release / "release.json").read_text())
    release.chmod(0o700)
    (release / "release.json").unlink()
    (release / "release.json").write_text(json.dumps(seal)[:-9])
    with pytest.raises(FindingsError, match="without a seal of its run"):
        list_step.run(context, "data")
    assert len([record for batch in read_manifest(release / "manifest.parquet") for record in batch]) == len(
        FILES
    )
