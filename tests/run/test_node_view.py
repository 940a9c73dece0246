"""A node's one answer to the probe (D4): written there, judged here, beside what this machine sees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster_port.test_slurm_rules import Scripted
from tests.support import machines
from tests.support.staging_runs import context_for, tree

import penstock
from penstock.cluster.port import VISIT_FAILED
from penstock.cluster.slurm.cluster import SlurmCluster
from penstock.cluster.slurm.facts import JobSeen, Node
from penstock.config.serialization import to_json
from penstock.config.settings import (
    BandwidthConfig,
    ClusterConfig,
    DatasetConfig,
    JobOptions,
    PermissionsConfig,
    TargetConfig,
)
from penstock.core import node_answer
from penstock.core.errors import NewerFormatError, PreflightError
from penstock.core.node_answer import (
    AclEntrySeen,
    AclsSeen,
    BandwidthFolderSeen,
    FileValue,
    HeldCores,
    HostSeen,
    MountSeen,
    NodeAnswer,
    NodeCores,
    OwnerSeen,
    SourceSeen,
)
from penstock.core.run_steps import CheckResult
from penstock.doctor import preflight_requirements, preflight_results, preflight_step, preflight_target
from penstock.doctor.preflight_results import Looks
from penstock.fs.owners import owner
from penstock.host import machine_settings
from penstock.jobs.bandwidth import set_cap

if TYPE_CHECKING:
    from penstock.dataset.context import Context

OPTIONS = "rw,vers=4.2,addr=10.0.0.1"
HERE = MountSeen("/t", "nfs", OPTIONS, "filer:/t", 1 << 40, durability="fsync", passable=True)
N1 = Node("n1", 8, 8, 0, 1 << 34, frozenset({"data"}), frozenset())
HOST = HostSeen("n1", "6.1.0", "x86_64", 8, 1 << 34, 1000, 1000, (1000,))


@pytest.mark.parametrize(
    ("there", "verdicts", "words"),
    [
        (HERE, ["ok"], "nfs"),
        (HERE._replace(options="rw,vers=4.2,addr=10.0.0.2"), ["ok"], "1.00 TiB"),
        (
            HERE._replace(options="rw,vers=3"),
            ["ok", "note"],
            "on the node alone: vers=3; on this machine alone: vers=4.2",
        ),
        (
            HERE._replace(kind="beegfs", device="x"),
            ["ok", "warning"],
            "beegfs (x) on the node, nfs (filer:/t) on this machine",
        ),
        (HERE._replace(kind="fuse", passable=False), ["ok", "warning", "warning"], "never as `cold`"),
        (MountSeen("/t", error="no answer within 10 s"), ["note"], "not known (no answer within 10 s)"),
    ],
    ids=["same", "another address", "options", "file system", "caches", "silent"],
)
def test_the_mount_of_a_node_beside_this_machines(there: MountSeen, verdicts: list[str], words: str) -> None:
    """The rows of `preflight_results.mount_results`."""
    results = preflight_results.mount_results("target on n1", there, HERE)
    assert [one.verdict for one in results] == verdicts
    assert {one.about for one in results} == {"target on n1"}
    assert words in results[-1].found


@pytest.mark.parametrize(
    ("there", "here", "verdicts", "words"),
    [
        (
            (7, 7, "anna", "lab"),
            (7, 7, "anna", "lab"),
            ["ok"],
            "owner 7 (anna), group 7 (lab), there as here",
        ),
        ((7, 7, "", ""), (7, 7, "anna", "lab"), ["ok"], "7 (anna)"),
        ((7, 7, "bob", "lab"), (7, 7, "anna", "lab"), ["warning"], "is 7 (bob) there and 7 (anna) here"),
        ((7, 7, "anna", "lab"), (9, 7, "anna", "lab"), ["note"], "id-mapped: the owner"),
        ((7, 8, "anna", "lab"), (7, 9, "anna", "lab"), ["note"], "id-mapped: the group"),
        ((7, 8, "anna", "lab"), (9, 9, "", "lab"), ["warning", "note"], "audits compare it by name"),
        ((7, 7, "anna", "lab"), (9, 7, "bob", "lab"), ["warning"], "an audit elsewhere finds another owner"),
    ],
)
def test_s19_the_owner_of_a_nodes_file_there_and_here(
    there: tuple[int, int, str, str], here: tuple[int, int, str, str], verdicts: list[str], words: str
) -> None:
    """S19: the rows of `preflight_results.owner_results`."""
    results = preflight_results.owner_results("ids on n1", OwnerSeen(*there), OwnerSeen(*here))
    assert [one.verdict for one in results] == verdicts
    assert words in " ".join(one.found for one in results)
    assert all(one.mend for one in results if one.verdict != "ok")


def test_what_the_nodes_own_checks_saw_has_its_name_and_is_not_said_twice() -> None:
    same = CheckResult("NFS mount /t", "soft", "warning")
    other = CheckResult("NFS mount /t", "vers=3", "stop", "4", "mount it so")
    future = {"about": "x", "found": "y", "verdict": "of a later version"}
    answer = NodeAnswer(HOST, HERE, [], [same._asdict(), other._asdict(), future])
    results = preflight_results.judged("n1", answer, HERE, {}, [same])
    assert results[1:] == [
        other._replace(about="NFS mount /t on n1"),
        CheckResult("x on n1", "y", "note"),
    ]


def test_the_answer_is_a_document_with_a_format() -> None:
    sources = (SourceSeen("file:///x", "gone", HERE),)
    answer = NodeAnswer(HOST, HERE, sources, ({"about": "a"},), "1.0")
    content = json.dumps(node_answer.NODE_ANSWER.to_json(answer)).encode()
    assert node_answer.NODE_ANSWER.from_json(content, "n1") == answer
    assert answer.errors == ["gone"]
    newer = json.dumps({**json.loads(content), "format": 99}).encode()
    with pytest.raises(NewerFormatError):
        node_answer.NODE_ANSWER.from_json(newer, "n1")
    with pytest.raises(ValueError, match="no JSON"):
        node_answer.NODE_ANSWER.from_json(b"the source folder cannot be read", "n1")


@dataclass
class Carried(Scripted):
    """It runs the probe's script at once, on this machine, as the node n1."""

    root: Path = Path("/nonexistent")
    """The target's."""
    without: Path | None = None
    """A folder that the node does not have."""
    another: bool = False
    """In its place it has another one, of the same modes."""
    owner: int | None = None
    """The number by which this machine sees the owner of what the node wrote."""
    says: dict[str, object] = field(default_factory=dict)
    """Fields of its answer that are others than those of this machine."""
    there: Node = N1
    runs: list[int] = field(default_factory=list)

    def nodes(self) -> list[Node]:
        return [self.there]

    def submit_job(self, name: str, options: JobOptions, script: str, *, node: str = "") -> str:
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "78"}
        away = self.without and self.without.with_name("away")
        if self.without and away:
            self.without.rename(away)
            if self.another:
                shutil.copytree(away, self.without, ignore=shutil.ignore_patterns("begin.*"))
        words = ["/bin/sh"]
        done = subprocess.run(words, input=script, text=True, env=env, cwd="/", check=False)
        if self.without and away:
            if self.another:
                shutil.rmtree(self.without)
            away.rename(self.without)
        self.runs.append(done.returncode)
        if self.owner is not None:
            for path in self.root.glob(".penstock-probe-*"):
                os.chown(path, self.owner, -1)
        if self.says:
            for path in self.root.glob(".penstock-probe-*"):
                path.write_text(json.dumps(json.loads(path.read_bytes()) | self.says))
        return "78"

    def job(self, job: str) -> JobSeen:
        status = self.runs[-1]
        return JobSeen("FAILED" if status else "COMPLETED", status, "n1")


