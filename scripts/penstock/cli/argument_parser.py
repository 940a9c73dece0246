"""The argument parser, made from the table of commands; its options and arguments, for completion, the manual
page and the answer to a mistyped option; and the answer to a word that is no command.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.cli import flags
from penstock.cli.command_table import COMMANDS, GROUPS, STEP, Command
from penstock.config.command_options import BACKENDS
from penstock.core import run_steps
from penstock.core.human import nearest, slips

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# The argument parser. Global options may come before or after the command.

PROGRESS_VIEWS = ("auto", "rich", "lines", "json", "off")
EXIT_STATUS = """\
exit status: 0 done, 1 failed, 2 usage or configuration, 3 preflight stops, 4 findings,
5 source changed, 6 no space or quota, 7 locked by another run, 129, 130, 143 stopped by a signal"""


class _Version(argparse.Action):
    """Makes the text only when a user asks for it, since every command builds the parser."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from penstock.cli import output
        from penstock.workflow import installation

        output.show(installation.identity())
        parser.exit()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with 2 and say where the help is; the usage of a command is longer than a screen shows."""
        self.exit(2, f"{self.prog}: {message}\n  `{self.prog} --help` has all options, with examples\n")


class CommandParser(_Parser):
    """A command's parser, which gets its arguments when it first parses. Getting them imports the command's
    module, and every command builds the parsers of all commands."""

    command: Command | None = None  # None once the parser has its arguments

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
    parser = _Parser(
        prog="penstock",
        usage="penstock [OPTION ...] COMMAND ...",
        description=f"Staged dataset ingest for GPU clusters: whole or not at all.\n\n{_groups()}",
        epilog=f"`penstock COMMAND --help` has the arguments of each.\n\n{EXIT_STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print which penstock this is, and end")
    _global_options(parser, first=True)
    # `required` is not set, since help is printed if there is no command.
    children = parser.add_subparsers(
        dest="command", help=argparse.SUPPRESS, prog="penstock", parser_class=CommandParser
    )
    steps = children.add_parser(STEP, description="One step of a run, by hand.", allow_abbrev=False)
    _global_options(steps, first=False)
    below = steps.add_subparsers(dest="command", metavar="STEP", title="steps", required=True)
    for command in COMMANDS:
        add = below.add_parser if command.group == STEP else children.add_parser
        if command.name in run_steps.SINGLE:
            # Steps that only Snakemake calls are not listed.
            add = partial(add, help=command.summary)
        child = add(
            command.word,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        child.command = command
        # Two commands may be typed as the same word: the parsed arguments have the name.
        child.set_defaults(command=command.name, asks_servers=command.asks_servers)
    return parser


def _examples(command: Command) -> list[str]:
    return ["", "examples:", *(f"  {line}" for line in command.examples)] if command.examples else []


def _groups() -> str:
    """List, by group, the commands that people call."""
    lines = []
    for group in GROUPS:
        members = [command for command in COMMANDS if command.group == group]
        lines += [f"{group}:", *(f"    {command.word:<12}{command.summary}" for command in members)]
    return "\n".join(lines)


def _global_options(parser: argparse.ArgumentParser, *, first: bool) -> None:
    def default(value: object) -> object:
        # A command's parser must not undo an option that came before the command.
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


# ruff: noqa: SLF001


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """List options and arguments as the help does, without commands."""
    if isinstance(parser, CommandParser):
        parser.complete()
    return [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]


def options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: action for action in actions(parser) for name in action.option_strings}


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in actions(parser) if not action.option_strings]


def children(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def of_command(parser: argparse.ArgumentParser, command: Command) -> argparse.ArgumentParser:
    own = children(parser)
    return (children(own[STEP]) if command.group == STEP else own)[command.word]


def takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def value_name(action: argparse.Action) -> str:
    """Return the value's name in the documentation: `FILE`, or the choices, `local|slurm`."""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def refuse(
    parser: argparse.ArgumentParser, unknown: Sequence[str], command: Command | None = None
) -> NoReturn:
    """Exit with 2, and suggest the options that were meant, each with what it does."""
    own = parser if command is None else of_command(parser, command)
    accepted = options(own)
    mistyped = [word.partition("=")[0] for word in unknown if word.startswith("-") and word.strip("-")]
    if not mistyped:
        own.error(f"more arguments than it takes: {' '.join(unknown)}")
    meant = [
        f"{option} ({str(accepted[option].help).partition(';')[0].partition(' (')[0]})"
        for word in mistyped
        for option in SAME_OPTIONS.get(word, "").split() or [nearest(word, accepted)]
        if option in accepted
    ]
    said = f"there is no option {', '.join(mistyped)}"
    own.error(f"{said}\n  did you mean {' or '.join(dict.fromkeys(meant))}?" if meant else said)


