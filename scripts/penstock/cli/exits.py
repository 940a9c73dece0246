"""How steps ended, left for `penstock run`, which sees only Snakemake's 0 or 1."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

EXITS = "PENSTOCK_EXITS"
"""Names the folder; set by `penstock run` alone."""


def leave(command: str, code: int) -> None:
    """Note an exit status other than 0, when there is a `penstock run` above."""
    folder = os.environ.get(EXITS)
    if folder and code and os.path.isdir(folder):
        name = f"{time.time_ns():020d}-{os.getpid()}.json"
        Path(folder, name).write_text(json.dumps({"command": command, "exit": code}), encoding="utf-8")


def first(folder: Path) -> int | None:
    """The exit status that was left first."""
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(path.read_text(encoding="utf-8"))["exit"])
    return None


def below_run() -> bool:
    """Whether a `penstock run` started this."""
    return EXITS in os.environ
