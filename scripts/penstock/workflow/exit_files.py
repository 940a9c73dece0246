"""How steps ended, left for `penstock run`, which sees only Snakemake's 0 or 1.

A step that fails writes a small JSON file into a folder that the `penstock run` above it named in the
environment. `penstock run` reads the folder while the workflow runs, and writes there by which signal it was
stopped.
No other file is touched. A file that cannot be written or read raises nothing.
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

from penstock.core import events

if TYPE_CHECKING:
    import logging

EXITS = "PENSTOCK_EXITS"
"""Names the folder; set by `penstock run` alone."""
SIGNAL = "signal"
"""In the folder: the number of the signal that stopped `penstock run`, which its steps get as SIGINT."""
STATUSES = frozenset({*range(1, 8), 129, 130, 143})
"""Exit statuses of a step that reported itself what is wrong (docs/commands.md, "Exit status")."""
_ENDED = re.compile(
    r"RuleException:\nCalledProcessError.* -m penstock .*returned non-zero exit status (\d+)", re.DOTALL
)
_ENDINGS = (
    "Exiting because a job execution failed. Look above for error messages",
    "WorkflowError:\nAt least one job did not complete successfully.",
)


class CommandFailure(NamedTuple):
    """How a command, or its work for one dataset, ended."""

    code: int
    text: str
    """For a person; "" where there is nothing to say."""
    reason: str = ""
    """What failed, or why, in a few words."""
    cancelled: bool = False
    """`penstock cancel` ended it."""
    overtaken: bool = False
    """Another run has overtaken it."""


class Left(NamedTuple):
    """How one step ended."""

    command: str
    exit: int
    dataset: str = ""
    text: str = ""
    """The message for a person, which `penstock run` shows; "" where there is none."""
    reason: str = ""
    """What failed, or why, in a few words."""
    cancelled: bool = False
    overtaken: bool = False

    @property
    def how(self) -> str:
        """In a word: one of the three of `core.events`."""
        if self.exit > 128:
            return events.STOPPED
        return events.CANCELLED if self.cancelled else events.FAILED

    @property
    def why(self) -> str:
        """The first line of the message."""
        return self.text.partition("\n")[0]


def leave(left: Left) -> bool:
    """Write down an exit status other than 0, for the `penstock run` above. Returns whether there is one: it
    shows the message."""
    folder = os.environ.get(EXITS)
    return write(Path(folder), left) if folder and left.exit else False


def write(folder: Path, left: Left) -> bool:
    """As `leave`, into this folder."""
    path = Path(folder, f"{time.time_ns():020d}-{os.getpid()}.json")
    try:
        path.write_text(json.dumps(left._asdict()), encoding="utf-8")
    except OSError:
        return False
    return True


def read_new(folder: Path, known: dict[str, Left]) -> list[Left]:
    """The exit statuses that steps wrote down since the last call, the earliest first. They are put into
    `known`, by the names of their files. One that is not yet whole counts as not written."""
    new = []
    for path in sorted(folder.glob("*.json")):
        if path.name not in known:
            with contextlib.suppress(OSError, ValueError, TypeError):
                known[path.name] = Left(**json.loads(path.read_text(encoding="utf-8")))
                new.append(known[path.name])
    return new


def pass_on(folder: Path, number: int) -> None:
    """Write down by which signal `penstock run` was stopped, before its steps get SIGINT for it."""
    with contextlib.suppress(OSError):
        (folder / SIGNAL).write_text(str(number))


def sent(number: int) -> int:
    """The signal that stopped this step: for the SIGINT of a `penstock run`, the one that stopped the run."""
    folder = os.environ.get(EXITS)
    try:
        return int(Path(folder, SIGNAL).read_text()) if folder and number == signal.SIGINT else number
    except (OSError, ValueError):
        return number


def below_run() -> bool:
    """Whether a `penstock run` started this."""
    return EXITS in os.environ


def is_news(record: logging.LogRecord) -> bool:
    """Whether a line of Snakemake's log reports something that no step reported itself."""
    text = record.getMessage()
    ended = _ENDED.match(text)
    return text not in _ENDINGS and not (ended and int(ended[1]) in STATUSES)
