"""The garbage collector, in processes through which many rows pass."""

from __future__ import annotations

import gc

YOUNG = 50_000
"""New objects after which Python searches for cycles. With Python's own 700 it searches batches of rows again
and again, which have none: an eighth of the CPU of planning and publishing a million files, a tenth of a
worker's."""


def rarely() -> None:
    """Collect rarely, from now on, in this process."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
