"""`penstock remove`: removes releases by name, or a dataset with all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions
from penstock.core.errors import ConfigError, PreflightError

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = (
    "penstock remove imagenet 20261101-1f2e3d4c --dry-run",
    "penstock remove imagenet --all --now",
)
HELD = PreflightError.exit_code


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="DATASET", help="whose releases")
    parser.add_argument(
        "release", nargs="*", default=[], metavar="RELEASE", help="which ones; none with --all"
    )
    parser.add_argument(
        "--all", action="store_true",
        help="all of them, with `current`, the history and all state: the dataset is gone then",
    )  # fmt: skip
    flags.removal(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--now", action="store_true",
        help="do not wait for gc.grace: readers that have not pinned may still read it",
    )  # fmt: skip


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Remove releases, or the dataset with --all. Returns HELD where a reader or run took hold of one after
    the command began: it stays."""
    from penstock.keep import retention_steps
    from penstock.look.views import result_texts

    config = session.config()
    name = session.only(config, parsed.name)
    if parsed.all == bool(parsed.release):
        raise ConfigError("which releases?", hint="name them, or remove the dataset with all of them: --all")
    work = (
        retention_steps.remove_all if parsed.all else partial(retention_steps.remove, releases=parsed.release)
    )
    with session.context(config) as context:
        result = work(context, name, dry_run=parsed.dry_run, now=parsed.now, unpinned=tuple(parsed.unpin))
    session.receipt(result)
    session.show(result, partial(result_texts.collected, result, output.columns(piped=0)))
    stay = not parsed.dry_run and any(release["held_by"] for release in result["releases"])
    return HELD if stay else 0


REMOVE = CommandFunctions(arguments, run, EXAMPLES)
