"""Remove the state of a run that cannot be continued: its staging is gone, or its plan or a shard is damaged.

Only what plan and copy can make again from the frozen listing is removed; never while elements of the run may
write, and never when its release is published.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.errors import STATE_ANEW, FailedError
from penstock.core.run_documents import PLAN
from penstock.dataset import documents, receipts, run_store
from penstock.jobs.ownership import liveness

if TYPE_CHECKING:
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.run import Run


def drop_stale(context: Context, run: Run) -> str:
    """Remove the run's plan, journals and receipts by this table; return the reason, "" if none.

    The caller holds the lock. Raises FailedError while elements of the run may write, and LockedError where
    the caller was overtaken.

    | release | staging | plan and shards | dropped          |
    |---------|---------|-----------------|------------------|
    | stands  | any     | any             | no               |
    | none    | none    | any             | yes              |
    | none    | there   | sound, or none  | no               |
    | none    | there   | damaged         | yes: plan clears |
    |         |         |                 | staging as well  |
    """
    if os.path.lexists(run.layout.release(run.release)):
        return ""
    gone = not os.path.lexists(run.data)
    why = f"the tree of release {run.release} is gone" if gone else damage(run.folder)
    if not why:
        return ""
    if alive := liveness.arrays_of(context, run.dataset, run.folder):
        raise FailedError(
            "a run cannot be continued, and elements of it may still write",
            where=str(run.folder.folder),
            why=f"{why}; {alive}",
            hint=f"wait for them, or `penstock cancel {run.dataset}`: then the same command plans again",
        )
    context.assert_held()
    return why if run_store.drop_derived(run.folder) else ""


def damage(folder: RunLayout) -> str:
    """Return what is wrong with a run's plan or shards; "" when they are sound, or nothing was planned.
    Raises FailedError when they cannot be read: that says nothing about their content."""
    path = folder.plan
    try:
        plan = documents.load(PLAN, path)
        for shard in plan.shards:
            path = folder.shard(shard.index)
            if not path.exists() or receipts.file_digest(path) != shard.digest:
                return f"{path} is not the shard that was planned"
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FailedError(
            "a run's plan cannot be read", where=str(path), why=str(error), hint=STATE_ANEW
        ) from error
    except ValueError as error:
        return f"{path} is damaged ({error})"
    return ""
