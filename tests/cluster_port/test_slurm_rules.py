"""SLURM's rules over another way to talk to it than its commands: a scripted one, in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cluster.port import VISIT_FAILED, Accounted, ArraySpec, Cause, State, Status, Visit, VisitAnswer
from penstock.cluster.slurm import cluster as slurm_cluster
from penstock.cluster.slurm import site
from penstock.cluster.slurm.answers import SlurmElement
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.cluster.slurm.facts import (
    Association,
    Facts,
    JobSeen,
    JobTrial,
    Node,
    Partition,
    Qos,
    SlurmSettings,
)
from penstock.cluster.slurm.submission import single_arguments, together_arguments
from penstock.config.settings import AUTO_TIME, ClusterConfig, JobOptions
from penstock.core.errors import ConfigError, FailedError, PreflightError, TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.commands import SlurmCommands
    from penstock.cluster.slurm.facts import QueuedJob


def seen(index: int, word: str, state: State, *, core_spec: str = "2", **more: object) -> SlurmElement:
    cause = Cause.LAUNCH if more.get("launch_failed") else Cause.NONE
    node, restarts = str(more.pop("node", "")), int(str(more.pop("restarts", 0)))
    status = Status(state, node=node, restarts=restarts, cause=cause)
    name = str(more.get("name", ""))
    return SlurmElement(index, word, bool(more.get("launch_failed")), core_spec, status, name)


@dataclass
class Scripted:
    """A SLURM that says what a test tells it to say."""

    books: bool = True
    """slurmdbd is there."""
    known: list[SlurmElement] = field(default_factory=list)
    ended: list[SlurmElement] = field(default_factory=list)
    accounted: list[Accounted] = field(default_factory=list)
    words: list[str] | None = None
    down: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    cancelled: list[tuple[str, tuple[int, ...] | None]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    parts: list[Partition] = field(default_factory=lambda: [Partition("data")])
    asked: list[int | None] = field(default_factory=list)
    """The core-spec of each array."""
    options: list[JobOptions] = field(default_factory=list)
    way: str = "scripted"
    obeys: bool = True
    """AllowSpecResourcesUsage."""
    configured: dict[str, str] = field(default_factory=dict)
    """Further settings."""

    def require(self) -> None:
        return

    def facts(self) -> Facts:
        return Facts("24.11", 1001, self.obeys, self.books, "lab", 30.0)

    def settings(self) -> SlurmSettings:
        return SlurmSettings({"AllowSpecResourcesUsage": "Yes" if self.obeys else "No", **self.configured})

    def nodes(self) -> list[Node]:
        return []

    def node_states(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.down.get(name, "idle") for name in names}

    def partitions(self) -> list[Partition]:
        return self.parts

    def association(self, cluster: str, user: str, options: JobOptions) -> Association:
        return Association()

    def qos(self, name: str) -> Qos | None:
        return None

    def trial(self, options: JobOptions, exclude: Sequence[str] = ()) -> JobTrial:
        return JobTrial("no nodes are left" if set(exclude) >= {"n1", "n2"} else self.refused)

    def submit_array(self, spec: ArraySpec, at_once: int, options: JobOptions, script: str) -> str:
        if self.refused:
            raise FailedError("SLURM refused", why=self.refused)
        self.scripts.append(script)
        self.asked.append(options.spec_cores)
        self.options.append(options)
        return "77"

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        self.scripts.append(script)
        return "78"

    def find(self, name: str) -> list[int]:
        return [77, 80]

    def elements(self, array: str) -> list[SlurmElement]:
        return list(self.known)

    def elements_of(self, arrays: Sequence[str]) -> dict[str, list[SlurmElement]]:
        return {array: self.elements(array) for array in arrays}

    def ended_elements(self, array: str) -> list[SlurmElement]:
        assert self.books
        return list(self.ended)

    def accounting(self, array: str) -> list[Accounted]:
        assert self.books
        return list(self.accounted)

    def job(self, job: str) -> JobSeen:
        return JobSeen("COMPLETED")

    def job_states(self, job: str) -> list[str] | None:
        if job == "5":
            raise TransientError("SLURM is away")
        return self.words

    def ended_states(self, job: str) -> list[str]:
        return ["COMPLETED"]

    def jobs(self) -> list[QueuedJob]:
        return []

    def cancel(self, job: str, indices: Sequence[int] | None = None) -> None:
        self.cancelled.append((job, None if indices is None else tuple(indices)))

    def keep_off(self, array: str, nodes: Sequence[str]) -> None:
        self.cancelled.append((f"{array} off {','.join(nodes)}", None))
        if self.refused:
            raise FailedError("scontrol update failed", why=self.refused)

    def throttle(self, array: str, at_once: int) -> None:
        self.cancelled.append((f"{array} throttled", (at_once,)))


def cluster_of(
    slurm: SlurmCommands, *, core_spec: int | None = 2, slots: int = 3, poll: float = 15.0
) -> SlurmCluster:
    options = JobOptions(core_spec=core_spec, max_elements=slots)
    return SlurmCluster(ClusterConfig(backend="slurm", options=options, poll=poll), slurm=slurm)


def spec(logs: Path, indices: Sequence[int] = (0, 1)) -> ArraySpec:
    return ArraySpec("a-name", "copy", indices, ["/bin/true"], logs)


def test_what_the_controller_forgot_is_asked_of_accounting() -> None:
    slurm = Scripted(known=[seen(0, "RUNNING", State.RUNNING)], ended=[seen(1, "COMPLETED", State.DONE)])
    states = cluster_of(slurm).states("77", [0, 1, 2])
    assert [one.state for one in states.values()] == [State.RUNNING, State.DONE, State.LOST]
    slurm.books = False
    states = cluster_of(slurm).states("77", [0, 1])
    assert [one.state for one in states.values()] == [State.RUNNING, State.LOST]


def test_accounting_is_asked_only_where_there_is_slurmdbd() -> None:
    slurm = Scripted(accounted=[Accounted(1, waited=3.0)])
    assert list(cluster_of(slurm).accounting("77")) == [Accounted(1, waited=3.0)]
    slurm.books = False
    assert list(cluster_of(slurm).accounting("77")) == []


def test_what_was_seen_to_end_is_not_looked_up_again_when_the_controller_forgets_it() -> None:
    slurm = Scripted(known=[seen(0, "COMPLETED", State.DONE), seen(1, "RUNNING", State.RUNNING)])
    cluster = cluster_of(slurm)
    cluster.states("77", [0, 1])
    slurm.known = slurm.known[1:]
    slurm.ended_elements = lambda _: pytest.fail("accounting is asked for nothing")  # type: ignore[method-assign]
    assert [one.state for one in cluster.states("77", [0, 1]).values()] == [State.DONE, State.RUNNING]
    slurm.known.append(seen(0, "PENDING", State.PENDING))
    assert cluster.states("77", [0])[0].state is State.PENDING, "somebody requeued it"
    slurm.known, slurm.books = [], False
    assert cluster_of(slurm).states("77", [0])[0].state is State.LOST


def test_a_dropped_core_spec_is_seen_until_the_array_is_ended(tmp_path: Path) -> None:
    """Also by a controller that takes over, and where SLURM does not answer the first scancel."""
    slurm = Scripted(known=[seen(0, "RUNNING", State.RUNNING, core_spec="N/A")])
    ends, away = slurm.cancel, [True, True]

    def cancel(job: str, indices: Sequence[int] | None = None) -> None:
        if away:
            away.pop()
            raise TransientError("slurmctld is away")
        ends(job, indices)

    slurm.cancel = cancel  # type: ignore[method-assign]
    cluster = cluster_of(slurm)
    array = cluster.submit(spec(tmp_path))
    with pytest.raises(TransientError, match="is away"):
        cluster.states(array, [0])
    with pytest.raises(FailedError, match="dropped --core-spec=2"):
        cluster.states(array, [0])
    assert slurm.cancelled == [("77", None)]
    assert cluster.states(array, [0])[0].state is State.RUNNING, "it is being ended"
    second = cluster_of(slurm)
    second.recall("77", "a-name", second.spec_cores("copy"))
    with pytest.raises(FailedError, match="dropped --core-spec=2"):
        second.states("77", [0])
    third = cluster_of(slurm)
    third.recall("77", "a-name", 2)
    slurm.known = [seen(0, "CANCELLED", State.CANCELLED, core_spec="N/A")]
    assert third.states("77", [0])[0].state is State.CANCELLED, "it stops no run any more"


def test_the_longest_time_is_asked_for_again_where_slurmdbd_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(Scripted):
        away = True

        def facts(self) -> Facts:
            return super().facts()._replace(enforced=frozenset({"limits"}))

        def qos(self, name: str) -> Qos | None:
            if self.away:
                raise TransientError("slurmdbd is away")
            return Qos(name, max_wall=3600)

    slurm = Away(parts=[Partition("data", default=True, max_time=7200.0)])
    cluster = cluster_of(slurm)
    assert cluster.longest("copy") == 7200.0, "what slurmctld says"
    slurm.away = False
    assert cluster.longest("copy") == 7200.0, "it is not asked at each look"
    monkeypatch.setattr(slurm_cluster, "PARTIAL", 0.0)
    slurm.away = True
    again = cluster_of(slurm)
    assert again.longest("copy") == 7200.0
    slurm.away = False
    assert again.longest("copy") == 3600.0
    slurm.away = True
    assert again.longest("copy") == 3600.0, "what it said holds"


def test_an_array_has_no_more_elements_than_max_array_tasks() -> None:
    class Few(Scripted):
        most: int | None = 20

        def facts(self) -> Facts:
            return super().facts()._replace(max_tasks=self.most, max_jobs=10_000)

    slurm = Few()
    assert (cluster_of(slurm).max_elements(), cluster_of(slurm).max_array()) == (20, 1001)
    slurm.most = None
    assert cluster_of(slurm).max_elements() == 1001
    slurm.facts = lambda: Facts("24.11", 1001, True, True, max_jobs=100)  # type: ignore[method-assign]
    assert cluster_of(slurm).max_elements() == 99, "MaxJobCount"


def test_a_way_that_is_tried_while_slurm_is_away_is_no_fault_of_it() -> None:
    class Away(Scripted):
        def require(self) -> None:
            raise TransientError("slurmctld is away", why="Unable to contact slurm controller")

    with pytest.raises(PreflightError, match="SLURM's controller does not answer") as raised:
        cluster_of(Away()).check(["copy"])
    assert raised.value.why == "Unable to contact slurm controller"


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "PREEMPTED", "DEADLINE", "REVOKED"])
def test_a_probe_that_the_cluster_ended_is_over_at_once(state: str) -> None:
    slurm = Visited()
    slurm.job = lambda _: JobSeen(state, 0, "n07")  # type: ignore[method-assign]
    probe = site.Probe(ClusterConfig(backend="slurm"), None, None)
    with pytest.raises(PreflightError, match=f"on the node n07, preflight's probe failed.*{state}"):
        site.run(slurm, probe, [(JobOptions(), [])])
    slurm.job = lambda _: JobSeen("")  # type: ignore[method-assign]
    assert site.run(slurm, probe, [(JobOptions(), [])]) == [
        "preflight's probe ended, and SLURM forgot how before it was asked"
    ]


def test_an_array_that_is_renamed_as_it_is_submitted_is_followed_by_that_name(tmp_path: Path) -> None:
    """By a site's job_submit plugin: it was said to run without finishing anything."""
    slurm = Scripted(known=[seen(0, "RUNNING", State.RUNNING, name="lab-job")], books=False)
    cluster = cluster_of(slurm)
    array = cluster.submit(spec(tmp_path))
    assert cluster.states(array, [0])[0].state is State.RUNNING
    cluster.cancel(array)
    assert slurm.cancelled == [(array, None)]
    slurm.known = [seen(0, "RUNNING", State.RUNNING, name="training")]
    assert cluster.states(array, [0])[0].state is State.LOST, "slurmctld counts anew"


