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
import time
from typing import TYPE_CHECKING, Any

from penstock.errors import FailedError
from penstock.filesystem.errno_map import storage_error
from penstock.storage import durable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.state.run import Run


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


def copied(run: Run) -> Callable[[int], bool]:
    """Whether the receipt of an element of copy holds, by its index."""
    return lambda index: _holds(read(run.folder.receipt("copy", index)), run, index)


def verified(run: Run) -> Callable[[int], bool]:
    """The same of verify. The records' own digest is checked when they are read."""

    def ok(index: int) -> bool:
        receipt = read(run.folder.receipt("verify", index))
        return (
            receipt is not None
            and _holds(receipt, run, index)
            and receipt.get("copied_by") == copied_by(run.folder, index)
            and run.folder.records(index).exists()
        )

    return ok


def copied_by(run: RunLayout, index: int) -> str:
    """The attempt that finished a shard's copy, or ""."""
    return str((read(run.receipt("copy", index)) or {}).get("attempt", ""))


def copies(run: Run) -> str:
    """Digest of the attempts that finished each shard: it changes with any copy made anew."""
    text = "\n".join(copied_by(run.folder, index) for index in run.indices)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def need(ok: Callable[[int], bool], run: Run, step: str) -> None:
    """Raises FailedError unless every element of an earlier step has its receipt."""
    missing = [index for index in run.indices if not ok(index)]
    if missing:
        raise FailedError(
            f"{step} is not complete",
            where=run.dataset,
            why=f"{len(missing)} of {len(run.indices)} elements have no receipt",
            hint=f"run `penstock {step} {run.dataset}` first",
        )


def head(run: Run, step: str, started: float) -> dict[str, Any]:
    """What every step's receipt begins with."""
    return {
        "step": step,
        "dataset": run.dataset,
        "run": run.id,
        "release": run.release,
        "published": False,
        "started": started,
        "ended": time.time(),
    }


def keep(run: Run, receipt: dict[str, Any]) -> dict[str, Any]:
    """Keep a step's receipt with its run; the time of earlier calls counts too."""
    path = run.folder.receipt(receipt["step"])
    before = read(path) or {}
    seconds = round(before.get("seconds", 0.0) + receipt["ended"] - receipt["started"], 3)
    receipt = {**receipt, "started": before.get("started", receipt["started"]), "seconds": seconds}
    write(path, receipt)
    return receipt


def published(run: Run, step: str) -> dict[str, Any]:
    """The receipt of a step that has nothing to do since the release stands."""
    info = run.info
    return {**head(run, step, time.time()), "published": True, "files": info.files, "bytes": info.bytes}


def file_digest(path: Path) -> str:
    """`sha256:<hex>` of a small file of the run."""
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _holds(receipt: dict[str, Any] | None, run: Run, index: int) -> bool:
    return (
        receipt is not None
        and receipt.get("run") == run.plan.run
        and receipt.get("shard") == run.shards[index].digest
    )
