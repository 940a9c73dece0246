"""Reads what an argparse parser holds, by argparse's private names, for completion, manual page and mistyped
options."""

# ruff: noqa: SLF001

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from penstock.cli.command_table import STEP, Command
from penstock.cli.parser import CommandParser
from penstock.core.human import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """List options and arguments as in the help, without commands."""
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


def refuse(
    parser: argparse.ArgumentParser, unknown: Sequence[str], command: Command | None = None
) -> NoReturn:
    """End as argparse does for unknown words, and propose the options that were meant."""
    accepted = options(parser if command is None else of_command(parser, command))
    mistyped = [word.partition("=")[0] for word in unknown if word.startswith("--")]
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(mistyped, accepted)}")
