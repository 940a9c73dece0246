"""Thousands of shards: what controller and workers do for each of them does not grow with their number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]


def printed(module: str, folder: Path, *counts: int) -> dict[str, Any]:
    words = [sys.executable, "-m", f"tests.support.{module}", str(folder), *map(str, counts)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.parametrize("shards", [2_000, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_thousands_of_shards_are_followed_in_bounded_work_each(tmp_path: Path, shards: int) -> None:
    """S26, and MaxArraySize=1001: two submissions, one query an interval, under 200 MB."""
    told = printed("many_elements", tmp_path, shards)
    assert told["done"] == shards
    assert told["arrays"] == [1001, 499]
    assert told["workers"] == 1500
    # Of shards at work it looks at two files each 15 s, however long a busy machine takes.
    late = told["seconds"] / 15
    assert told["queries"] < 20 + 3 * shards / 1500 + late, told
    assert told["looked"] <= 3 * shards, told
    assert sum(told["opened"].values()) <= (8 + 2 * late) * shards, told
    assert told["peak"] < 200, told


@pytest.mark.parametrize(
    ("shards", "workers"), [(400, 20), pytest.param(20_000, 1_000, marks=pytest.mark.real_patience)]
)
@pytest.mark.timeout(1800)
def test_workers_divide_shards_in_bounded_calls_each(tmp_path: Path, shards: int, workers: int) -> None:
    """docs/scale.md has the figures of the larger one."""
    figures = printed("claim_operations", tmp_path, shards, workers)
    assert figures["done"] == shards
    assert figures["made"] == 2 * shards, figures  # a claim and a receipt: nobody took a shard twice
    assert figures["listings"] <= 3 * workers, figures
    assert figures["a shard without the looks of idle workers"] < 25, figures
    assert figures["a worker that ends"] < 3000, figures
    if workers == 1_000:
        text = (CHECKOUT / "docs/scale.md").read_text()
        assert f"{figures['a shard']} calls a shard" in text
        assert f"{figures['listings']:,} listings" in text
        assert f"{figures['a worker and second']} a second" in text
