"""Outcomes: why an element ended without a receipt, and whether a retry may help. The element writes
`outcomes/<step>/<index>.<generation>.json`; the controller reads it. Each claim of a shard has its own, so a
worker that wakes after another took its shard overwrites nothing (`jobs.shard_claims`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.element_documents import ELEMENT_OUTCOME
from penstock.dataset import documents

if TYPE_CHECKING:
    from penstock.core.element_documents import ElementOutcome
    from penstock.core.layout import RunLayout


def claimed(run: RunLayout, step: str, index: int, least: int = 0) -> int:
    """Return the generation of a shard's highest claim, counted from the known claim `least`; 0 without one.
    What stands above a gap is no claim."""
    while os.path.lexists(run.claim(step, index, least + 1)):
        least += 1
    return least


def find(run: RunLayout, step: str, index: int, generation: int) -> ElementOutcome | None:
    """Return the outcome of this claim; None if it is missing or damaged. Raises FailedError,
    NewerFormatError."""
    return documents.find_whole(ELEMENT_OUTCOME, run.outcome(step, index, generation))


def write(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> None:
    """Write or replace the outcome of the claim that it names, durably. Raises by `errno_map.storage_error`:
    NoSpaceError on a full target."""
    documents.write(ELEMENT_OUTCOME, run.outcome(step, index, outcome.generation), outcome)


def create(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> bool:
    """As `write`, for an element that died before it wrote its own. False if an outcome exists."""
    path = run.outcome(step, index, outcome.generation)
    return documents.create(ELEMENT_OUTCOME, path, outcome)
