"""Workers of an array divide a step's shards: on four nodes, one of which is slow, lost or killed.

`engine.limit` is the rate of each node, far below what this machine can do: so the rates of nodes are known,
and the wall time that their sum allows.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import signal_to, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import Popen

    from tests.cluster.machine import Machine
    from tests.cluster.place import Place

pytestmark = pytest.mark.slurm

NODES = 4
KIB = 1 << 10
TURN = 2.0
"""Seconds of a slow node's turn, of which it works the last quarter."""


def prepare(place: Place, *, shards: int, files: int, rate: int, retries: int = 2) -> None:
    """Shards of so many files of about 50 KB, planned, for four nodes of `rate` KiB a second."""
    place.fill("a", shards * files)
    place.configure(
        ["a"],
        cluster={"max_elements": NODES, "retries": retries},
        plan={"shard_files": files},
        engine={"limit": f"{rate}KiB/s"},
    )
    place.planned("a")


@contextlib.contextmanager
def slowed(machine: Machine, node: str) -> Iterator[None]:
    """While inside, what runs on this node works a quarter of the time."""
    over = threading.Event()

    def alternate() -> None:
        while not over.wait(TURN / 4):
            for pid in machine.payload(node):
                signal_to(pid, signal.SIGSTOP)
            over.wait(TURN * 3 / 4)
            for pid in machine.payload(node):
                signal_to(pid, signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def proven(place: Place) -> int:
    runs = place.target / "a" / ".penstock" / "runs"
    return sum(1 for _ in runs.glob("*/receipts/copy/*.json"))


def by_node(place: Place) -> Counter[str]:
    """How many shards each node did, by the receipts."""
    return Counter(receipt["host"] for receipt in place.receipts("a", "copy"))


def sizes(place: Place) -> dict[str, int]:
    files = (place.source / "a").rglob("*.bin")
    return {f"a/{path.relative_to(place.source / 'a')}": path.stat().st_size for path in files}


def again(place: Place) -> list[str]:
    """Files of which more was fetched than they hold."""
    wanted, fetched = sizes(place), place.fetched("a")
    assert fetched.keys() == wanted.keys()
    return [key for key, size in fetched.items() if size > wanted[key]]


def copied_in(place: Place) -> float:
    """Seconds from the first start to the last end that receipts state."""
    receipts = place.receipts("a", "copy")
    return max(one["ended"] for one in receipts) - min(one["started"] for one in receipts)


def begun(place: Place, shards: int, process: Popen[bytes]) -> None:
    """Wait until so many shards are proven, and all nodes work."""
    place.until(
        lambda: proven(place) >= shards and len(place.running()) == NODES, f"{shards} receipts", process
    )


@pytest.mark.timeout(400)
def test_four_nodes_divide_24_shards_in_one_array(place: Place) -> None:
    """One wait in the queue for each step, however many shards there are."""
    prepare(place, shards=24, files=10, rate=250)
    process = place.staging("a")
    said = place.ends(process)
    place.published("a")
    assert not again(place)
    shares = by_node(place)
    assert sum(shares.values()) >= 24
    assert shares.keys() == set(place.machine.nodes), "each node did some"
    assert max(shares.values()) <= sum(shares.values()) / 2, shares
    assert len(place.submissions("a", "copy")) == 1, said
    assert {generation for _, generation, _ in place.claims("a", "copy")} == {1}


@pytest.mark.timeout(400)
def test_shards_are_read_back_on_other_nodes_while_others_are_copied(place: Place) -> None:
    prepare(place, shards=48, files=10, rate=250)
    place.ends(place.penstock("step", "copy", "a"))
    written, read = ({r["index"]: r for r in place.receipts("a", step)} for step in ("copy", "verify"))
    assert read.keys() == written.keys() == set(range(48))
    copied = max(receipt["ended"] for receipt in written.values())
    beside = [index for index, receipt in read.items() if receipt["started"] < copied]
    elsewhere = [index for index in beside if read[index]["host"] != written[index]["host"]]
    late = max(receipt["ended"] for receipt in read.values()) - copied
    figures = f"{len(beside)} of 48 beside the copy, {len(elsewhere)} elsewhere; {late:.1f} s after it"
    print(figures)
    assert len(beside) >= 24, figures
    assert len(elsewhere) >= len(beside) * 0.9, figures
    place.ends(place.staging("a"))
    data = place.published("a")
    assert place.submissions("a", "verify") == [], "one wait in the queue for both"
    grades = json.loads((data.parent / "release.json").read_text())["evidence"]["storage"]
    assert grades["cold-other-node"]["files"] >= 9 * len(elsewhere), grades


@pytest.mark.timeout(400)
def test_the_others_do_more_where_one_node_is_slow(place: Place) -> None:
    prepare(place, shards=96, files=5, rate=250)
    process = place.penstock("step", "copy", "a")
    place.until(lambda: len(place.running()) == NODES, "four running workers", process)
    slow = min(place.running().values())
    with slowed(place.machine, slow):
        place.ends(process)
    shares, total = by_node(place), sum(sizes(place).values())
    others = [count for node, count in shares.items() if node != slow]
    assert len(others) == NODES - 1
    assert shares[slow] < min(others) / 2, shares
    assert len(place.submissions("a", "copy")) == 1
    assert {generation for _, generation, _ in place.claims("a", "copy")} == {1}, (
        "a slow worker keeps its shard"
    )
    expected, took = total / (250 * KIB * (NODES - 1 + 0.25)), copied_in(place)
    figures = f"copied in {took:.1f} s, by the sum of rates {expected:.1f} s; {dict(shares)}"
    print(figures)
    assert took <= 1.2 * expected, figures


@pytest.mark.timeout(400)
def test_a_node_lost_halfway_costs_its_shard_in_hand(place: Place) -> None:
    prepare(place, shards=48, files=10, rate=250)
    process = place.penstock("step", "copy", "a")
    begun(place, 12, process)
    lost = min(place.running().values())
    place.machine.kill_node(lost)
    killed = time.monotonic()
    said = place.ends(process)
    took = time.monotonic() - killed
    shares = by_node(place)
    assert f"lost with node {lost}" in said
    assert min(count for node, count in shares.items() if node != lost) > shares[lost]
    second = [
        (index, claim["host"]) for index, generation, claim in place.claims("a", "copy") if generation > 1
    ]
    assert len(second) == 1, second
    assert second[0][1] != lost
    assert len(again(place)) <= 8, "no more than the lost worker's streams had in hand"
    assert len(place.submissions("a", "copy")) == 1
    print(f"after the loss {took:.0f} s, of shards each node did {dict(shares)}")


@pytest.mark.timeout(400)
def test_a_worker_killed_amid_a_shard_loses_no_proven_one(place: Place) -> None:
    prepare(place, shards=24, files=10, rate=150)
    process = place.penstock("step", "copy", "a")
    kill_while_running(place, process, 1)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_twelve_kills_of_workers(place: Place) -> None:
    # The same shard may be in hand at several kills.
    prepare(place, shards=96, files=10, rate=400, retries=9)
    process = place.penstock("step", "copy", "a")
    kill_while_running(place, process, 12)


def kill_while_running(place: Place, process: Popen[bytes], times: int) -> None:
    """Kill that many workers, one after another as shards are proven, each on another node than the one
    before while nodes are left: two kills count against a node. What is proven stays, and no more is copied
    again than a worker had in hand."""
    done = last = 0
    killed = ""

    def more(receipts: int) -> bool:
        return proven(place) >= receipts

    for _ in range(times):
        place.until(partial(more, last + 3), "further receipts", process)
        last = proven(place)

        def another(before: str = killed) -> str:
            nodes = {node for node in place.running().values() if place.machine.payload(node)}
            return min(nodes - {before} or nodes, default="")

        place.until(another, "a running worker", process)
        killed = another()
        place.machine.kill_payload(killed)
        done += 1
    said = place.ends(process, seconds=600)
    assert done == times
    assert len(again(place)) <= 8 * times, said
    stood = Counter(index for index, _, _ in place.claims("a", "copy"))
    assert 1 <= sum(count - 1 for count in stood.values()) <= times, stood
    wait_for(lambda: not place.running(), "the workers' end")
    place.ends(place.staging("a"))
    place.published("a")


def test_workers_that_still_wait_do_not_hold_up_the_end(place: Place) -> None:
    """SLURM keeps no record of an element that is cancelled while it waits."""
    prepare(place, shards=24, files=5, rate=250)
    place.configure(
        ["a"],
        cluster={"max_elements": 2 * NODES},
        plan={"shard_files": 5},
        engine={"limit": "250KiB/s"},
    )
    process = place.penstock("step", "copy", "a")
    said = place.ends(process)
    late = time.time() - max(receipt["ended"] for receipt in place.receipts("a", "copy"))
    assert late < 10, (late, said)
    assert "is not waited for" not in said
    assert "cancelled" not in said, "there was nothing left for them to do"
    assert place.workers("a", "copy") == [(place.submissions("a", "copy")[0][0], 2 * NODES)]


def test_workers_rest_while_pause_stands(place: Place) -> None:
    prepare(place, shards=48, files=10, rate=250)
    process = place.penstock("step", "copy", "a")
    begun(place, 4, process)
    sign = place.target / "PAUSE"
    sign.touch()
    standing: list[int] = []

    def rests() -> bool:
        """Nothing was fetched for ten looks."""
        standing.append(sum(place.fetched("a").values()))
        return len(standing) > 10 and len(set(standing[-10:])) == 1

    place.until(rests, "all workers to rest", process)
    assert len(place.running()) == NODES
    assert proven(place) < 48
    sign.unlink()
    place.ends(process)
    assert len(place.submissions("a", "copy")) == 1
    assert {claim["charged"] for _, _, claim in place.claims("a", "copy")} == {0}
    assert not again(place)


def test_in_the_place_of_a_worker_that_a_person_cancels_the_others_go_on(place: Place) -> None:
    prepare(place, shards=24, files=5, rate=100)
    process = place.penstock("step", "copy", "a")
    begun(place, 4, process)
    ((array, _),) = place.submissions("a", "copy")
    place.machine.run("scancel", f"{array}_1")
    said = place.ends(process)
    assert place.workers("a", "copy") == [(array, NODES)], said
    twice = [
        (index, claim["charged"]) for index, generation, claim in place.claims("a", "copy") if generation > 1
    ]
    assert len(twice) <= 1
    assert len(again(place)) <= 8


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_shard_of_a_suspended_worker_goes_to_another_one(place: Place) -> None:
    prepare(place, shards=24, files=10, rate=250)
    process = place.penstock("step", "copy", "a")
    begun(place, 4, process)
    ((array, _),) = place.submissions("a", "copy")
    done = place.machine.run("scontrol", "suspend", f"{array}_1")
    assert done.returncode == 0, done.stderr
    said = place.ends(process, seconds=400)
    assert "nothing was heard of element 1 on n" in said
    assert [generation for _, generation, _ in place.claims("a", "copy")].count(2) == 1
    place.ends(place.staging("a"))
    place.published("a")
