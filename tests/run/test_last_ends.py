"""How the last attempts at shards came to nothing, as the steps read it after an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.element_documents import SHARD_CLAIM, ElementOutcome, ShardClaim
from penstock.core.layout import RunLayout
from penstock.dataset import documents
from penstock.jobs import shard_claims

if TYPE_CHECKING:
    from pathlib import Path


def claim(run: RunLayout, index: int, generation: int) -> None:
    documents.write(SHARD_CLAIM, run.claim("copy", index, generation), ShardClaim())


def fails(run: RunLayout, index: int, generation: int, *split: int) -> ElementOutcome:
    outcome = ElementOutcome(generation=generation, split=split)
    documents.write_outcome(run, "copy", index, outcome)
    return outcome


def test_an_outcome_counts_while_its_claim_is_the_highest(tmp_path: Path) -> None:
    run = RunLayout(tmp_path)
    (run.outcome("copy", 0, 0).parent).mkdir(parents=True)
    run.claims("copy").mkdir(parents=True)
    assert [*shard_claims.last_ends(run, "copy")] == []
    for index in (2, 0, 1):
        claim(run, index, 1)
    failed = fails(run, 0, 1, 7), fails(run, 2, 1)
    assert [*shard_claims.last_ends(run, "copy")] == [(0, failed[0]), (2, failed[1])]
    # Shard 0 is tried again: what it left is over, though nothing has removed it.
    claim(run, 0, 2)
    assert [*shard_claims.last_ends(run, "copy")] == [(2, failed[1])]
    again = fails(run, 0, 2)
    assert [*shard_claims.last_ends(run, "copy")] == [(0, again), (2, failed[1])]
