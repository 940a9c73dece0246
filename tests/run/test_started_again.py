"""A worker that the scheduler starts again goes on at once with the shard that it held before."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from penstock.core.element_documents import ElementOutcome, ShardClaim
from penstock.core.layout import RunLayout
from penstock.dataset import documents
from penstock.jobs.shard_claims import Claim, ShardClaims

if TYPE_CHECKING:
    from pathlib import Path

NAMES = itertools.count()


def claims(run: RunLayout, restarts: int, *, number: int = 0, array: str = "array") -> ShardClaims:
    worker = ShardClaim(array=array, number=number, call="call", restarts=restarts)
    return ShardClaims(
        run, "copy", worker, [0], 0, lambda _: False, lambda: f"attempt-{next(NAMES)}", retries=2
    )


def taken(claim: Claim | None) -> Claim:
    assert claim is not None
    return claim


def test_it_takes_its_own_shard_at_once_and_that_counts_as_a_failure(tmp_path: Path) -> None:
    run = RunLayout(tmp_path)
    assert taken(claims(run, 0).next()).generation == 1
    again = taken(claims(run, 1).next())
    assert (again.generation, again.content.charged, again.content.restarts) == (2, 1, 1)


@pytest.mark.parametrize(
    ("restarts", "number", "array"), [(0, 0, "array"), (1, 1, "array"), (1, 0, "another")]
)
def test_no_other_process_does(tmp_path: Path, restarts: int, number: int, array: str) -> None:
    run = RunLayout(tmp_path)
    assert claims(run, 0).next()
    assert claims(run, restarts, number=number, array=array).next() is None


@pytest.mark.parametrize(("restarts", "charged"), [(1, 0), (0, 1)])
def test_a_signal_before_it_is_charged_only_where_it_was_not_started_again(
    tmp_path: Path, restarts: int, charged: int
) -> None:
    """Preemption and requeueing send one."""
    run = RunLayout(tmp_path)
    first = taken(claims(run, 0).next())
    documents.write_outcome(
        run,
        "copy",
        0,
        ElementOutcome(first.content.worker, first.generation, exit_code=143, stopped="signal"),
    )
    assert taken(claims(run, restarts).next()).content.charged == charged
