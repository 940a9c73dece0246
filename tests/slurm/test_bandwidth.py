"""One cap over the elements of several datasets that one controller stages, on the nodes of a cluster. `make
test` has two controllers (test_one_link)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.jobs.share_rule import parse
from penstock.jobs.shares import look

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

CAP = 2_000_000


def test_z1_elements_of_two_datasets_on_four_nodes_keep_one_cap(place: Place) -> None:
    """Each element alone could read all of it in a second."""
    for name in ("a", "b"):
        place.fill(name, 20, size=1_000_000)
    link = place.work / "link"
    place.configure(["a", "b"], bandwidth={"folder": str(link)}, plan={"shard_files": 10})
    place.ends(place.penstock("limit", "2MB/s"))
    process = place.penstock("run")
    holders: set[str] = set()
    used = 0.0
    while not place.over(process):
        # Preflight's mark has a beat's name, and no holder.
        holders |= {holder for holder, _ in parse(os.listdir(link / "holders")).holders.values()}
        used = max(used, sum(share.part for share in look(link / "holders")))
    place.ends(process)
    assert len(holders) == 2
    assert 0.99 < used <= 1.001
    receipts = [one for name in ("a", "b") for one in place.receipts(name, "copy")]
    assert len(receipts) == 4
    seconds = max(one["ended"] for one in receipts) - min(one["started"] for one in receipts)
    assert sum(one["done_bytes"] for one in receipts) <= CAP * (seconds + 1.0)
    assert {one["host"] for one in receipts} >= {receipts[0]["host"]}
    for name in ("a", "b"):
        place.published(name)
    assert os.listdir(link / "holders") == []
