"""The longest time that an element may ask for: by SLURM's own answers, without a SLURM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster_port.test_slurm_rules import Scripted

from penstock.cluster.slurm import element_times
from penstock.cluster.slurm.answers import read_association, read_partitions, read_qos
from penstock.cluster.slurm.element_times import TimeLimit
from penstock.cluster.slurm.facts import Association, Facts, Partition, Qos
from penstock.config.settings import JobOptions
from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTS = Facts("22.05.8", 1001, True, True, enforced=frozenset({"associations", "limits", "qos"}))
HOUR = 3600
DATA = Partition("data", default=True)
SHORT = DATA._replace(max_time=HOUR)

# Slurm 22.05.8, on the cluster of the tests.
PARTITIONS = """\
PartitionName=data AllowGroups=ALL AllowAccounts=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED \
MaxTime=UNLIMITED MinNodes=0 LLN=NO Nodes=n[1-4] PreemptMode=REQUEUE State=UP TotalNodes=4 JobDefaults=(null)
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL Default=NO QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED \
MaxTime=01:00:00 MinNodes=0 LLN=NO Nodes=n[3-4] PreemptMode=REQUEUE State=UP TotalNodes=2 JobDefaults=(null)
"""
ASSOCIATIONS = """\
root|root|||
ml|ml||bulk|1-00:00:00
ml|ml|cpu|bulk|01:00:00
ml|guests||normal|
"""
QOS = """\
normal||
bulk|DenyOnLimit,OverPartQOS|1-02:00:00
"""


def test_answers_of_a_real_cluster_are_read() -> None:
    assert read_partitions(PARTITIONS) == [DATA, Partition("cpu", max_time=HOUR)]
    assert read_qos(QOS) == [
        Qos("normal"), Qos("bulk", frozenset({"DenyOnLimit", "OverPartQOS"}), 26 * HOUR),
    ]  # fmt: skip
    assert read_association(ASSOCIATIONS, "ml", None) == Association("ml", "bulk", 24 * HOUR)
    assert read_association(ASSOCIATIONS, None, "data").account == "root", "the default one, listed first"
    assert read_association(ASSOCIATIONS, "ml", "cpu") == Association("ml", "bulk", HOUR)
    assert read_association(ASSOCIATIONS, "guests", "cpu") == Association("guests", "normal")
    assert read_association(ASSOCIATIONS, "nope", None) == Association()


class Limited(Scripted):
    rows: Mapping[str, Qos]
    mine = Association()

    def association(self, cluster: str, user: str, options: JobOptions) -> Association:
        return self.mine

    def qos(self, name: str) -> Qos | None:
        return self.rows.get(name)


@pytest.mark.parametrize(
    ("parts", "of_job", "of_partition", "mine", "seconds", "by"),
    [
        ([DATA], Qos("b"), None, 0, None, ""),
        ([SHORT], Qos("b"), None, 0, HOUR, "MaxTime of the partition data"),
        ([SHORT, DATA._replace(name="more")], Qos("b"), None, 0, None, ""),
        ([SHORT, Partition("cpu", True, 2 * HOUR)], Qos("b"), None, 0, 2 * HOUR, "the partition cpu"),
        ([SHORT], Qos("b", max_wall=600), None, 0, 600, "MaxWall of the QOS b"),
        ([SHORT], Qos("b", max_wall=9 * HOUR), None, 0, HOUR, "MaxTime"),
        ([SHORT], Qos("b", frozenset({"PartitionTimeLimit"})), None, 0, None, ""),
        ([DATA], Qos("b"), None, 1200, 1200, "MaxWall of me in the account ml"),
        ([DATA], Qos("b", max_wall=1800), None, 1200, 1800, "the QOS b"),
        ([DATA], Qos("b", max_wall=1800), Qos("p", max_wall=2400), 0, 2400, "the QOS p"),
        (
            [DATA], Qos("b", frozenset({"OverPartQOS"}), 1800), Qos("p", max_wall=2400), 0,
            1800, "the QOS b",
        ),
    ],
)  # fmt: skip
def test_s29_the_longest_time_of_an_element(
    parts: list[Partition], of_job: Qos, of_partition: Qos | None, mine: int, seconds: int | None, by: str
) -> None:
    slurm = Limited(parts=[part._replace(qos="p" if of_partition else "") for part in parts])
    slurm.rows = {"b": of_job} | ({"p": of_partition} if of_partition else {})
    slurm.mine = Association("ml", "b", mine)
    limit = element_times.longest(slurm, JobOptions(core_spec=None), FACTS, "me")
    assert (limit.seconds if limit else None) == seconds
    assert by in (limit.by if limit else "")


def test_a_limit_beside_partitions_that_are_not_shown_may_not_be_the_lowest() -> None:
    slurm = Limited(parts=[])
    slurm.rows = {"b": Qos("b", max_wall=1800)}
    slurm.mine = Association("ml", "b", 0)
    options = JobOptions(core_spec=None, time=7200)
    limit = element_times.longest(slurm, options, FACTS, "me")
    assert limit == TimeLimit(1800, "MaxWall of the QOS b", shown=False)
    assert [result.verdict for result in element_times.judged(options, limit)] == ["stop"]
    slurm.rows = {"b": Qos("b")}
    hidden = element_times.longest(slurm, options, FACTS, "me")
    assert (hidden, element_times.judged(options, hidden)) == (TimeLimit(0, "", shown=False), [])


def test_accounting_is_asked_only_where_it_enforces_limits() -> None:
    words = ["", "associations", "associations,qos", "associations,limits", "safe", "all"]
    enforced = [FACTS._replace(enforced=frozenset(word.split(","))).enforces_limits for word in words]
    assert enforced == [False, False, False, True, True, True]
    assert not FACTS._replace(accounting=False).enforces_limits
    slurm = Limited(parts=[SHORT])
    options = JobOptions(core_spec=None)
    limit = TimeLimit(HOUR, "MaxTime of the partition data")
    assert element_times.longest(slurm, options, FACTS._replace(accounting=False), "me") == limit

    def refuses(name: str) -> Qos | None:
        raise FailedError("sacctmgr failed")

    slurm.qos = refuses  # type: ignore[method-assign]
    assert element_times.longest(slurm, options, FACTS, "me") == limit, "an account may not see them"


@pytest.mark.parametrize(("asked", "stops"), [(7200, True), (3600, False), (0, False), (None, False)])
def test_s29_a_time_beyond_it_would_wait_for_ever(asked: int | None, stops: bool) -> None:
    options = JobOptions(core_spec=None, time=asked)
    assert element_times.judged(options, None) == []
    results = element_times.judged(options, TimeLimit(HOUR, "MaxWall of the QOS bulk"))
    assert [(result.verdict, result.wanted) for result in results] == [
        ("stop", "at most 1 h: MaxWall of the QOS bulk")
    ] * stops


def test_times_as_people_read_them() -> None:
    assert [element_times.span(s) for s in (30, 1200, 3600, 5400, 86400)] == [
        "1 min", "20 min", "1 h", "1 h 30 min", "24 h",
    ]  # fmt: skip
