"""The argument parser, made from the table. Global options may stand before or after the command."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, NoReturn

from penstock.cli import flags
from penstock.cli.command_table import COMMANDS, GROUPS, STEP, Command
from penstock.config.backends import BACKENDS
from penstock.core import step_table

PROGRESS_VIEWS = ("auto", "rich", "lines", "json", "off")
EXIT_STATUS = """\
exit status: 0 done, 1 failed, 2 usage or configuration, 3 preflight stops, 4 findings,
5 source changed, 6 no space or quota, 7 locked by another run, 129, 130, 143 stopped by a signal"""


class _Version(argparse.Action):
    """Makes the text when it is asked for: every command builds the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from penstock.cli import output
        from penstock.workflow import installation

        output.show(installation.identity())
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """A command's parser, completed when it first parses: that imports the command's module, and every
    command builds the parsers of all."""

    command: Command | None = None  # None: it has its arguments

    def complete(self) -> None:
        command, self.command = self.command, None
        if command is not None:
            self.epilog = "\n".join([EXIT_STATUS, *_examples(command)])
            _global_options(self, first=False)
            command.load().arguments(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.complete()
        return super().parse_known_args(args, namespace)


def build() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock",
        usage="penstock [OPTION ...] COMMAND ...",
        description=f"Staged dataset ingest for GPU clusters: whole or not at all.\n\n{_groups()}",
        epilog=f"`penstock COMMAND --help` has the arguments of each.\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print which penstock this is, and end")
    _global_options(parser, first=True)
    # No `required`: without a command, help is printed.
    children = parser.add_subparsers(
        dest="command", help=argparse.SUPPRESS, prog="penstock", parser_class=CommandParser
    )
    steps = children.add_parser(STEP, description="One step of a run, by hand.", allow_abbrev=False)
    _global_options(steps, first=False)
    below = steps.add_subparsers(dest="command", metavar="STEP", title="steps", required=True)
    for command in COMMANDS:
        add = below.add_parser if command.group == STEP else children.add_parser
        if command.name in step_table.SINGLE:
            # Steps that only Snakemake calls are not listed.
            add = partial(add, help=command.summary)
        child = add(
            command.word,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        child.command = command
        child.set_defaults(command=command.name)  # two commands may have one word
    return parser


def _examples(command: Command) -> list[str]:
    return ["", "examples:", *(f"  {line}" for line in command.examples)] if command.examples else []


def _groups() -> str:
    """List the commands of people by group."""
    lines = []
    for group in GROUPS:
        members = [command for command in COMMANDS if command.group == group]
        lines += [f"{group}:", *(f"    {command.word:<12}{command.summary}" for command in members)]
    return "\n".join(lines)


def _global_options(parser: argparse.ArgumentParser, *, first: bool) -> None:
    def default(value: object) -> object:
        # A command's parser must not undo an option before the command.
        return value if first else argparse.SUPPRESS

    parser.add_argument(
        "--config", type=flags.path, metavar="FILE", default=default(None),
        help="the configuration (default: PENSTOCK_CONFIG of the environment, else penstock.yaml, else "
        "config.yaml, in the working directory)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", choices=BACKENDS, default=default(None),
        help="where elements run; goes before cluster.backend",
    )  # fmt: skip
    parser.add_argument(
        "--progress", choices=PROGRESS_VIEWS, default=default("auto"),
        help="how progress is shown on standard error (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--receipt", type=flags.written("RECEIPT"), metavar="FILE", default=default(None),
        help="write the result as JSON, durably; with findings, and of `run`, also when it fails",
    )  # fmt: skip
    parser.add_argument(
        "--log", type=flags.written("LOG"), metavar="FILE", default=default(None),
        help="append log lines to FILE; the display stays on standard error",
    )  # fmt: skip
    parser.add_argument(
        "--as-root", action="store_true", default=default(False),
        help="stage and decide as root (uid 0), which is refused otherwise",
    )  # fmt: skip
