"""The durable mark of `penstock cancel`, which a dataset's controller obeys.

    <state>/cancelled.json      the last cancel (`core.dataset_documents.Cancellation`)

A running controller that sees the mark ends its job arrays and stops. Only work under way is cancelled: the
next `list` removes the mark, and a step called by hand ignores an older mark.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Cancellation
from penstock.core.errors import CancelledError
from penstock.core.step_table import CHANGES_AFTER_LIST
from penstock.dataset import documents, orders

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

# environment variable set in all steps of a workflow's run, and not in a step by hand
INVOCATION = "PENSTOCK_INVOCATION"


def path(layout: DatasetLayout) -> Path:
    """Return the path of a dataset's cancel mark."""
    return layout.state / "cancelled.json"


def make(layout: DatasetLayout) -> None:
    """Write the mark, durably. Raises FailedError if that fails; a dataset never staged needs no mark."""
    if not layout.state.is_dir():
        return
    mark = Cancellation(secrets.token_hex(8), orders.given())
    what = "the mark that stops a running controller"
    orders.write(path(layout), dataset_documents.CANCELLATION.to_json(mark), what, "cancel")


def clear(layout: DatasetLayout) -> None:
    """Remove the mark, when list begins a new run. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path(layout).unlink()


def made_at(layout: DatasetLayout) -> float:
    """Return when the dataset was last cancelled, in seconds since the epoch; 0 if no readable mark
    stands."""
    return _read(layout).given.at


def _read(layout: DatasetLayout) -> Cancellation:
    try:
        return documents.load(dataset_documents.CANCELLATION, path(layout))
    except (OSError, ValueError):
        return Cancellation()


@dataclass(frozen=True)
class CancelMark:
    """A dataset's mark as one step sees it."""

    layout: DatasetLayout
    before: str  # the nonce of the mark that stood when the step began and does not concern it, or ""

    @classmethod
    def of(cls, layout: DatasetLayout, step: str) -> CancelMark:
        """Decide which marks concern the step. Call it when the step begins."""
        # In a workflow these steps follow a list, which removed any older mark.
        follows = step in CHANGES_AFTER_LIST and INVOCATION in os.environ
        return cls(layout, "" if follows else _read(layout).nonce)

    def said(self) -> str:
        """Return `by alice on login1 at 15:04:05` if the step is cancelled; else ""."""
        mark = _read(self.layout)
        if mark.nonce in ("", self.before):
            return ""
        return orders.by_whom(mark.given)


def refuse(layout: DatasetLayout, step: str) -> None:
    """Raise CancelledError if the workflow of this step was cancelled."""
    if who := CancelMark.of(layout, step).said():
        raise cancelled(layout.dataset, step, who)


def cancelled(dataset: str, step: str, who: str) -> CancelledError:
    """Return the error of a step that obeys the mark."""
    hint = "what was done is kept; the same command goes on"
    return CancelledError(f"{step} was cancelled", where=dataset, why=who, hint=hint)
