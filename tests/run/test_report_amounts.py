"""What the report counts: a file that was there before an attempt began is counted once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.published import data_of, flip, publish
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import BandwidthConfig, EngineConfig
from penstock.core.element_documents import ElementReceipt
from penstock.dataset import run_store
from penstock.keep import audit_step, retention_steps
from penstock.run import report_step
from penstock.run.report_step import reused

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.mark.parametrize(
    ("unchanged", "copies", "linked", "taken"),
    [
        # One attempt: 30 rows linked of 50.
        (30, [ElementReceipt(files=50, done_files=50, linked=30)], 30, 0),
        # Links were refused, and all was copied.
        (30, [ElementReceipt(files=50, done_files=50)], 0, 0),
        # Killed when 34 were done: the 30 that were linked, and 4 that were copied.
        (30, [ElementReceipt(files=50, done_files=16)], 30, 0),
        # Killed while it linked.
        (30, [ElementReceipt(files=50, done_files=38, linked=18)], 30, 0),
        # 20 of the 30 are taken over from another run's staging.
        (10, [ElementReceipt(files=50, done_files=50, linked=30, taken=20)], 10, 20),
        (10, [ElementReceipt(files=50, done_files=16)], 10, 20),
    ],
)
def test_what_earlier_attempts_reused_is_not_copied(
    unchanged: int, copies: list[ElementReceipt], linked: int, taken: int
) -> None:
    assert reused(unchanged, {0: 30}, copies) == (linked, taken)


def test_the_rate_beside_what_bounds_it(tmp_path: Path) -> None:
    """A6: a copy with an `engine.limit` reaches most of it, and never more. Z7: over a distance."""
    source = tree(tmp_path / "source", {f"f{number}": bytes(MIB) for number in range(6)})
    context = context_for(tmp_path, source)
    config = replace(
        context.config, engine=EngineConfig(limit=4 * MIB), bandwidth=BandwidthConfig(distance="8000km")
    )
    context = replace(context, config=config)
    publish(context)
    result = report_step.gather(context, run_store.open_run(context.layout("data")))
    assert result["ceiling"][0] == "engine.limit"
    assert result["ceiling"][2:] == (4 * MIB, "bytes")
    assert 0.2 < result["ceiling"].share <= 1.3  # the limiter lets a burst through at first
    seconds = result["copied"]["moved_seconds"]
    assert result["pib_miles_an_hour"] == pytest.approx(6 / (1 << 30) * 4970.97 / (seconds / 3600), abs=1e-6)
    assert result["retried"] == {}
    assert {key for _, _, key in result["slowest"]} <= {f"f{number}" for number in range(6)}
    assert [took for took, _, _ in result["slowest"]] == sorted(
        (took for took, _, _ in result["slowest"]), reverse=True
    )


def test_without_a_ceiling_or_a_distance_none_is_shown(tmp_path: Path) -> None:
    """A6, Z7: what elements reached is no ceiling of the copy that reached it."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    publish(context)
    result = report_step.gather(context, run_store.open_run(context.layout("data")))
    assert not {"ceiling", "pib_miles_an_hour"} & set(result)


def test_each_page_judges_the_release_that_it_is_about(tmp_path: Path) -> None:
    """Damage that an audit found stays on the page of its release while `current` names another one."""
    source = tree(tmp_path / "source", {"a": b"1"})
    context = context_for(tmp_path, source)
    first = publish(context)["run"]
    tree(source, {"b": b"2"})
    second = publish(context)["run"]
    flip(data_of(context) / "b")
    audit_step.run(context, "data")
    retention_steps.rollback(context, "data", None)
    given = {
        "target": {"root": str(context.config.target.root)},
        "datasets": {"data": {"source": str(source)}},
    }
    (tmp_path / "penstock.yaml").write_text(json.dumps(given))

    def page(run: str) -> tuple[str, str]:
        words = ("report", "data", "--run", run, "--html", f"{run}.html", "--receipt", f"{run}.json")
        assert penstock(*words, cwd=tmp_path).returncode == 0
        return json.loads((tmp_path / f"{run}.json").read_text())["status"], (
            tmp_path / f"{run}.html"
        ).read_text()

    status, html = page(second)
    assert (status, "FINDINGS" in html, "PASSED" in html) == ("FINDINGS", True, False)
    assert page(first)[0] == "PASSED"