def test_an_id_that_another_job_has_now_is_not_the_arrays(tmp_path: Path) -> None:
    """slurmctld lost its state and counts jobs anew. What is not the array is neither watched nor ended."""
    other = seen(0, "RUNNING", State.RUNNING, name="training")
    slurm = Scripted(known=[other], ended=[other._replace(status=Status(State.DONE))])
    cluster = cluster_of(slurm)
    cluster.recall("77", "a-name")
    assert cluster.states("77", [0])[0].state is State.LOST
    cluster.cancel("77")
    cluster.throttle("77", 1)
    cluster.keep_off("77", "copy", ["n1"])
    assert slurm.cancelled == []
    slurm.known = [other._replace(name="a-name")]
    assert cluster.states("77", [0])[0].state is State.RUNNING
    cluster.cancel("77")
    assert slurm.cancelled == [("77", None)]
    cluster = cluster_of(slurm)
    slurm.known = []
    slurm.ended = [seen(0, "COMPLETED", State.DONE, name="a-name")]
    array = cluster.submit(spec(tmp_path))
    assert cluster.states(array, [0])[0].state is State.DONE
    slurm.ended = [seen(1, "COMPLETED", State.DONE, name="training")]
    assert cluster.states(array, [1])[1].state is State.LOST


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
    assert again.lost_node == "n1"


