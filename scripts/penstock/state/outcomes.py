"""Outcomes of a run's elements: the one reader and writer of `outcomes/<step>/<index>.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.documents import element_outcome
from penstock.errors import STATE_ANEW, FailedError
from penstock.filesystem import plain_files
from penstock.filesystem.errno_map import storage_error
from penstock.storage import durable

if TYPE_CHECKING:
    from penstock.core.documents.element_outcome import ElementOutcome
    from penstock.core.layout import RunLayout


def load(run: RunLayout, step: str, index: int) -> ElementOutcome:
    """Raises OSError when the outcome cannot be read, ValueError when it is damaged, NewerFormatError."""
    path = run.outcome(step, index)
    return element_outcome.ELEMENT_OUTCOME.from_json(plain_files.read(path), path)


def find(run: RunLayout, step: str, index: int) -> ElementOutcome | None:
    """The outcome of the element's last attempt, None when it is missing or damaged. Raises FailedError when
    it cannot be read, NewerFormatError."""
    try:
        return load(run, step, index)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        where = str(run.outcome(step, index))
        raise FailedError(
            "an element's outcome cannot be read", where=where, why=str(error), hint=STATE_ANEW
        ) from error


def write(run: RunLayout, step: str, index: int, outcome: ElementOutcome) -> None:
    """Durable on return. Raises by `errno_map.storage_error`: NoSpaceError on a full target."""
    path = run.outcome(step, index)
    try:
        durable.make_dirs(path.parent)
        durable.write_json(path, element_outcome.ELEMENT_OUTCOME.to_json(outcome))
    except OSError as error:
        raise storage_error(error, "an element's outcome cannot be written", str(path)) from error
