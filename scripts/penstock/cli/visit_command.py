"""`penstock visit`: what preflight's probe does on a node. It opens a dataset's sources there, and judges
the mounts of that node."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from penstock.cli.session import Session

DEADLINE = 40
"""Seconds for all sources: the probe's job has a minute."""


def run(parsed: argparse.Namespace, session: Session) -> int:
    """0 when every source opens and no mount is worse than where preflight runs. `VISIT_FAILED` and
    `VISIT_WARNED`, with reasons and warnings in the file of --answer, else."""
    from penstock.cluster.port import VISIT_FAILED, VISIT_WARNED
    from penstock.config.serialization import from_json
    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.errors import PenstockError
    from penstock.listing.collection import open_sources
    from penstock.steps.preflight import mounts

    given = json.loads(sys.stdin.readline())
    dataset = from_json(DatasetConfig, given["dataset"])
    wrong, warned = [], []

    def late(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {DEADLINE} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(DEADLINE)
    try:
        for source in open_sources(dataset, given["timeout"]):
            session.stop.check()
            source.check()
        target = from_json(TargetConfig, given["target"])
        warned = mounts.elsewhere(target, dataset, given["known"], given["kind"])
    except (PenstockError, OSError) as error:
        wrong.append(str(error))
    signal.alarm(0)
    if wrong:
        parsed.answer.write_text("\n".join(wrong), encoding="utf-8")
        return VISIT_FAILED
    if warned:
        parsed.answer.write_text("\n".join(warned), encoding="utf-8")
        return VISIT_WARNED
    return 0
