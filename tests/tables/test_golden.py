"""The words of every document on disk, with each of its fields set and with its defaults alone: a change of
the code leaves `golden.json` as it is. What 1.0.0 is to read has to be written so; a field more has a default
that is not written, or stands there with its default.

`python -m tests.tables.test_golden` writes `golden.json` anew.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, is_typeddict

import pytest
from tests.support.filled import bare, filled
from tests.support.kinds import DOCUMENTS

from penstock.core.dataset_documents import (
    HistoryLine,
    Publication,
    Removal,
    Rollback,
)
from penstock.dataset.holder import Holder
from penstock.fs import small_files

GOLDEN = Path(__file__).with_name("golden.json")
KINDS = [Holder, *(document.kind for document in DOCUMENTS if document.kind is not HistoryLine)]
"""A line of the history of an event that this version does not know is only read."""


def to_json(value: Any) -> Any:
    if isinstance(value, Holder):
        return json.loads(value.to_json())
    (document,) = (document for document in DOCUMENTS if document.kind is type(value))
    return document.to_json(value)


def written(kind: Any) -> dict[str, Any]:
    """What is written of a document, as JSON has it."""
    samples = {"filled": filled(kind)}
    if is_typeddict(kind):
        (document,) = (document for document in DOCUMENTS if document.kind is kind)
        return {"filled": json.loads(small_files.json_line(document.to_json(samples["filled"])))}
    if issubclass(kind, HistoryLine):
        # What lines of this event never have.
        never = {Publication: {}, Rollback: {"run": ""}, Removal: {"claim": None}}
        samples["filled"] = replace(samples["filled"], **never.get(kind, {"run": "", "claim": None}))
    samples["bare"] = bare(kind)
    return {name: json.loads(small_files.json_line(to_json(sample))) for name, sample in samples.items()}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_document_has_the_words_that_it_had(kind: Any) -> None:
    assert written(kind) == json.loads(GOLDEN.read_text())[kind.__name__]


def test_each_document_that_was_is_one_still() -> None:
    assert {kind.__name__ for kind in KINDS} == set(json.loads(GOLDEN.read_text()))


if __name__ == "__main__":
    lines = (f'"{kind.__name__}": {json.dumps(written(kind), sort_keys=True)}' for kind in KINDS)
    GOLDEN.write_text("{\n" + ",\n".join(sorted(lines)) + "\n}\n")
