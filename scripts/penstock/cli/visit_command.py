"""`penstock visit`: what preflight's probe does on a node. It opens a dataset's sources there."""

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
    """0 when every source opens; else `VISIT_FAILED`, with the reasons in the file of --answer."""
    from penstock.cluster.port import VISIT_FAILED
    from penstock.config.serialization import from_json
    from penstock.config.settings import DatasetConfig
    from penstock.errors import PenstockError
    from penstock.listing.collection import open_sources

    given = json.loads(sys.stdin.readline())
    dataset = from_json(DatasetConfig, given["dataset"])
    wrong = []

    def late(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {DEADLINE} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(DEADLINE)
    try:
        for source in open_sources(dataset, given["timeout"]):
            session.stop.check()
            source.check()
    except (PenstockError, OSError) as error:
        wrong.append(str(error))
    signal.alarm(0)
    if wrong:
        parsed.answer.write_text("\n".join(wrong), encoding="utf-8")
        return VISIT_FAILED
    return 0
