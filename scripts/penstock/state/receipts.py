"""Receipts: small durable proofs of what a step or an element did, and when they still hold.

| receipt     | holds while                                                                       |
|-------------|-----------------------------------------------------------------------------------|
| copy/N      | it names this run and the plan's shard N                                          |
| permissions | it names the attempts of all copy receipts as they are now                        |
| verify/N    | it names this run, shard N, the attempt of copy/N; the records are those it wrote |
| publish     | the release stands, sealed by this run                                            |
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock.errors import FailedError
from penstock.filesystem.errno_map import storage_error
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.core.run_documents import PlanInfo, ShardInfo


def read(path: Path) -> dict[str, Any] | None:
    """A receipt, or None when it is not there. Damaged ones count as missing: they are made again."""
    try:
        found = durable.read_json(path)
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise FailedError("a receipt cannot be read", where=str(path), why=str(error)) from error
    return found if isinstance(found, dict) else None


def write(path: Path, receipt: dict[str, Any]) -> None:
    """Durable on return. Raises by `errno_map.storage_error`: NoSpaceError on a full target."""
    try:
        durable.make_dirs(path.parent)
        durable.write_json(path, receipt)
    except OSError as error:
        raise storage_error(error, "a receipt cannot be written", str(path)) from error


def drop(path: Path) -> None:
    """Take a receipt back, durably."""
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            durable.fsync_dir(path.parent)
    except OSError as error:
        raise FailedError("a receipt cannot be removed", where=str(path), why=str(error)) from error


def copy_ok(run: RunLayout, plan: PlanInfo) -> Callable[[int], bool]:
    """Judges an element's copy receipt."""
    shards = by_index(plan)

    def ok(index: int) -> bool:
        return _of(read(run.receipt("copy", index)), plan, shards[index])

    return ok


def verify_ok(run: RunLayout, plan: PlanInfo) -> Callable[[int], bool]:
    """Judges an element's verify receipt. The records' own digest is checked when they are read."""
    shards = by_index(plan)

    def ok(index: int) -> bool:
        receipt = read(run.receipt("verify", index))
        return (
            receipt is not None
            and _of(receipt, plan, shards[index])
            and receipt.get("copied_by") == copied_by(run, index)
            and run.records(index).exists()
        )

    return ok


def by_index(plan: PlanInfo) -> dict[int, ShardInfo]:
    return {shard.index: shard for shard in plan.shards}


def indices(plan: PlanInfo) -> list[int]:
    return [shard.index for shard in plan.shards]


def copied_by(run: RunLayout, index: int) -> str:
    """The attempt that finished a shard's copy, or ""."""
    return str((read(run.receipt("copy", index)) or {}).get("attempt", ""))


def copies(run: RunLayout, shards: Sequence[int]) -> str:
    """Digest of the attempts that finished each shard: it changes with any copy made anew."""
    text = "\n".join(copied_by(run, index) for index in shards)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def need(ok: Callable[[int], bool], shards: Sequence[int], step: str, dataset: str) -> None:
    """Raises FailedError unless every element of an earlier step has its receipt."""
    missing = [index for index in shards if not ok(index)]
    if missing:
        raise FailedError(
            f"{step} is not complete",
            where=dataset,
            why=f"{len(missing)} of {len(shards)} elements have no receipt",
            hint=f"run `penstock {step} {dataset}` first",
        )


def file_digest(path: Path) -> str:
    """`sha256:<hex>` of a small file of the run."""
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _of(receipt: dict[str, Any] | None, plan: PlanInfo, shard: ShardInfo) -> bool:
    return receipt is not None and receipt.get("run") == plan.run and receipt.get("shard") == shard.digest
