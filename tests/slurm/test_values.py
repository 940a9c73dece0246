"""`snakemake --profile slurm --config`: arrays and their elements obey what it gives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def test_arrays_and_elements_see_what_the_command_line_gave(place: Place) -> None:
    """P5."""
    place.fill("a", 20)
    place.configure(["a"])
    before = (place.work / "my.yaml").read_bytes()
    words = ("plan={shard_files: 10}", "engine={limit: 4MiB/s}", "cluster={comment: by hand}")
    place.ends(place.snakemake("--config", *words))
    [(array, indices)] = place.submissions("a", "copy")
    assert indices == [0, 1], "two shards, where the file gives one"
    jobs = place.machine.run("squeue", "-h", "--states=all", "-j", array, "-o", "%k").stdout.splitlines()
    assert jobs
    assert all("by hand" in job for job in jobs)
    [run] = place.target.glob("a/.penstock/runs/*/run.json")
    assert json.loads(run.read_text())["config"]["engine"]["limit"] == 4 << 20
    place.published("a")
    assert (place.work / "my.yaml").read_bytes() == before
