"""Plan tries the target's file system, keeps what it saw with the run, and elements go by that."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.fs.test_probe import give_project
from tests.support.images import file_system
from tests.support.whole_way import FILES, content, go, staging, texts

from penstock.config.settings import PlanConfig
from penstock.core import run_documents
from penstock.core.errors import FailedError
from penstock.core.layout import PROBE
from penstock.dataset import run_store
from penstock.fs import probe

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context


AS_BYTES = {os.fsencode(name): data for name, data in FILES.items()}


def probe_file(context: Context) -> Path:
    return run_store.open_run(context.layout("data"), "").folder.probe


def answer(context: Context, **answers: str) -> None:
    """Plan is said to have seen this."""
    path = probe_file(context)
    raw = json.loads(path.read_bytes())
    raw["abilities"].update({name: {"answer": one} for name, one in answers.items()})
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize(("seconds", "files"), [(60.0, 7), (0.0, 1)], ids=["the most", "for so long"])
def test_rates_are_measured_by_so_many_files_and_links_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, files: int
) -> None:
    monkeypatch.setattr(probe, "SECONDS", seconds)
    monkeypatch.setattr(probe, "MOST", 7)
    began = time.perf_counter()
    measured = probe.rates(tmp_path)
    took = time.perf_counter() - began
    made = sorted(os.listdir(tmp_path / "rates"))
    assert made == sorted([*map(str, range(files)), *(f"link{number}" for number in range(files))])
    assert os.stat(tmp_path / "rates" / "0").st_nlink == files + 1
    assert measured.keys() == {"files", "links"}
    assert all(rate >= files / took - 0.1 for rate in measured.values())


def test_the_probe_is_kept_with_the_run_and_leaves_nothing(context: Context) -> None:
    layout = context.layout("data")
    go(context, upto="list")
    layout.folder.joinpath(PROBE, "of-a-killed-plan").mkdir(parents=True)
    go(context, after="list", upto="plan")
    report = run_documents.PROBE_REPORT.from_json(probe_file(context).read_bytes(), "")
    assert (report.folder, report.beside) == (str(layout.folder), str(layout.releases))
    assert report["rename_over_file"].answer == "yes"
    assert PROBE not in (*os.listdir(layout.folder), *os.listdir(layout.releases))


def test_elements_use_no_ability_that_the_probe_saw_refused(context: Context) -> None:
    go(context, upto="plan")
    answer(context, syncfs="no", fallocate="no")
    go(context, after="plan")
    run = run_store.open_run(context.layout("data"), "")
    receipts = sorted((run.folder.folder / "receipts/copy").iterdir())
    assert {json.loads(path.read_bytes())["durability"] for path in receipts} == {"fsync"}
    assert content(context.layout("data").current / "data") == AS_BYTES


def test_a_run_without_a_probe_goes_by_the_table(context: Context) -> None:
    go(context, upto="plan")
    probe_file(context).unlink()
    go(context, after="plan")
    assert content(context.layout("data").current / "data") == AS_BYTES


def test_a_damaged_probe_is_named(context: Context) -> None:
    go(context, upto="plan")
    probe_file(context).write_text("{")
    with pytest.raises(FailedError):
        go(context, after="plan")


@pytest.mark.parametrize(
    ("reuse", "unchanged", "why"),
    [("link", 0, "refuses hard links"), ("auto", 8, "share their blocks with it (reflinks)")],
)
def test_where_the_quota_tree_refuses_links_files_are_cloned_or_copied_again(
    tmp_path: Path, source: Path, reuse: str, unchanged: int, why: str
) -> None:
    """S15: `releases` got a project quota of its own after the first release."""
    with file_system(tmp_path, "xfs") as point, staging(point, source) as context:
        layout = context.layout("data")
        context.config = replace(context.config, plan=PlanConfig(reuse=reuse))
        go(context)
        give_project(layout.releases, 7)
        (source / "new").write_bytes(b"new")
        plan = go(context, upto="plan")
        assert (plan["unchanged"], plan["files"]) == (unchanged, len(FILES) + 1)
        assert why in str(plan["why"])
        told = [text for text in texts(context) if "two quota trees" in text]
        assert "cannot be linked: they share their blocks by reflinks" in told[0]
        go(context, after="plan")
        assert content(layout.current / "data") == {**AS_BYTES, b"new": b"new"}
