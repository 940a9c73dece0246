"""One shard: done in this process by an element that claims it; its receipt and outcome."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penstock.core.element_documents import ELEMENT_RECEIPT, ElementReceipt, ShardClaim
from penstock.dataset import documents
from penstock.dataset.context import Stop
from penstock.jobs.element import Element, attempt_name
from penstock.jobs.shard_claims import ShardClaims

if TYPE_CHECKING:
    from penstock.core.element_documents import ElementOutcome
    from penstock.core.layout import RunLayout


def do_shard(run: RunLayout, step: str, index: int, stop: Stop | None = None) -> int:
    """The exit status. Each call is a command of its own, so that a shard that failed is tried again."""
    with Element(run, step, stop or Stop()) as element:
        own = ShardClaim(call=secrets.token_hex(4))
        shards = ShardClaims(run, step, own, [index], 0, lambda _: False, attempt_name, retries=0)
        claim = shards.take(index)
        assert claim is not None
        return element.do(claim)


def write_receipt(run: RunLayout, receipt: ElementReceipt) -> None:
    """In place of the one that is there."""
    documents.write(ELEMENT_RECEIPT, run.receipt(receipt.step, receipt.index), receipt)


def outcome_of(run: RunLayout, index: int) -> ElementOutcome | None:
    """That of the highest claim of a shard of copy."""
    return documents.find_outcome(run, "copy", index, documents.claimed(run, "copy", index))
