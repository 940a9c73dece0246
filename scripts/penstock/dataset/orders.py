"""Orders that a person gives about running work: the durable marks of `penstock cancel` and of `penstock
limit DATASET --nodes N`. The dataset's controller obeys them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Cancellation, Given, Throttle
from penstock.core.errors import CancelledError, FailedError
from penstock.core.run_steps import CHANGES_AFTER_LIST
from penstock.dataset import documents
from penstock.fs import small_files
from penstock.fs.owners import account
from penstock.fs.safe_open import NO_SPACE, storage_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.layout import DatasetLayout, RunLayout


# An order about running work: a command writes its file, the controller obeys it. `last_end` uses `given` to
# record who started a command.


def given() -> Given:
    """Return who gives an order now: the account and node of this process, and the time."""
    return Given(time.time(), account(os.geteuid()), socket.gethostname())


def write_order(where: Path, content: Mapping[str, object], what: str, verb: str) -> None:
    """Write the order's file, durably. Raises NoSpaceError, FailedError with the hint to `verb` as owner."""
    try:
        small_files.write_json(where, content)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise storage_error(error, f"{what} cannot be written", str(where)) from error
        raise FailedError(
            f"{what} cannot be written",
            where=str(where),
            why=error.strerror or "",
            hint=f"{verb} as the account that stages the dataset",
        ) from error


def ordered_by(order: Given) -> str:
    """Return `by alice on login1 at 15:04:05`."""
    return f"by {order.user} on {order.host} at {time.strftime('%H:%M:%S', time.localtime(order.at))}"


# The durable mark of `penstock cancel`, which a dataset's controller obeys.
#
#     <state>/cancelled.json      the last cancel (`core.dataset_documents.Cancellation`)
#
# A running controller that sees the mark ends its job arrays and stops. Only running work is cancelled: the
# next `list` removes the mark, and a step called by hand ignores an older mark.

# environment variable that is set in all steps of a workflow's run, but not in a step called by hand
INVOCATION = "PENSTOCK_INVOCATION"


def cancel_path(layout: DatasetLayout) -> Path:
    """Return the path of a dataset's cancel mark."""
    return layout.state / "cancelled.json"


def order_cancel(layout: DatasetLayout) -> None:
    """Write the mark, durably, unless the dataset was never staged. Raises FailedError if that fails."""
    if not layout.state.is_dir():
        return
    mark = Cancellation(secrets.token_hex(8), given())
    what = "the mark that stops a running controller"
    write_order(cancel_path(layout), dataset_documents.CANCELLATION.to_json(mark), what, "cancel")


def clear_cancel(layout: DatasetLayout) -> None:
    """Remove the mark. List calls it when it begins a new run. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        cancel_path(layout).unlink()


def cancel_ordered_at(layout: DatasetLayout) -> float:
    """Return when the dataset was last cancelled, in seconds since the epoch; 0 without a readable mark."""
    return _read(layout).given.at


def _read(layout: DatasetLayout) -> Cancellation:
    try:
        return documents.load(dataset_documents.CANCELLATION, cancel_path(layout))
    except (OSError, ValueError):
        return Cancellation()


@dataclass(frozen=True)
class CancelMark:
    """A dataset's mark as one step sees it."""

    layout: DatasetLayout
    before: str  # the nonce of a mark that is older than the step and does not concern it, or ""

    @classmethod
    def of(cls, layout: DatasetLayout, step: str) -> CancelMark:
        """Decide whether an existing mark concerns the step. Call it when the step begins."""
        # In a workflow these steps follow a list, which removed any older mark.
        follows = step in CHANGES_AFTER_LIST and INVOCATION in os.environ
        return cls(layout, "" if follows else _read(layout).nonce)

    def said(self) -> str:
        """Return `by alice on login1 at 15:04:05` if the step is cancelled; else ""."""
        mark = _read(self.layout)
        if mark.nonce in ("", self.before):
            return ""
        return ordered_by(mark.given)


def refuse(layout: DatasetLayout, step: str) -> None:
    """Raise CancelledError if the workflow of this step was cancelled."""
    if who := CancelMark.of(layout, step).said():
        raise cancelled(layout.dataset, step, who)


def cancelled(dataset: str, step: str, who: str) -> CancelledError:
    """Return the error of a step that obeys the mark."""
    hint = "what was done is kept; the same command goes on"
    return CancelledError(f"{step} was cancelled", where=dataset, why=who, hint=hint)


# The throttle `<run>/throttle.json`: how many elements of this run may work at once, set by `penstock limit
# DATASET --nodes N`.
#
# It applies to all further arrays and controllers of the run. Audits and repairs have their own throttles.


def order_throttle(run: RunLayout, at_once: int) -> None:
    """Write the throttle, durably. Raises as `write_order`."""
    mark = Throttle(at_once, given())
    what = "the throttle that a running controller obeys"
    write_order(run.throttle, dataset_documents.THROTTLE.to_json(mark), what, "call it")


def read_throttle(run: RunLayout) -> Throttle:
    """Return the run's throttle. If it cannot be read, an empty throttle: then the configuration decides."""
    try:
        return documents.load(dataset_documents.THROTTLE, run.throttle)
    except (OSError, ValueError):
        return Throttle()


def throttled_by(mark: Throttle) -> str:
    """Return `by alice on login1 at 15:04:05`."""
    return ordered_by(mark.given)
