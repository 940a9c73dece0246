"""Controllers as jobs: what a further `penstock submit` in the same folder gets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import wait_for

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm


def test_further_datasets_get_a_job_of_their_own_that_follows(place: Place) -> None:
    """`afterok` of its id then finds them staged."""
    for name in ("a", "b"):
        place.fill(name, 5)
    place.configure(["a", "b"], cluster={"probe": False})

    def submitted(*names: str) -> dict[str, object]:
        told: dict[str, object] = json.loads(
            place.ends(place.penstock("--progress", "json", "submit", *names))
        )
        return told

    first, second = submitted("a"), submitted("b")
    assert (second["met"], second["after"]) == (False, [first["job"]])
    assert submitted("a") == {**first, "met": True}
    told_after = place.work / "after.txt"
    place.ends(
        place.start(
            "sbatch", f"--dependency=afterok:{second['job']}", "--kill-on-invalid-dep=yes", "--chdir=/",
            f"--output={told_after}", f"--wrap=readlink {place.target}/b/current",
        )
    )  # fmt: skip
    wait_for(lambda: told_after.exists() and told_after.read_text(), "the job after it", seconds=240)
    for name in ("a", "b"):
        release = place.published(name).parent.name
    assert told_after.read_text().strip() == f"releases/{release}"
