"""What a person ordered of work that is under way, written by a command and obeyed by the controller: who
gave the order (`given`), and its file (`write`). The orders: `cancel_mark`, `throttle_mark`. `last_end` uses
`given` too, for who started the command that it notes."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from penstock.core.documents.marks import Given
from penstock.core.errors import FailedError
from penstock.fs import durable
from penstock.fs.errno_map import NO_SPACE, storage_error
from penstock.fs.owners import account

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def given() -> Given:
    """An order that this process gives now."""
    return Given(time.time(), account(os.geteuid()), socket.gethostname())


def write(where: Path, content: Mapping[str, object], what: str, verb: str) -> None:
    """Write the order's file, durably. Raises NoSpaceError, and FailedError: `what` cannot be written; do
    `verb` as the account that stages the dataset."""
    try:
        durable.write_json(where, content)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise storage_error(error, f"{what} cannot be written", str(where)) from error
        raise FailedError(
            f"{what} cannot be written",
            where=str(where),
            why=error.strerror or "",
            hint=f"{verb} as the account that stages the dataset",
        ) from error


def by_whom(given: Given) -> str:
    """`by alice on login1 at 15:04:05`."""
    return f"by {given.user} on {given.host} at {time.strftime('%H:%M:%S', time.localtime(given.at))}"
