from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.config.settings import TargetConfig
from penstock.core.layout import DatasetLayout
from penstock.core.run_steps import AFTER_LIST
from penstock.dataset.context import layout_of
from penstock.workflow import workflow_receipts

if TYPE_CHECKING:
    from pathlib import Path

RUN = "0123456789abcdef"


def laid_out(tmp_path: Path) -> tuple[Path, Path, DatasetLayout]:
    results = tmp_path / "results" / "d"
    run = results / RUN
    run.mkdir(parents=True)
    for step in AFTER_LIST:
        (run / f"{step}.json").write_text("{}")
    (run / "report.html").write_text("kept")
    return results.parent, run, DatasetLayout(tmp_path / "target", "d")


def listed(published: bool) -> dict[str, Any]:
    return {"run": RUN, "release": "r1", "published": published}


@pytest.mark.parametrize(
    ("planned", "published", "published_here", "staging", "stale"),
    [
        (False, False, True, True, True),
        (False, True, True, True, True),
        (True, True, True, False, False),
        (True, False, True, True, True),
        (True, False, False, True, False),
        (True, False, False, False, True),
    ],
)
def test_truth_table(
    tmp_path: Path, planned: bool, published: bool, published_here: bool, staging: bool, stale: bool
) -> None:
    results, run, layout = laid_out(tmp_path)
    if planned:
        layout.run(RUN).plan.parent.mkdir(parents=True)
        layout.run(RUN).plan.write_text("{}")
    if staging:
        layout.staging("r1").mkdir(parents=True)
    if not published_here:
        (run / "publish.json").unlink()
    workflow_receipts.tidy(results, layout, listed(published))
    assert (run / "plan.json").exists() is not stale
    assert (run / "copy.json").exists() is not stale
    assert (run / "report.html").exists()


def test_the_listings_of_old_invocations_go_and_the_newest_stay(tmp_path: Path) -> None:
    folder = tmp_path / workflow_receipts.LISTINGS
    folder.mkdir(parents=True)
    for number in range(workflow_receipts.KEPT + 5):
        for name in (f"{number:020d}-00.json", f"{number:020d}-00.log", f"{number:020d}-01.json"):
            (folder / name).write_text("{}")
    workflow_receipts.forget(tmp_path, time.time())
    left = sorted(path.name for path in folder.iterdir())
    assert len(left) == 3 * workflow_receipts.KEPT
    assert left[0] == f"{5:020d}-00.json"


def test_the_files_of_old_runs_go_but_the_last_and_all_that_is_not_penstocks_stay(tmp_path: Path) -> None:
    now = time.time()
    kept = workflow_receipts.KEPT
    logs = tmp_path / "d/logs"
    logs.mkdir(parents=True)
    for number in range(kept + 5):
        run = tmp_path / f"d/{number:016x}"
        (run / "logs").mkdir(parents=True)
        (run / "report.html").write_text("x")
        log = logs / f"refused-{number:020}.log"
        log.write_text("x")
        # the first three are old enough; two more are not among the last
        for path in (run, log):
            os.utime(path, (0, now - workflow_receipts.AGE + (number - 3) * 60))
    others = [tmp_path / "d" / ("f" * 15), tmp_path / "figures/plot", tmp_path / "d/table.tsv"]
    for path in others:
        path.mkdir(parents=True)
        os.utime(path, (0, 0))
    workflow_receipts.forget(tmp_path, now)
    stay = [f"{number:016x}" for number in range(3, kept + 5)]
    assert sorted(path.name for path in (tmp_path / "d").glob("[0-9]*")) == stay
    assert len(list(logs.iterdir())) == kept + 2
    assert all(path.is_dir() for path in others)


def test_what_the_groups_of_one_invocation_found_is_put_together(tmp_path: Path) -> None:
    folder = tmp_path / workflow_receipts.LISTINGS
    folder.mkdir(parents=True)
    (folder / "1-00.json").write_text(json.dumps({"listed": {"a": {"run": "x"}}, "failed": {"c": {}}}))
    (folder / "1-01.json").write_text(json.dumps({"listed": {"b": {"run": "y"}}}))
    (folder / "1-02.json").write_text("{torn")
    (folder / "2-00.json").write_text(json.dumps({"listed": {"a": {"run": "z"}}}))
    found = workflow_receipts.listings(tmp_path, "1")
    assert found == {"preflight": {}, "listed": {"a": {"run": "x"}, "b": {"run": "y"}}, "failed": {"c": {}}}


@pytest.mark.parametrize(
    ("given", "kept"),
    [("", False), ("nonsense", False), (f"{7:020d}", False), (f"{8:020d}", True), (f"{9:020d}\n", False)],
)
def test_the_number_of_an_earlier_run_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, kept: bool
) -> None:
    folder = tmp_path / workflow_receipts.LISTINGS
    folder.mkdir(parents=True)
    (folder / f"{7:020d}-00.json").touch()
    monkeypatch.setenv("PENSTOCK_INVOCATION", given)
    number = workflow_receipts.invocation(tmp_path, time.time_ns())
    assert (number == given) is kept
    assert len(number) == 20
    assert number.isdecimal()


def test_a_receipt_says_whether_a_dataset_was_published_below_this_root(tmp_path: Path) -> None:
    results, root = tmp_path / "results", tmp_path / "target"
    for run, text in (("0a", "{"), ("0b", '{"path": "/another/photos/releases/r1/data"}'), ("0c", "[]")):
        (results / "photos" / run).mkdir(parents=True)
        (results / "photos" / run / "publish.json").write_text(text)
    layout = layout_of(TargetConfig(root), "photos")
    assert workflow_receipts.published_before(results, layout) is None
    receipt = results / "photos/0c/publish.json"
    receipt.write_text(json.dumps({"path": f"{root}/photos/releases/r2/data"}))
    assert workflow_receipts.published_before(results, layout) == receipt
    assert workflow_receipts.published_before(results, layout_of(TargetConfig(root), "other")) is None
