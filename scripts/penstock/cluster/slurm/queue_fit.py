"""For preflight: whether elements fit what the site lets this account have now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.cluster.slurm import job_limits, placement, reservations
from penstock.cluster.slurm.submission import Account
from penstock.runtime import job_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.port import Facts, Slurm
    from penstock.config.settings import JobOptions
    from penstock.core.checks import CheckResult


def results(slurm: Slurm, asked: Sequence[JobOptions], known: Facts) -> list[CheckResult]:
    """What keeps jobs with these options from starting, or some of them; notes on what they will get. Raises
    as the port to SLURM."""
    nodes, kept = slurm.nodes(), slurm.reservations()
    default = slurm.default_partition()
    found: list[CheckResult] = []
    for options in asked:
        places = job_limits.places(slurm, options, known, Account.own().name)
        able = placement.able(options, nodes, default)
        in_job = bool(job_environment.current().job)
        found += placement.differences(options, able)
        found += job_limits.judged(options, places, job_limits.limits(known, places), in_job=in_job)
        found += reservations.judged(options, able, places.partitions, kept, time.time())
    return list(dict.fromkeys(found))
