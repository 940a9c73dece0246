"""`penstock path`: the folder that a training job reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import dataset_choice, flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.core.errors import NoSpaceError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.dataset_choice import Reading
    from penstock.cli.session import Session
    from penstock.dataset.gate import Published

EXAMPLES = (
    "data=$(penstock path imagenet --job) || exit 1",
    "data=$(penstock path imagenet --root /beegfs/datasets --job) || exit 1",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    flags.root(parser)
    flags.json_lines(parser)
    parser.add_argument(
        "--job", action="store_true",
        help="keep the release from being removed while this job runs, and give the job the same one "
        "also when it is started again; outside of a job, of the script or shell that calls this",
    )  # fmt: skip


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Print the data folder of the current release, where the gate is open. A job resolves it once, and reads
    one release whatever is published later. --job pins it, also for a restarted job."""
    reading = dataset_choice.chosen_reading(parsed, session, parsed.dataset)
    reading.warn_of_hold()
    with reading.reported(session) as answer:
        judgement, pin = _given(reading) if parsed.job else (reading.judged(), "")
        answer |= {"release": judgement.release, "path": str(judgement.data), "pin": pin}
    if not parsed.json:
        output.show_path(judgement.data)
    if pin:
        output.say(f"{reading.dataset}: {pin}")
    return 0


def _given(reading: Reading) -> tuple[Published, str]:
    """Return the release that this job got first, else the current one, and its pin in words ("" where no
    space is left)."""
    from penstock.dataset import pins

    layout, judge = reading.layout, reading.judged
    try:
        judgement, pin = pins.of_reader(layout, judge)
    except NoSpaceError as error:
        output.say(
            f"warning: {reading.dataset}: the release is not pinned: {error}\n"
            "  the command goes on without: the release stays while `current` names it, and for gc.grace "
            f"after that ({human.duration(reading.grace)}, or the longest time of a job), unless its owner "
            "removes it with --now; a job that is started again may be given a newer one"
        )
        first_pin = pins.first(layout)
        return judge(first_pin.release if first_pin is not None else None), ""
    return judgement, pin.words()


PATH = CommandFunctions(arguments, run, EXAMPLES)
