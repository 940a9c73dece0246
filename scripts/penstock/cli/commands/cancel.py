"""`penstock cancel`: ends what runs of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from penstock.cli.session import Session

EXAMPLES = ("penstock cancel imagenet", "penstock cancel imagenet --root /beegfs/datasets")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """End the arrays of unfinished runs; what was copied stays and is resumed. A submitted controller that
    has not begun is ended where all its datasets are cancelled, else named; with --root none is known."""
    from penstock.config.settings import Config, DatasetConfig
    from penstock.jobs import array_orders
    from penstock.workflow import controller_job

    if parsed.root is None:
        config = session.config()
        names = session.names(config, parsed.dataset)
    elif parsed.dataset:
        below = dataset_choice.chosen_datasets(parsed, session)
        names = [layout.dataset for layout in below.layouts(parsed.dataset)]
        config = Config(below.target, {name: DatasetConfig(name, ()) for name in names})
    else:
        raise ConfigError("which dataset?", where="--root", hint="name those whose work is to end")
    ended: dict[str, list[str]] = {}
    with session.context(config) as context:

        def cancel(name: str) -> None:
            ended[name] = array_orders.cancel(context, name)
            output.show(f"{name}: {_sentence(name, ended[name])}")

        _, code = session.apart(names, cancel)
        jobs = {} if parsed.root else controller_job.waiting(context.cluster, session.file)
        for job, (datasets, _) in jobs.items():
            end = f"scancel {job} ends it, for {', '.join(datasets) or 'whatever it was submitted for'}"
            if datasets and {*datasets} <= {*ended}:
                context.cluster.cancel(job)
                end = "ended"
            output.show(f"the submitted controller, job {job}, had not begun: {end}")
    session.receipt({"datasets": ended})
    return code


def _sentence(name: str, lines: Sequence[str]) -> str:
    """`lines`: of `array_orders.cancel`; those that begin with NOT name what this command could not end."""
    done = [line for line in lines if not line.startswith("NOT ")]
    left = [line for line in lines if line.startswith("NOT ")]
    if not lines:
        return "nothing is running to cancel"
    done = [f"cancelled {' and '.join(done)}"] if done else []
    return "; ".join([*done, *left, f"`penstock run {name}` continues"])


CANCEL = CommandFunctions(arguments, run, EXAMPLES)
