"""Verify and audit on a real cluster: read on another node than the writer's, met again after a kill."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.published import flip

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def test_verified_on_other_nodes_then_audited_by_an_array(place: Place) -> None:
    place.fill("a", 300)
    place.configure(["a"], cluster={"max_elements": 4}, plan={"shard_files": 25, "shard_bytes": "1MiB"})
    place.ends(place.staging("a"))
    data = place.published("a")
    written = {r["index"]: r["host"] for r in place.receipts("a", "copy")}
    read = {r["index"]: r["host"] for r in place.receipts("a", "verify")}
    assert read.keys() == written.keys()
    if len(set(written.values())) > 1:
        assert sum(read[index] != written[index] for index in read) > len(read) // 2
    grades = json.loads((data.parent / "release.json").read_text())["evidence"]["storage"]
    assert grades, "the seal says what was seen"

    first = place.snakemake("audit", "--config", "limit=400KiB/s")
    place.until(lambda: place.running("audit"), "elements of the audit", first)
    place.kill(first)
    arrays = place.arrays("audit")
    assert len(arrays) == 1
    said = place.ends(place.snakemake("audit"))
    assert "PASSED" in said
    assert place.arrays("audit") == arrays, "the array that ran on was met again"

    flip(data / "000/file 000007.bin", 11)
    said = place.ends(place.penstock("audit", "a"), 4)
    assert "* 000/file 000007.bin" in said
    assert "FINDINGS (1 changed)" in said
    place.ends(place.penstock("repair", "a"))
    assert place.published("a") == data
    assert len(place.arrays("repair")) == 1
    assert "PASSED" in place.ends(place.penstock("audit", "a"))
