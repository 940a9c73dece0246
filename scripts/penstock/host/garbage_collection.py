"""Tunes Python's garbage collector of this process, for commands and workers, which handle many rows."""

from __future__ import annotations

import gc

YOUNG = 50_000
"""New objects after which Python searches for cycles. With Python's default of 700 it searches batches of
rows, which have no cycles, again and again: that took an eighth of the CPU time of planning and publishing a
million files, and a tenth of a worker's."""


def rarely() -> None:
    """Collect rarely, from now on, in this process."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
