"""Finishes killed rollbacks and removals, before a command changes which releases exist or which is
current."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.keep.retention import removals, rollback

if TYPE_CHECKING:
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context


def settle(context: Context, layout: DatasetLayout) -> None:
    """Finish rollbacks first, then removals, except for their files, which gc removes. The caller holds the
    dataset's lock. Raises as `rollback.settle` and `removals.settle`."""
    rollback.settle(context, layout)
    removals.settle(context, layout)
