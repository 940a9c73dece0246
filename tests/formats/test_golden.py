"""The words of every document on disk, with each of its fields set and with its defaults alone: a change of
the code leaves `golden.json` as it is. What 1.0.0 is to read has to be written so; a field more has a default
that is not written, or stands there with its default.

`python -m tests.formats.test_golden` writes `golden.json` anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.filled import bare, filled

from penstock.core import run_documents
from penstock.core.documents import (
    adopted_tree,
    adoption_description,
    array_line,
    audit_description,
    cancel_file,
    claim_file,
    element_outcome,
    element_receipt,
    fetched_files,
    history_line,
    last_end,
    listing_segment,
    node_answer,
    pin_file,
    probe_report,
    promise,
    removal_mark,
    rollback_intent,
    seal,
    state_marker,
    state_pointer,
    step_results,
    taken_mark,
    throttle_file,
    under_way,
    verdict,
)
from penstock.locks.holder import Holder
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).with_name("golden.json")
WRITERS: dict[type, Callable[[Any], Any]] = {
    Holder: lambda holder: json.loads(holder.to_json()),
    run_documents.RunInfo: run_documents.to_json,
    run_documents.PlanInfo: run_documents.to_json,
    adopted_tree.AdoptedTree: adopted_tree.to_json,
    adoption_description.Adoption: adoption_description.to_json,
    array_line.ArrayLine: array_line.to_json,
    audit_description.Audit: audit_description.to_json,
    cancel_file.Cancellation: cancel_file.to_json,
    claim_file.ClaimFile: claim_file.to_json,
    element_outcome.ElementOutcome: element_outcome.to_json,
    element_receipt.ElementReceipt: element_receipt.to_json,
    fetched_files.FetchedFiles: fetched_files.to_json,
    history_line.Publication: history_line.to_json,
    history_line.Rollback: history_line.to_json,
    history_line.Repair: history_line.to_json,
    history_line.Removal: history_line.to_json,
    history_line.Unpinning: history_line.to_json,
    history_line.Signing: history_line.to_json,
    history_line.CtimeInterval: history_line.to_json,
    last_end.LastEnd: last_end.to_json,
    listing_segment.ListingSegment: listing_segment.to_json,
    node_answer.NodeAnswer: node_answer.to_json,
    pin_file.PinFile: pin_file.to_json,
    probe_report.ProbeReport: probe_report.to_json,
    promise.Promise: promise.to_json,
    removal_mark.RemovalMark: removal_mark.to_json,
    rollback_intent.RollbackIntent: rollback_intent.to_json,
    seal.Seal: seal.to_json,
    state_marker.StateMarker: state_marker.to_json,
    state_pointer.StatePointer: state_pointer.to_json,
    step_results.CopyReceipt: step_results.to_json,
    step_results.PermissionsReceipt: step_results.to_json,
    step_results.VerifyReceipt: step_results.to_json,
    step_results.PublishReceipt: step_results.to_json,
    taken_mark.TakenMark: taken_mark.to_json,
    throttle_file.Throttle: throttle_file.to_json,
    under_way.UnderWay: under_way.to_json,
    verdict.Verdict: verdict.to_json,
}


def written(kind: type) -> dict[str, Any]:
    """What is written of a document, as JSON has it."""
    samples = {"filled": filled(kind)}
    if not issubclass(kind, dict):
        samples["bare"] = bare(kind)
    return {name: json.loads(durable.json_line(WRITERS[kind](sample))) for name, sample in samples.items()}


@pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__)
def test_a_document_has_the_words_that_it_had(kind: type) -> None:
    assert written(kind) == json.loads(GOLDEN.read_text())[kind.__name__]


def test_each_document_that_was_is_one_still() -> None:
    assert {kind.__name__ for kind in WRITERS} == set(json.loads(GOLDEN.read_text()))


if __name__ == "__main__":
    lines = (f'"{kind.__name__}": {json.dumps(written(kind), sort_keys=True)}' for kind in WRITERS)
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
