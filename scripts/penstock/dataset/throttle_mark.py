"""`<run>/throttle.json`: how many elements of this run may work at once, set by `penstock limit DATASET
--nodes N`.

It holds for all further arrays and controllers of the run. Audits and repairs have throttles of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Throttle
from penstock.dataset import documents, orders

if TYPE_CHECKING:
    from penstock.core.layout import RunLayout


def make(run: RunLayout, at_once: int) -> None:
    """Write the throttle, durably. Raises as `orders.write`."""
    mark = Throttle(at_once, orders.given())
    what = "the throttle that a running controller obeys"
    orders.write(run.throttle, dataset_documents.THROTTLE.to_json(mark), what, "call it")


def read(run: RunLayout) -> Throttle:
    """Return the last throttle; an empty one, for which the configuration counts, if none can be read."""
    try:
        return documents.load(dataset_documents.THROTTLE, run.throttle)
    except (OSError, ValueError):
        return Throttle()


def by_whom(mark: Throttle) -> str:
    """Return `by alice on login1 at 15:04:05`."""
    return orders.by_whom(mark.given)
