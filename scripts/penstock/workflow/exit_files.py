"""Reports how steps ended to `penstock run`, which itself only gets Snakemake's exit status, 0 or 1.

A failing step writes a small JSON file into a folder that `penstock run` passes in the environment, and reads
meanwhile. `penstock run` writes into this folder which signal stopped it. Unreadable or unwritable files
raise nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import run_steps

if TYPE_CHECKING:
    import logging

EXITS = "PENSTOCK_EXITS"  # variable with the folder's path; only `penstock run` sets it
SIGNAL = "signal"  # file with the number of the signal that stopped `penstock run`; its steps get SIGINT
# Exit statuses of a step that reported its own error (docs/commands.md, "Exit status").
STATUSES = frozenset({*range(1, 8), 129, 130, 143})
_ENDED = re.compile(
    r"RuleException:\nCalledProcessError.* -m penstock .*returned non-zero exit status (\d+)", re.DOTALL
)
_ENDINGS = (
    "Exiting because a job execution failed. Look above for error messages",
    "WorkflowError:\nAt least one job did not complete successfully.",
)


class CommandFailure(NamedTuple):
    """How a command, or its work for one dataset, failed."""

    code: int
    text: str  # readable message, or ""
    reason: str = ""  # what failed, or why, in a few words
    cancelled: bool = False  # whether `penstock cancel` ended it
    overtaken: bool = False  # whether another run took over the dataset


class Left(NamedTuple):
    """How a step ended."""

    command: str
    exit: int
    dataset: str = ""
    text: str = ""  # readable message, which `penstock run` shows, or ""
    reason: str = ""  # what failed, or why, in a few words
    cancelled: bool = False
    overtaken: bool = False

    @property
    def how(self) -> str:
        """One of the three words of `core.run_steps`."""
        if self.exit > 128:
            return run_steps.STOPPED
        return run_steps.CANCELLED if self.cancelled else run_steps.FAILED

    @property
    def why(self) -> str:
        """The first line of the message."""
        return self.text.partition("\n")[0]


def leave(left: Left) -> bool:
    """Write a failure's exit status for the `penstock run` above. Returns whether there is a `penstock run`,
    which shows it."""
    folder = os.environ.get(EXITS)
    return write(Path(folder), left) if folder and left.exit else False


def write(folder: Path, left: Left) -> bool:
    """Do as `leave` does, in this folder."""
    path = Path(folder, f"{time.time_ns():020d}-{os.getpid()}.json")
    try:
        path.write_text(json.dumps(left._asdict()), encoding="utf-8")
    except OSError:
        return False
    return True


def read_new(folder: Path, read_before: dict[str, Left]) -> list[Left]:
    """Return the exit statuses written since the last call, the earliest first, and add them to
    `read_before` by file name. Incomplete files are left for a later call."""
    new = []
    for path in sorted(folder.glob("*.json")):
        if path.name not in read_before:
            with contextlib.suppress(OSError, ValueError, TypeError):
                read_before[path.name] = Left(**json.loads(path.read_text(encoding="utf-8")))
                new.append(read_before[path.name])
    return new


def pass_on(folder: Path, number: int) -> None:
    """Write the number of the signal that stopped `penstock run`, before its steps get SIGINT."""
    with contextlib.suppress(OSError):
        (folder / SIGNAL).write_text(str(number))


def sent(number: int) -> int:
    """Return the signal that stopped this step, or that stopped the `penstock run` that sent SIGINT."""
    folder = os.environ.get(EXITS)
    try:
        return int(Path(folder, SIGNAL).read_text()) if folder and number == signal.SIGINT else number
    except (OSError, ValueError):
        return number


def below_run() -> bool:
    """Return whether a `penstock run` started this process."""
    return EXITS in os.environ


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of Snakemake's log reports something that no step reported itself."""
    text = record.getMessage()
    ended = _ENDED.match(text)
    return text not in _ENDINGS and not (ended and int(ended[1]) in STATUSES)
