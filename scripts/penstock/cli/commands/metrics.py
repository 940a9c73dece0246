"""`penstock metrics`: the datasets below a root as series for Prometheus. Reads only, for any account; writes
the file of --out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.cli.dataset_choice import TargetDatasets
from penstock.core.errors import FailedError, NoSpaceError, PenstockError
from penstock.core.human import printable
from penstock.fs import small_files, watched_facts
from penstock.fs.safe_open import NO_SPACE
from penstock.host import kernel_facts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.cli.session import Session
    from penstock.config.settings import Config

EXAMPLES = (
    "penstock metrics --root /beegfs/datasets",
    "penstock metrics --root /beegfs/datasets --out /var/lib/prometheus/node-exporter/penstock.prom",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.root(parser)
    what = "write this file anew, whole, for everybody to read (default: standard output)"
    parser.add_argument("--out", type=flags.written("METRICS"), metavar="FILE", help=what)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Write the series of all or the named datasets. Raises FailedError or NoSpaceError where the file cannot
    be written, which stays as it was."""
    _write(dataset_choice.chosen_datasets(parsed, session), parsed.dataset, parsed.out)
    return 0


def refuse_another(config: Config) -> None:
    """Raise ConfigError where the configured `metrics` is a file of another kind."""
    if config.metrics is not None:
        small_files.refuse_another(config.metrics, small_files.METRICS)


def at_end_of_run(config: Config) -> str:
    """Write the configured `metrics` file of the whole root; return why that failed, or "". Not in a SLURM
    job: on its node the file would grow old."""
    try:
        if config.metrics is not None and not kernel_facts.current_job().proven:
            watched_facts.require_answer(config.target.root)
            _write(TargetDatasets(config.target, list(config.datasets)), [], config.metrics)
    except (PenstockError, OSError, ImportError) as error:
        return str(error)
    return ""


def _write(datasets: TargetDatasets, names: Sequence[str], path: Path | None) -> None:
    from penstock.look import metrics

    content = metrics.text(datasets.target, datasets.layouts(names), datasets.owners)
    if path is None:
        return output.show(content.decode())
    try:
        with small_files.output(path, small_files.METRICS) as file:
            file.stream.write(content)
            file.close()
    except OSError as error:
        raise (NoSpaceError if error.errno in NO_SPACE else FailedError)(
            "the metrics cannot be written",
            where=printable(str(path)),
            why=error.strerror or str(error),
            hint="name a file in a folder that is there, has room, and that this account may write",
        ) from error


METRICS = CommandFunctions(arguments, run, EXAMPLES)
