"""`penstock plan`: how long a dataset's next run will take, and what limits it. Writes only temporary files
in TMPDIR."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import flags
from penstock.cli.command_table import CommandFunctions
from penstock.config import quantities

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock plan imagenet", 'penstock plan --assume "20PB, 200M files, link=70Gbit/s"')


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    parser.add_argument("--explain", action="store_true", help="what it does in any case")
    parser.add_argument(
        "--assume", type=flags.value(quantities.read_assumption), metavar="TEXT",
        default=quantities.Assumption(),
        help="rates, nodes and prices that nothing else says; with a size, of no dataset: "
        "no source is looked at",
    )  # fmt: skip
    flags.json_lines(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.core import typed_json
    from penstock.core.errors import ConfigError
    from penstock.look import explanation
    from penstock.look.views import plan_text

    assumed = parsed.assume
    sized = (assumed.bytes, assumed.files) != (None, None)
    if sized and parsed.dataset:
        raise ConfigError(
            "a size is given, and a dataset is named that has its own",
            where="--assume",
            hint="leave out one of them; rates, nodes and prices may be given for a dataset",
        )
    if sized:
        plans = [explanation.assumed(assumed)]
    else:
        config = session.config()
        names = session.names(config, parsed.dataset)
        with session.context(config) as context:
            plans = [explanation.of_dataset(context, name, assumed) for name in names]
    for plan in plans:
        session.show_rows([typed_json.plain(plan)], partial(plan_text.render_plan, plan))
    return 0


EXPLAIN = CommandFunctions(arguments, run, EXAMPLES)
