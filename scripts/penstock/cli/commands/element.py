"""`penstock element`: imports nothing but what an element needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import step_table

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, required=True, metavar="FOLDER", help="the run's folder")
    parser.add_argument("--step", choices=step_table.IN_ELEMENTS, required=True, help="what is done")
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="the target (default: as listed)")
    parser.add_argument("--attempt", default="auto", help="a name for this attempt (default: auto)")
    parser.add_argument(
        "--ops", type=int, default=0, metavar="N",
        help="metadata operations a second of all runs (default: no budget)",
    )  # fmt: skip
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="elements that may run at once (default: 1)"
    )
    parser.add_argument(
        "--bandwidth-folder", type=Path, metavar="FOLDER", help="of the link's shares (default: no cap)"
    )
    parser.add_argument("--bandwidth", type=int, metavar="N", help="bytes a second of all elements")
    parser.add_argument("--requests", type=int, metavar="N", help="requests a second of all elements")
    parser.add_argument("index", type=int, metavar="INDEX", help="the shard")


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Do the work of one element from the state on the target alone."""
    from penstock.host import job_environment
    from penstock.host.resource_usage import Meter
    from penstock.jobs.bandwidth.cap_file import Cap
    from penstock.jobs.elements.element import BandwidthCap, run_element

    bandwidth = None
    if parsed.bandwidth_folder is not None:
        bandwidth = BandwidthCap(parsed.bandwidth_folder, Cap(parsed.bandwidth, parsed.requests))
    return run_element(
        parsed.run,
        parsed.step,
        parsed.index,
        parsed.attempt,
        session.stop,
        parsed.root,
        ops=parsed.ops,
        at_once=parsed.at_once,
        meter=Meter(whole=True, cgroup=job_environment.current().cgroup),
        bandwidth=bandwidth,
    )
