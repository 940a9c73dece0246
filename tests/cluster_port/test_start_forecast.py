"""When elements would start, by what SLURM says of jobs that are not submitted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.cluster_port.test_slurm_rules import Scripted

from penstock.cluster.slurm import element_times
from penstock.cluster.slurm.facts import JobTrial
from penstock.config.settings import JobOptions
from penstock.core.errors import QueueFullError

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = time.mktime((2026, 11, 26, 8, 0, 0, 0, 0, -1))
HOUR = 3600
SUNDAY = NOW + 73 * HOUR


@pytest.mark.parametrize(
    ("seconds", "starts", "verdict", "found", "mend"),
    [
        (4 * HOUR, {}, "", "", ""),
        (4 * HOUR, {4 * HOUR: NOW + 60}, "ok", "now, but for jobs", ""),
        (
            4 * HOUR, {4 * HOUR: SUNDAY, 2 * HOUR: NOW + 60, HOUR: NOW}, "note",
            "4 h: not before Sun 2026-11-29 09:00; 2 h: now; 1 h: now (jobs that are ahead",
            "cluster.time: 120min starts sooner",
        ),
        (
            4 * HOUR, {4 * HOUR: SUNDAY, 2 * HOUR: SUNDAY, HOUR: NOW + 2 * HOUR}, "note",
            "2 h: Sun 2026-11-29 09:00; 1 h: Thu 2026-11-26 10:00", "cluster.time: 60min starts sooner",
        ),
        (4 * HOUR, {4 * HOUR: SUNDAY, 2 * HOUR: SUNDAY, HOUR: SUNDAY}, "note", "1 h: Sun", ""),
        (4 * HOUR, {4 * HOUR: SUNDAY}, "note", "4 h: not before Sun 2026-11-29 09:00 (jobs", ""),
        (120, {120: SUNDAY, 60: NOW}, "note", "1 min: now (jobs", "cluster.time: 1min"),
        (None, {None: SUNDAY}, "note", "not before Sun 2026-11-29 09:00 (jobs", ""),
    ],
)  # fmt: skip
def test_a_late_start_is_asked_for_again_with_less_time(
    seconds: int | None, starts: dict[int | None, float], verdict: str, found: str, mend: str
) -> None:
    results = element_times.judged_forecast(lambda asked: starts.get(asked, 0.0), seconds, NOW)
    assert [result.verdict for result in results] == ([verdict] if verdict else [])
    assert all(found in result.found and result.mend.startswith(mend) for result in results)
    assert all(bool(result.mend) is bool(mend) for result in results)


def test_with_auto_the_time_of_elements_that_nobody_can_estimate_is_asked_for() -> None:
    class Asked(Scripted):
        full = False

        def trial(self, options: JobOptions, exclude: Sequence[str] = ()) -> JobTrial:
            if self.full:
                raise QueueFullError("sbatch failed")
            self.options.append(options)
            return JobTrial(start=time.time() + 86400)

    slurm = Asked()
    (result,) = element_times.results(slurm, JobOptions(core_spec=None), 2 * HOUR)
    assert [options.time for options in slurm.options] == [7200, 3600, 1800]
    assert result.verdict == "note"
    slurm.full = True
    assert element_times.results(slurm, JobOptions(core_spec=None), 0) == []
