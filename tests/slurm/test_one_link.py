"""Show 4 on the cluster: four elements of two datasets, on four nodes, keep one cap."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import on_mounts
from tests.cluster.machine import remove
from tests.cluster.place import Place
from tests.cluster.settings import NODES
from tests.filesystems.bed import Bed
from tests.support.link_meter import LATE, LIMITS, Meter, held, holders, objects, shown

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm


NAMES = ("one", "other")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: the cap is not to be the disk's."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-link-", dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    remove(folder)


@pytest.fixture
def place(memory: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """On a cluster each of whose nodes has a mount of its own, by which it sees what others did there so many
    seconds late: the folder `link` of `memory` leads there."""
    tempers = dict.fromkeys(LATE, request.param)
    with Bed(nodes=1 + len(NODES), cache="close-to-open", **tempers) as bed, on_mounts(bed) as machine:
        link = bed.nodes[0] / "link"
        link.mkdir()
        (memory / "link").symlink_to(link)
        with Place(machine) as made:
            made.give(link)
            yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "place", [pytest.param(0.0, marks=pytest.mark.thorough), 2.0], ids=["at-once", "late"], indirect=True
)
def test_z1_four_elements_on_four_nodes_keep_one_cap(memory: Path, place: Place) -> None:
    """Z1, S25: two datasets with target roots, and controllers, of their own; two elements of each, on four
    nodes. `link_meter.shown` says what must hold."""
    link = (memory / "link").resolve()
    for name in NAMES:
        root = memory / name
        root.mkdir()
        place.give(root)
        objects(place.source / name)
        place.configure(
            [name],
            target={"root": str(root), "keep_free": "16MiB"},
            bandwidth={"folder": str(link)},
            # What elements read back would count as received.
            cluster={"retries": 0, "steps": {"verify": {"time": "37min"}}},
            **LIMITS,
        )
        (place.work / "my.yaml").rename(place.work / f"{name}.yaml")

    def penstock(name: str, *words: str) -> subprocess.Popen[bytes]:
        program = (sys.executable, "-m", "penstock", "--config", f"{name}.yaml", "--backend", "slurm")
        return place.start(*program, *words)

    def limit(rate: str) -> None:
        place.ends(penstock("one", "limit", rate))

    limit("4MB/s")
    said = place.ends(penstock("one", "preflight", "--json", "one"))
    results = json.loads(next(line for line in said.splitlines() if line.startswith("{")))["results"]
    seen = [row for row in results if row["about"].startswith("bandwidth folder on n")]
    assert seen
    assert {row["verdict"] for row in seen} == {"ok"}
    for step in ("list", "plan"):
        for one in [penstock(name, "step", step, name) for name in NAMES]:
            place.ends(one)
    first, _ = [penstock(name, "step", "copy", name) for name in NAMES]
    folder = link / "holders"
    place.until(lambda: held(folder) == [0.5, 0.5], "two equal shares", first)
    place.until(lambda: {*place.running().values()} == {*NODES}, "an element on each node", first)

    def elements() -> list[int]:
        return [one.pid for one in holders(folder) if ", an element" in one.command]

    place.until(lambda: len(elements()) == 4, "the name of each element", first)
    pids = elements()
    with Meter(place.server.pid, pids) as meter:
        place.until(meter.all_move, "bytes of each element", first)

        def kill() -> None:
            first.kill()
            for pid in pids[:2]:
                os.kill(pid, signal.SIGKILL)

        wrong = shown(meter, folder, limit, kill)
    assert not wrong
