"""What a person ordered of work under way: a command writes it, the controller obeys it (`cancel_mark`,
`throttle_mark`). `last_end` uses `given` for who started a command."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from penstock.core.dataset_documents import Given
from penstock.core.errors import FailedError
from penstock.fs import small_files
from penstock.fs.errno_map import NO_SPACE, storage_error
from penstock.fs.owners import account

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def given() -> Given:
    """Describe an order that this process gives now."""
    return Given(time.time(), account(os.geteuid()), socket.gethostname())


def write(where: Path, content: Mapping[str, object], what: str, verb: str) -> None:
    """Write the order's file, durably. Raises NoSpaceError, and FailedError with the hint to `verb` as the
    owner."""
    try:
        small_files.write_json(where, content)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise storage_error(error, f"{what} cannot be written", str(where)) from error
        raise FailedError(
            f"{what} cannot be written",
            where=str(where),
            why=error.strerror or "",
            hint=f"{verb} as the account that stages the dataset",
        ) from error


def by_whom(order: Given) -> str:
    """Return `by alice on login1 at 15:04:05`."""
    return f"by {order.user} on {order.host} at {time.strftime('%H:%M:%S', time.localtime(order.at))}"