def context_on(tmp_path: Path, slurm: Carried, acl: tuple[str, ...] = ()) -> Context:
    policy = PermissionsConfig(acl=acl)
    made = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}), permissions=policy)
    options = JobOptions(core_spec=None)
    made.config = replace(made.config, cluster=ClusterConfig(backend="slurm", options=options))
    made.config.target.root.mkdir()
    made.cluster = SlurmCluster(made.config.cluster, made.config.target.root, slurm=slurm)
    return made


def test_one_probe_gives_one_answer_for_host_mounts_and_sources(tmp_path: Path) -> None:
    """D4: by the script that the job runs, and `penstock visit` in it."""
    context = context_on(tmp_path, Carried())
    result, error = preflight_step.look(context, "data")
    assert error is None
    (node,) = result["nodes"]
    assert node["format"] == node_answer.NODE_ANSWER.newest
    answer = node_answer.NODE_ANSWER.from_json(json.dumps(node).encode(), "n1")
    assert answer.host.name == os.uname().nodename
    assert answer.host.cpus == len(os.sched_getaffinity(0))
    assert answer.penstock == penstock.__version__
    (source,) = answer.sources
    assert (source.url, source.error) == (f"file://{tmp_path}/source", "")
    for mount in (answer.target, source.mount):
        assert mount is not None
        assert mount.kind
        assert mount.total_bytes > 0
    rows = [row for row in result["results"] if row.about.endswith(" on n1")]
    verdicts = [(row.about.split()[0], row.verdict) for row in rows]
    assert verdicts == [("target", "ok"), ("source", "ok"), ("ids", "ok")]
    assert answer.written == owner(os.geteuid(), os.getegid())
    assert os.listdir(context.config.target.root) == [], "the answer is removed"


