"""The dataset's lock for the time of one step."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.steps.context import Context
    from penstock.storage.locking import DatasetLock


@contextlib.contextmanager
def holding(context: Context, dataset: str, run: str, step: str) -> Iterator[DatasetLock]:
    """Hold the dataset's lock. Raises LockedError (exit 7) that names who holds it."""
    from penstock.storage.locking import DatasetLock

    layout = context.layout(dataset)
    with DatasetLock(layout, run=run, command=step, holder_ended=context.cluster.holder_ended) as lock:
        yield lock
