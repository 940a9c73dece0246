"""`penstock step list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.look.views.result_texts import block

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.step_results import ListResult

EXAMPLES = ("penstock step list imagenet", "penstock step list imagenet --receipt list.json")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.new_release(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    return step_runner.run(parsed, session, render)


def render(result: ListResult) -> str:
    amount = f"{human.counted(result['files'], 'file')}, {human.size(result['bytes'])}"
    rows = [
        ("Scanned", human.counted(result["scanned"], "object")),
        ("Left out", ", ".join(human.of_kinds(result["ignored"]))),
        ("To stage", "" if result["published"] else amount),
        ("Release", f"{result['release']}{', published already' if result['published'] else ''}"),
        ("Current", result["current"] or "none"),
    ]
    return block(result["dataset"], rows)


LIST = CommandFunctions(arguments, run, EXAMPLES)
