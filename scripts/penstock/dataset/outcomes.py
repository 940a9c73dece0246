"""Outcomes of a run's elements: the one reader and writer of `outcomes/<step>/<index>.<generation>.json`.

An outcome says why an element (the process that does one shard of a step) ended without a receipt, and
whether another try may help. The element writes it; the controller, which started the element, reads it.

Each claim of a shard (`jobs.shard_claims`) has an outcome of its own: a worker that wakes after another took
its shard writes over nobody's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.documents.element_outcome import ELEMENT_OUTCOME
from penstock.dataset import documents

if TYPE_CHECKING:
    from penstock.core.documents.element_outcome import ElementOutcome
    from penstock.core.layout import RunLayout


def claimed(run: RunLayout, step: str, index: int, least: int = 0) -> int:
    """The generation of a shard's highest claim, 0 without one: counted from `least` on, a claim that is
    known. What stands above a gap is no claim."""
    while os.path.lexists(run.claim(step, index, least + 1)):
        least += 1
    return least


def find(run: RunLayout, step: str, index: int, generation: int) -> ElementOutcome | None:
    """The outcome of this claim; None when it is missing or damaged. Raises FailedError when it cannot be
    read, NewerFormatError."""
    return documents.find_whole(ELEMENT_OUTCOME, run.outcome(step, index, generation))


def write(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> None:
    """Write the outcome of the claim that it names, in place of an earlier one. Durable on return. Raises by
    `errno_map.storage_error`: NoSpaceError on a full target."""
    documents.write(ELEMENT_OUTCOME, run.outcome(step, index, outcome.generation), outcome)


def create(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> bool:
    """As `write`, where there is none: for an element that did not live to write its own. False: it did."""
    path = run.outcome(step, index, outcome.generation)
    return documents.create(ELEMENT_OUTCOME, path, outcome)
