"""How many elements of a run may run at once, where a person changed it (`penstock throttle`).

    <run>/throttle.json      the last word (`core.documents.throttle_file`)

It holds for the run, for each of its further arrays and for later controllers; another run of the dataset
begins with `cluster.max_elements` again. An audit or a repair has a folder of its own, and so a throttle of
its own.
"""

from __future__ import annotations

import os
import pwd
import socket
import time
from typing import TYPE_CHECKING

from penstock.core.documents import throttle_file
from penstock.core.documents.throttle_file import Throttle
from penstock.errors import FailedError
from penstock.storage import durable

if TYPE_CHECKING:
    from penstock.core.layout import RunLayout


def make(run: RunLayout, at_once: int) -> None:
    """Write it, durably. Raises FailedError."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = f"uid {os.geteuid()}"
    mark = Throttle(at_once, time.time(), user, socket.gethostname())
    try:
        durable.write_json(run.throttle, throttle_file.to_json(mark))
    except OSError as error:
        raise FailedError(
            "the throttle that a running controller obeys cannot be written",
            where=str(run.throttle),
            why=error.strerror or "",
            hint="call it as the account that stages the dataset",
        ) from error


def read(run: RunLayout) -> Throttle:
    """The last word; that of the configuration where nobody changed it, or where it cannot be read."""
    try:
        return throttle_file.from_json(run.throttle.read_bytes(), run.throttle)
    except (OSError, ValueError):
        return Throttle()


def told(mark: Throttle) -> str:
    """`by alice on login1 at 15:04:05`."""
    clock = time.strftime("%H:%M:%S", time.localtime(mark.at))
    return f"by {mark.user} on {mark.host} at {clock}"
