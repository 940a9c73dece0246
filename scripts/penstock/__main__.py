"""`python -m penstock`: the same as the `penstock` command."""

from __future__ import annotations

import signal
from typing import NoReturn


def program() -> NoReturn:
    """Run the `penstock` command. Until the command sets its own handlers, SIGINT ends the process without a
    traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from penstock.cli.main import program as run

    run()


if __name__ == "__main__":
    program()
