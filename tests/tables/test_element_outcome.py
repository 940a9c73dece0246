"""Outcomes as documents: what is written is read back, and outcomes of other versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.core.element_documents import ELEMENT_OUTCOME, ElementOutcome
from penstock.core.errors import FailedError, NewerFormatError
from penstock.core.layout import RunLayout
from penstock.dataset import documents

if TYPE_CHECKING:
    from pathlib import Path

FAILED = ElementOutcome(
    attempt="12_3_0",
    generation=2,
    free=True,
    host="n1",
    exit_code=5,
    retry=False,
    failed=30,
    failures=(("a/b", "404"), ("odd\n\udcff", "403")),
    linked_failures=(("a/b", "404"),),
    split=(3, 4),
)
STOPPED = ElementOutcome(exit_code=143, error="stopped", stopped="time", progress=True)


def stored(run: RunLayout, raw: object) -> ElementOutcome | None:
    path = run.outcome("copy", 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(raw))
    return documents.find_outcome(run, "copy", 0, 0)


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    return RunLayout(tmp_path / "run")


@pytest.mark.parametrize("outcome", [ElementOutcome(), FAILED, STOPPED])
def test_what_is_written_is_read_back(run: RunLayout, outcome: ElementOutcome) -> None:
    assert documents.find_outcome(run, "copy", 0, 0) is None
    documents.write_outcome(run, "copy", 0, outcome)
    assert documents.find_outcome(run, "copy", 0, outcome.generation) == outcome
    assert (
        json.loads(run.outcome("copy", 0, outcome.generation).read_text())["format"] == ELEMENT_OUTCOME.newest
    )


def test_an_outcome_of_a_later_version_is_read(run: RunLayout) -> None:
    known = {"format": 1, "attempt": "a", "host": "h", "exit_code": 6, "error": "full", "retry": False}
    assert stored(run, {**known, "later": 1}) == ElementOutcome(
        attempt="a", host="h", exit_code=6, retry=False, error="full"
    )
    # Killed while it could not say more: the same again may help.
    assert stored(run, {"format": 1}) == ElementOutcome(retry=True)


def test_a_damaged_one_counts_as_missing_and_one_that_cannot_be_read_does_not(run: RunLayout) -> None:
    for raw in ({"failures": [["a"]]}, {"retry": "no"}, {"split": ["1"]}):
        assert stored(run, {"format": 1, **raw}) is None
    for raw in ([], {}):
        assert stored(run, raw) is None
    run.outcome("copy", 0, 0).unlink()
    run.outcome("copy", 0, 0).mkdir()
    assert documents.find_outcome(run, "copy", 0, 0) is None
    run.outcome("copy", 0, 0).rmdir()
    run.outcome("copy", 0, 0).parent.rmdir()
    run.outcome("copy", 0, 0).parent.write_text("")
    with pytest.raises(FailedError, match="cannot be read"):
        documents.find_outcome(run, "copy", 0, 0)


def test_a_newer_format_is_refused_by_name(run: RunLayout) -> None:
    with pytest.raises(NewerFormatError, match="an element's outcome is of a newer format") as told:
        stored(run, {"format": ELEMENT_OUTCOME.newest + 1})
    assert told.value.where == str(run.outcome("copy", 0, 0))
