"""The cluster contract over a real SLURM, spoken to by pyslurm: the stand-in everywhere, pyslurm itself where
it was built (tests/support/pyslurm_python.py)."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.fixtures import borrowed, slurm
from tests.cluster.processes import wait_for
from tests.cluster.settings import Settings
from tests.support.cluster_contract import ClusterContract
from tests.support.pyslurm_python import KINDS, of_kind

from penstock.cluster.port import ArraySpec
from penstock.cluster.slurm.client import environment
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.cluster.slurm.commands import SlurmBindings, SlurmCommands, attributes
from penstock.cluster.slurm.submission import array_arguments
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
    for _ in borrowed(Settings(), monkeypatch):
        python = of_kind(request.param, tmp_path)
        made = SlurmBindings(python, wanted=True)
        yield made
        assert re.fullmatch(r"pyslurm \S+", made.way), "the commands took over"


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
    assert bindings.nodes() == commands.nodes()
    assert bindings.partitions() == commands.partitions()
    with pytest.raises(FailedError) as caught:
        bindings.submit_job("a", replace(OPTIONS, partition="none"), "#!/bin/sh\n")
    assert "partition" in caught.value.why.lower()


def test_a_core_spec_that_pyslurm_drops_is_seen(slurm: Machine, tmp_path: Path) -> None:
    """As pyslurm 22.5.3 does. It is read back by squeue."""
    made = SlurmBindings(of_kind("stand-in", tmp_path, drops_core_spec=True), wanted=True)
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
    noted: list[dict[str, str]] = []
    printed: list[list[Any]] = []
    for way in (SlurmCommands(), bindings):
        logs = shared / way.way.split()[0]
        logs.mkdir()
        spec = ArraySpec("penstock-same", "copy", (0,), ("/bin/true",), logs, {"dataset": "d"})
        script = f"#!/bin/sh\n/usr/bin/python3 -c '{SHOWS}'\n"
        job = way.submit_array(spec, 1, options, script)
        line = SlurmCommands().elements_of([job])[job]
        assert [one.core_spec for one in line] == ["2"]
        noted.append(_noted(job))
        wait_for(lambda folder=logs: any(path.stat().st_size for path in folder.iterdir()), "its output")
        (output,) = logs.iterdir()
        wait_for(lambda path=output: path.read_text().endswith("\n"), "the end of its output")
        printed.append(json.loads(output.read_text()))
    assert not _differences(*noted)
    first, second = printed
    assert first[1:] == second[1:]
    assert {*second[0]} - {*first[0]} <= SECOND
    assert {*first[0]} - {*second[0]} <= MPI


@pytest.mark.parametrize("kind", KINDS)
def test_further_options_are_the_same_by_both_ways(
    kind: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = JobOptions(core_spec=None, max_elements=2, exclude="n1,n[2-3]", wckey="ingest")
    spec = ArraySpec("penstock-more", "copy", (0, 1), ("/bin/true",), shared / "logs", {})
    script = "#!/bin/sh\nexit 0\n"
    assert attributes(array_arguments(spec, 2, options), script) is not None
    for _ in borrowed(Settings(), monkeypatch):
        bindings = SlurmBindings(of_kind(kind, shared), wanted=True)
        jobs = [way.submit_array(spec, 2, options, script) for way in (SlurmCommands(), bindings)]
        one, other = (_noted(job) for job in jobs)
        assert not _differences(one, other)
        assert other["ExcNodeList"] == "n[1-3]"
        for job in jobs:
            assert _squeue(job, "wckey") == {"ingest"}
        assert re.fullmatch(r"pyslurm \S+", bindings.way), "the commands took over"


DIFFERS = {
    "Command",  # sbatch has no file either, but pyslurm says nothing
    "CPUs/Task",  # pyslurm states 1 where nothing is asked for
    "OOMKillStep",  # pyslurm states 0
    "ArrayTaskId", "JobState", "Reason", "NodeList", "BatchHost", "NumCPUs", "NumNodes", "AllocTRES",
    "LicensesAlloc", "AllocNode:Sid", "TRES", "LastSchedEval", "TresPerTask",
}  # fmt: skip
"""Depend on the moment, or are stated by pyslurm where sbatch leaves them to SLURM's default."""
SECOND = {"SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_PROFILE", "SLURM_OPEN_MODE"}
"""Options that sbatch sets only in an environment of its own."""
MPI = {
    "HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "OMPI_MCA_plm_slurm_args", "PRTE_MCA_plm_slurm_args",
}  # fmt: skip
"""Variables of MPI programs, which sbatch alone hands to a job (26.05)."""


def _noted(job: str) -> dict[str, str]:
    """What SLURM notes of a job, but for what is each job's own."""
    text = re.sub(r"SubmitLine=.*?(?=WorkDir=)", "", _shown(job))  # the whole command, of sbatch alone
    return {key: value for key, value in re.findall(r"(\S+?)=(\S*)", text) if not OWN.match(f"{key}=")}


def _differences(
    one: Mapping[str, str], other: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    pairs = {key: (one.get(key), other.get(key)) for key in {*one, *other} - DIFFERS}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _shown(job: str) -> str:
    return _asked("scontrol", "show", "job", "--oneliner", job)


def _squeue(job: str, field: str) -> set[str]:
    lines = _asked("squeue", "-h", "--array", "--states=all", "-j", job, "-O", f"{field}:80").splitlines()
    return {line.strip() for line in lines}


def _asked(*command: str) -> str:
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
