"""`penstock plan` on a real cluster: what binds, with how many elements, and when they would start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]


def test_the_plan_counts_elements_and_names_the_start_as_slurm_does(place: Place) -> None:
    place.fill("a", 60)
    place.configure(
        ["a"], cluster={"max_elements": 2}, engine={"limit": "1MiB/s"}, plan={"shard_bytes": "1MiB"}
    )
    said = place.ends(place.penstock("--progress", "off", "plan", "--explain", "a", "--json"))
    (plan,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    size = sum(path.stat().st_size for path in place.source.rglob("*.bin"))
    assert (plan["files"], plan["bytes"], plan["nodes"]) == (60, size, 2)
    assert plan["shards"] >= 2
    binding = plan["forecast"]["ceilings"][0]
    assert (binding["name"], binding["origin"], binding["each"]) == ("engine.limit", "configured", 1 << 20)
    assert binding["seconds"] == pytest.approx(size / (2 << 20))
    assert [text.partition(":")[0] for text in plan["queue"]] == ["start"]
    assert not place.target.exists() or not list(place.target.iterdir())
