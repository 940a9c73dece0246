"""`penstock selftest-writer`: the process that a selftest starts in order to kill it while it writes.

A hidden command: `doctor.selftest.killed_writer` starts it in a folder of its own, and looks afterwards
whether a partial file has a final name. It writes into that folder alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import flags

if TYPE_CHECKING:
    import argparse

    from penstock.cli.session import Session


def arguments(parser: argparse.ArgumentParser) -> None:
    flags.folder(parser)


def run(parsed: argparse.Namespace, session: Session) -> int:  # noqa: ARG001 (as every command)
    """Write a few dozen files slowly. 0 once they are written: where nobody killed the process by then."""
    from penstock.doctor.selftest import killed_writer

    killed_writer.write(parsed.folder)
    return 0
