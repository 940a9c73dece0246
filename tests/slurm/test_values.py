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
    words = ("engine={limit: 4MiB/s}", "cluster={time: 17min}")
    place.ends(place.snakemake("--config", *words))
    [(array, _)] = place.submissions("a", "copy")
    limits = place.machine.run("squeue", "-h", "--states=all", "-j", array, "-o", "%l").stdout.split()
    assert set(limits) == {"17:00"}, "where the file gives an hour"
    [run] = place.target.glob("a/.penstock/runs/*/run.json")
    assert json.loads(run.read_text())["config"]["engine"]["limit"] == 4 << 20
    place.published("a")
    assert (place.work / "my.yaml").read_bytes() == before
