"""How many elements of a run (processes of its job arrays) may run at once, where a person changed it by
`penstock limit DATASET --nodes N`. The controller that starts them reads it. Touches that file alone.

    <run>/throttle.json      the last word (`core.documents.marks.Throttle`)

It holds for the run, for each of its further arrays and for later controllers; another run of the dataset
begins with `cluster.max_elements` again. An audit or a repair has a folder of its own, and so a throttle of
its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents import marks
from penstock.core.documents.marks import Throttle
from penstock.dataset import documents, orders

if TYPE_CHECKING:
    from penstock.core.layout import RunLayout


def make(run: RunLayout, at_once: int) -> None:
    """Write the throttle, durably. Raises as `orders.write`."""
    mark = Throttle(at_once, orders.given())
    what = "the throttle that a running controller obeys"
    orders.write(run.throttle, marks.THROTTLE.to_json(mark), what, "call it")


def read(run: RunLayout) -> Throttle:
    """The throttle that was written last; an empty one, for which the configuration counts, where there is
    none or it cannot be read."""
    try:
        return documents.load(marks.THROTTLE, run.throttle)
    except (OSError, ValueError):
        return Throttle()


def by_whom(mark: Throttle) -> str:
    """`by alice on login1 at 15:04:05`."""
    return orders.by_whom(mark.given)
