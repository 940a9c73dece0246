from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.cluster_contract import DEADLINE, ELEMENT, ClusterContract

from penstock.cluster.port import ArraySpec, State
from penstock.cluster.registry import LocalCluster, open_cluster
from penstock.config.settings import ClusterConfig, JobOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    made = LocalCluster(ClusterConfig(), cpus=4)
    yield made
    made.close()


class TestLocal(ClusterContract):
    def test_cpus_are_shared_out_between_the_elements(self, cluster: LocalCluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "run", [0, 1, 2]))
        self.ended(cluster, array, [0, 1, 2])
        assert self.said(shared, "began", 0)["cpus"] == "2"
        alone = cluster.submit(self.spec(shared, "run", [9]))
        self.ended(cluster, alone, [9])
        assert self.said(shared, "began", 9)["cpus"] == "4"

    def test_each_element_has_a_process_group_of_its_own(self, cluster: LocalCluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "run", [0]))
        self.ended(cluster, array, [0])
        told = self.said(shared, "began", 0)
        assert told["group"] == told["pid"]

    def test_one_that_does_not_stop_is_killed_after_the_grace(self, shared: Path) -> None:
        cluster = LocalCluster(ClusterConfig(), cpus=2, grace=0.2)
        array = cluster.submit(self.spec(shared, "stubborn", [0]))
        self.said(shared, "began", 0)
        cluster.cancel(array)
        status = cluster.states(array, [0])[0]
        assert status.state is State.CANCELLED
        assert (status.reason, status.exit_code, status.signal) == ("killed by SIGKILL", None, signal.SIGKILL)
        cluster.close()

    def test_a_killed_element_says_so(self, cluster: LocalCluster, shared: Path) -> None:
        array = cluster.submit(self.spec(shared, "wait", [0]))
        os.kill(self.said(shared, "began", 0)["pid"], signal.SIGKILL)
        status = self.ended(cluster, array, [0])[0]
        assert (status.state, status.reason) == (State.FAILED, "killed by SIGKILL")
        assert (status.exit_code, status.signal) == (None, signal.SIGKILL)

    def test_a_program_that_is_not_there_fails_and_the_others_run(
        self, cluster: LocalCluster, shared: Path
    ) -> None:
        gone = ArraySpec("gone", "copy", (0,), (str(shared / "no-such-program"),), shared / "logs")
        array = cluster.submit(gone)
        status = self.ended(cluster, array, [0])[0]
        assert status.state is State.FAILED
        assert "cannot start" in status.reason
        assert (status.exit_code, status.signal) == (None, None)
        good = cluster.submit(self.spec(shared, "run", [0]))
        assert self.ended(cluster, good, [0])[0].state is State.DONE

    def test_slots_follow_the_configuration_and_the_cpus(self) -> None:
        def slots(cpus: int, most: int) -> int:
            return LocalCluster(ClusterConfig(options=JobOptions(max_elements=most)), cpus=cpus).slots("copy")

        assert [slots(1, 4), slots(2, 4), slots(8, 4), slots(8, 2), slots(64, 4)] == [1, 1, 4, 2, 4]

    def test_the_end_of_an_element_is_told(self, shared: Path) -> None:
        told = threading.Event()
        cluster = open_cluster(ClusterConfig(), changed=told.set)
        array = cluster.submit(self.spec(shared, "run", [0]))
        while not cluster.states(array, [0])[0].state.ended:
            assert told.wait(DEADLINE), "nobody told that something changed"
            told.clear()

    def test_it_is_what_the_configuration_opens_by_default(self) -> None:
        assert open_cluster(ClusterConfig()).kind == "local"


CONTROLLER = """
import sys, pathlib, time
from penstock.cluster.registry import LocalCluster
from penstock.cluster.port import ArraySpec
from penstock.config.settings import ClusterConfig
shared, element = pathlib.Path(sys.argv[1]), sys.argv[2]
cluster = LocalCluster(ClusterConfig(), cpus=4)
command = (sys.executable, "-c", element, "stubborn", str(shared))
cluster.submit(ArraySpec("n", "copy", (0, 1), command, shared / "logs"))
sys.stdin.read()
"""


def test_elements_die_with_a_controller_that_is_killed(tmp_path: Path) -> None:
    contract = ClusterContract()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CONTROLLER), str(tmp_path), ELEMENT], stdin=subprocess.PIPE
    ) as controller:
        pids = [contract.said(tmp_path, "began", index)["pid"] for index in (0, 1)]
        watched = [os.pidfd_open(pid) for pid in pids]
        controller.kill()
        for fd in watched:
            ready, _, _ = select.select([fd], [], [], DEADLINE)
            assert ready, "an element outlived its controller"
            os.close(fd)
    assert not list(tmp_path.glob("ended-*"))
