"""`penstock step copy`, `permissions`, `verify`, `publish`: steps that print nothing but progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock step STEP imagenet", "penstock step STEP imagenet --receipt STEP.json")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.run(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    return step_runner.run(parsed, session)


COPY = PERMISSIONS = VERIFY = PUBLISH = CommandFunctions(arguments, run, EXAMPLES)
