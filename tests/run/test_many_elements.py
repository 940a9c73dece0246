"""A controller of thousands of elements: what it does for each of them does not grow with their number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]


def followed(folder: Path, elements: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "tests.support.many_elements", str(folder), str(elements)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("elements", [2_000, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_thousands_of_elements_are_followed_in_bounded_work_each(tmp_path: Path, elements: int) -> None:
    """S26, and MaxArraySize=1001: several submissions, one query an interval, under 200 MB."""
    told = followed(tmp_path, elements)
    assert told["done"] == elements
    assert max(told["arrays"]) <= 1001
    assert len(told["arrays"]) == -(-elements // 1001)
    assert told["looked"] <= 5 * elements, told
    assert sum(told["opened"].values()) <= 8 * elements, told
    assert told["peak"] < 200, told
