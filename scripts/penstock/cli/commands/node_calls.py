"""Commands that penstock calls itself, most of them on a node: `penstock element`, `visit`, `selftest-peer`
and `selftest-writer`. Each imports only what it needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import flags
from penstock.cli.command_table import CommandFunctions
from penstock.core import run_steps

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from types import FrameType

    from penstock.cli.session import Session


def element_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, required=True, metavar="FOLDER", help="the run's folder")
    parser.add_argument("--step", choices=run_steps.IN_ELEMENTS, required=True, help="what is done")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="the target (default: as listed)")
    parser.add_argument(
        "--ops", type=int, default=0, metavar="N",
        help="metadata operations a second of all runs (default: no budget)",
    )  # fmt: skip
    parser.add_argument("--ops-holder", default="", metavar="ID", help="of the run (default: its own)")
    parser.add_argument(
        "--keep-free",
        type=int,
        default=0,
        metavar="N",
        help="bytes that stay free on the target (default: 0)",
    )
    parser.add_argument(
        "--bandwidth-folder", type=Path, metavar="FOLDER", help="of the link's shares (default: no cap)"
    )
    parser.add_argument("--link-holder", default="", metavar="ID", help="of the run (default: its own)")
    parser.add_argument("--bandwidth", type=int, metavar="N", help="bytes a second of all elements")
    parser.add_argument("--requests", type=int, metavar="N", help="requests a second of all elements")
    parser.add_argument("--array", required=True, metavar="NAME", help="of the worker")
    parser.add_argument(
        "--retries", type=int, default=0, metavar="N", help="how often a shard is tried again"
    )
    parser.add_argument("--read-back", action="store_true", help="what is copied, too, beside the copy")
    parser.add_argument("index", type=int, metavar="INDEX", help="the worker's number")


def run_element(parsed: argparse.Namespace, session: Session) -> int:
    """Do an element's work from the state on the target alone."""
    from penstock.config.settings import BandwidthConfig
    from penstock.jobs.element import Limits
    from penstock.jobs.worker import run_worker

    bandwidth = BandwidthConfig(parsed.bandwidth_folder, parsed.bandwidth, requests=parsed.requests)
    limits = Limits(parsed.ops, parsed.ops_holder, parsed.keep_free, bandwidth, parsed.link_holder)
    return run_worker(
        parsed.run,
        parsed.step,
        parsed.index,
        parsed.array,
        session.stop,
        parsed.root,
        retries=parsed.retries,
        limits=limits,
        reads_back=parsed.read_back,
    )


ELEMENT = CommandFunctions(element_arguments, run_element)


# `penstock visit`: preflight's probe on a node. It opens a dataset's sources, and reads mounts and the node's
# facts.

DEADLINE = 40  # seconds for all sources together, since the probe's job has a minute


def visit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--answer", type=Path, required=True, metavar="FILE", help="says what failed")


def run_visit(parsed: argparse.Namespace, session: Session) -> int:
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


VISIT = CommandFunctions(visit_arguments, run_visit)


def selftest_peer_arguments(parser: argparse.ArgumentParser) -> None:
    flags.folder(parser)


def run_selftest_peer(parsed: argparse.Namespace, session: Session) -> int:  # noqa: ARG001 (as every command)
    from penstock.doctor import selftest_two_nodes

    selftest_two_nodes.serve(parsed.folder, sys.stdin, sys.stdout)
    return 0


SELFTEST_PEER = CommandFunctions(selftest_peer_arguments, run_selftest_peer)


def selftest_writer_arguments(parser: argparse.ArgumentParser) -> None:
    flags.folder(parser)


def run_selftest_writer(parsed: argparse.Namespace, session: Session) -> int:  # noqa: ARG001 (as every command)
    """Write some dozens of files slowly. Returns 0 where nobody killed the process."""
    from penstock.doctor import selftest

    selftest.write(parsed.folder)
    return 0


SELFTEST_WRITER = CommandFunctions(selftest_writer_arguments, run_selftest_writer)
