"""`penstock submit`: the controller as a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Submit it, unless it is there already, and say how to follow and end it."""
    from penstock.cli import output
    from penstock.cli.run import home
    from penstock.cluster.opening import open_cluster
    from penstock.steps import submitting

    home()
    config = submitting.with_options(session.config())
    names = session.names(config, parsed.dataset) if parsed.dataset else []
    job, met = submitting.run(open_cluster(config.cluster), parsed.config, names, config.cluster.python)
    output.show(f"the controller {'runs already' if met else 'is submitted'}: job {job}")
    output.show(f"  its output:  results/logs/submit-{job}_0.log")
    output.show(f"  to end it:   scancel {job}   (arrays run on; `penstock cancel` ends those)")
    return 0
