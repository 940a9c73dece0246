"""`penstock selftest-peer`: one of the two nodes of a selftest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.cli import flags
from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.folder(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:  # noqa: ARG001 (as every command)
    from penstock.doctor import selftest_two_nodes

    selftest_two_nodes.serve(parsed.folder, sys.stdin, sys.stdout)
    return 0


SELFTEST_PEER = CommandFunctions(arguments, run)