def test_each_source_that_the_node_cannot_open_has_its_error(tmp_path: Path) -> None:
    context = context_on(tmp_path, Carried())
    dataset = to_json(context.config.datasets["data"])
    dataset["sources"] = [{"url": str(tmp_path / name), "into": name} for name in ("none", "source", "gone")]
    given = {"dataset": dataset, "target": to_json(context.config.target), "timeout": 5}
    words = [sys.executable, "-m", "penstock", "visit", "--answer", str(tmp_path / "answer")]
    done = subprocess.run(words, input=json.dumps(given), text=True, capture_output=True, check=False)
    assert done.returncode == VISIT_FAILED, done.stderr
    answer = node_answer.NODE_ANSWER.from_json((tmp_path / "answer").read_bytes(), "n1")
    assert ["cannot be read" in one.error for one in answer.sources] == [True, False, True]


def test_what_the_node_cannot_open_stops_and_its_mounts_are_in_the_table(tmp_path: Path) -> None:
    context = context_on(tmp_path, Carried(without=tmp_path / "source"))
    result, error = preflight_step.look(context, "data")
    assert isinstance(error, PreflightError)
    assert "on the node n1, what was opened here cannot be opened: the source folder" in str(error)
    on_node = [row for row in result["results"] if " on " in row.about]
    verdicts = {row.about.split()[0]: row.verdict for row in on_node}
    assert verdicts == {"target": "ok", "ids": "ok"}
    assert len(result["nodes"]) == 1


