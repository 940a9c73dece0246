"""SLURM's rules over another way to talk to it than its commands: a scripted one, in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from penstock.cluster.port import VISIT_FAILED, ArraySpec, State, Status, Visit, Written
from penstock.cluster.slurm import probe_job
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.cluster.slurm.job_states import SlurmElement
from penstock.cluster.slurm.port import Facts, JobSeen
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.errors import FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cluster.slurm.nodes import Node
    from penstock.cluster.slurm.port import Slurm


def seen(index: int, word: str, state: State, *, core_spec: str = "2", **more: object) -> SlurmElement:
    status = Status(state, node=str(more.pop("node", "")), restarts=int(str(more.pop("restarts", 0))))
    return SlurmElement(index, word, bool(more.get("launch_failed")), core_spec, status)


@dataclass
class Scripted:
    """A SLURM that says what a test tells it to say."""

    accounting: bool = True
    known: list[SlurmElement] = field(default_factory=list)
    ended: list[SlurmElement] = field(default_factory=list)
    words: list[str] | None = None
    down: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    cancelled: list[tuple[str, tuple[int, ...] | None]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    way: str = "scripted"

    def require(self) -> None:
        return

    def facts(self) -> Facts:
        return Facts("24.11", 1001, True, True, self.accounting, "lab", 30.0)

    def nodes(self) -> list[Node]:
        return []

    def node_states(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.down.get(name, "idle") for name in names}

    def default_partition(self) -> str | None:
        return None

    def time_limits(self, partition: str) -> list[str]:
        return ["infinite"]

    def refusal(self, options: JobOptions) -> str:
        return self.refused

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        if self.refused:
            raise FailedError("SLURM refused", why=self.refused)
        self.scripts.append(script)
        return "77"

    def submit_job(self, name: str, options: JobOptions, script: str) -> str:
        self.scripts.append(script)
        return "78"

    def find(self, name: str) -> list[int]:
        return [77, 80]

    def elements(self, array: str) -> list[SlurmElement]:
        return list(self.known)

    def ended_elements(self, array: str) -> list[SlurmElement]:
        assert self.accounting
        return list(self.ended)

    def job(self, job: str) -> JobSeen:
        return JobSeen("COMPLETED")

    def job_states(self, job: str) -> list[str] | None:
        if job == "5":
            raise TransientError("SLURM is away")
        return self.words

    def ended_states(self, job: str) -> list[str]:
        return ["COMPLETED"]

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        self.cancelled.append((job, None if indices is None else tuple(indices)))

    def throttle(self, array: str, at_once: int) -> None:
        self.cancelled.append((f"{array} throttled", (at_once,)))


def cluster_of(slurm: Slurm, *, core_spec: int | None = 2) -> SlurmCluster:
    options = JobOptions(core_spec=core_spec, max_elements=3)
    return SlurmCluster(ClusterConfig(backend="slurm", options=options), slurm=slurm)


def spec(logs: Path, indices: Sequence[int] = (0, 1)) -> ArraySpec:
    return ArraySpec("a-name", "copy", indices, ["/bin/true"], logs)


def test_what_the_controller_forgot_is_asked_of_accounting() -> None:
    slurm = Scripted(known=[seen(0, "RUNNING", State.RUNNING)], ended=[seen(1, "COMPLETED", State.DONE)])
    states = cluster_of(slurm).states("77", [0, 1, 2])
    assert [one.state for one in states.values()] == [State.RUNNING, State.DONE, State.LOST]
    slurm.accounting = False
    states = cluster_of(slurm).states("77", [0, 1])
    assert [one.state for one in states.values()] == [State.RUNNING, State.LOST]


def test_what_accounting_calls_alive_is_lost() -> None:
    slurm = Scripted(ended=[seen(0, "RUNNING", State.RUNNING)])
    assert cluster_of(slurm).states("77", [0])[0].state is State.LOST


def test_what_a_requeue_may_undo_counts_as_running_for_a_while() -> None:
    slurm = Scripted(known=[seen(0, "NODE_FAIL", State.FAILED, node="n1")])
    cluster = cluster_of(slurm)
    assert cluster.states("77", [0])[0].state is State.RUNNING
    slurm.known, slurm.down = [seen(0, "RUNNING", State.RUNNING, node="n2", restarts=1)], {"n1": "down*"}
    again = cluster.states("77", [0])[0]
    assert (again.state, again.requeued) == (State.RUNNING, "lost with node n1")


def test_a_launch_that_failed_is_cancelled() -> None:
    slurm = Scripted(known=[seen(3, "PENDING", State.FAILED, launch_failed=True)])
    cluster_of(slurm).states("77", [3])
    assert slurm.cancelled == [("77", (3,))]


def test_a_core_spec_that_was_dropped_ends_the_array(tmp_path: Path) -> None:
    slurm = Scripted(known=[seen(0, "PENDING", State.PENDING, core_spec="N/A")])
    with pytest.raises(FailedError, match="dropped --core-spec=2"):
        cluster_of(slurm).submit(spec(tmp_path))
    assert slurm.cancelled == [("77", None)]


def test_a_refusal_says_what_to_change(tmp_path: Path) -> None:
    slurm = Scripted(refused="invalid partition specified: x")
    with pytest.raises(FailedError) as caught:
        cluster_of(slurm, core_spec=None).submit(spec(tmp_path))
    assert "cluster.partition" in caught.value.hint


def test_an_index_beyond_the_cluster_is_refused_before_it_is_submitted(tmp_path: Path) -> None:
    slurm = Scripted()
    with pytest.raises(FailedError, match="too large"):
        cluster_of(slurm).submit(spec(tmp_path, [1001]))
    assert not slurm.scripts


@pytest.mark.parametrize(
    ("job", "words", "accounting", "ended"),
    [
        ("4", ["RUNNING", "COMPLETED"], True, False),
        ("4", ["COMPLETED"], True, True),
        ("4", ["SUSPENDED"], True, False),
        ("4", None, True, True),
        ("4", None, False, None),
        ("4", [], True, None),
        ("5", ["COMPLETED"], True, None),
        ("odd", ["COMPLETED"], True, None),
    ],
)
def test_whether_a_holder_has_ended(
    job: str, words: list[str] | None, accounting: bool, ended: bool | None
) -> None:
    assert cluster_of(Scripted(words=words, accounting=accounting)).holder_ended(job) is ended


def test_what_is_asked_of_the_cluster_alone() -> None:
    cluster = cluster_of(Scripted())
    assert (cluster.name(), cluster.remembers(), cluster.max_array()) == ("lab", 30.0, 1001)
    assert cluster.find("a-name") == "77"
    assert (cluster.slots("copy"), cluster.kind) == (3, "slurm")


@dataclass
class Visited(Scripted):
    """Its probes end with these exit statuses, and leave this answer."""

    statuses: list[int] = field(default_factory=list)
    answers: Path | None = None
    answer: str = ""

    def submit_job(self, name: str, options: JobOptions, script: str) -> str:
        return str(100 + len(self.statuses))

    def job(self, job: str) -> JobSeen:
        status = self.statuses.pop()
        if self.answer:
            assert self.answers is not None
            (self.answers / f".penstock-probe-{job}").write_text(self.answer)
        return JobSeen("FAILED" if status else "COMPLETED", status, "n07")

    def cancel(self, array: str, indices: tuple[int, ...] | None = None) -> None:
        return


@pytest.mark.parametrize(
    ("answer", "why", "told"),
    [
        ("{}", "", []),
        ("{}", "odd", ["on the node n07: odd"]),
        ("", "", ["on the node n07: its answer did not come"]),
    ],
)
def test_the_answer_of_a_visit_is_handed_over_with_its_node(
    answer: str, why: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_job, "ANSWER_GRACE", 0.1)
    slurm = Visited(statuses=[0], answers=tmp_path, answer=answer)
    heard: list[tuple[str, Written]] = []

    def read(node: str, written: Written) -> str:
        heard.append((node, written))
        return why

    visit = Visit(("visit",), "{}", tmp_path, "look", read)
    probe = probe_job.Probe(ClusterConfig(backend="slurm"), None, visit)
    assert probe_job.run(slurm, probe, [JobOptions()]) == told
    assert heard == ([("n07", Written("{}", os.geteuid(), os.getegid()))] if answer else [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("answer", ["the source folder cannot be read", ""])
def test_what_a_visit_fails_at_stops_preflight(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_job, "ANSWER_GRACE", 0.1)
    slurm = Visited(statuses=[VISIT_FAILED], answers=tmp_path, answer=answer)
    probe = probe_job.Probe(ClusterConfig(backend="slurm"), None, Visit(("visit",), "{}", tmp_path, "look"))
    why = answer or "its answer did not come"
    with pytest.raises(PreflightError, match=f"on the node n07, .* cannot be opened: {why}"):
        probe_job.run(slurm, probe, [JobOptions()])
