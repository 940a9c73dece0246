"""Staging on SLURM where every node has its own mount of a file system that behaves, by our reading, as
BeeGFS or WEKA does (`tests.filesystems`).

The test cluster has one machine: each slurmd is in a mount namespace of its own, in which that node's mount
stands at the path that all nodes use. This process, with a mount of its own at the same path, is the login
node.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.fixtures import on_mounts
from tests.cluster.place import Place
from tests.cluster.processes import wait_for
from tests.cluster.settings import NODES
from tests.filesystems.bed import Bed
from tests.filesystems.test_selftest import compared, found_in, rows_of, with_peers
from tests.support.whole_way import content

from penstock.cluster.registry import start_together
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.doctor import selftest_two_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.machine import Machine

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
on_both = pytest.mark.parametrize("mounts", ["beegfs8", "weka-writecache"], indirect=True)
staged_on = pytest.mark.parametrize(
    "mounts", ["beegfs8", pytest.param("weka-writecache", marks=pytest.mark.thorough)], indirect=True
)


@pytest.fixture(scope="module")
def mounts(request: pytest.FixtureRequest) -> Iterator[tuple[Bed, Machine]]:
    """One store, mounted once for this process and once for each node of a cluster of its own."""
    with Bed(nodes=1 + len(NODES), named=request.param) as bed, on_mounts(bed) as machine:
        yield bed, machine


@pytest.fixture
def place(mounts: tuple[Bed, Machine]) -> Iterator[Place]:
    bed, machine = mounts
    with Place(machine, target=Path(tempfile.mkdtemp(prefix="target-", dir=bed.nodes[0]))) as made:
        yield made
    machine.tidy()


@on_both
def test_each_node_has_a_mount_of_its_own_at_one_path(mounts: tuple[Bed, Machine]) -> None:
    bed, machine = mounts
    seen = {}
    for node in NODES:
        words = ("srun", f"--nodelist={node}", "--ntasks=1", "stat", "-c", "%d", str(bed.nodes[0]))
        done = machine.run(*words)
        assert done.returncode == 0, done.stderr
        seen[node] = int(done.stdout)
    assert seen == {node: os.stat(bed.nodes[i]).st_dev for i, node in enumerate(NODES, 1)}
    assert len({*seen.values(), os.stat(bed.nodes[0]).st_dev}) == 5


@staged_on
def test_a_dataset_is_staged_killed_audited_and_repaired(mounts: tuple[Bed, Machine], place: Place) -> None:
    bed, machine = mounts
    place.fill("a", 60, large=[3 << 20])
    ways = {
        "cluster": {"max_elements": 4, "retries": 0},
        "plan": {"shard_files": 16, "giant_bytes": "2MiB", "part_bytes": "1MiB"},
    }
    place.configure(["a"], **ways, engine={"limit": "700KiB/s"})
    first = place.staging("a")
    place.until(lambda: len(place.running()) >= 2 and len(place.fetched("a")) > 4, "running elements", first)
    node = next(node for node in place.running().values() if machine.payload(node))
    machine.kill_payload(node)
    assert "signal 9" in place.ends(first, 1)
    assert place.unpublished("a")
    fetched = place.fetched("a")

    place.configure(["a"], **ways)
    place.ends(place.staging("a"))
    data = place.published("a")
    same_on_all(bed, place, "a")
    again = [key for key, size in place.fetched("a").items() if key in fetched and size > fetched[key]]
    assert len(again) < len(fetched), "what was copied before the kill stayed"
    wrote = {one.node for one in bed.asked("create") if "/staging/" in one.path or "/.penstock/" in one.path}
    assert len(wrote & {1, 2, 3, 4}) >= 2, f"mounts that files were made by: {wrote}"

    assert "PASSED" in place.ends(place.penstock("audit", "a"))
    for name in ("000/file 000021.bin", "large-0.bin"):
        rot(stored(bed, data) / name)
    said = place.ends(place.penstock("audit", "a"), 4)
    assert "* 000/file 000021.bin" in said
    assert "* large-0.bin" in said
    place.ends(place.penstock("repair", "a"))
    assert "PASSED" in place.ends(place.penstock("audit", "a"))
    assert place.published("a") == data
    same_on_all(bed, place, "a")


def stored(bed: Bed, path: Path) -> Path:
    """Where the file system keeps it: what is changed there, no mount sees changed."""
    return bed.store / path.relative_to(bed.nodes[0])


def rot(path: Path) -> None:
    """Other bytes, the same size and times."""
    seen = path.stat()
    with path.open("r+b") as stream:
        stream.seek(100)
        stream.write(b"rot")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def same_on_all(bed: Bed, place: Place, dataset: str) -> None:
    """`current` is the same release, with the source's bytes, by every mount."""
    here = place.target.relative_to(bed.nodes[0]) / dataset / "current"
    wanted = os.readlink(bed.store / here)
    for node in bed.nodes:
        wait_for(lambda seen=node / here: os.readlink(seen) == wanted, f"`current` by {node}", seconds=10)
        assert content(node / here / "data") == content(place.source / dataset)


