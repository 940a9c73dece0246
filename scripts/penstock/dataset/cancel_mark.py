"""The durable mark of `penstock cancel`, which the controller of a dataset obeys.

    <state>/cancelled.json      the last cancel (`core.documents.marks.Cancellation`)

A controller (the process that runs the workflow) that is at work when the mark is made ends its job arrays
and stops; nobody has to reach its process, which may be a job on another node. A mark cancels only the work
that was under way: the next `list` removes it, and a step that a person calls alone ignores a mark that was
there before it. Touches that one file alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.core.documents.marks import Cancellation
from penstock.core.errors import CancelledError
from penstock.core.step_table import CHANGES_AFTER_LIST
from penstock.dataset import documents, orders

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

INVOCATION = "PENSTOCK_INVOCATION"
"""Environment variable that all steps of one run of the workflow have, and a step called by hand has not."""


def path(layout: DatasetLayout) -> Path:
    """The path of a dataset's cancel mark."""
    return layout.state / "cancelled.json"


def make(layout: DatasetLayout) -> None:
    """Write the mark, durably: it cancels the work that is under way. Raises FailedError when that cannot be
    written; a dataset that nobody ever staged needs no mark."""
    if not layout.state.is_dir():
        return
    mark = Cancellation(secrets.token_hex(8), orders.given())
    what = "the mark that stops a running controller"
    orders.write(path(layout), marks.CANCELLATION.to_json(mark), what, "cancel")


def clear(layout: DatasetLayout) -> None:
    """Remove the mark, when list begins a new run. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        path(layout).unlink()


def made_at(layout: DatasetLayout) -> float:
    """When the dataset was last cancelled, in seconds since the epoch; 0 where no mark stands or it cannot be
    read."""
    return _read(layout).given.at


def _read(layout: DatasetLayout) -> Cancellation:
    try:
        return documents.load(marks.CANCELLATION, path(layout))
    except (OSError, ValueError):
        return Cancellation()


@dataclass(frozen=True)
class CancelMark:
    """A dataset's mark as one step sees it."""

    layout: DatasetLayout
    before: str
    """The nonce of the mark that stood when the step began and does not concern it, or ""."""

    @classmethod
    def of(cls, layout: DatasetLayout, step: str) -> CancelMark:
        """To be made when the step begins: it decides which marks concern the step."""
        # In a workflow these follow a list, so that a mark which they find was made since then.
        follows = step in CHANGES_AFTER_LIST and INVOCATION in os.environ
        return cls(layout, "" if follows else _read(layout).nonce)

    def said(self) -> str:
        """`by alice on login1 at 15:04:05`, when the step is cancelled; else ""."""
        mark = _read(self.layout)
        if mark.nonce in ("", self.before):
            return ""
        return orders.by_whom(mark.given)


def refuse(layout: DatasetLayout, step: str) -> None:
    """Raises CancelledError where the workflow that this step belongs to was cancelled."""
    if who := CancelMark.of(layout, step).said():
        raise cancelled(layout.dataset, step, who)


def cancelled(dataset: str, step: str, who: str) -> CancelledError:
    """The error of a step that obeys the mark."""
    hint = "what was done is kept; the same command goes on"
    return CancelledError(f"{step} was cancelled", where=dataset, why=who, hint=hint)
