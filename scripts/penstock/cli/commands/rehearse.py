"""`penstock rehearse`: copies a sample of a dataset, reads it back, removes it. Writes measurements into the
dataset's state."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import flags
from penstock.cli.command_table import CommandFunctions
from penstock.config import quantities
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock rehearse imagenet", "penstock rehearse imagenet --time 5min --sweep 8,16,32,64")
MOST = 4096  # number of streams, at most, as for `engine.streams`
STREAMS = f"numbers of streams from 1 to {MOST}, such as 8,16,32"


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    parser.add_argument(
        "--time", type=flags.value(quantities.read_duration), default=60.0, metavar="DURATION",
        help="how long it copies in all (default: 1min)",
    )  # fmt: skip
    parser.add_argument(
        "--sweep", type=flags.value(_streams, STREAMS), default=(), metavar="N,N,...",
        help="try these numbers of streams, each for its part of the time, and say which is enough",
    )  # fmt: skip
    parser.add_argument(
        "--csv", type=flags.written("RATES"), metavar="FILE",
        help="with --sweep: where the table goes, and beside it a plot, as .svg "
        "(default: results/rehearsal-DATASET.csv)",
    )  # fmt: skip
    parser.add_argument(
        "--fio",
        type=flags.written("FIO_JOB"),
        metavar="FILE",
        help="write a job for fio with files of the same sizes",
    )
    flags.json_lines(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.core import run_documents
    from penstock.look.views import plan_text
    from penstock.run import rehearsal

    if parsed.csv and (not parsed.sweep or parsed.csv.suffix == ".svg"):
        raise ConfigError(
            "--csv names the table of --sweep", hint="a file such as rates.csv; the plot is rates.svg"
        )
    config = session.config()
    name = session.only(config, parsed.dataset)
    with session.context(config) as context:
        done, sizes = rehearsal.rehearse(context, name, parsed.time, parsed.sweep)
    session.show_rows([done], partial(plan_text.render_rehearsal, done))
    if parsed.sweep:
        csv = parsed.csv or Path("results") / f"rehearsal-{name}.csv"
        _write(csv, plan_text.csv(done), "RATES")
        _write(csv.with_suffix(".svg"), plan_text.svg(done), "RATES")
    if parsed.fio:
        _write(parsed.fio, run_documents.fio_job(name, sizes, done.leg.streams, done.durability), "FIO_JOB")
    return 0


def _write(path: Path, text: str, own: str) -> None:
    """Write whole; to a device as it is. `own` as of `flags.written`."""
    from penstock.fs import small_files
    from penstock.fs.safe_open import storage_error

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with small_files.output(path, getattr(small_files, own)) as file:
            file.stream.write(text.encode())
            file.close()
    except OSError as error:
        raise storage_error(error, "a result cannot be written", str(path)) from error


def _streams(text: str) -> tuple[int, ...]:
    numbers = sorted({int(word) for word in text.split(",")})
    if not 1 <= numbers[0] <= numbers[-1] <= MOST:
        raise ValueError
    return tuple(numbers)


REHEARSE = CommandFunctions(arguments, run, EXAMPLES)
