"""Rollbacks and removals that were killed, brought to their end.

List, publish, gc and remove call it, under the dataset's lock, before they change which releases there are or
which one is current. It may write the history, rename the state of a removed release's run, and
remove that release's repair, audits and marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.keep.retention import removals, rollback

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


def settle(context: Context, layout: DatasetLayout) -> None:
    """End what was interrupted: rollbacks first, then removals without their files, which gc removes.
    The caller holds the dataset's lock. Raises as `rollback.settle` and `removals.settle`."""
    rollback.settle(context, layout)
    removals.settle(context, layout)