def test_a_preempted_element_is_not_lost_with_its_node() -> None:
    slurm = Scripted(known=[seen(0, "PREEMPTED", State.FAILED, node="n1")])
    cluster = cluster_of(slurm)
    cluster.states("77", [0])
    slurm.known = [seen(0, "RUNNING", State.RUNNING, node="n2", restarts=1)]
    assert cluster.states("77", [0])[0].lost_node == ""


def test_a_launch_that_failed_is_cancelled() -> None:
    slurm = Scripted(known=[seen(3, "PENDING", State.FAILED, launch_failed=True)])
    cluster = cluster_of(slurm)
    before = cluster.states("77", [3])
    assert slurm.cancelled == [("77", (3,))]
    slurm.known = [seen(3, "CANCELLED", State.CANCELLED)]
    assert cluster.states("77", [3]) == before, "no person cancelled it"


def test_a_core_spec_that_was_dropped_ends_the_array(tmp_path: Path) -> None:
    slurm = Scripted(known=[seen(0, "PENDING", State.PENDING, core_spec="N/A")])
    with pytest.raises(FailedError, match="dropped --core-spec=2"):
        cluster_of(slurm).submit(spec(tmp_path))
    assert slurm.cancelled == [("77", None)]


@pytest.mark.parametrize(
    ("configured", "asked", "longest", "seconds"),
    [
        (None, 0, None, None),
        (3600, 0, None, 3600),
        (3600, 7200, None, 7200),
        (AUTO_TIME, 7200, None, 7200),
        (AUTO_TIME, 0, None, 7 * 86_400),
        (AUTO_TIME, 0, 86_400.0, 86_400),
    ],
)
def test_s29_the_time_of_an_array(
    configured: int | None, asked: int, longest: float | None, seconds: int | None, tmp_path: Path
) -> None:
    slurm = Scripted(parts=[Partition("data", max_time=longest)])
    config = ClusterConfig("slurm", options=JobOptions(core_spec=None, time=configured, partition="data"))
    SlurmCluster(config, slurm=slurm).submit(replace(spec(tmp_path), time=asked))
    (options,) = slurm.options
    assert options.time == seconds


