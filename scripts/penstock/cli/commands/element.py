"""`penstock element`: imports only what an element needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.command_table import CommandFunctions
from penstock.core import run_steps

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
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


def run(parsed: argparse.Namespace, session: Session) -> int:
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


ELEMENT = CommandFunctions(arguments, run)