VALUED = ("--config", "--backend", "--progress", "--receipt", "--log")  # global options that take a value
WITHOUT_COMMAND = ("-h", "--help", "--version")
_SAME_AS: Mapping[str, str] = {
    "run": "resume restart continue sync copy start stage fetch download pull update submit",
    "status": "state progress ps jobs",
    "cancel": "stop kill abort interrupt",
    "releases": "ls list versions snapshots",
    "show": "info inspect details",
    "history": "log logs",
    "du": "df usage size",
    "audit": "verify check scrub",
    "repair": "fix heal",
    "rollback": "restore undo revert",
    "gc": "prune clean cleanup purge",
    "remove": "delete del rm",
    "adopt": "import",
    "preflight": "validate doctor",
    "selftest": "test",
    "limit": "bwlimit throttle throughput",
    "init": "new create setup",
    "--help": "man",
    "--version": "version",
}
# {option of another program: penstock's options that do the same}; a command has some of these
SAME_OPTIONS: Mapping[str, str] = {
    "--force": "--new-release --copy-unchanged --now",
    "-f": "--new-release --copy-unchanged --now",
    "-y": "--yes --now",
    "-n": "--dry-run",
    "-j": "--cores",
    "--jobs": "--cores",
    "--threads": "--cores",
    "-o": "--out",
    "--output": "--out",
    "--verify": "--audited-within",
}
# {word that other programs use: what to type for penstock}
SYNONYMS: Mapping[str, str] = {word: typed for typed, words in _SAME_AS.items() for word in words.split()}
# commands that are suggested only for words that differ by a single slip
DESTRUCTIVE = frozenset({"gc", "remove"})


def with_help(words: Sequence[str]) -> Sequence[str]:
    """Turn `help COMMAND` into `COMMAND --help`. Other words are unchanged."""
    general, own = _split_words(words)
    return [*general, *own[1:], "--help"] if own[:1] == ["help"] else words


def unknown(words: Sequence[str]) -> str | None:
    """Return the message for an unknown command, with the command that was meant, or None for a known
    command. Suggests only commands that people call."""
    _, own = _split_words(words)
    own = own[1:] if own[:1] == ["--"] else own
    step = own[:1] == [STEP]
    # A step's own parser rejects its unknown options.
    named = [word for word in own[step:] if not step or not word.startswith("-")][:1]
    if not named or named[0].startswith("-"):
        return None
    group = [command for command in COMMANDS if (command.group == STEP) == step]
    if any(command.word == named[0] for command in group) or named == [STEP]:
        return None
    of_people = {command.word: command.typed for command in COMMANDS if command.of_people}
    word = f"{STEP} {named[0]}" if step else named[0]
    if meant := _meant(named[0], of_people):
        return f"there is no command {word}; did you mean {meant}?"
    return f"there is no command {word}: `penstock{' step' * step} --help` lists those that there are"


def _meant(word: str, of_people: Mapping[str, str]) -> str:
    if word in SYNONYMS:
        return " or ".join([SYNONYMS[word], *([of_people[word]] if word in of_people else [])])
    near = nearest(word, of_people)
    unlike = near in DESTRUCTIVE and slips(word, near) > 1
    return "" if unlike else of_people.get(near, "")


def before_command(words: Sequence[str]) -> str:
    """Return an unknown option in the command's place, or ""."""
    _, own = _split_words(words)
    first = next(iter(own), "").partition("=")[0]
    return first if first.startswith("-") and first not in (*WITHOUT_COMMAND, "--") else ""


def _split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split off global options with their values."""
    general, own, left = [], [], list(words)
    while left and left[0] != "--":
        word = left.pop(0)
        if word.partition("=")[0] in (*VALUED, "--as-root"):
            general.append(word)
            if word in VALUED and left:
                general.append(left.pop(0))
        else:
            own.append(word)
    return general, own + left
