"""`penstock run --submit` and `penstock gate DATASET --mend --submit` run the command as a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.core import human
from penstock.core.errors import ConfigError
from penstock.workflow import installation

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from penstock.cli.session import Session
    from penstock.config.settings import Config


def run(parsed: argparse.Namespace, session: Session, may_begin: Callable[[], None]) -> int:
    """Submit a controller for these datasets, unless a job is staging them already (`met`). The result {job,
    met, log, datasets}, with `after` if it waits for other jobs, is written to --receipt. `--progress json`
    prints the result, and --parsable only the job's id. Raises ConfigError for --dry-run. `may_begin` as for
    `controller_job.run`."""
    if parsed.dry_run:
        raise ConfigError(
            "--dry-run says what would be done, and needs no job for that",
            hint="leave out --submit, or --dry-run",
        )
    config = session.config()
    if config.cluster.python is None:
        installation.check_snakemake()
    names = session.names(config, parsed.dataset) if parsed.dataset else []
    _refuse_others(config, names or list(config.datasets))
    task = ["run"]
    task += ["--new-release"] if parsed.new_release else []
    task += ["--copy-unchanged"] if parsed.copy_unchanged else []
    task += ["--cores", str(parsed.cores)] if parsed.cores is not None else []
    job = _submit(session, config, names, task, may_begin)
    if not parsed.parsable and not session.as_json:
        output.show(f"  to end everything:  {' '.join([session.program, 'cancel', *names])}")
        output.show(f"  to end it alone:    scancel {job}   (its arrays run on, and are met again)")
    return 0


def mend(parsed: argparse.Namespace, session: Session, config: Config, dataset: str) -> int:
    """Submit a job for `gate --mend`."""
    task = ["gate", "--mend"]
    task += ["--sample", f"{parsed.sample:.12f}"] if parsed.sample is not None else []
    task += ["--audited-within", f"{parsed.audited_within:.3f}s"] if parsed.audited_within is not None else []
    _submit(session, config, [dataset], task)
    return 0


def refuse_parsable() -> None:
    """Raise ConfigError for --parsable if nothing is submitted."""
    raise ConfigError("--parsable prints the id of a submitted job", hint="give it with --submit")


def _submit(
    session: Session,
    config: Config,
    datasets: Sequence[str],
    task: Sequence[str],
    may_begin: Callable[[], None] = lambda: None,
) -> str:
    """Submit a job for this task, print the place of its output, and return its id."""
    from penstock.cluster.registry import open_cluster
    from penstock.dataset import staging_notice
    from penstock.dataset.context import layout_of
    from penstock.jobs import controller_memory
    from penstock.workflow import controller_job

    parsed = session.parsed
    listings = [
        controller_memory.last_listing(layout_of(config.target, name)) for name in datasets or config.datasets
    ]
    needed = controller_memory.needed(listings, getattr(parsed, "cores", None))
    config = controller_job.with_options(config, needed)
    cluster = open_cluster(config.cluster, warn=output.say)
    job, met, after = controller_job.run(cluster, config, session.file, datasets, task, may_begin=may_begin)
    if task[0] == "run" and not met:
        for name in datasets or config.datasets:
            staging_notice.submitted(layout_of(config.target, name), job, cluster)
    log = f"results/logs/submit-{job}_0.log"
    result = {"job": job, "met": met, "log": log, "datasets": list(datasets or config.datasets)}
    if after:
        result["after"] = list(after)
    session.receipt(result)
    if parsed.parsable:
        output.show(job)
    elif session.as_json:
        output.show_json(result)
    else:
        what = "controller" if task[0] == "run" else "look"
        output.show(f"the {what} {'runs already' if met else 'is submitted'}: job {job}")
        if after:
            output.show(
                f"  it starts when job {', '.join(after)} has ended: a working directory has one controller "
                "at a time (in one of its own it would not wait)"
            )
        if not met:
            memory = human.size(config.cluster.of(controller_job.STEP).memory or 0)
            output.show(f"  its memory:         {memory}")
        output.show(f"  its output:         {log}")
        output.show(f"  a job after it:     sbatch --dependency=afterok:{job} --kill-on-invalid-dep=yes ...")
    return job


def _refuse_others(config: Config, names: Sequence[str]) -> None:
    """Raise PreflightError if this account may stage none of these datasets: the job would wait in the queue
    only to report that. If the account may stage some, the job reports the others."""
    from penstock.core.errors import PreflightError
    from penstock.core.layout import DatasetLayout
    from penstock.target import dataset_folders

    refused: PreflightError | None = None
    for name in names:
        try:
            dataset_folders.check_owner(DatasetLayout(config.target.root, name, config.target.state_root))
        except PreflightError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused
