"""What preflight refuses on a real cluster: each message quotes SLURM and names what to change."""

from __future__ import annotations

import os
import pwd
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.fixtures import borrowed, need_slurm
from tests.cluster.machine import Machine
from tests.cluster.processes import wait_for
from tests.cluster.settings import Settings
from tests.target.conftest import need

from penstock.cluster.port import ArraySpec, State
from penstock.cluster.registry import open_cluster
from penstock.config.settings import ClusterConfig, JobOptions
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.doctor import preflight_results
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.run_steps import CheckResult

pytestmark = pytest.mark.slurm

GOOD = JobOptions(partition="data", core_spec=2, memory=1 << 30, time=600)


def check(
    target: Path | None = None, *, probe: bool = False, python: str | None = None, **over: Any
) -> list[str]:
    config = ClusterConfig(
        backend="slurm", options=replace(GOOD, **over), probe=probe, python=python or sys.executable
    )
    return list(open_cluster(config, target).check(["copy", "verify"]))


@pytest.mark.later_release
@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"partition": "nope"}, ["invalid partition", "sinfo -s"]),
        ({"licenses": ("nope:1",)}, ["Invalid license", "scontrol show licenses"]),
        ({"licenses": ("wan:9",)}, ["Invalid license"]),
        ({"constraint": "nope"}, ["Invalid feature", "cluster.constraint"]),
        ({"reservation": "nope"}, ["reservation is invalid", "scontrol show reservation"]),
        ({"memory": 9 << 30}, ["node configuration is not available", "cluster.memory"]),
        ({"core_spec": 8}, ["node configuration is not available", "core_spec"]),
        ({"core_spec": 0}, ["CoreSpecCount=1", "n1, n2"]),
        ({"cpus": 9, "core_spec": None}, ["node configuration is not available"]),
    ],
)
def test_refused_with_slurms_words(slurm: Machine, over: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(PreflightError) as told:
        check(**over)
    for word in words:
        assert word.lower() in str(told.value).lower()


@pytest.mark.later_release
@pytest.mark.parametrize(
    ("over", "words"),
    [({"account": "nope"}, "Invalid account"), ({"account": "ml", "qos": "nope"}, "Invalid qos")],
)
def test_accounts_and_qos(slurm_accounting: Machine, over: dict[str, Any], words: str) -> None:
    with pytest.raises(PreflightError, match=words):
        check(**over)
    assert check(account="ml", qos="bulk") == [], "nothing to warn of"


def fit(**over: Any) -> list[CheckResult]:
    """When elements with these options start, by the cluster's own answers."""
    cluster = open_cluster(
        ClusterConfig(backend="slurm", options=replace(GOOD, **over), probe=False, python=sys.executable)
    )
    assert cluster.check(["copy"]) == []
    return list(cluster.start_results(["copy"]))


@pytest.mark.later_release
def test_s29_a_time_beyond_the_partitions_would_wait_for_ever(slurm: Machine) -> None:
    (stopped,) = fit(partition="cpu", time=7200)
    assert (stopped.verdict, stopped.wanted) == ("stop", "at most 1 h: MaxTime of the partition cpu")
    assert [result.verdict for result in fit(partition="cpu", time=3600)] == ["ok"]
    assert [result.verdict for result in fit(time=7200)] == ["ok"]


@pytest.mark.later_release
def test_elements_of_less_time_start_before_a_maintenance(slurm: Machine) -> None:
    made = slurm.run(
        "scontrol", "create", "reservation", "reservationname=service", "starttime=now+50minutes",
        "duration=120", "flags=maint,ignore_jobs", "nodes=ALL", "users=root",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    try:
        assert [result.found[:5] for result in fit(time=1800)] == ["now, "]
        (late,) = fit(time=7200)
        assert late.verdict == "note"
        assert re.match(
            r"2 h: not before \w+ [-\d]+ [:\d]+; 1 h: \w+ [-\d]+ [:\d]+; 30 min: now ", late.found
        )
        assert late.mend.startswith("cluster.time: 30min starts sooner")
        with pytest.raises(PreflightError, match=r"(?s)Invalid time specified.*cluster\.reservation"):
            check(time=1800, reservation="service")
    finally:
        slurm.run("scontrol", "delete", "reservationname=service")


@pytest.mark.later_release
def test_no_element_runs_on_a_node_that_is_excluded(slurm: Machine, tmp_path: Path) -> None:
    options = replace(GOOD, core_spec=None, exclude="n[1-2]", max_elements=4, wckey="ingest")
    cluster = open_cluster(ClusterConfig(backend="slurm", options=options, probe=False))
    (ignored,) = cluster.check(["copy"])
    assert "TrackWCKey=No" in ignored
    spec = ArraySpec("penstock-nodes", "copy", range(4), ("/bin/sleep", "60"), tmp_path, {"dataset": "d"})
    array = cluster.submit(spec)

    def nodes() -> set[str]:
        return {
            one.node for one in cluster.states(array, spec.indices).values() if one.state is State.RUNNING
        }

    wait_for(lambda: nodes() == {"n3", "n4"}, "an element on each of the two nodes")
    seen = slurm.run("squeue", "-h", "-o", "%k", "-j", array).stdout.splitlines()[0]
    assert seen == "penstock dataset=d"
    options = replace(options, exclude="n9")
    with pytest.raises(PreflightError, match=r"(?s)Invalid node name specified.*cluster\.exclude"):
        open_cluster(ClusterConfig(backend="slurm", options=options, probe=False)).check(["copy"])


@pytest.mark.later_release
def test_a_node_that_is_switched_off_is_switched_on_for_an_element(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing really switches the node on here: its element stays at CONFIGURING."""
    power = {"SuspendProgram": "/bin/true", "ResumeProgram": "/bin/true", "SuspendTimeout": "1"}
    settings = Settings(extra={**power, "SuspendTime": "100000", "JobRequeue": "0"})
    need_slurm(settings)
    machine = Machine.new(settings)
    try:
        machine.up()
        machine.guard()
        monkeypatch.setenv("SLURM_CONF", str(machine.conf))
        monkeypatch.setenv("PATH", machine.env["PATH"])
        machine.run("scontrol", "update", "NodeName=n4", "State=POWER_DOWN_FORCE")

        def state() -> str:
            return machine.run("sinfo", "-h", "-N", "-p", "data", "-n", "n4", "-o", "%T").stdout.strip()

        wait_for(lambda: state() == "idle~", "the node to be off")
        options = replace(GOOD, core_spec=None, exclude="n[1-3]")
        cluster = open_cluster(ClusterConfig(backend="slurm", options=options, probe=False))
        assert cluster.check(["copy"]) == []
        array = cluster.submit(ArraySpec("penstock-power", "copy", (0,), ("/bin/true",), tmp_path))
        wait_for(lambda: cluster.states(array, (0,))[0].starting, "the node to be switched on")
        seen = cluster.states(array, (0,))[0]
        assert (seen.state, seen.node) == (State.RUNNING, "n4")
        assert "Requeue=1" in machine.run("scontrol", "show", "job", array).stdout
    finally:
        machine.down()


@pytest.mark.later_release
def test_s29_the_longest_time_of_account_and_qos(slurm_accounting: Machine) -> None:
    def sacctmgr(*words: str) -> None:
        done = slurm_accounting.run("sacctmgr", "-i", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    def stopped(**over: Any) -> list[str]:
        return [result.wanted for result in fit(time=7200, account="ml", **over) if result.verdict == "stop"]

    assert stopped() == []
    user = pwd.getpwuid(os.geteuid()).pw_name
    sacctmgr("modify", "user", user, "where", "account=ml", "set", "MaxWall=00:30:00")
    sacctmgr("modify", "qos", "bulk", "set", "MaxWall=01:00:00")
    try:
        assert stopped(qos="bulk") == ["at most 1 h: MaxWall of the QOS bulk"]
        assert stopped(qos="normal") == [f"at most 30 min: MaxWall of {user} in the account ml"]
        sacctmgr("modify", "qos", "bulk", "set", "Flags=DenyOnLimit")
        with pytest.raises(PreflightError, match="QOSMaxWallDurationPerJobLimit"):
            check(time=7200, account="ml", qos="bulk")
    finally:
        sacctmgr("modify", "user", user, "where", "account=ml", "set", "MaxWall=-1")
        sacctmgr("modify", "qos", "bulk", "set", "MaxWall=-1", "Flags=-1")


@pytest.mark.later_release
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["qos", "bulk", "set", "MaxJobsPerUser={}"], "QOSMaxJobsPerUserLimit"),
        (["qos", "bulk", "set", "GrpJobs={}"], "QOSGrpJobsLimit"),
        (["account", "ml", "set", "GrpJobs={}"], "AssocGrpJobsLimit"),
    ],
)
def test_a_limit_of_one_job_that_is_the_controller_keeps_elements_out(
    slurm_accounting: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    def limit(most: int) -> None:
        done = slurm_accounting.run("sacctmgr", "-i", "modify", *(word.format(most) for word in words))
        assert done.returncode == 0, done.stdout + done.stderr

    options = replace(GOOD, core_spec=None, cpus=1, account="ml", qos="bulk")
    cluster = open_cluster(ClusterConfig(backend="slurm", options=options, probe=False))
    limit(1)
    try:
        name, sleep = "penstock-submit-of-a-test", ("/bin/sleep", "300")
        own = cluster.submit(ArraySpec(name, "submit", (0,), sleep, tmp_path))
        wait_for(lambda: cluster.states(own, (0,))[0].state is State.RUNNING, "the controller's job")
        monkeypatch.setattr(kernel_facts, "_entered_job", [JobEnvironment(job=own, proven=True)])
        array = cluster.submit(ArraySpec("penstock-kept-out", "copy", (0, 1), sleep, tmp_path))
        wait_for(lambda: cluster.states(array, (0,))[0].reason == reason, f"elements that wait for {reason}")
        why = cluster.kept_out(["copy"], [array])
        assert why.startswith(f"this account may run no job beside controllers now ({reason}): job {own}")
    finally:
        limit(-1)


def test_what_is_good_passes(slurm: Machine, tmp_path: Path) -> None:
    assert check(tmp_path, probe=True) == []
    assert check(tmp_path, core_spec=None, probe=True) == []
    # Nodes without reserved cores of their own take less.
    assert check(partition="cpu", core_spec=1) == []


@pytest.mark.later_release
def test_l1_what_this_cluster_makes_of_reserved_cores(slurm: Machine) -> None:
    """L1, S22: n1 and n2 keep a core each, nothing confines jobs, and the nodes have 8 pretended CPUs."""
    cluster = open_cluster(ClusterConfig(backend="slurm", options=GOOD, probe=False))
    assert cluster.check(["copy"]) == []
    results = cluster.core_results(["copy"], {"n1": preflight_results.of_this_node(), "n3": None})
    found = {one.about: one for one in results[""]}
    assert {about: one.verdict for about, one in found.items()} == {
        "AllowSpecResourcesUsage": "warning",
        "TaskPluginParam": "warning",
        "SelectType": "ok",
        "TaskPlugin": "warning",
        "MemSpecLimit": "note",
    }
    assert "n1, n2 keep cores for themselves" in found["AllowSpecResourcesUsage"].found
    assert "slurmd runs ON the cores that n1, n2 keep" in found["TaskPluginParam"].found
    (one,) = results["n1"]
    assert (one.about, one.verdict) == ("cores on n1", "note")
    assert "SLURM has 1 x 8 cores of 1 threads in its books, the machine " in one.found


@pytest.mark.later_release
def test_s22_auto_asks_for_two_cores_where_the_nodes_keep_none(slurm: Machine, tmp_path: Path) -> None:
    """S22: of the partition `cpu` no node keeps cores; of `data` two do."""
    found = {}
    for partition in ("cpu", "data"):
        options = replace(GOOD, partition=partition, core_spec="auto")
        cluster = open_cluster(ClusterConfig(backend="slurm", options=options))
        array = cluster.submit(ArraySpec(f"penstock-{partition}", "copy", (0,), ("/bin/true",), tmp_path))
        told = slurm.run("scontrol", "show", "job", array).stdout
        found[partition] = (re.search(r"CoreSpec=(\S+)", told)[1], re.search(r"OverSubscribe=(\S+)", told)[1])  # type: ignore[index]
    assert found == {"cpu": ("2", "NO"), "data": ("*", "NO")}


def test_the_probe_names_the_node_and_what_it_lacks(slurm: Machine, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"on the nodes? [n\d, ]+the interpreter /no/such/python"):
        check(tmp_path, probe=True, python="/no/such/python")
    with pytest.raises(PreflightError, match=r"on the nodes? [n\d, ]+/usr/bin/env cannot import penstock"):
        check(tmp_path, probe=True, python="/usr/bin/env")
    with pytest.raises(
        PreflightError, match=r"on the nodes? [n\d, ]+the target /no/such/target/x is not there"
    ):
        check(Path("/no/such/target/x"), probe=True)


def test_a_full_cluster_is_no_reason_to_stop(
    slurm: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cluster.slurm.site.PROBE_WITHIN", 1.0)
    slurm.run("sbatch", "--exclusive", "--nodes=4", "--chdir=/", "--output=/dev/null", "--wrap=sleep 300")
    warnings = check(tmp_path, probe=True, core_spec=None)
    assert any("did not run within" in warning for warning in warnings)


@pytest.mark.later_release
def test_the_controller_away(slurm: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.stop_controller()
    with pytest.raises(PreflightError, match=r"(?s)does not answer.*nable to contact slurm controller"):
        check()
    cluster = open_cluster(ClusterConfig(backend="slurm", options=GOOD))
    with pytest.raises(TransientError):
        cluster.states("1", [0])
    monkeypatch.setenv("SLURM_CONF", "/no/such/slurm.conf")
    with pytest.raises(PreflightError, match=r"SLURM_CONF=/no/such/slurm\.conf"):
        check()


@pytest.mark.later_release
def test_l1_a_slurm_conf_with_a_misspelt_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: SLURM's own commands do not read it; no cluster is needed."""
    need("sbatch")
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nTaskPlugin=task/affinity\n"
        "TaskPluginParam=SlrumdOffSpec\nNodeName=n1 CPUs=2\nPartitionName=a Nodes=n1\n"
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    with pytest.raises(
        PreflightError, match=r"(?s)cannot read its configuration.*Bad TaskPluginParam"
    ) as told:
        check()
    assert "write TaskPluginParam=SlurmdOffSpec in slurm.conf" in str(told.value)
    assert "SlurmdOffSpec is misspelt" in str(told.value)


def test_sbatch_is_not_here(slurm: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PreflightError, match="sbatch cannot be run here"):
        check()


@pytest.fixture
def odd_slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """It ignores --core-spec, and takes small arrays only."""
    yield from borrowed(Settings(allow_spec=False, max_array=5), monkeypatch)


@pytest.mark.later_release
def test_a_cluster_that_ignores_core_spec_and_takes_small_arrays(odd_slurm: Machine, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"(?s)ignores --core-spec=2.*AllowSpecResourcesUsage=No"):
        check()
    assert check(core_spec=None) == []
    cluster = open_cluster(ClusterConfig(backend="slurm", options=GOOD))
    assert cluster.max_array() == 5
    spec = ArraySpec("penstock-test", "copy", (0,), ("/bin/true",), tmp_path)
    with pytest.raises(FailedError, match="dropped --core-spec=2"):
        cluster.submit(spec)
    (array,) = cluster.find("penstock-test")
    assert cluster.states(array, [0])[0].state is State.CANCELLED
    with pytest.raises(FailedError, match="MaxArraySize=5"):
        cluster.submit(replace(spec, indices=(0, 5)))


def forgotten(machine: Machine, array: str) -> None:
    """Until the controller has purged the job. It looks every 30 s or so."""
    wait_for(
        lambda: machine.run("squeue", "-h", "--states=all", "-j", array).returncode != 0,
        "the controller to forget the job",
        seconds=180,
        every=0.5,
    )


def test_a_forgotten_job_is_lost_without_accounting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for machine in borrowed(Settings(min_job_age=2), monkeypatch):
        cluster = open_cluster(ClusterConfig(backend="slurm", options=GOOD))
        array = cluster.submit(ArraySpec("penstock-test", "copy", (0,), ("/bin/true",), tmp_path))
        forgotten(machine, array)
        assert cluster.states(array, [0])[0].state is State.LOST
        assert cluster.holder_ended(array) is None


@pytest.mark.later_release
def test_accounting_remembers(slurm_accounting: Machine, tmp_path: Path) -> None:
    options = replace(GOOD, account="ml")
    cluster = open_cluster(ClusterConfig(backend="slurm", options=options))
    command = ("/bin/sh", "-c", 'exit "$1"', "sh")
    array = cluster.submit(ArraySpec("penstock-test", "copy", (0, 3), command, tmp_path))
    forgotten(slurm_accounting, array)
    states = cluster.states(array, [0, 3])
    assert [states[0].state, states[3].state] == [State.DONE, State.FAILED]
    assert states[3].reason == "exit 3"
    assert [(states[i].exit_code, states[i].signal) for i in (0, 3)] == [(0, None), (3, None)]
    assert states[3].node
    assert states[3].started <= states[3].ended
    assert cluster.holder_ended(array) is True
    assert cluster.holder_ended(f"{array}_3") is True
