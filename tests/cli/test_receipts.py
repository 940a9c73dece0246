from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli import receipts
from penstock.core.layout import DatasetLayout

if TYPE_CHECKING:
    from pathlib import Path

RUN = "0123456789abcdef"


def laid_out(tmp_path: Path) -> tuple[Path, Path, DatasetLayout]:
    results = tmp_path / "results" / "d"
    receipt = results / "list" / f"{5:020d}.json"
    receipt.parent.mkdir(parents=True)
    run = results / RUN
    run.mkdir()
    for step in receipts.STEPS:
        (run / f"{step}.json").write_text("{}")
    (run / "report.html").write_text("kept")
    return receipt, run, DatasetLayout(tmp_path / "target", "d")


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
    receipt, run, layout = laid_out(tmp_path)
    if planned:
        layout.run(RUN).plan.parent.mkdir(parents=True)
        layout.run(RUN).plan.write_text("{}")
    if staging:
        layout.staging("r1").mkdir(parents=True)
    if not published_here:
        (run / "publish.json").unlink()
    receipts.tidy(receipt, layout, listed(published))
    assert (run / "plan.json").exists() is not stale
    assert (run / "copy.json").exists() is not stale
    assert (run / "report.html").exists()


def test_old_files_of_invocations_go_and_the_newest_stay(tmp_path: Path) -> None:
    receipt, _, layout = laid_out(tmp_path)
    dataset = receipt.parent.parent
    for folder, pattern in receipts.OF_INVOCATIONS:
        (dataset / folder).mkdir(exist_ok=True)
        for number in range(receipts.KEPT + 5):
            (dataset / folder / pattern.replace("*", f"{number:020d}")).write_text(json.dumps(number))
    receipts.tidy(receipt, layout, listed(True))
    for folder, pattern in receipts.OF_INVOCATIONS:
        left = sorted((dataset / folder).glob(pattern))
        assert len(left) == receipts.KEPT
        assert json.loads(left[-1].read_text()) == receipts.KEPT + 4
