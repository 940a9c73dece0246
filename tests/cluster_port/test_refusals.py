"""What SLURM's words about a job stand for: a limit that passes, one that does not, SLURM that is away."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from tests.cluster_port.test_slurm_rules import Scripted, Visited, cluster_of, spec

from penstock.cluster.slurm import site
from penstock.cluster.slurm.answers import read_squeue
from penstock.cluster.slurm.client import CommandOutput, problem
from penstock.cluster.slurm.facts import JobTrial, is_lost
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.errors import (
    FailedError,
    PenstockError,
    PreflightError,
    QueueFullError,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cluster.port import ArraySpec

POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: {POLICY}",
         QueueFullError),
        (f"sbatch: error: AssocGrpSubmitJobsLimit\nsbatch: error: Batch job submission failed: {POLICY}",
         QueueFullError),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\nsbatch: error: submission failed: {POLICY}",
         FailedError),
        (f"sbatch: error: QOSMaxNodePerJobLimit\nallocation failure: {POLICY}", FailedError),
        (POLICY, QueueFullError),
        ("sbatch: error: Batch job submission failed: Invalid time limit specified: try again", FailedError),
        ("sbatch: error: your account is not in slurmdbd, ask the admins; unknown account", FailedError),
        ("sbatch: error: This cluster does not use slurmdbd; the wckey is not known", FailedError),
        ("sbatch: error: Batch job submission failed: Protocol authentication error", TransientError),
        ("sbatch: error: Munge decode failed: Expired credential", TransientError),
        ("sbatch: error: Batch job submission failed: Unexpected message received", TransientError),
        ("squeue: fatal: Could not establish a configuration source", TransientError),
        ("slurm_load_jobs error: Slurm controller is not responding", TransientError),
        ("sacct: error: Problem talking to the database: Connection refused", TransientError),
        ("sacctmgr: error: slurmdbd is not running", TransientError),
    ],
)  # fmt: skip
def test_what_words_stand_for(words: str, kind: type[PenstockError]) -> None:
    error = problem("sbatch", CommandOutput(1, "", words))
    assert type(error) is kind
    assert all(line.strip() in error.why for line in words.splitlines())


def test_a_partition_for_jobs_of_a_reservation_is_named() -> None:
    """`ReqResv=YES`: SLURM says no more than these words."""
    slurm = Scripted(refused="sbatch: error: Batch job submission failed: Access/permission denied")
    with pytest.raises(PreflightError) as raised:
        cluster_of(slurm, core_spec=None).check(["copy"])
    assert "cluster.reservation, or another cluster.partition" in raised.value.hint
    assert "ReqResv" in raised.value.hint


@pytest.mark.parametrize("exp", [1_700_000_000, "soon", None])
def test_a_token_that_has_ended_is_named(monkeypatch: pytest.MonkeyPatch, exp: object) -> None:
    """SLURM says `Zero Bytes were transmitted or received`."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": exp, "sun": "me"}).encode()).decode().rstrip("=")
    monkeypatch.setenv("SLURM_JWT", f"e30.{claims}.c2lnbmVk")
    error = problem("squeue", CommandOutput(1, "", "slurm_load_jobs error: Protocol authentication error"))
    assert ("SLURM_JWT ended at 2023-11-1" in error.why) is (exp == 1_700_000_000)
    assert ("`unset SLURM_JWT`" in error.hint) is (exp == 1_700_000_000)
    assert "c2lnbmVk" not in str(error)


class Full(Scripted):
    """Its QOS lets this account have no more jobs, or none of this size."""

    def __init__(self, why: str, tried: str = "") -> None:
        super().__init__()
        self.why, self.tried = why, tried

    def trial(self, options: JobOptions, exclude: Sequence[str] = ()) -> JobTrial:
        if self.tried:
            return JobTrial(self.tried)
        raise QueueFullError("sbatch failed", why=self.why)

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        raise QueueFullError("sbatch failed", why=self.why)


def test_a_full_queue_is_told_from_a_job_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(QueueFullError) as full:
        cluster_of(Full(f"QOSMaxSubmitJobPerUserLimit; {POLICY}")).submit(spec(tmp_path))
    assert full.value.why == f"QOSMaxSubmitJobPerUserLimit; {POLICY}"
    with pytest.raises(QueueFullError):
        cluster_of(Full(POLICY)).submit(spec(tmp_path))
    # pyslurm names no limit, and sbatch does.
    with pytest.raises(FailedError, match="by a limit of its QOS or account") as refused:
        cluster_of(Full(POLICY, f"QOSMaxWallDurationPerJobLimit; {POLICY}")).submit(spec(tmp_path))
    assert type(refused.value) is FailedError
    assert refused.value.why == f"QOSMaxWallDurationPerJobLimit; {POLICY}"


def test_preflight_passes_while_the_queue_is_full() -> None:
    told = cluster_of(Full(POLICY), core_spec=None).check(["copy"])[-1]
    assert told.startswith("SLURM did not judge such jobs: this account has as many as it may now")
    assert cluster_of(Full(POLICY)).spares("copy", ["n1"]) is False
    slurm = Visited()

    def submit_job(name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        raise QueueFullError("sbatch failed", why=POLICY)

    slurm.submit_job = submit_job  # type: ignore[method-assign]
    probe = site.Probe(ClusterConfig(backend="slurm"), None, None)
    (told,) = site.run(slurm, probe, [(JobOptions(), [])])
    assert told.startswith("preflight's probe was not sent: this account has as many jobs as it may")


@pytest.mark.parametrize(
    ("word", "reason", "held"),
    [
        ("PENDING", "ReservationDeleted", True),
        ("PENDING", "BadConstraints", True),
        ("PENDING", "DependencyNeverSatisfied", True),
        ("PENDING", "JobHeldUser", True),
        ("RESV_DEL_HOLD", "None", True),
        ("PENDING", "Dependency", False),
        ("PENDING", "Reservation", False),
        ("PENDING", "Priority", False),
    ],
)
def test_what_waits_for_a_person_is_held(word: str, reason: str, held: bool) -> None:
    ((_, one),) = read_squeue(f"77|3|{word}|0:0|0|2|0|0||{reason}|")
    assert one.status.held is held


@pytest.mark.parametrize(
    ("word", "reason", "beyond"),
    [
        ("PENDING", "QOSMaxCpuPerJobLimit", True),
        ("PENDING", "QOSMaxMemoryPerJob", True),
        ("PENDING", "AssocMaxNodePerJobLimit", True),
        ("PENDING", "QOSMaxJobsPerUserLimit", False),
        ("PENDING", "QOSMaxCpuPerUserLimit", False),
        ("PENDING", "QOSGrpCpuLimit", False),
        ("RUNNING", "QOSMaxCpuPerJobLimit", False),
    ],
)
def test_what_asks_for_more_than_a_single_job_may_have_never_starts(
    word: str, reason: str, beyond: bool
) -> None:
    ((_, one),) = read_squeue(f"77|3|{word}|0:0|0|2|0|0||{reason}|")
    assert one.status.beyond_limit is beyond


def test_a_state_that_only_a_later_slurm_knows_is_no_end() -> None:
    """Else an element that lives would be submitted a second time."""
    ((_, one),) = read_squeue("77|3|EVICTED|0:0|0|2|0|0|n1|None|")
    assert not one.status.state.ended


@pytest.mark.parametrize(
    ("state", "lost"),
    [("idle*+drain", True), ("drained*", True), ("down", True), ("idle~", False), ("drained", False)],
)
def test_a_node_without_an_answer_is_lost_also_where_it_is_drained(state: str, lost: bool) -> None:
    assert is_lost(state) is lost
