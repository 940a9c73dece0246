"""`penstock describe`: a release in a standard form, on standard output or in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock describe imagenet", "penstock describe imagenet 20261101-1f2e3d4c > croissant.json")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser, "name")
    flags.release(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    """Print a release's description; name on standard error what catalogues want in addition."""
    from penstock.keep import release_supplements

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        description = release_supplements.describe(context, name, parsed.release)
        for piece in description.pieces:
            output.show_piece(piece)
    if description.left_out:
        keys = ", ".join(f"`{key}`" for key in description.left_out)
        output.say(f"{name}: catalogues ask for more than the file that `describe` names has: {keys}")
    session.receipt({"dataset": name, "release": description.release, "left_out": list(description.left_out)})
    return 0


DESCRIBE = CommandFunctions(arguments, run, EXAMPLES)
