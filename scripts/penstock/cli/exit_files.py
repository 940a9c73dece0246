"""How steps ended, left for `penstock run`, which sees only Snakemake's 0 or 1."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import logging

EXITS = "PENSTOCK_EXITS"
"""Names the folder; set by `penstock run` alone."""
STATUSES = frozenset({*range(1, 8), 130, 143})
"""Exit statuses of a step that reported itself what is wrong (docs/commands.md, "Exit status")."""
_ENDED = re.compile(
    r"RuleException:\nCalledProcessError.* -m penstock .*returned non-zero exit status (\d+)", re.DOTALL
)
_ENDINGS = (
    "Exiting because a job execution failed. Look above for error messages",
    "WorkflowError:\nAt least one job did not complete successfully.",
)


class Left(NamedTuple):
    """How one step ended."""

    command: str
    exit: int
    dataset: str = ""
    why: str = ""
    """One line."""


def leave(left: Left) -> None:
    """Write down an exit status other than 0, for the `penstock run` above, if there is one."""
    folder = os.environ.get(EXITS)
    if folder and left.exit and os.path.isdir(folder):
        name = f"{time.time_ns():020d}-{os.getpid()}.json"
        Path(folder, name).write_text(json.dumps(left._asdict()), encoding="utf-8")


def all_left(folder: Path) -> list[Left]:
    """All exit statuses that steps wrote down, the earliest first."""
    found = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Left(**json.loads(path.read_text(encoding="utf-8"))))
    return found


def below_run() -> bool:
    """Whether a `penstock run` started this."""
    return EXITS in os.environ


def is_news(record: logging.LogRecord) -> bool:
    """Whether a line of Snakemake's log reports something that no step reported itself."""
    text = record.getMessage()
    ended = _ENDED.match(text)
    return text not in _ENDINGS and not (ended and int(ended[1]) in STATUSES)
