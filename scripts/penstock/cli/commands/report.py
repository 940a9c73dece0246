"""`penstock report`: the HTML report, and the closing summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.look.views import summary

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock report imagenet", "penstock report imagenet --html report.html")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.run(parser)
    parser.add_argument(
        "--html",
        type=flags.written("PAGE"),
        metavar="FILE",
        help="write the HTML report here (default: none)",
    )


def run(parsed: argparse.Namespace, session: Session) -> int:
    options = {} if parsed.html is None else {"html": parsed.html}
    return step_runner.run(parsed, session, summary.render, **options)


REPORT = CommandFunctions(arguments, run, EXAMPLES)