@pytest.mark.parametrize("mounts", ["beegfs8"], indirect=True)
def test_d4_each_nodes_answer_is_judged(mounts: tuple[Bed, Machine], place: Place) -> None:
    """Show 4. A node whose mount is worse is named, and stops what would stop the
    run there."""
    bed, machine = mounts
    place.fill("a", 4)
    place.configure(["a"], cluster={"max_elements": 4})
    result = preflight(place)
    rows = {row["about"]: row for row in result["results"]}
    assert all(rows[f"target on {node}"]["verdict"] == "ok" for node in NODES)
    assert len(result["nodes"]) == 4
    for answer in result["nodes"]:
        assert answer.keys() >= {"format", "host", "target", "sources", "checks", "penstock"}
        assert (answer["target"]["kind"], answer["target"]["device"]) == ("fuse", "beegfs8")
        assert [source["error"] for source in answer["sources"]] == [""]

    view(bed, machine, "n2", "mount -o remount,bind,noatime")
    view(bed, machine, "n3", 'umount "$1" && umount')
    view(bed, machine, "n4", "mount -o remount,bind,ro")
    result = preflight(place, 3)
    stop = next(row["found"] for row in result["results"] if row["verdict"] == "stop")
    assert f"on the node n3, the target {place.target} is not there" in stop
    assert f"on the node n4, the target {place.target} cannot be written" in stop
    other = [row["found"] for row in result["results"] if row["about"] == "target on n2"]
    assert [text for text in other if "other mount options" in text and "noatime" in text], other
    assert not [row for row in result["results"] if row["about"] == "target on n1" and row["verdict"] != "ok"]
    for node in ("n2", "n3", "n4"):
        view(bed, machine, node)


def preflight(place: Place, code: int = 0) -> dict[str, Any]:
    said = place.ends(place.penstock("preflight", "--json", "a"), code)
    found: dict[str, Any] = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    return found


def view(bed: Bed, machine: Machine, node: str, change: str = "") -> None:
    """Start a node anew, with its mount as this command leaves it; without one, as it was."""
    seen = bed.on(NODES.index(node) + 1)
    machine.views[node] = seen
    if change:
        words = ["sh", "-c", f'{change} "$1" && shift && exec "$@"', "sh", str(bed.nodes[0])]
        machine.views[node] = [*seen, *words]
    machine.kill_node(node)
    machine.start_node(node)
    machine.wait_idle()


@pytest.mark.parametrize("mounts", ["weka-writecache"], indirect=True)
def test_a_selftest_tries_the_caches_of_two_nodes(mounts: tuple[Bed, Machine], place: Place) -> None:
    place.configure(["a"])
    said = place.ends(place.penstock("selftest", "--json", str(place.target)))
    result = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    wanted = rows_of("weka-writecache") | {"caches between two nodes": r"n\d writes, n\d reads"}
    compared(found_in(result["results"]), wanted)
    assert os.listdir(place.target) == []
    assert not place.machine.run("squeue", "-h").stdout.strip(), "the job has ended"


@pytest.mark.parametrize("mounts", ["weka-writecache"], indirect=True)
def test_a_selftest_says_why_there_are_no_two_nodes(
    mounts: tuple[Bed, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    bed, machine = mounts
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    config = ClusterConfig(backend="slurm", options=JobOptions(partition="nope"))
    srun = start_together(config, ["selftest-peer", str(bed.nodes[0])], selftest_two_nodes.NODES, 60)
    assert srun is not None
    (row,) = with_peers([srun])
    assert row.verdict == "note"
    assert row.found.startswith("not tried further: srun: error: ")
