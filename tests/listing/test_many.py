"""Many objects, of a server that makes them up: bounds on memory, none on time.

`benchmarks/many.py` does the same with ten million.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from benchmarks import many, measure
from tests.support.go_servers import UnavailableError, built_here, toolchain
from tests.support.inventories import made, row

from penstock.core.model import Listed

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
MANY, FEW = 100_000, 10_000
MOST = 260 * MIB
"""Of one process: 140 MiB were seen at 10^5 and at 10^6."""
LISTINGS = [
    (70_000, 210_000, {"list": 64, "plan": 64, "rerun": 64, "diff": 80}),
    pytest.param(
        3 * MANY, 6 * MANY, dict.fromkeys(("list", "plan", "rerun", "diff"), 80), marks=pytest.mark.thorough
    ),
]
"""Two numbers of objects, and by how many MiB memory may grow from one to the other: some 300 bytes an
object, and 20 that allocators vary by. Below 65,536, the rows of a group, it grows in any case; diff, with a
group of each listing at once, went on growing to 300,000 (130 to 170 MiB) and took 195 at 600,000 and at
10^6."""
STAGINGS = [
    pytest.param(20_000, 165 * MIB, marks=pytest.mark.thorough),
    pytest.param(MANY, MOST, marks=pytest.mark.thorough),
]
"""How many files, and the most memory of a process: 132 MiB were seen of 20,000, 106 of 5,000."""
LISTED = """\
import sys
from pathlib import Path
from tests.listing.test_inventory import offline
from penstock.listing.collection import open_sources
from penstock.listing.listers import stated
scratch = Path(sys.argv[1])
context = offline(scratch, sys.argv[2], "bucket", "")
dataset = context.dataset("data")
(source,) = open_sources(dataset)
print(sum(map(len, stated(context, dataset, dataset.sources[0], source, scratch).list())))
"""


@pytest.fixture
def place(tmp_path: Path) -> many.Place:
    try:
        go, program = toolchain(), built_here(many.HERE / "s3d")
    except UnavailableError as error:
        pytest.skip(f"no server that makes objects up: {error}")
    shutil.copy2(program, tmp_path / "s3d")  # each build of it finds it up to date
    return many.Place(tmp_path, go, os.environ["PATH"])


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("fewer", "more", "growth"), LISTINGS)
def test_listing_plan_rerun_and_diff_take_the_same_memory_however_many_objects_there_are(
    place: many.Place, fewer: int, more: int, growth: dict[str, int]
) -> None:
    few, lots = (
        {cost["what"]: cost["peak"] for cost in many.measured(place, objects, 1)} for objects in (fewer, more)
    )
    for what, most in growth.items():
        assert lots[what] < MOST, (what, lots[what] / MIB)
        assert lots[what] - few[what] < most * MIB, (what, few[what] / MIB, lots[what] / MIB)


@pytest.mark.cold_start  # what is forked from a warm server counts the server's memory as its own
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("files", "most"), STAGINGS)
def test_many_files_are_staged_verified_and_published_in_bounded_memory(
    place: many.Place, files: int, most: int
) -> None:
    """Of every process: controller, elements, their workers."""
    for cost in many.staged(place, files):
        assert cost["peak"] < most, (cost["what"], cost["peak"] / MIB)


def test_s3_a_listing_in_no_order_is_sorted_in_bounded_memory(place: many.Place) -> None:
    """A run of 200,000 objects is sorted in memory."""
    ordered, mixed = many.in_no_order(place, 2 * MANY + 50_000)
    assert mixed.peak_process < MOST, mixed.peak_process / MIB
    assert mixed.peak_process - ordered.peak_process < 100 * MIB


@pytest.mark.parametrize("kind", [pytest.param("CSV", marks=pytest.mark.thorough), "Parquet", "ORC"])
def test_an_inventory_is_read_and_sorted_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    """Its rows come from the last to the first."""
    peaks = []
    for objects in (FEW, MANY):
        listed = (
            Listed(f"k{n:09d}", n, f"tag{n}", 1_700_000_000_000_000_000) for n in reversed(range(objects))
        )
        inventory = made((row("bucket", "", one) for one in listed), kind, bucket="bucket", pieces=4)
        folder = tmp_path / str(objects)
        for name, content in inventory.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        command = [sys.executable, "-c", LISTED, str(folder), str(folder / inventory.manifest)]
        cost = measure.run(command, os.environ, tmp_path)
        assert (cost.status, cost.output) == (0, f"{objects}\n"), cost.errors
        peaks.append(cost.peak_process)
    # A run of 200,000 objects is sorted in memory.
    assert peaks[1] - peaks[0] < 90 * MIB, [peak / MIB for peak in peaks]
