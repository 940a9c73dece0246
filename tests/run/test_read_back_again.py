"""What verify takes for new damage: what workers of this call named, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.abandoned import opened
from tests.support.standing import begin
from tests.support.whole_way import content, go, texts

from penstock.core.element_documents import SHARD_CLAIM, ElementOutcome, ShardClaim
from penstock.core.errors import (
    CancelledError,
    FailedError,
    InterruptedRunError,
    LockedError,
    PenstockError,
    PreflightError,
)
from penstock.dataset import documents
from penstock.fs import small_files
from penstock.run import read_back, verify_step

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context


STANDING = True


def claimed(run: RunLayout, generation: int) -> None:
    """A worker has claimed shard 0 of verify."""
    small_files.make_dirs(run.claims("verify"))
    claim = ShardClaim(f"1_0_0-{generation:08d}", array="earlier", call="earlier", host="n1")
    assert documents.create(SHARD_CLAIM, run.claim("verify", 0, generation), claim)


def damaged(run: RunLayout, generation: int) -> None:
    """It found a file that does not read back as copied."""
    small_files.make_dirs(run.outcome("verify", 0, 0).parent)
    failures = [("a/one", "it reads back with other bytes")]
    outcome = ElementOutcome(
        f"1_0_0-{generation:08d}", generation, exit_code=1, retry=False, failed=1, failures=failures
    )
    documents.write_outcome(run, "verify", 0, outcome)


def copies(run: RunLayout) -> Mapping[str, tuple[int, int]]:
    """The receipts of copied shards, each with its inode and time: one that is written again is another file,
    which may get the inode of the one that was removed."""
    folder = run.receipt("copy", 0).parent
    found = {name: os.stat(folder / name) for name in os.listdir(folder)}
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}


def copied_again(context: Context) -> list[str]:
    return [text for text in texts(context) if "are copied again" in text]


@pytest.mark.parametrize(
    "error",
    [
        LockedError("it cannot go on"),
        PreflightError("it cannot go on"),
        InterruptedRunError(15),
        CancelledError("it cannot go on"),
        FailedError("it cannot go on"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_damage_that_was_named_before_is_not_taken_for_the_cause_of_an_error(
    context: Context, monkeypatch: pytest.MonkeyPatch, error: PenstockError
) -> None:
    begin(context, upto="permissions")
    _, run = opened(context)
    claimed(run, 1)
    damaged(run, 1)
    before = copies(run)

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(read_back, "run_array", fails)
    with pytest.raises(PenstockError) as raised:
        verify_step.run(context, "data")
    assert raised.value is error
    assert copies(run) == before
    assert copied_again(context) == []


@pytest.mark.parametrize(
    "error",
    [
        LockedError("it cannot go on"),
        PreflightError("it cannot go on"),
        InterruptedRunError(15),
        CancelledError("it cannot go on"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_no_damage_is_raised_beside_new_damage(
    context: Context, monkeypatch: pytest.MonkeyPatch, error: PenstockError
) -> None:
    """Workers may be at work still."""
    begin(context, upto="permissions")
    _, run = opened(context)
    before = copies(run)

    def fails(*_: Any, **__: Any) -> None:
        claimed(run, 1)
        damaged(run, 1)
        raise error

    monkeypatch.setattr(read_back, "run_array", fails)
    with pytest.raises(PenstockError) as raised:
        verify_step.run(context, "data")
    assert raised.value is error
    assert copies(run) == before
    assert copied_again(context) == []


@pytest.mark.parametrize("claim_stood", [False, True])
def test_new_damage_is_copied_and_read_again(
    context: Context, source: Path, monkeypatch: pytest.MonkeyPatch, claim_stood: bool
) -> None:
    """Also where the worker that names it claimed its shard before this controller began."""
    begin(context, upto="permissions")
    _, run = opened(context)
    claimed(run, 1)
    damaged(run, 1)
    if claim_stood:
        claimed(run, 2)
    before, calls = copies(run), 0
    run_array = read_back.run_array

    def fails_first(*args: Any, **more: Any) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            return run_array(*args, **more)
        if not claim_stood:
            claimed(run, 2)
        damaged(run, 2)
        raise FailedError("1 shard did not finish")

    monkeypatch.setattr(read_back, "run_array", fails_first)
    assert verify_step.run(context, "data")["copied_again"] == [0]  # type: ignore[typeddict-item]
    assert {name for name, one in copies(run).items() if before[name] != one} == {"00000.json"}
    assert len(copied_again(context)) == 1
    go(context, after="verify")
    assert content(context.layout("data").current / "data") == content(source)