@pytest.mark.parametrize(
    ("partition", "longest", "seconds"),
    [
        (None, [3600.0], 3600.0),
        ("p0", [None], 0.0),
        ("p0", [3600.0], 3600.0),
        ("p0,p1", [3600.0, 7200.0], 7200.0),
        ("p0,p1", [3600.0, None], 0.0),
        ("p0", [], None),
        (None, [], None),
    ],
)
def test_s29_the_longest_time_is_the_partitions(
    partition: str | None, longest: list[float | None], seconds: float | None
) -> None:
    """QOS and associations: `test_time_limits`."""
    config = ClusterConfig("slurm", options=JobOptions(core_spec=None, partition=partition))
    parts = [Partition(f"p{n}", default=n == 0, max_time=one) for n, one in enumerate(longest)]
    assert SlurmCluster(config, slurm=Scripted(parts=parts)).longest("copy") == seconds


def test_where_no_limit_is_shown_no_time_is_asked_for(tmp_path: Path) -> None:
    """Seven days, beyond a MaxTime that PrivateData hides: such a job waits for ever."""
    for parts, time in (([], None), ([Partition("data", default=True, max_time=3600.0)], 3600)):
        slurm = Scripted(parts=parts)
        config = ClusterConfig("slurm", options=JobOptions(core_spec=None, time=AUTO_TIME))
        SlurmCluster(config, slurm=slurm).submit(spec(tmp_path))
        assert slurm.options[-1].time == time


