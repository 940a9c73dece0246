"""For preflight: whether elements fit what the site lets this account have now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.cluster.slurm import job_limits, placement, reservations
from penstock.cluster.slurm.submission import Account
from penstock.core.checks import CheckResult
from penstock.runtime import job_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cluster.slurm.port import Facts, Slurm
    from penstock.config.settings import JobOptions


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
        found += placement.none_left(options, nodes, default)
        found += placement.differences(options, able)
        found += job_limits.judged(options, places, job_limits.limits(known, places), in_job=in_job)
        found += reservations.judged(options, able, places.partitions, kept, time.time())
        found += _wckey(options, known)
    return list(dict.fromkeys(found))


def _wckey(options: JobOptions, known: Facts) -> list[CheckResult]:
    if options.wckey is None or known.tracks_wckeys:
        return []
    return [
        CheckResult(
            "cluster.wckey",
            "this cluster ignores it: TrackWCKey=No in its slurm.conf",
            "warning",
            "TrackWCKey=Yes",
            "set cluster.wckey: null, or ask the site to keep them",
        )
    ]
