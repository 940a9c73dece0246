"""`penstock sign`: signs a release that was published without a signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags, output
from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session

EXAMPLES = ("penstock sign imagenet", "penstock sign imagenet 20261101-1f2e3d4c")


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.dataset(parser, "name")
    flags.release(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:
    from penstock.keep import release_supplements

    config = session.config()
    name = session.only(config, parsed.name)
    with session.context(config) as context:
        done = release_supplements.sign(context, name, parsed.release)
    what = f"{name}: {done['release']}"
    output.show(
        f"{what} is signed" if done["signed"] else f"{what} was signed already, and the signature holds"
    )
    session.receipt(done)
    return 0


SIGN = CommandFunctions(arguments, run, EXAMPLES)
