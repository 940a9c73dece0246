"""`penstock selftest-writer`: the process that a selftest kills while it writes
(`doctor.selftest`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags
from penstock.cli.command_table import CommandFunctions

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.folder(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:  # noqa: ARG001 (as every command)
    """Write some dozens of files slowly. Returns 0 where nobody killed the process."""
    from penstock.doctor import selftest

    selftest.write(parsed.folder)
    return 0


SELFTEST_WRITER = CommandFunctions(arguments, run)
