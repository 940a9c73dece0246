"""The cluster contract over a real SLURM, spoken to by pyslurm: the stand-in everywhere, pyslurm itself where
it was built (tests/support/pyslurm_python.py)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.fixtures import borrowed, slurm
from tests.cluster.processes import wait_for
from tests.cluster.settings import Settings
from tests.support.cluster_contract import ClusterContract
from tests.support.pyslurm_python import KINDS, of_kind

from penstock.cluster.port import ArraySpec
from penstock.cluster.slurm.bindings.slurm_bindings import SlurmBindings
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.cluster.slurm.command_line import SlurmCommands
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.machine import Machine

    from penstock.cluster.port import Cluster

__all__ = ["slurm"]

pytestmark = pytest.mark.slurm

OPTIONS = JobOptions(core_spec=2, max_elements=3)


@pytest.fixture(params=KINDS)
def bindings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SlurmBindings]:
    # With accounting, and a controller that forgets soon: then each call of pyslurm is made.
    for _ in borrowed(Settings(accounting=True, min_job_age=2), monkeypatch):
        python = of_kind(request.param, tmp_path)
        made = SlurmBindings(SlurmCommands(), python, wanted=True)
        yield made
        assert re.fullmatch(r"pyslurm \S+", made.way), "the commands took over"
        assert not made._without


@pytest.fixture
def cluster(bindings: SlurmBindings) -> Cluster:
    return SlurmCluster(ClusterConfig(backend="slurm", options=OPTIONS), slurm=bindings)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


class TestSlurmByPyslurm(ClusterContract):
    pass


def test_both_ways_say_the_same_of_the_cluster(bindings: SlurmBindings) -> None:
    commands = SlurmCommands()
    assert bindings.facts() == commands.facts()
    assert bindings.nodes() == commands.nodes()
    assert bindings.default_partition() == commands.default_partition()
    assert bindings.partitions() == commands.partitions()
    with pytest.raises(FailedError) as caught:
        bindings.submit_job("a", replace(OPTIONS, partition="none"), "#!/bin/sh\n")
    assert "partition" in caught.value.why.lower()


def test_a_core_spec_that_pyslurm_drops_is_seen(slurm: Machine, tmp_path: Path) -> None:
    """As pyslurm 22.5.3 does. It is read back by squeue."""
    made = SlurmBindings(SlurmCommands(), of_kind("stand-in", tmp_path, drops_core_spec=True), wanted=True)
    cluster = SlurmCluster(ClusterConfig(backend="slurm", options=OPTIONS), slurm=made)
    (tmp_path / "logs").mkdir()
    with pytest.raises(FailedError, match="dropped --core-spec=2"):
        cluster.submit(ArraySpec("penstock-old", "copy", (0,), ("/bin/true",), tmp_path / "logs"))
    assert made.way.startswith("pyslurm ")


# The job's number, its array's, and what follows from when and where it was submitted.
OWN = re.compile(r"(\w*(JobId|Time|Eval|StdErr|StdOut|SubmitLine|Sid|Scheduler|Priority|SLUID)\w*)=")
SHOWS = 'import json, os, resource, sys; print(json.dumps([dict(os.environ), "%04o" % os.umask(0), resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE)]))'  # noqa: E501


def test_an_array_is_the_same_by_both_ways(bindings: SlurmBindings, shared: Path) -> None:
    """What SLURM notes of it, and the environment, umask and limits of its elements."""
    options = replace(OPTIONS, time=1200, memory=512 << 20, licenses=("wan:1",), constraint="plain")
    shown: dict[str, dict[str, str]] = {}
    printed: dict[str, list[Any]] = {}
    for way in (SlurmCommands(), bindings):
        logs = shared / way.way.split()[0]
        logs.mkdir()
        spec = ArraySpec("penstock-same", "copy", (0,), ("/bin/true",), logs, {"dataset": "d"})
        script = f"#!/bin/sh\n/usr/bin/python3 -c '{SHOWS}'\n"
        job = way.submit_array(spec, 1, options, script)
        line = SlurmCommands().elements(job)
        assert [one.core_spec for one in line] == ["2"]
        text = re.sub(r"SubmitLine=.*?(?=WorkDir=)", "", _shown(job))  # the whole command, of sbatch alone
        shown[way.way] = {k: v for k, v in re.findall(r"(\S+?)=(\S*)", text) if not OWN.match(f"{k}=")}
        wait_for(lambda folder=logs: any(path.stat().st_size for path in folder.iterdir()), "its output")
        (output,) = logs.iterdir()
        wait_for(lambda path=output: path.read_text().endswith("\n"), "the end of its output")
        printed[way.way] = json.loads(output.read_text())
    (one, other), (first, second) = shown.values(), printed.values()
    pairs = {key: (one.get(key), other.get(key)) for key in {*one, *other} - DIFFERS}
    assert not {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    assert first[1:] == second[1:]
    assert {*first[0]} ^ {*second[0]} <= UNSEEN


DIFFERS = {
    "Command",  # sbatch has no file either, but pyslurm says nothing
    "CPUs/Task",  # pyslurm states 1 where nothing is asked for
    "ArrayTaskId", "JobState", "Reason", "NodeList", "BatchHost", "NumCPUs", "NumNodes", "AllocTRES",
    "AllocNode:Sid", "TRES", "LastSchedEval", "TresPerTask",
}  # fmt: skip
"""Depend on the moment, or are stated by pyslurm where sbatch leaves them to SLURM's default."""
UNSEEN = {"SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK"}


def _shown(job: str) -> str:
    import subprocess

    from penstock.cluster.slurm.client import environment

    command = ["scontrol", "show", "job", "--oneliner", job]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
