"""Outcomes of a run's elements: the one reader and writer of `outcomes/<step>/<index>.json`.

An outcome says why an element (the process that does one shard of a step) ended without a receipt, and
whether another try may help. The element writes it; the controller, which started the element, reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents.element_outcome import ELEMENT_OUTCOME
from penstock.dataset import documents

if TYPE_CHECKING:
    from penstock.core.documents.element_outcome import ElementOutcome
    from penstock.core.layout import RunLayout


def load(run: RunLayout, step: str, index: int) -> ElementOutcome:
    """The outcome of the element's last attempt. Raises OSError when it is missing or cannot be read,
    ValueError when it is damaged, NewerFormatError."""
    return documents.load(ELEMENT_OUTCOME, run.outcome(step, index))


def find(run: RunLayout, step: str, index: int) -> ElementOutcome | None:
    """The outcome of the element's last attempt, None when it is missing or damaged. Raises FailedError when
    it cannot be read, NewerFormatError."""
    return documents.find_whole(ELEMENT_OUTCOME, run.outcome(step, index))


def write(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> None:
    """Durable on return. Raises by `errno_map.storage_error`: NoSpaceError on a full target."""
    documents.write(ELEMENT_OUTCOME, run.outcome(step, index), outcome)
