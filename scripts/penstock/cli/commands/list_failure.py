"""`penstock step list-failure`: the job of a dataset that its group could not list (`list_group`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli import flags
from penstock.cli.command_table import CommandFunctions
from penstock.core.errors import FailedError
from penstock.fs import small_files
from penstock.workflow import exit_files

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser)
    parser.add_argument("--group", type=Path, required=True, metavar="FILE", help="what `list-group` wrote")


def run(parsed: argparse.Namespace, session: Session) -> int:
    """End with the message and exit status of the dataset's listing."""
    name = session.only(session.config(), parsed.dataset)
    try:
        left = exit_files.Left(**small_files.read_json(parsed.group)["failed"][name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FailedError(
            "what became of a listing cannot be read", where=str(parsed.group), why=str(error)
        ) from None
    session.failed = left.command
    session.failure = exit_files.CommandFailure(
        left.exit, f"{name}: {left.text}", left.reason, left.cancelled, left.overtaken
    )
    return left.exit


LIST_FAILURE = CommandFunctions(arguments, run)
