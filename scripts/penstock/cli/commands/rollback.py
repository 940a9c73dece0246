"""`penstock rollback`: leads `current` back to an earlier release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock rollback imagenet", "penstock rollback imagenet 20261101-1f2e3d4c")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser, "name")
    parser.add_argument(
        "release", nargs="?", metavar="RELEASE",
        help="default: the one that was current before this one was published",
    )  # fmt: skip


def run(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.keep import retention_steps

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        result = retention_steps.rollback(context, name, parsed.release)
    release, left = result["release"], result["left"]
    if result["finished"]:
        text = f"the interrupted rollback from {left} is finished: current is {release}"
    elif left:
        text = f"current is {release}; it was {left}"
    else:
        text = f"current is {release} already"
    output.show(f"{name}: {text}")
    session.receipt(result)
    return 0


ROLLBACK = CommandFunctions(arguments, run, EXAMPLES)
