"""Rollbacks and removals that were killed, brought to their end: by each command that takes the dataset's
lock to change which releases there are, or which one is current."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.keep.retention import removals, rollback

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


def settle(context: Context, layout: DatasetLayout) -> None:
    """The caller holds the dataset's lock."""
    rollback.settle(context, layout)
    removals.settle(context, layout)
