"""The promise of a repair while it runs: its part of `target.ops`, and later the space that it needs.

A promise is a file below the root by which other runs there know of this one. `keep.repair` works inside
`promised`, which posts and withdraws that file, and at an error may query the cluster whether elements live.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.core.documents.promise import Promise, of_repair
from penstock.core.errors import InterruptedRunError
from penstock.jobs.ownership import promises
from penstock.target import modes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context

STEP = "repair"


@contextlib.contextmanager
def promised(context: Context, layout: DatasetLayout, release: str) -> Iterator[None]:
    """Within this context the repair of the release has a part of the budget of metadata operations, where
    there is one. At the end its promise is withdrawn; after an error it stays where elements go on, or may go
    on, without this process. The caller holds the dataset's lock. Raises what its body raises; a promise that
    cannot be posted is a warning."""
    who = of_repair(release)

    def mine(one: Promise) -> bool:
        return one.run == who

    if context.ops:
        gid = modes.group_id(context.dataset(layout.dataset).permissions)
        promises.join(context, layout, who, STEP, os.getegid() if gid is None else gid)
    try:
        yield
    except BaseException as error:
        with_it = context.cluster.abilities.elements_end_with_controller
        stopped = isinstance(error, InterruptedRunError)
        if with_it or not (stopped or promises.alive(context, layout, who)):
            promises.withdraw(layout, mine)
        raise
    promises.withdraw(layout, mine)
