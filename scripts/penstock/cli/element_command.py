"""`penstock element`: imports nothing but what an element needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Do the work of one element from the state on the target alone."""
    from penstock.bandwidth.cap_file import Cap
    from penstock.runtime import job_environment
    from penstock.runtime.resource_usage import Meter
    from penstock.steps.element import Link, run_element

    link = None
    if parsed.bandwidth_folder is not None:
        link = Link(parsed.bandwidth_folder, Cap(parsed.bandwidth, parsed.requests))
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
        link=link,
    )
