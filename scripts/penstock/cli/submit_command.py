"""`penstock submit`: the controller as a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import Config


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Submit the controller, unless a job that does this is there already (`met`), and print how to follow
    and cancel it. The result, {job, met, log, datasets} and `after` where it waits for other jobs, goes to
    --receipt; `--progress json` prints it, and --parsable prints the job's id alone."""
    from penstock.cli import controller, output
    from penstock.cli.run_command import STATE
    from penstock.cluster.registry import open_cluster
    from penstock.steps import controller_job

    config = controller_job.with_options(session.config())
    names = session.names(config, parsed.dataset) if parsed.dataset else []
    given = {"--new-release": parsed.new_release, "--copy-unchanged": parsed.copy_unchanged}
    further = [option for option, wanted in given.items() if wanted]
    if parsed.mend:
        if further:
            raise ConfigError(f"{further[0]} is of a run, and --mend stages nothing", hint="give one of them")
        # The job is about one dataset, as its command is.
        names = [session.only(config, names[0] if len(names) == 1 else None)]
    else:
        _refuse_others(config, names or list(config.datasets))
    job, met, after = controller_job.run(
        open_cluster(config.cluster, warn=output.say),
        config,
        parsed.config,
        names,
        look=parsed.mend,
        further=further,
        may_begin=lambda: None if parsed.mend else controller.refuse_second(STATE),
    )
    log = f"results/logs/submit-{job}_0.log"
    result = {"job": job, "met": met, "log": log, "datasets": names or list(config.datasets)}
    if after:
        result["after"] = list(after)
    session.receipt(result)
    if parsed.parsable:
        output.show(job)
    elif parsed.progress == "json":
        output.show_json(result)
    else:
        output.show(
            f"the {'look' if parsed.mend else 'controller'} "
            f"{'runs already' if met else 'is submitted'}: job {job}"
        )
        if after:
            output.show(
                f"  it starts when job {', '.join(after)} has ended: a working directory has one controller "
                "at a time (in one of its own it would not wait)"
            )
        output.show(f"  its output:         {log}")
        output.show(f"  a job after it:     sbatch --dependency=afterok:{job} --kill-on-invalid-dep=yes ...")
        if parsed.mend:
            return 0
        output.show(f"  to end everything:  {' '.join([session.program, 'cancel', *names])}")
        output.show(f"  to end it alone:    scancel {job}   (its arrays run on, and are met again)")
    return 0


def _refuse_others(config: Config, names: Sequence[str]) -> None:
    """Raises PreflightError where this account may stage none of these datasets: its job would wait in the
    queue to say so. With one that it may stage, the job says it of the others."""
    from penstock.core.layout import DatasetLayout
    from penstock.errors import PreflightError
    from penstock.storage.registry import open_storage

    refused: PreflightError | None = None
    for name in names:
        try:
            open_storage().check_owner(DatasetLayout(config.target.root, name, config.target.state_root))
        except PreflightError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused
