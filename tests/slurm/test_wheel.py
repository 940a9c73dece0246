"""What was installed from a wheel stages by job arrays, and its controller is a job. `make test` has the
installation without SLURM (tests/workflow/test_installation.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster.place import LINKED
from tests.cluster.processes import wait_for
from tests.support.wheel import TIMEOUT

if TYPE_CHECKING:
    from tests.cluster.place import Place
    from tests.support.wheel import Installation

pytestmark = [pytest.mark.slurm, pytest.mark.thorough, TIMEOUT]


def test_an_installation_stages_and_submits_without_a_checkout(
    place: Place, installation: Installation
) -> None:
    """P2."""
    for name in LINKED:
        (place.work / name).unlink()
    place.fill("a", 20)
    place.fill("b", 20)
    place.configure(["a", "b"], plan={"shard_files": 10})
    penstock = (str(installation.bin / "penstock"), "--config", "my.yaml", "--backend", "slurm")
    said = place.ends(place.start(*penstock, "run", "--dry-run"))
    assert said.count("Would         list the source, and copy, verify and publish all of it") == 2
    place.ends(place.start(*penstock, "run", "a"))
    assert [sorted(indices) for _, indices in place.submissions("a", "copy")] == [[0, 1]]
    place.published("a")
    job = place.ends(place.start(*penstock, "run", "--submit", "--parsable", "b")).strip()

    def ended() -> bool:
        return not place.machine.run("squeue", "-h", "-j", job).stdout.strip()

    wait_for(ended, "the controller's job", seconds=200, every=0.5)
    log = (place.work / f"results/logs/submit-{job}_0.log").read_text()
    assert not place.unpublished("b"), log
    place.published("b")
