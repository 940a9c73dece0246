"""The argument parser, made from the table. Global options may stand before or after the command."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.commands import COMMANDS, Command

PROGRESS = ("auto", "rich", "lines", "json", "off")
EXIT_STATUS = """\
exit status: 0 done, 1 failed, 2 usage or configuration, 3 preflight stops, 4 findings,
5 source changed, 6 no space or quota, 7 locked by another run, 130 and 143 stopped by a signal"""


def build() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Staged dataset ingest for GPU clusters: whole or not at all.",
        epilog=EXIT_STATUS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"penstock {penstock.__version__}")
    _global_options(parser, first=True)
    # No `required`: without a command the help is printed.
    children = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        # An entry without `help` is left out of the list but works.
        shown: dict[str, Any] = {} if command.hidden else {"help": command.summary}
        child = children.add_parser(
            command.name,
            **shown,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=EXIT_STATUS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        _global_options(child, first=False)
        _own_arguments(child, command)
    return parser


def _global_options(parser: argparse.ArgumentParser, *, first: bool) -> None:
    def default(value: object) -> object:
        # The command's own parser must not undo what stood before the command.
        return value if first else argparse.SUPPRESS

    parser.add_argument(
        "--config", type=Path, metavar="FILE", default=default(Path("config.yaml")),
        help="the configuration (default: config.yaml)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", choices=("local", "slurm"), default=default(None),
        help="where elements run; goes before cluster.backend",
    )  # fmt: skip
    parser.add_argument(
        "--progress", choices=PROGRESS, default=default("auto"),
        help="how progress is shown on standard error (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--receipt", type=Path, metavar="FILE", default=default(None),
        help="write the result as JSON, durably, when the command succeeds",
    )  # fmt: skip
    parser.add_argument(
        "--log", type=Path, metavar="FILE", default=default(None),
        help="append log lines to FILE; the display stays on standard error",
    )  # fmt: skip


def _own_arguments(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.datasets == "one":
        parser.add_argument("dataset", nargs="?", metavar="DATASET", help="default: the only one")
    elif command.datasets == "some":
        parser.add_argument("dataset", nargs="*", metavar="DATASET", help="default: all of them")
    if command.where == "steps:run":
        # A step that the controller sent to a node: its configuration is the frozen one.
        parser.add_argument("--joined", type=int, metavar="INDEX", help=argparse.SUPPRESS)
    if command.name == "run":
        parser.add_argument("--cores", type=int, metavar="N", help="steps at once (default: the profile's)")
        parser.add_argument("--dry-run", action="store_true", help="show what would run")
    elif command.name == "report":
        parser.add_argument("--html", type=Path, metavar="FILE", help="where the report goes")
    elif command.name == "element":
        parser.add_argument("--run", type=Path, required=True, metavar="FOLDER", help="the run's folder")
        parser.add_argument("--step", choices=("copy", "verify", "audit"), required=True, help="what is done")
        parser.add_argument("--attempt", default="auto", help="a name for this attempt (default: auto)")
        parser.add_argument("index", type=int, metavar="INDEX", help="the shard")