def test_s19_a_probe_file_that_is_seen_with_another_number_is_id_mapped(tmp_path: Path) -> None:
    """S19."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    context = context_on(tmp_path, Carried(root=tmp_path / "target", owner=123456))
    result, _ = preflight_step.look(context, "data")
    (row,) = [row for row in result["results"] if row.about == "ids on n1"]
    assert row.verdict == "warning"
    assert row.found.startswith(
        "id-mapped: the owner of a file that it made is 0 (root) there and 123456 here"
    )
    assert "nodemap" in row.mend


LAB = ("group:0:r-X",)
NONE = "it keeps no POSIX ACLs, or is mounted without them"
NFS4 = "it keeps NFSv4 ACLs, which penstock does not set, and no POSIX ACLs"


@pytest.mark.parametrize(
    ("wanted", "acls", "verdicts", "words"),
    [
        ((), AclsSeen(NONE), [], ""),
        (LAB, AclsSeen(error="Stale file handle"), ["note"], "not known (Stale file handle)"),
        (LAB, AclsSeen(NONE), ["stop"], f"/t: {NONE}"),
        (LAB, AclsSeen(NFS4), ["stop"], f"/t: {NFS4}"),
        (LAB, AclsSeen(), ["ok"], "group:0:r-X"),
    ],
)
def test_s14_what_a_node_says_of_acls(
    wanted: tuple[str, ...], acls: AclsSeen, verdicts: list[str], words: str
) -> None:
    """S14: the rows of `preflight_target.judged_acl`."""
    config = DatasetConfig("data", (), permissions=PermissionsConfig(acl=wanted))
    answer = NodeAnswer(HOST, HERE, (), penstock="1.0", acls=acls)
    answer = node_answer.NODE_ANSWER.from_json(
        json.dumps(node_answer.NODE_ANSWER.to_json(answer)).encode(), "n1"
    )
    results = preflight_target.judged_acl("n1", config, TargetConfig(Path("/t")), answer)
    assert [(one.about, one.verdict) for one in results] == [("ACL on n1", verdict) for verdict in verdicts]
    assert words in " ".join(one.found for one in results)
    if verdicts == ["stop"]:
        assert "have it mounted by NFS 3" in results[0].mend


def test_s14_a_node_whose_mount_keeps_no_acls_is_named_and_stops(tmp_path: Path) -> None:
    """S14: here an ACL can be read."""
    slurm = Carried(root=tmp_path / "target", says={"acls": {"refused": NONE}})
    context = context_on(tmp_path, slurm, LAB)
    result, error = preflight_step.look(context, "data")
    verdicts = {row.about: row.verdict for row in result["results"] if row.about.startswith("ACL")}
    assert verdicts == {"ACL": "ok", "ACL on n1": "stop"}
    assert error is not None
    assert error.exit_code == 3
    assert str(error).startswith("on the node n1, the target keeps no ACLs [datasets.data.permissions.acl]")
    slurm.says = {}
    result, error = preflight_step.look(context, "data")
    assert error is None
    assert {"ACL: group:0:r-X", "ACL on n1: group:0:r-X"} <= set(result["checked"])
    (node,) = result["nodes"]
    assert node["acls"] == {
        "refused": "",
        "error": "",
        "mapped": False,
        "entries": [{"entry": "group:0:r-X", "number": 0, "holder": "root"}],
    }


@pytest.mark.parametrize(
    ("there", "mapped", "verdict", "words"),
    [
        ((41, "lab"), False, "", ""),
        ((41, ""), False, "", ""),
        ((None, ""), False, "stop", "the group lab of `permissions.acl` is not known there"),
        ((None, "other"), True, "stop", "elements cannot set the ACL"),
        ((77, "lab"), True, "note", "id-mapped: the group lab of `permissions.acl` is 41 here and 77 there"),
        ((77, "other"), True, "note", "audits do not compare ACLs"),
        ((77, "other"), False, "stop", "where 41 is other: other would get the rights"),
        ((77, ""), False, "warning", "41 has no name: the ACL gives the group no rights there"),
        ((41, "other"), False, "warning", "41 is lab here and other there"),
    ],
)
def test_s19_a_group_of_the_acl_there_and_here(
    there: tuple[int | None, str], mapped: bool, verdict: str, words: str
) -> None:
    """S19: the rows of `preflight_target.entry_results`."""
    here = AclEntrySeen("group:lab:r-X", 41, "lab")
    results = preflight_target.entry_results("n1", [AclEntrySeen(here.entry, *there)], [here], mapped=mapped)
    assert [one.verdict for one in results] == ([verdict] if verdict else [])
    for one in results:
        assert one.about == "ACL on n1"
        assert words in one.found
        assert one.mend
    assert preflight_target.entry_results("n1", [], [here], mapped=mapped) == []


def test_s19_an_account_of_the_acl_with_another_number_on_a_node_stops(tmp_path: Path) -> None:
    """S19: daemon and bin are accounts of Debian."""
    there = {"entry": "user:daemon:r", "number": 77, "holder": "bin"}
    slurm = Carried(root=tmp_path / "target", says={"acls": {"entries": [there]}})
    context = context_on(tmp_path, slurm, ("user:daemon:r",))
    result, error = preflight_step.look(context, "data")
    assert error is not None
    assert error.exit_code == 3
    assert str(error).startswith(
        "on the node n1, the ACL would be another one [datasets.data.permissions.acl]: ACL: the user "
        "daemon of `permissions.acl` is 1 here and 77 there, where 1 is bin: bin would get the rights"
    )
    slurm.says = {"acls": {"entries": [there], "mapped": True}}
    result, error = preflight_step.look(context, "data")
    assert error is None
    found = [row.verdict for row in result["results"] if "id-mapped" in row.found]
    assert found == ["note"]
    slurm.says = {}
    result, error = preflight_step.look(context, "data")
    assert error is None
    (node,) = result["nodes"]
    assert node_answer.NODE_ANSWER.from_json(json.dumps(node).encode(), "n1").acls == AclsSeen(
        entries=(AclEntrySeen("user:daemon:r", 1, "daemon"),)
    )


def test_s19_a_node_names_who_has_the_number_of_the_submitting_machine() -> None:
    """S19: here bin is 2."""
    found = preflight_target.acl_entries(["user:daemon:r", "user:no-such-user:r", "group:4243:r"], [2, 2, 0])
    assert found == (
        AclEntrySeen("user:daemon:r", 1, "bin"),
        AclEntrySeen("user:no-such-user:r", None, "bin"),
        AclEntrySeen("group:4243:r", 4243, "root"),
    )


@pytest.mark.parametrize(
    ("there", "verdict", "words"),
    [
        (
            BandwidthFolderSeen("/l", "there is no such folder", same=False),
            "stop",
            "elements cannot use /l there: there is",
        ),
        (BandwidthFolderSeen("/l", same=False), "stop", "/l is another folder there"),
        (
            BandwidthFolderSeen("/l", wrong="/l/cap belongs to uid 7", same=True),
            "stop",
            "would wait there: /l/cap belongs",
        ),
        (BandwidthFolderSeen("/l"), "note", "/l: not known whether it is the folder that is here"),
        (BandwidthFolderSeen("/l", same=True), "ok", "/l, the folder that is here"),
    ],
)
def test_s25_what_a_node_says_of_the_folder_of_the_link(
    there: BandwidthFolderSeen, verdict: str, words: str
) -> None:
    """S25: the rows of `bandwidth.on_node`."""
    (result,) = preflight_requirements.on_node("n1", there)
    assert (result.about, result.verdict) == ("bandwidth folder on n1", verdict)
    assert words in result.found
    assert bool(result.mend) == (verdict == "stop")


def test_s25_a_node_that_does_not_have_the_folder_of_the_link_stops(tmp_path: Path) -> None:
    """S25: by the script that the job runs. What another folder at that path is, the node finds by a name
    that this machine makes in `holders` meanwhile."""
    slurm = Carried(root=tmp_path / "target")
    context, link = context_on(tmp_path, slurm), tmp_path / "link"
    set_cap(link, "40Gbit/s")
    context.config = replace(context.config, bandwidth=BandwidthConfig(link))
    result, error = preflight_step.look(context, "data")
    assert error is None
    (node,) = result["nodes"]
    assert node["link"] == {"path": str(link), "error": "", "wrong": "", "same": True}
    assert f"bandwidth folder on n1: {link}, the folder that is here" in result["checked"]
    assert os.listdir(link / "holders") == []

    slurm.without = link
    result, error = preflight_step.look(context, "data")
    assert error is not None
    assert error.exit_code == 3
    assert str(error).startswith(
        f"on the node n1, the bandwidth cap would not hold [bandwidth.folder]: bandwidth folder: elements "
        f"cannot use {link} there: No such file or directory"
    )
    slurm.another = True
    result, error = preflight_step.look(context, "data")
    assert f"{link} is another folder there: its elements would keep a cap of their own" in str(error)
    assert os.listdir(link / "holders") == []


def test_a_node_with_another_version_under_the_same_path_stops(tmp_path: Path) -> None:
    slurm = Carried(root=tmp_path / "target", says={"penstock": "1.99.0"})
    _, error = preflight_step.look(context_on(tmp_path, slurm), "data")
    assert error is not None
    assert error.exit_code == 3
    told = str(error)
    assert told.startswith("on the node n1, the elements would be of another penstock [cluster.python]")
    assert f"it is of version 1.99.0, and this one of {penstock.__version__}" in told


def test_nodes_that_are_stopped_by_the_same_are_named_together(tmp_path: Path) -> None:
    looks = Looks(context_on(tmp_path, Carried()))
    for node, found in (("n3", "no ACLs"), ("n1", "no ACLs"), ("n2", "other")):
        row = CheckResult(f"ACL on {node}", found, "stop", mend="mount it so")
        looks.saw(row, what="the target keeps none", where="acl", node=node)
    error = looks.error()
    assert error is not None
    assert str(error).startswith("2 things stop the run")
    assert "- on the nodes n1, n3, the target keeps none [acl]: ACL: no ACLs\n" in str(error)
    assert "- on the node n2, the target keeps none [acl]: ACL: other\n" in str(error)
    assert [row.about for row in looks.document("data")["results"]] == [
        "ACL on n3",
        "ACL on n1",
        "ACL on n2",
    ]


def test_l4_the_cores_of_a_node_are_judged_by_what_it_answers(tmp_path: Path) -> None:
    """L4: WEKA's cores on the node, beside those that SLURM keeps its jobs off; nothing of a node whose
    penstock says nothing of cores."""
    machine = machine_settings.read_topology(machines.sys_tree(tmp_path / "sys", machines.TWO_18))
    held = [HeldCores("client", (34, 35), "mount options")]
    cores = NodeCores(machine, weka=True, held=held, isolate_cpusets=[FileValue("/x", "true")])
    slurm = Carried(root=tmp_path / "target", there=machines.TWO_18.node(reserved=2, cpu_spec="17,35"))
    slurm.says = {"cores": node_answer.NODE_ANSWER.to_json(NodeAnswer(HOST, HERE, (), cores=cores))["cores"]}
    context = context_on(tmp_path, slurm)
    result, error = preflight_step.look(context, "data")
    rows = {row.about: row for row in result["results"]}
    assert rows["cores on n1"].verdict == "stop"
    assert "jobs are given CPU 34 of these cores" in rows["cores on n1"].found
    assert rows["isolate_cpusets on n1"].verdict == "warning"
    assert rows["AllowSpecResourcesUsage"].verdict == "warning"
    assert error is not None
    assert error.exit_code == 3
    assert str(error).startswith("on the node n1, jobs would run on cores that others need")
    assert "write CpuSpecList=34-35 in the line of slurm.conf that has NodeName=n1" in str(error)
    slurm.says = {"cores": None}
    result, error = preflight_step.look(context, "data")
    assert error is None
    assert not any(row.about.endswith("cores on n1") for row in result["results"])
