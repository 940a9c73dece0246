"""Whether elements fit what the site allows: judgements from SLURM's own answers, without a SLURM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.cluster.slurm import job_limits, placement, reservations
from penstock.cluster.slurm.job_limits import Places
from penstock.cluster.slurm.nodes import Node, fits, has_gres, is_lost, read_nodes
from penstock.cluster.slurm.port import Association, Bound, Facts, Limits, Partition, Qos, Reservation
from penstock.cluster.slurm.site_answers import (
    read_associations,
    read_partitions,
    read_qos,
    read_reservations,
)
from penstock.config.settings import AUTO_TIME, JobOptions
from penstock.errors import PreflightError

if TYPE_CHECKING:
    from penstock.core.checks import CheckResult

FACTS = Facts("22.05.8", 1001, True, True, enforced=frozenset({"associations", "limits", "qos"}))
DATA = Partition("data", default=True)
NOW = 1_795_000_000.0
HOUR = 3600.0


def node(name: str, **over: Any) -> Node:
    plain: dict[str, Any] = {
        "cpus": 8, "cores": 8, "reserved": 0, "memory": 8 << 30, "partitions": frozenset({"data"}),
        "features": frozenset({"fast"}), "state": "IDLE",
    }  # fmt: skip
    return Node(name, **{**plain, **over})


NODES = [node("n1"), node("n2"), node("n3", partitions=frozenset({"data", "cpu"})), node("n4", tmp=1 << 40)]


def options(**over: Any) -> JobOptions:
    return JobOptions(**{"core_spec": None, "time": None, **over})


def verdicts(results: list[CheckResult]) -> list[str]:
    return [one.verdict for one in results]


# SLURM's answers: Slurm 22.05.8, on the cluster of the tests -------------------------------

PARTITIONS = """\
PartitionName=data AllowGroups=ALL AllowAccounts=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED \
MaxTime=UNLIMITED MinNodes=0 LLN=NO Nodes=n[1-4] PreemptMode=REQUEUE State=UP TotalNodes=4 JobDefaults=(null)
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED \
MaxTime=01:00:00 MinNodes=0 LLN=NO Nodes=n[3-4] PreemptMode=REQUEUE State=UP TotalNodes=2 JobDefaults=(null)
"""
RESERVATIONS = """\
ReservationName=service StartTime=1795429531 EndTime=1795436731 Duration=02:00:00 Nodes=n[1-4] NodeCnt=4 \
CoreCnt=32 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES TRES=cpu=32 \
Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
"""
ASSOCIATIONS = """\
ml|||root|||9|||30
ml|daemon|||||9|||
ml|root|||||9|||
"""
QOS = """\
normal||||||||
bulk|DenyOnLimit,OverPartQOS||50|||1-02:00:00||7
"""
NODE = (
    "NodeName=n4 Arch=x86_64 CoresPerSocket=8  CPUAlloc=1 CPUEfctv=8 CPUTot=8 AvailableFeatures=plain "
    "ActiveFeatures=plain Gres=(null) RealMemory=8000 Sockets=1 Boards=1 State={state} ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Partitions=data,cpu,urgent "
)


def test_answers_of_a_real_cluster_are_read() -> None:
    assert read_partitions(PARTITIONS) == [DATA, Partition("cpu", max_time=HOUR)]
    (kept,) = read_reservations(RESERVATIONS)
    assert (kept.name, kept.start, kept.end) == ("service", 1795429531.0, 1795436731.0)
    assert kept.nodes == {"n1", "n2", "n3", "n4"}
    assert "MAINT" in kept.flags
    assert (kept.users, kept.accounts) == ("root", "")
    assert read_reservations("No reservations in the system\n") == []
    assert read_associations(ASSOCIATIONS) == [
        Association("ml", parent="root", limits={"MaxSubmit": 9, "GrpSubmit": 30}),
        Association("ml", "daemon", limits={"MaxSubmit": 9}),
        Association("ml", "root", limits={"MaxSubmit": 9}),
    ]
    assert read_qos(QOS) == [
        Qos("normal"),
        Qos(
            "bulk",
            frozenset({"DenyOnLimit", "OverPartQOS"}),
            {"MaxSubmitPU": 50, "MaxWall": 26 * 3600, "GrpSubmit": 7},
        ),
    ]


@pytest.mark.parametrize(
    "state", ["IDLE+POWERING_DOWN", "IDLE+POWERED_DOWN", "MIXED+NOT_RESPONDING+POWERING_UP"]
)
def test_states_of_a_real_node_that_was_switched_off(state: str) -> None:
    (seen,) = read_nodes(NODE.format(state=state))
    assert (seen.away, seen.idle, seen.saving) == (False, False, True)


# Limits ------------------------------------------------------------------------------------


def chain(user: dict[str, int] | None = None, *above: dict[str, int]) -> list[Association]:
    first = Association("ml", "alice", limits=user or {})
    return [first, *(Association(f"above{depth}", limits=one) for depth, one in enumerate(above))]


@pytest.mark.parametrize(
    ("found", "value", "by"),
    [
        (Places(), None, ""),
        (Places(chain=chain()), None, ""),
        (Places(chain=chain({"MaxSubmit": 5})), 5, "MaxSubmit of alice in the account ml"),
        (Places(of_job=Qos("bulk", limits={"MaxSubmitPU": 9}), chain=chain({"MaxSubmit": 5})), 9, "bulk"),
        (
            Places(
                of_partition=Qos("part", limits={"MaxSubmitPU": 7}),
                of_job=Qos("bulk", limits={"MaxSubmitPU": 9}),
            ),
            7,
            "MaxSubmitPU of the QOS part",
        ),
        (
            Places(
                of_partition=Qos("part", limits={"MaxSubmitPU": 7}),
                of_job=Qos("bulk", frozenset({"OverPartQOS"}), {"MaxSubmitPU": 9}),
            ),
            9,
            "QOS bulk",
        ),
        (Places(chain=chain({"GrpSubmit": 8}, {"GrpSubmit": 6}, {"GrpSubmit": 20})), 6, "the account above0"),
        (Places(of_job=Qos("b", limits={"GrpSubmit": 50}), chain=chain({}, {"GrpSubmit": 6})), 50, "QOS b"),
        # An account's own Max limit is not that of the user, to whom sacctmgr shows what is inherited.
        (Places(chain=chain({}, {"MaxSubmit": 3})), None, ""),
        (Places(of_job=Qos("b", limits={"MaxSubmitPA": 4}), chain=chain({"MaxSubmit": 5})), 4, "MaxSubmitPA"),
    ],
)
def test_where_a_limit_is_taken_from(found: Places, value: int | None, by: str) -> None:
    bound = job_limits.limits(FACTS, found).submitted
    assert (bound.value if bound else None) == value
    assert by in (bound.by if bound else "")


@pytest.mark.parametrize(
    ("found", "wall"),
    [
        (Places([DATA]), None),
        (Places([DATA._replace(max_time=HOUR)]), 3600),
        (Places([DATA._replace(max_time=HOUR), DATA]), None),
        (Places([DATA._replace(max_time=HOUR), Partition("cpu", max_time=2 * HOUR)]), 7200),
        (Places([DATA._replace(max_time=HOUR)], of_job=Qos("b", limits={"MaxWall": 600})), 600),
        (Places([DATA._replace(max_time=HOUR)], of_job=Qos("b", frozenset({"PartitionTimeLimit"}))), None),
        (Places([DATA], chain=chain({"MaxWall": 1200})), 1200),
    ],
)
def test_s29_the_longest_time_of_an_element(found: Places, wall: int | None) -> None:
    bound = job_limits.limits(FACTS, found).wall
    assert (bound.value if bound else None) == wall


def test_max_job_count_bounds_the_queue() -> None:
    found = Places(chain=chain({"MaxSubmit": 500}))
    assert job_limits.limits(FACTS._replace(max_jobs=10_000), found).submitted == Bound(
        500, "MaxSubmit of alice in the account ml"
    )
    bound = job_limits.limits(FACTS._replace(max_jobs=100), found).submitted
    assert bound is not None
    assert bound.value == 100
    assert "MaxJobCount" in bound.by
    assert [job_limits.queued(one) for one in (None, Bound(100, ""), Bound(1, ""))] == [None, 98, 1]


def test_limits_count_only_where_the_cluster_enforces_them() -> None:
    words = ["", "associations", "associations,qos", "associations,limits", "safe", "all"]
    enforced = [FACTS._replace(enforced=frozenset(word.split(","))).enforces_limits for word in words]
    assert enforced == [False, False, False, True, True, True]
    assert not FACTS._replace(accounting=False).enforces_limits


@pytest.mark.parametrize(
    ("asked", "found", "bounds", "in_job", "seen"),
    [
        ({"time": 7200}, Places([DATA]), Limits(wall=Bound(3600, "x")), False, ["stop"]),
        ({"time": 3600}, Places([DATA]), Limits(wall=Bound(3600, "x")), False, []),
        ({}, Places([DATA]), Limits(wall=Bound(3600, "x")), False, []),
        ({}, Places([DATA._replace(min_nodes=2)]), Limits(), False, ["stop"]),
        ({}, Places([DATA._replace(min_nodes=1)]), Limits(), False, []),
        ({}, Places([DATA._replace(min_nodes=2), Partition("cpu")]), Limits(), False, []),
        (
            {}, Places([DATA._replace(min_nodes=2)], of_job=Qos("b", frozenset({"PartitionMinNodes"}))),
            Limits(), False, [],
        ),
        ({}, Places([DATA._replace(max_nodes=0)]), Limits(), False, ["stop"]),
        ({}, Places([DATA]), Limits(running=Bound(1, "x")), True, ["stop"]),
        ({}, Places([DATA]), Limits(running=Bound(1, "x")), False, ["warning"]),
        ({"max_elements": 4}, Places([DATA]), Limits(running=Bound(3, "x")), False, ["note"]),
        ({"max_elements": 4}, Places([DATA]), Limits(running=Bound(4, "x")), False, []),
        ({}, Places([DATA]), Limits(submitted=Bound(50, "x")), False, ["note"]),
        ({}, Places([DATA]), Limits(submitted=Bound(20_000, "x")), False, []),
    ],
)  # fmt: skip
def test_what_the_limits_mean(
    asked: dict[str, Any], found: Places, bounds: Limits, in_job: bool, seen: list[str]
) -> None:
    results = job_limits.judged(options(**asked), found, bounds, in_job=in_job)
    assert verdicts(results) == seen
    assert all(one.mend for one in results)


# Nodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "names"),
    [
        ({}, "n1 n2 n3 n4"),
        ({"partition": "cpu"}, "n3"),
        ({"exclude": "n[1-2]"}, "n3 n4"),
        ({"nodelist": "n[2-3]"}, "n2 n3"),
        ({"nodelist": "n[2-3]", "exclude": "n2"}, "n3"),
        ({"tmp": 1 << 30}, "n4"),
        ({"gres": ("nvme:1",)}, ""),
        ({"constraint": "slow"}, ""),
    ],
)
def test_which_nodes_an_element_may_run_on(over: dict[str, Any], names: str) -> None:
    assert [one.name for one in placement.able(options(**over), NODES, "data")] == names.split()


def test_a_list_of_nodes_is_said_as_what_is_excluded() -> None:
    assert placement.confined(options(nodelist="n2"), NODES) == options(nodelist="n2")
    assert placement.confined(options(nodelist="n[1-2]"), NODES) == options(exclude="n[3-4]")
    assert placement.confined(options(nodelist="n[1-3]", exclude="n1"), NODES) == options(exclude="n[1,4]")
    assert placement.confined(options(nodelist="n[1-4]"), NODES) == options()
    with pytest.raises(PreflightError, match=r"no node is named x1.*cluster\.nodelist"):
        placement.confined(options(nodelist="n1,x1"), NODES)


def test_no_node_is_left() -> None:
    assert placement.none_left(options(exclude="n1"), NODES, "data") == []
    (stopped,) = placement.none_left(options(exclude="n[1-4]"), NODES, "data")
    assert stopped.verdict == "stop"
    assert "none of n[1-4] is left by exclude: n[1-4]" in stopped.found
    # SLURM's own refusal says what is wrong with the others.
    assert placement.none_left(options(constraint="slow", exclude="n1"), NODES, "data") == []


@pytest.mark.parametrize(
    ("gres", "wanted", "has"),
    [
        ("nvme:2", "nvme", True),
        ("nvme:2", "nvme:2", True),
        ("nvme:2", "nvme:3", False),
        ("gpu:a100:4(S:0-1),nvme:no_consume:1", "gpu:4", True),
        ("gpu:a100:4(S:0,1),nvme:1", "nvme:1", True),
        ("gpu:a100:2,gpu:h100:2", "gpu:3", True),
        ("gpu:a100:2,gpu:h100:2", "gpu:h100:3", False),
        ("gpu:a100:2", "gpu:h100", False),
        ("craynetwork:4K", "craynetwork:4000", True),
        ("", "nvme", False),
    ],
)
def test_whether_a_node_has_a_resource(gres: str, wanted: str, has: bool) -> None:
    assert has_gres(gres, wanted) is has
    assert fits(options(gres=(wanted,)), node("n1", gres=gres)) is has


@pytest.mark.parametrize(
    ("state", "away", "idle"),
    [
        ("IDLE", False, True),
        ("ALLOCATED", False, False),
        ("IDLE+DRAIN", True, False),
        ("DOWN", True, False),
        ("DOWN+POWERED_DOWN", True, False),
        ("IDLE+NOT_RESPONDING", True, False),
        ("IDLE*", True, False),
        ("IDLE+CLOUD+POWERED_DOWN", False, False),
        ("IDLE~", False, False),
        ("IDLE#", False, False),
        ("ALLOCATED#", False, False),
        ("IDLE%", False, False),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", False, False),
        ("IDLE+POWERING_DOWN", False, False),
        ("IDLE+POWER_DOWN", False, False),
    ],
)
def test_a_node_that_saves_power_is_not_away(state: str, away: bool, idle: bool) -> None:
    seen = node("n1", state=state)
    assert (seen.away, seen.idle) == (away, idle)


def test_which_nodes_are_lost_to_their_jobs() -> None:
    lost = ["down", "down*", "idle*", "allocated*", "down~"]
    kept = [
        "idle",
        "idle~",
        "idle%",
        "idle!",
        "allocated#",
        "powered_down",
        "powering_down",
        "mixed",
        "draining",
    ]
    assert [word for word in lost + kept if is_lost(word)] == lost


@pytest.mark.parametrize(
    ("asked", "there", "words"),
    [
        ({}, [node("n1"), node("n2")], ""),
        ({}, [node("n1"), node("n2", cpus=4)], "1 of 8 CPUs and 8.00 GiB, 1 of 4 CPUs and 8.00 GiB"),
        ({}, [node("n1"), node("n2", memory=4 << 30)], "n2, gives an element 8 CPUs and at most 4.00 GiB"),
        ({"core_spec": 2}, [node("n1"), node("n2", cpus=4, cores=4)], "gives an element 2 CPUs"),
        ({"memory": 1 << 30}, [node("n1"), node("n2", memory=4 << 30)], ""),
        ({"cpus": 2, "memory": 1 << 30}, [node("n1"), node("n2", cpus=4)], ""),
        ({"cpus": 2}, [node("n1"), node("n2", memory=4 << 30)], "at most 4.00 GiB"),
    ],
)
def test_nodes_that_differ(asked: dict[str, Any], there: list[Node], words: str) -> None:
    results = placement.differences(options(**asked), there)
    assert verdicts(results) == (["note"] if words else [])
    assert all(words in one.found for one in results)


# Reservations ------------------------------------------------------------------------------


def kept(name: str = "maint", **over: Any) -> Reservation:
    plain: dict[str, Any] = {
        "start": NOW + 2 * HOUR, "end": NOW + 8 * HOUR, "nodes": frozenset({"n1", "n2", "n3", "n4"}),
        "flags": frozenset({"MAINT"}),
    }  # fmt: skip
    return Reservation(name, **{**plain, **over})


@pytest.mark.parametrize(
    ("asked", "parts", "there", "seen", "words"),
    [
        ({"time": 3600}, [DATA], [kept()], [], ""),
        ({"time": 14400}, [DATA], [kept()], ["warning"], "maintenance maint begins"),
        ({"time": 14400}, [DATA], [kept(nodes=frozenset({"n1"}))], ["note"], "1 of 4 nodes (n1)"),
        ({"time": 14400}, [DATA], [kept(nodes=frozenset({"x"}))], [], ""),
        ({"time": 14400}, [DATA], [kept(nodes=frozenset())], [], ""),
        ({"time": 14400}, [DATA], [kept(end=NOW - 1)], [], ""),
        ({}, [DATA], [kept()], ["warning"], "elements of no time limit"),
        ({}, [DATA._replace(default_time=HOUR)], [kept()], [], ""),
        ({"time": AUTO_TIME}, [DATA._replace(max_time=HOUR)], [kept()], [], ""),
        ({"time": AUTO_TIME}, [DATA], [kept()], ["warning"], "elements of 4:00:00"),
        ({}, [DATA._replace(max_time=4 * HOUR)], [kept()], ["warning"], "elements of 4:00:00"),
        ({"time": 600}, [DATA], [kept(start=NOW - 60, flags=frozenset())], ["warning"], "maint is under"),
        (
            {"time": 14400}, [DATA],
            [kept(nodes=frozenset({"n1", "n2"})), kept("b", nodes=frozenset({"n3", "n4"}))],
            ["warning"], "and 1 more",
        ),
        ({"time": 600, "reservation": "r"}, [DATA], [], [], ""),
        ({"time": 600, "reservation": "r"}, [DATA], [kept("r", start=NOW - 60)], [], ""),
        (
            {"time": 600, "reservation": "r"}, [DATA], [kept("r", start=NOW - 60, end=NOW - 1)],
            ["stop"], "it ended",
        ),
        ({"time": 600, "reservation": "r"}, [DATA], [kept("r")], ["warning"], "it begins at"),
        (
            {"time": 30_000, "reservation": "r"}, [DATA], [kept("r", start=NOW - 60)],
            ["warning"], "do not start in it any more",
        ),
        (
            {"time": 600, "reservation": "r"}, [DATA], [kept("r", start=NOW - 60, nodes=frozenset({"x1"}))],
            ["stop"], "it holds x1",
        ),
        (
            {"time": 600, "reservation": "r", "account": "ml"}, [DATA],
            [kept("r", start=NOW - 60, accounts="bio,chem")], ["stop"], "it is for bio,chem",
        ),
        (
            {"time": 600, "reservation": "r", "account": "ml"}, [DATA],
            [kept("r", start=NOW - 60, accounts="-ml")], ["stop"], "it is for -ml",
        ),
        (
            {"time": 600, "reservation": "r", "account": "ml"}, [DATA],
            [kept("r", start=NOW - 60, accounts="-bio")], [], "",
        ),
    ],
)  # fmt: skip
def test_what_reservations_mean(
    asked: dict[str, Any], parts: list[Partition], there: list[Reservation], seen: list[str], words: str
) -> None:
    results = reservations.judged(options(**asked), NODES, parts, there, NOW)
    assert verdicts(results) == seen
    assert all(words in one.found for one in results)


SOME = kept(flags=frozenset({"SPEC_NODES"}), cores=4)
FLOATING = kept(flags=frozenset({"TIME_FLOAT", "SPEC_NODES"}))
OURS = kept(flags=frozenset({"MAGNETIC"}), accounts="ml,bio")


@pytest.mark.parametrize(
    ("asked", "there", "seen", "words"),
    [
        ({"time": 14400, "cpus": 2, "core_spec": None}, SOME, [], ""),
        ({"time": 14400, "core_spec": 1}, SOME, ["warning"], "reservation maint begins"),
        ({"time": 14400, "cpus": 2, "core_spec": None}, SOME._replace(cores=0), ["warning"], "begins at"),
        ({"time": 14400}, FLOATING, ["warning"], "stays 2:00:00 ahead (TIME_FLOAT)"),
        ({"time": 14400}, FLOATING, ["warning"], "nodes that they may run on, so never"),
        ({"time": 3600}, FLOATING, [], ""),
        ({"time": 600, "reservation": "maint"}, FLOATING, ["warning"], "no element starts in it"),
        ({"time": 14400, "account": "ml"}, OURS, [], ""),
        ({"time": 14400, "account": "chem"}, OURS, ["warning"], "reservation maint begins"),
    ],
)
def test_reservations_of_some_cores_of_moving_starts_and_that_take_jobs_in(
    asked: dict[str, Any], there: Reservation, seen: list[str], words: str
) -> None:
    results = reservations.judged(options(**asked), NODES, [DATA], [there], NOW)
    assert verdicts(results) == seen
    assert all(words in one.found for one in results)


def test_a_shorter_time_is_proposed() -> None:
    (told,) = reservations.judged(options(time=14400), NODES, [DATA], [kept()], NOW)
    assert told.mend.startswith("cluster.time: 119min or less")
    assert "before 20" in told.found
