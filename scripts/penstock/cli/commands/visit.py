"""`penstock visit`: preflight's probe on a node. It opens a dataset's sources, and reads mounts and the
node's facts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from types import FrameType

    from penstock.cli.session import Session

DEADLINE = 40  # seconds for all sources together, since the probe's job has a minute


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--answer", type=Path, required=True, metavar="FILE", help="says what failed")


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Write the answer (`core.node_answer`) to --answer; return 0 when every source opens, else
    `VISIT_FAILED`."""
    from penstock.cluster.port import VISIT_FAILED
    from penstock.config.serialization import from_json
    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core import node_answer
    from penstock.doctor import preflight_step
    from penstock.fs import owners

    request = json.loads(sys.stdin.readline())
    late = TimeoutError(f"no answer within {DEADLINE} s")
    passed = False

    def end(_: int, __: FrameType | None) -> None:
        nonlocal passed
        passed = True
        raise late

    def check() -> None:
        session.stop.check()
        if passed:
            raise late

    @contextlib.contextmanager
    def deadline() -> Iterator[None]:
        signal.signal(signal.SIGALRM, end)
        signal.alarm(DEADLINE)
        try:
            yield
        finally:
            signal.alarm(0)

    answer = preflight_step.answer(
        from_json(DatasetConfig, request["dataset"]),
        from_json(TargetConfig, request["target"]),
        check,
        deadline(),
        request.get("acl_numbers", ()),
        bandwidth_folder=Path(request["link"]) if request.get("link") else None,
        mark=request.get("mark", ""),
    )
    with parsed.answer.open("w", encoding="utf-8") as stream:
        made = os.fstat(stream.fileno())
        answer = answer._replace(written=owners.owner(made.st_uid, made.st_gid))
        stream.write(json.dumps(node_answer.NODE_ANSWER.to_json(answer)))
    return VISIT_FAILED if answer.errors else 0


VISIT = CommandFunctions(arguments, run)
