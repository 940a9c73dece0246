"""How steps ended, left for `penstock run`, which sees only Snakemake's 0 or 1."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

EXITS = "PENSTOCK_EXITS"
"""Names the folder; set by `penstock run` alone."""


class Left(NamedTuple):
    """How one step ended."""

    command: str
    exit: int
    dataset: str = ""
    why: str = ""
    """One line."""


def leave(left: Left) -> None:
    """Note an exit status other than 0, when there is a `penstock run` above."""
    folder = os.environ.get(EXITS)
    if folder and left.exit and os.path.isdir(folder):
        name = f"{time.time_ns():020d}-{os.getpid()}.json"
        Path(folder, name).write_text(json.dumps(left._asdict()), encoding="utf-8")


def all_left(folder: Path) -> list[Left]:
    """What was left, the first first."""
    found = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Left(**json.loads(path.read_text(encoding="utf-8"))))
    return found


def below_run() -> bool:
    """Whether a `penstock run` started this."""
    return EXITS in os.environ
