"""What people and administrators do to a run: cancel, scancel, hold, drain; and what it then says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import need_slurm
from tests.cluster.machine import Machine
from tests.cluster.place import Place, job_user
from tests.cluster.processes import born, wait_for
from tests.cluster.settings import NODES, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slurm

SLOW = {"limit": "300KiB/s"}


def test_cancel_and_scancel_stop_a_live_controller(place: Place) -> None:
    place.fill("a", 120)
    place.configure(["a"], plan={"shard_files": 60}, engine=SLOW)
    run = place.penstock("run")
    place.until(lambda: place.fetched("a"), "bytes on their way", run)
    ((array, _),) = place.submissions("a", "copy")
    # Without the backend: the array stands in the book.
    cancelled = place.start(sys.executable, "-m", "penstock", "--config", "my.yaml", "cancel", "a")
    assert f"array {array} of copy" in place.ends(cancelled)
    said = place.ends(run, 1)
    assert "copy was cancelled [a]: by " in said
    assert "the same command goes on" in said
    assert place.submissions("a", "copy") == [(array, [0, 1])], "nothing was submitted again"
    assert not place.running()

    again = place.penstock("run")

    def second_array() -> str:
        """Its number: an element may run before the book has it."""
        submissions = place.submissions("a", "copy")
        return submissions[1][0] if len(submissions) == 2 else ""

    place.until(lambda: second_array() and place.running(), "a second array", again)
    second = second_array()
    comment = place.machine.run("squeue", "-h", "-o", "%k", "-j", second).stdout
    assert "dataset=a" in comment
    assert "release=" in comment
    place.machine.run("scancel", second)
    said = place.ends(again, 1)
    assert "2 elements were cancelled" in said
    assert "scancel" in said
    assert len(place.submissions("a", "copy")) == 2
    place.configure(["a"], plan={"shard_files": 60})
    place.ends(place.staging("a"))
    place.published("a")


@pytest.mark.later_release
def test_throttle_changes_how_many_elements_run_at_once(place: Place) -> None:
    place.fill("a", 200)
    place.configure(
        ["a"], cluster={"core_spec": "none", "memory": None, "max_elements": 1},
        plan={"shard_files": 5}, engine={"limit": "40KiB/s"},
    )  # fmt: skip
    place.planned("a")

    def throttle(number: str) -> str:
        words = ("-m", "penstock", "--config", "my.yaml", "limit", "a", "--nodes", number)
        return place.ends(place.start(sys.executable, *words))

    copying = place.penstock("step", "copy", "a")
    place.until(lambda: len(place.running()) == 1, "the first element", copying)
    assert "its controller does the rest" in throttle("3")
    place.until(lambda: len(place.running()) == 3, "three elements", copying)
    assert "at most 3 elements at once from now on, by " in place.output(copying)
    assert [workers for _, workers in place.workers("a", "copy")] == [1, 2]
    throttle("2")
    place.until(lambda: len(place.running()) == 2, "one to end between two shards", copying)

    place.kill(copying)
    assert "no controller is at work" in throttle("1")
    again = place.penstock("step", "copy", "a")
    place.until(lambda: "lives and is watched" in place.output(again), "the next controller", again)
    place.until(lambda: len(place.running()) == 1, "another one to end, for the next controller", again)
    assert len(place.workers("a", "copy")) == 2
    assert {generation for _, generation, _ in place.claims("a", "copy")} == {1}, "none ended amid a shard"
    place.ends(place.start(sys.executable, "-m", "penstock", "--config", "my.yaml", "cancel", "a"))
    place.ends(again, 1)


@pytest.mark.later_release
def test_no_more_elements_wait_than_the_account_may_have(slurm_accounting: Machine) -> None:
    def allowed(number: int) -> None:
        words = ("modify", "user", job_user(), "where", "account=ml", "set", f"MaxSubmitJobs={number}")
        done = slurm_accounting.run("sacctmgr", "-i", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    allowed(4)
    try:
        with Place(slurm_accounting) as place:
            place.fill("a", 50)
            place.configure(
                ["a"], cluster={"core_spec": "none", "cpus": 1, "memory": "256MiB", "max_elements": 8},
                plan={"shard_files": 4},
            )  # fmt: skip
            place.planned("a")
            place.ends(place.penstock("step", "copy", "a"))
            # What SLURM refuses has no array: the half of it is submitted next.
            sent = [workers for array, workers in place.workers("a", "copy") if array]
            assert max(sent) == 4
            assert len(place.receipts("a", "copy")) > 8
    finally:
        allowed(-1)


@pytest.mark.later_release
def test_what_somebody_holds_is_said_and_goes_on_when_it_is_released(place: Place) -> None:
    place.fill("a", 180)
    place.configure(
        ["a"], cluster={"core_spec": "none", "memory": None}, plan={"shard_files": 15}, engine=SLOW
    )
    place.planned("a")
    copying = place.penstock("step", "copy", "a")
    place.until(lambda: len(place.running()) == 2 and place.fetched("a"), "two running elements", copying)
    ((array, _),) = place.submissions("a", "copy")
    # Without core-spec an element has its node, not one CPU.
    given = place.machine.run("squeue", "--array", "-h", "-j", array, "-o", "%C").stdout.split()
    assert min(map(int, given)) >= 7
    place.machine.run("scontrol", "requeuehold", f"{array}_0")
    place.until(lambda: "held" in place.output(copying), "a word of it", copying, seconds=60)
    assert f"`scontrol release {array}_0` lets it go on" in place.output(copying)
    place.machine.run("scontrol", "release", f"{array}_0")
    place.ends(copying)
    assert place.workers("a", "copy") == [(array, 2)]
    assert {claim["charged"] for _, _, claim in place.claims("a", "copy")} == {0}, "that uses up no retry"


@pytest.fixture
def drained(place: Place) -> Iterator[None]:
    for node in NODES:
        place.machine.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=new disks")
    yield
    for node in NODES:
        place.machine.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


@pytest.mark.later_release
def test_with_all_nodes_drained_it_waits_and_says_so(place: Place, drained: None) -> None:
    place.fill("a", 30)
    place.configure(["a"])
    run = place.penstock("run")
    waits = "in the queue: Nodes required for job are DOWN, DRAINED"
    place.until(lambda: waits in place.output(run), "a word of what it waits for", run, seconds=60)
    assert "no node for such jobs is available now" in place.output(run)
    assert "new disks" in place.output(run)
    for node in NODES:
        place.machine.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
    place.ends(run)
    place.published("a")


def test_a_profile_that_the_nodes_lack_is_found_by_preflight(place: Place) -> None:
    place.fill("a", 3)
    home = Path(place.env["HOME"]) / ".aws"
    home.mkdir()
    (home / "credentials").write_text("[staging]\naws_access_key_id = key\naws_secret_access_key = s3cret\n")
    home.chmod(0o755)
    (home / "credentials").chmod(0o644)
    options = {"endpoint_url": place.server.endpoint, "profile": "staging", "region": "us-east-1"}
    place.configure(["a"], options=options)
    tried = place.start(
        sys.executable, "-m", "penstock", "--config", "my.yaml", "--backend", "slurm", "preflight", "a",
        env={"HTTPS_PROXY": "http://127.0.0.1:9"},
    )  # fmt: skip
    said = place.ends(tried, 3)
    assert f"on the nodes {NODES[0]}, {NODES[-1]}, what was opened here cannot be opened" in " ".join(
        said.split()
    )
    assert "staging" in said
    assert "HTTPS_PROXY" in said
    assert "s3cret" not in said
    assert not list(place.target.glob(".penstock-probe*"))


def test_the_tests_cluster_ends_only_what_it_started() -> None:
    need_slurm(Settings())
    machine = Machine.new()
    machine.up()
    bystanders: list[subprocess.Popen[bytes]] = []
    try:
        log = machine.folder / "logs" / "slurmd.n1.log"
        bystanders += [
            subprocess.Popen(command, env={**os.environ, **machine.env}, stdout=subprocess.DEVNULL)
            for command in (["sleep", "600"], ["tail", "-f", str(log)])
        ]
        lasting = "(setsid sleep 601 &) ; sleep 602"
        machine.run("sbatch", "--chdir=/", "--output=/dev/null", f"--wrap={lasting}")
        wait_for(lambda: any(len(machine.payload(node)) >= 3 for node in NODES), "the job's processes")
        payload = {pid: born(pid) for node in NODES for pid in machine.payload(node)}
        machine.down()
        assert all(one.poll() is None for one in bystanders)
        assert not any(born(pid) == begun for pid, begun in payload.items())
    finally:
        for one in bystanders:
            one.kill()
            one.wait()
        machine.down()


def test_elements_beyond_a_limit_of_each_job_are_refused(slurm_accounting: Machine) -> None:
    """By the MaxTRESPerJob of a QOS that lets such jobs into the queue: they waited without end."""

    def limit(cpus: int) -> None:
        words = ("modify", "qos", "bulk", "set", f"MaxTRESPerJob=cpu={cpus}")
        done = slurm_accounting.run("sacctmgr", "-i", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    limit(2)
    try:
        with Place(slurm_accounting) as place:
            place.fill("a", 10)
            place.configure(
                ["a"], cluster={"qos": "bulk", "core_spec": "none", "cpus": 4, "memory": "256MiB"}
            )
            place.planned("a")
            said = place.ends(place.penstock("step", "copy", "a"), 3)
            assert "elements ask for more than a single job may have, and would never start" in said
            assert "QOSMaxCpuPerJobLimit; 1 element of array" in said
            limit(-1)
            place.ends(place.penstock("step", "copy", "a"))
    finally:
        limit(-1)
