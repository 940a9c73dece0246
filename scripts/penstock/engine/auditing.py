"""Reads one slice of a published release back and names the rows that are not as published.

The rows carry in `reuse` the digest that the manifest has. What was seen is kept in a small
durable file every few seconds, so a killed audit goes on where it stopped; a damaged row is a
finding and not a failure: the slice is done when every row was looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engine.running import Run
from penstock.engine.task import Outcome
from penstock.storage import durable

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config.model import EngineConfig
    from penstock.core.runs import ShardInfo
    from penstock.engine.batches import Job
    from penstock.engine.task import Report, StopCheck

EVERY = 3.0


@dataclass(frozen=True)
class AuditTask:
    """One shard of an audit."""

    shard: ShardInfo
    rows: Path
    data: Path
    """The release's `data` folder."""
    seen: Path
    """Where the state of the work lies: what was read, what was found."""
    engine: EngineConfig


@dataclass
class Seen:
    """What the attempts so far saw of a shard. `ranges` are rows looked at: [start, end), in order."""

    shard: str
    ranges: list[list[int]] = field(default_factory=list)
    bad: list[tuple[int, str, bool]] = field(default_factory=list)
    """(row, why, it could not be read)."""
    methods: Counter[str] = field(default_factory=Counter)
    files: int = 0
    bytes: int = 0

    def rows(self) -> set[int]:
        return {row for start, end in self.ranges for row in range(start, end)}

    def write(self, path: Path) -> None:
        durable.write_json(
            path,
            {
                "shard": self.shard,
                "ranges": self.ranges,
                "bad": self.bad,
                "methods": self.methods,
                "files": self.files,
                "bytes": self.bytes,
            },
        )

    @classmethod
    def read(cls, path: Path, shard: str) -> Seen:
        """What is there of this very shard; else nothing was seen yet."""
        try:
            raw = durable.read_json(path)
        except (FileNotFoundError, ValueError):
            return cls(shard)
        if not isinstance(raw, dict) or raw.get("shard") != shard:
            return cls(shard)
        bad = [(int(row), str(why), bool(unread)) for row, why, unread in raw["bad"]]
        return cls(shard, raw["ranges"], bad, Counter(raw["methods"]), raw["files"], raw["bytes"])


def audit_shard(task: AuditTask, report: Report, stop: StopCheck) -> tuple[Outcome, Seen]:
    """Look at every row that no earlier attempt saw.

    Raises InterruptedRunError after a tidy stop and FailedError for what concerns more than a
    row; what was seen until then is kept.
    """
    outcome = Outcome()
    run = Run(outcome, task.engine, task.shard, report)
    try:
        return outcome, _audit(task, run, stop)
    finally:
        run.close()


def _audit(task: AuditTask, run: Run, stop: StopCheck) -> Seen:
    from penstock.engine.batches import batches
    from penstock.engine.sizing import LOCAL_KINDS
    from penstock.formats.shards import read_shard
    from penstock.storage.facts import facts

    outcome = run.outcome
    seen = Seen.read(task.seen, task.shard.digest)
    looked = seen.rows()
    outcome.resumed_files, outcome.resumed_bytes = seen.files, seen.bytes
    left = task.shard.rows - len(looked)
    if not left:
        run.report(seen.files, seen.bytes, len(seen.bad))
        return seen
    done = frozenset(looked)
    kept = time.monotonic()
    local = facts(task.data).kind in LOCAL_KINDS
    setup = {"job": "reread", "data": task.data, "digests": ()}
    run.start(setup, rows=left, total=task.shard.bytes - seen.bytes, local=local)

    def take(_: Job, answer: tuple[Any, ...]) -> None:
        _, count, found, failures, size, retries, _linked = answer
        for row, method, *_rest in found:
            looked.add(row)
            seen.methods[method] += 1
        for row, _path, why, _code, unread in failures:
            looked.add(row)
            seen.bad.append((row, why, unread))
        seen.files += count
        seen.bytes += size
        outcome.files += count
        outcome.bytes += size
        outcome.retries += retries

    def keep() -> None:
        seen.ranges = _ranges(looked)
        seen.write(task.seen)

    def idle() -> None:
        nonlocal kept
        if time.monotonic() - kept > EVERY:
            keep()
            kept = time.monotonic()

    try:
        run.go(batches(read_shard(task.rows), done, left, outcome.workers), take, idle, stop)
    finally:
        keep()
    outcome.methods = dict(seen.methods)
    return seen


def _ranges(rows: set[int]) -> list[list[int]]:
    out: list[list[int]] = []
    for row in sorted(rows):
        if out and out[-1][1] == row:
            out[-1][1] = row + 1
        else:
            out.append([row, row + 1])
    return out
