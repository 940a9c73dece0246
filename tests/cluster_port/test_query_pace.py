"""S26: how often slurmctld is asked."""

from __future__ import annotations

import pytest
from tests.cluster_port.test_slurm_rules import Scripted, cluster_of

from penstock.cluster.slurm import element_times
from penstock.cluster.slurm.client import CommandOutput, problem
from penstock.cluster.slurm.element_times import QueryPace
from penstock.config.settings import ClusterConfig
from penstock.core.errors import OverloadedError

REFUSED = "slurm_load_jobs error: Rate limit exceeded, please retry momentarily"
"""In 23.02 and later (src/common/slurm_errno.c, SLURMCTLD_COMMUNICATIONS_BACKOFF)."""


@pytest.mark.parametrize(
    ("waited", "seconds"), [(0, 1), (60, 7), (140, 15), (900, 15), (1800, 30), (3600, 60), (36_000, 60)]
)
def test_s26_the_default_is_15_s_and_grows_to_a_minute(waited: float, seconds: float) -> None:
    assert QueryPace(ClusterConfig().poll).interval(waited) == seconds


def test_s26_a_longer_poll_is_kept() -> None:
    assert QueryPace(120.0).interval(36_000) == 120.0


def test_s26_late_answers_are_followed_by_longer_waits_and_quick_ones_by_the_usual() -> None:
    pace = QueryPace(1.0)
    pace.answered(0.05)
    assert pace.interval(60.0) == 1.0
    pace.answered(3.0)
    assert pace.interval(60.0) == 60.0
    waits = []
    for _ in range(8):
        pace.answered(0.05)
        waits.append(pace.interval(60.0))
    assert waits == [30.0, 15.0, 7.5, 3.75, 1.875, 1.0, 1.0, 1.0]
    for slow in (5.0, 30.0, 1000.0):
        pace.answered(slow)
        assert pace.interval(0.0) == element_times.LONGEST == 60.0


def test_s26_being_refused_doubles_the_wait() -> None:
    pace = QueryPace(1.0)
    seen = []
    for _ in range(6):
        pace.refused()
        seen.append(pace.interval(0.0))
    assert seen == [15.0, 30.0, 60.0, 60.0, 60.0, 60.0]


def test_s26_slurms_own_words_of_it_are_known() -> None:
    assert type(problem("squeue", CommandOutput(1, "", REFUSED))) is OverloadedError


def test_s26_a_cluster_that_refuses_is_asked_less_often() -> None:
    class Refusing(Scripted):
        def elements(self, array: str) -> list[object]:  # type: ignore[override]
            raise problem("squeue", CommandOutput(1, "", REFUSED))

    cluster = cluster_of(Refusing())
    assert cluster.interval(0.0) == 1.0
    for wait in (15.0, 30.0):
        with pytest.raises(OverloadedError):
            cluster.states("77", [0])
        assert cluster.interval(0.0) == wait
