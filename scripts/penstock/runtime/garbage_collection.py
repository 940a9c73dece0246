"""The garbage collector, in processes through which many rows pass."""

from __future__ import annotations

import gc

YOUNG = 50_000
"""New objects before it looks for cycles. At Python's 700 it searches batches of rows again and again, which
have none: an eighth of what planning and publishing a million files cost, a tenth of a worker's own."""


def rarely() -> None:
    """From now on, in this process."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
