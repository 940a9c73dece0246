"""Tunes Python's garbage collector for commands and workers, which handle many rows."""

from __future__ import annotations

import gc

# New objects between two searches for cycles. With Python's default of 700, searching batches of rows, which
# have no cycles, took an eighth of the CPU time of planning and publishing a million files, and a tenth of a
# worker's.
YOUNG = 50_000


def rarely() -> None:
    """Collect rarely, from now on, in this process."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
