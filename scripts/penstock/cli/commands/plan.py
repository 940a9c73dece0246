"""`penstock step plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, step_runner
from penstock.cli.command_table import CommandFunctions
from penstock.core import human
from penstock.look.views.result_texts import block

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session
    from penstock.core.step_results import PlanResult

EXAMPLES = ("penstock step plan imagenet", "penstock step plan imagenet --receipt plan.json")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.datasets(parser)
    flags.run(parser)
    flags.copy_unchanged(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    return step_runner.run(parsed, session, render)


def render(result: PlanResult) -> str:
    files, size = result["files"] - result["unchanged"], result["bytes"] - result["unchanged_bytes"]
    unchanged = f"{human.counted(result['unchanged'], 'file')}, {human.size(result['unchanged_bytes'])}"
    rows = [
        ("Release", f"{result['release']}{', published already' if result['published'] else ''}"),
        ("To copy", f"{human.counted(files, 'file')}, {human.size(size)}"),
        ("Unchanged", f"{unchanged}, of {result['base']}" if result["unchanged"] else ""),
        ("Renamed", f"{human.count(result['renamed'])} of them" if result["renamed"] else ""),
        ("Giants", human.count(result["giants"]) if result["giants"] else ""),
        ("Shards", human.count(result["shards"]) if result["shards"] else ""),
        *(("", text) for text in result["why"]),
    ]
    return block(result["dataset"], rows)


PLAN = CommandFunctions(arguments, run, EXAMPLES)
