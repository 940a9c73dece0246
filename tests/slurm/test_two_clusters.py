"""Two clusters over one file system: each has a slurmctld of its own, and counts its jobs from 1."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import machine
from tests.cluster.processes import wait_for
from tests.cluster.settings import Settings

from penstock.cluster.registry import open_cluster
from penstock.config.loader import load
from penstock.dataset.context import Context
from penstock.jobs import dataset_state

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.cluster.machine import Machine
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm

SLOW = {"limit": "250KiB/s"}


@pytest.fixture
def other() -> Iterator[Machine]:
    """A second cluster, whose nodes see the same files."""
    lent = machine(Settings(cluster="other"))
    yield lent
    lent.tidy()


def there(place: Place, other: Machine, *words: str) -> subprocess.Popen[bytes]:
    """penstock with the other cluster's commands."""
    command = (sys.executable, "-m", "penstock", "--config", "my.yaml", "--backend", "slurm", *words)
    return place.start(*command, env={"SLURM_CONF": str(other.conf)})


def test_s27_an_array_of_one_cluster_is_neither_doubled_nor_cancelled_from_the_other(
    place: Place, other: Machine
) -> None:
    place.fill("a", 160)
    # verify gets an array of its own.
    cluster = {"steps": {"verify": {"time": "37min"}}}
    place.configure(["a"], cluster=cluster, plan={"shard_files": 40}, engine=SLOW)
    place.planned("a")
    first = place.penstock("step", "copy", "a")
    place.until(lambda: place.fetched("a"), "bytes on their way", first)
    place.kill(first)
    (before,) = place.submissions("a", "copy")
    said = place.ends(there(place, other, "step", "copy", "a"), 7)
    assert "elements of copy may still run on cluster penstock" in said
    assert f"array {before[0]}, and this is cluster other" in said
    said = place.ends(there(place, other, "cancel", "a"))
    assert f"NOT array {before[0]} of copy: it is on cluster penstock, and this is other" in said
    alive = place.machine.run("squeue", "-h", "-o", "%F", "-j", before[0]).stdout.split()
    assert set(alive) == {before[0]}
    assert not other.run("squeue", "-h").stdout.strip(), "nothing was submitted there"
    place.ends(place.penstock("step", "copy", "a"))
    assert place.submissions("a", "copy") == [before]
    # What has ended on one goes on on the other.
    place.ends(place.staging("a", env={"SLURM_CONF": str(other.conf)}))
    place.published("a")
    (verify,) = place.submissions("a", "verify")
    assert verify[0] in other.run("squeue", "-h", "--states=all", "-o", "%F").stdout.split()


def test_s27_a_lock_of_a_job_names_its_cluster_and_no_other_is_looked_up(
    place: Place, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.fill("a", 160)
    place.configure(["a"], plan={"shard_files": 40}, engine=SLOW)
    submitted = place.penstock("run", "--submit", "--parsable", "a")
    job = place.ends(submitted).split()[-1]
    lock = place.target / "a" / ".penstock" / "lock"

    def held() -> bool:
        try:
            return bool(json.loads(lock.read_text())["job"])
        except (OSError, ValueError):
            return False

    wait_for(held, "the controller's lock", seconds=120)
    holder = json.loads(lock.read_text())
    assert holder["cluster"] == "penstock"
    # A job of that number has ended on the other cluster. Those before it never begin, which takes no time.
    words = ("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap=true")
    last = "0"
    while int(last) < int(holder["job"]):
        last = other.run(*words, "--hold").stdout.strip()
        assert last, "it was not submitted"
    other.run("scancel", holder["job"])
    monkeypatch.setenv("SLURM_CONF", str(other.conf))
    monkeypatch.chdir(place.work)
    config = load(place.work / "my.yaml", "slurm")
    context = Context(config, open_cluster(config.cluster))
    assert context.cluster.holder_ended(holder["job"]) is True
    assert dataset_state.scheduler(context, holder["job"], "other") is True
    assert dataset_state.scheduler(context, holder["job"], holder["cluster"]) is None
    place.machine.run("scancel", job)