def test_nodes_are_spared_while_slurm_takes_such_a_job_without_them() -> None:
    slurm = Scripted()
    cluster = cluster_of(slurm)
    assert cluster.spares("copy", ["n1"])
    assert not cluster.spares("copy", ["n1", "n2"])
    cluster.keep_off("77", "copy", ["n1"])
    slurm.refused = "Access/permission denied"
    cluster.keep_off("77", "copy", ["n1"])
    assert slurm.cancelled == [("77 off n1", None)] * 2, "where SLURM does not let it, it stays as it was"


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
    assert cluster_of(Scripted(words=words, books=accounting)).holder_ended(job) is ended


def test_what_is_asked_of_the_cluster_alone() -> None:
    cluster = cluster_of(Scripted())
    assert (cluster.name(), cluster.remembers(), cluster.max_array()) == ("lab", 30.0, 1001)
    assert list(cluster.find("a-name")) == ["77", "80"]
    assert (cluster.slots("copy"), cluster.kind) == (3, "slurm")


@dataclass
class Visited(Scripted):
    """Its probes end with these exit statuses, and leave this answer."""

    statuses: list[int] = field(default_factory=list)
    answers: Path | None = None
    answer: str = ""
    sent: list[str] = field(default_factory=list)
    """The node that each job names."""
    there: list[Node] = field(default_factory=list)

    def nodes(self) -> list[Node]:
        return self.there

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        self.sent.append(node)
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
        ("", "", [f"on the node n07: {site.NO_ANSWER}"]),
    ],
)
def test_the_answer_of_a_visit_is_handed_over_with_its_node(
    answer: str, why: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ANSWER_GRACE", 0.1)
    slurm = Visited(statuses=[0], answers=tmp_path, answer=answer)
    heard: list[tuple[str, VisitAnswer]] = []

    def read(node: str, written: VisitAnswer) -> str:
        heard.append((node, written))
        return why

    visit = Visit(("visit",), "{}", tmp_path, "look", read)
    probe = site.Probe(ClusterConfig(backend="slurm"), None, visit)
    assert site.run(slurm, probe, [(JobOptions(), [])]) == told
    assert heard == ([("n07", VisitAnswer("{}", os.geteuid(), os.getegid()))] if answer else [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("within", [60.0, 0.0])
def test_a_query_that_fails_is_not_the_probes_end(within: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "PROBE_WITHIN", within)
    slurm = Visited(statuses=[0])
    answers = iter([TransientError("squeue failed", why="it was killed by SIGKILL")])

    def job(number: str) -> JobSeen:
        for error in answers:
            raise error
        return JobSeen("COMPLETED", 0, "n07")

    slurm.job = job  # type: ignore[method-assign]
    told = site.run(slurm, site.Probe(ClusterConfig(backend="slurm"), None, None), [(JobOptions(), [])])
    late = "preflight's probe, job 101, was not followed to its end: squeue failed: it was killed by SIGKILL"
    assert told == ([] if within else [late])


@pytest.mark.parametrize("answer", ["the source folder cannot be read", ""])
def test_what_a_visit_fails_at_stops_preflight(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "ANSWER_GRACE", 0.1)
    slurm = Visited(statuses=[VISIT_FAILED], answers=tmp_path, answer=answer)
    probe = site.Probe(ClusterConfig(backend="slurm"), None, Visit(("visit",), "{}", tmp_path, "look"))
    why = answer or site.NO_ANSWER
    with pytest.raises(PreflightError, match=f"on the node n07, .* cannot be opened: {why}"):
        site.run(slurm, probe, [(JobOptions(), [])])


@dataclass
class Several(Visited):
    """A job for each node that is named, with an exit status for each."""

    by_node: dict[str, int] = field(default_factory=dict)
    taken: int = 99
    """So many jobs are taken before one is refused."""
    pending: frozenset[str] = frozenset()
    """Nodes whose jobs never start."""

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        if len(self.sent) >= self.taken or (node and not self.taken):
            raise FailedError("sbatch failed", why="QOSMaxSubmitJobPerUserLimit")
        self.sent.append(node)
        return node or "any"

    def job(self, job: str) -> JobSeen:
        if job in self.pending:
            return JobSeen("PENDING", reason="Resources")
        status = self.by_node.get(job, 0)
        return JobSeen("FAILED" if status else "COMPLETED", status, job)


def named(*names: str, state: str = "IDLE") -> list[Node]:
    return [Node(name, 8, 8, 0, 1 << 33, frozenset({"data"}), frozenset({"fast"}), state) for name in names]


def probed(slurm: Several, *, target: Path | None = None, **options: object) -> list[str]:
    asked = JobOptions(core_spec=None, **options)  # type: ignore[arg-type]
    cluster = SlurmCluster(ClusterConfig(backend="slurm", options=asked), target, slurm=slurm)
    return list(cluster.check(["copy"]))


@pytest.mark.parametrize(
    ("there", "options", "sent"),
    [
        (named(*"abcdefg"), {}, ["a", "c", "e", "g"]),
        (named("a", "b"), {}, ["a", "b"]),
        (named(*"abcdefg"), {"max_elements": 2}, ["a", "g"]),
        (named(*"abcdefg"), {"max_elements": 1}, ["a"]),
        (named("a", "b", state="MIXED"), {}, [""]),
        (named("a", state="IDLE+DRAIN") + named("b", "c"), {}, ["b", "c"]),
        (named("a", state="IDLE+RESERVED") + named("b", state="IDLE+POWERED_DOWN") + named("c"), {}, ["c"]),
        (named("a", "b"), {"reservation": "maint"}, [""]),
        (named("a", "b"), {"constraint": "fast&ib"}, [""]),
        (named("a", "b"), {"constraint": "fast"}, ["a", "b"]),
    ],
)
def test_the_probe_is_sent_to_idle_nodes_spread_over_the_list(
    there: list[Node], options: dict[str, object], sent: list[str]
) -> None:
    slurm = Several(there=there)
    assert probed(slurm, **options) == []
    assert slurm.sent == sent


def test_nodes_that_lack_the_same_are_named_together() -> None:
    slurm = Several(there=named(*"abcd"), by_node={"b": site.NO_TARGET, "d": site.NO_TARGET})
    with pytest.raises(PreflightError, match=r"^on the nodes b, d, the target /x is not there"):
        probed(slurm, target=Path("/x"))
    slurm.by_node["c"] = site.NO_PACKAGE
    with pytest.raises(
        PreflightError, match=r"(?s)2 things on nodes.*nodes b, d, .*- on the node c, .*import"
    ):
        probed(slurm, target=Path("/x"))


def test_sl6_a_probe_that_came_to_no_end_of_its_own_stops_nothing_where_another_node_answered() -> None:
    slurm = Several(there=named(*"ab"), by_node={"b": 1})
    (warning,) = probed(slurm)
    assert warning == "on the node b, preflight's probe failed: FAILED, exit 1"
    with pytest.raises(PreflightError, match="on the node b, preflight's probe failed"):
        probed(Several(there=named("b"), by_node={"b": 1}))


def test_a_node_that_is_late_is_not_waited_for_once_another_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "FURTHER_WITHIN", 0.1)
    slurm = Several(there=named(*"ab"), pending=frozenset("a"))
    assert probed(slurm) == []
    monkeypatch.setattr(site, "PROBE_WITHIN", 0.1)
    slurm = Several(there=named(*"ab"), pending=frozenset("ab"))
    (late,) = probed(slurm)
    assert "did not run within" in late


def test_a_limit_of_jobs_leaves_as_many_probes_as_are_taken() -> None:
    slurm = Several(there=named(*"abcd"), taken=2)
    assert probed(slurm) == []
    assert slurm.sent == ["a", "b"]
    with pytest.raises(PreflightError, match="refuses preflight's probe"):
        probed(Several(there=named("a"), taken=0))


def test_a_root_that_is_here_must_be_on_the_node(tmp_path: Path) -> None:
    visit = Visit(("visit",), "{}", tmp_path, "look")
    config = ClusterConfig(backend="slurm")
    assert "dirname" not in site.script(site.Probe(config, tmp_path, visit))
    assert "dirname" in site.script(site.Probe(config, tmp_path / "new", visit))


def test_a_command_on_two_nodes_has_a_task_on_each() -> None:
    options = JobOptions(partition="data", core_spec=None, cpus=1, memory=512 << 20, time=600)
    assert together_arguments("penstock-selftest", options, 2) == [
        "srun", "--job-name=penstock-selftest", "--export=PATH,SLURM_CONF,TZ", "--chdir=/", "--quiet",
        "--kill-on-bad-exit=1", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1",
        "--partition=data", "--time=10", "--mem=512M", "--cpus-per-task=1",
    ]  # fmt: skip
    assert single_arguments("a", options, "n07")[-1] == "--nodelist=n07"
    with pytest.raises(ConfigError, match="cannot be a SLURM node"):
        single_arguments("a", options, "n07,n08 --wrap=x")


@dataclass
class Shaped(Scripted):
    """With nodes."""

    there: list[Node] = field(default_factory=list)

    def nodes(self) -> list[Node]:
        return list(self.there)


@pytest.mark.parametrize(
    ("obeys", "reserved", "asked"), [(True, 0, 2), (True, 1, None), (False, 0, None), (False, 1, None)]
)
def test_s22_auto_is_settled_before_an_array_is_submitted(
    obeys: bool, reserved: int, asked: int | None, tmp_path: Path
) -> None:
    """S22: and preflight refuses nothing of it."""
    slurm = Shaped(obeys=obeys, there=[one._replace(reserved=reserved) for one in named("a", "b")])
    slurm.known = [seen(0, "PENDING", State.PENDING, core_spec=str(asked))]
    options = JobOptions()
    assert options.core_spec == "auto"
    cluster = SlurmCluster(ClusterConfig(backend="slurm", options=options, probe=False), slurm=slurm)
    assert cluster.check(["copy"]) == []
    (said, *_) = cluster.core_results(["copy"], {})[""]
    assert said.verdict == "ok"
    assert said.found.startswith(f"auto: --core-spec={asked}" if asked else "auto: nothing is asked for")
    assert cluster.submit(spec(tmp_path)) == "77"
    assert slurm.asked == [asked]


def test_s22_two_that_were_asked_for_by_number_are_refused_where_they_cannot_be() -> None:
    """S22, L2: only `auto` is a wish."""
    cluster = SlurmCluster(
        ClusterConfig(backend="slurm", options=JobOptions(core_spec=2), probe=False),
        slurm=Shaped(obeys=False, there=named("a")),
    )
    with pytest.raises(PreflightError, match="ignores --core-spec=2"):
        cluster.check(["copy"])
    slurm = Shaped(there=[one._replace(reserved=4) for one in named("a", "b")])
    with pytest.raises(PreflightError, match=r"would get 2 of them: CoreSpecCount=4 on a, b"):
        cluster_of(slurm).check(["copy"])


GPUS = [one._replace(gpus="gpu:a100:8") for one in named("g1", "g2")]


@pytest.mark.parametrize(
    ("options", "gpu_nodes", "refused"),
    [
        ({"core_spec": 2}, "refuse", True),
        ({"core_spec": None}, "refuse", True),
        ({}, "refuse", True),
        ({"core_spec": None, "cpus": 8}, "refuse", False),
        ({"core_spec": 2}, "allow", False),
        ({"core_spec": 2, "partition": "data"}, "refuse", False),
        ({"core_spec": 2, "constraint": "fast"}, "refuse", True),
    ],
)
def test_s24_whole_nodes_with_gpus_stop_preflight(
    options: dict[str, object], gpu_nodes: str, refused: bool
) -> None:
    """S24: unless `cluster.gpu_nodes: allow`, or elements leave the GPUs to others."""
    there = [*named("c1"), *(one._replace(partitions=frozenset({"gpu"})) for one in GPUS)]
    config = ClusterConfig(
        backend="slurm",
        options=JobOptions(**options),
        probe=False,
        gpu_nodes=gpu_nodes,  # type: ignore[arg-type]
    )
    cluster = SlurmCluster(config, slurm=Shaped(there=there))
    if refused:
        with pytest.raises(PreflightError, match=r"g1 and 1 more have GPUs \(gpu:a100:8\)") as told:
            cluster.check(["copy"])
        assert "cluster.gpu_nodes: allow" in str(told.value)
        # Elements that live already are not stopped by it.
        assert any("GPUs" in text for text in cluster.check(["copy"], met=True))
    else:
        assert cluster.check(["copy"]) == []


@pytest.mark.parametrize("options", [{"constraint": "fast&nogpu"}, {"reservation": "staging"}])
def test_s24_where_slurm_alone_knows_which_nodes_it_is_a_warning(options: dict[str, str]) -> None:
    """S24: a constraint of several features, or a reservation, may leave the nodes with GPUs out."""
    asked = JobOptions(core_spec=2, **options)  # type: ignore[arg-type]
    config = ClusterConfig(backend="slurm", options=asked, probe=False)
    (warning,) = SlurmCluster(config, slurm=Shaped(there=GPUS)).check(["copy"])
    assert warning.startswith("elements may take whole nodes with all their GPUs: g1 and 1 more have GPUs")


def test_cores_are_judged_only_of_a_cluster_that_was_reached() -> None:
    slurm = Shaped(there=named("a"), configured={"TaskPluginParam": "SlrumdOffSpec"})
    cluster = cluster_of(slurm)
    assert cluster.core_results(["copy"], {}) == {}
    cluster.check(["copy"])
    (results,) = cluster.core_results(["copy", "verify"], {"a": None}).values()
    assert [one.verdict for one in results if one.about == "TaskPluginParam"] == ["warning", "note"]


def test_s6_the_longest_limit_of_all_partitions() -> None:
    """S6: those of other jobs than penstock's, too; one without a limit does not count."""

    slurm = Scripted()
    slurm.parts = [
        Partition("data", max_time=3600.0),
        Partition("gpu", max_time=30 * 86400.0),
        Partition("any"),
    ]
    assert cluster_of(slurm).longest_anywhere() == 30 * 86400.0
