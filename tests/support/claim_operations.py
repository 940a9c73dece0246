"""`python -m tests.support.claim_operations FOLDER SHARDS WORKERS`: the calls by which so many workers divide
so many shards of a step by claims; prints them as JSON.

Claims and receipts are the real ones, in one process and by a clock that is made up: a worker takes 300 s for
a shard, more or less a fifth, and looks for a further one as `elements.worker` does while a controller lives.
What workers do with a shard is left out.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.element_documents import ElementReceipt, ShardClaim
from penstock.core.layout import RunLayout
from penstock.dataset import receipts
from penstock.host import waits
from penstock.jobs import shard_claims, worker
from penstock.jobs.shard_claims import Claim, ShardClaims

if TYPE_CHECKING:
    from types import FrameType

CALLS = {
    "stat",
    "lstat",
    "open",
    "link",
    "unlink",
    "rename",
    "mkdir",
    "listdir",
    "scandir",
    "utime",
    "readlink",
}
"""Those that a metadata server answers."""
SHARD, SPREAD = 300.0, 0.2
"""Seconds of a worker for a shard, and by which part of it more or less."""


class Worker(NamedTuple):
    claims: ShardClaims
    claim: Claim | None = None
    idle: float = 0.0
    """Since when it has no shard."""


def main(folder: Path, shards: int, workers: int) -> None:
    run = RunLayout(folder / "run")
    now, draw, names, done = 0.0, random.Random(1), itertools.count(), set[int]()
    busy, idle = Counter[str](), Counter[str]()
    counted = busy

    def holds(index: int) -> bool:
        receipt = receipts.element(run, "copy", index)
        return receipt is not None and receipt.run == "run"

    def count(_: FrameType, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__module__", "") in ("posix", "io", "_io"):
            counted[getattr(function, "__name__", "")] += 1

    every = range(shards)
    events: list[tuple[float, int, Worker]] = []
    for number in range(workers):
        own = ShardClaim(array="array", number=number, call="call", host=f"n{number:04d}")
        claims = ShardClaims(
            run, "copy", own, every, number * shards // workers, holds, lambda: f"{next(names):016x}",
            retries=2, clock=lambda: now,
        )  # fmt: skip
        events.append((number / workers, number, Worker(claims)))
    heapq.heapify(events)
    sys.setprofile(count)
    while events:
        now, number, state = heapq.heappop(events)
        counted = idle if state.idle else busy
        if state.claim is not None:
            index = state.claim.index
            state.claim.prove(ElementReceipt("copy", index, "run", attempt=state.claim.content.worker), holds)
            done.add(index)
            state = Worker(state.claims, idle=now)
        if (claim := state.claims.next()) is not None:
            takes = SHARD * draw.uniform(1 - SPREAD, 1 + SPREAD)
            heapq.heappush(events, (now + takes, number, Worker(state.claims, claim)))
        elif state.claims.waits() and now - state.idle < worker.IDLE:
            pause = min(worker.LOOKS[1], max(worker.LOOKS[0], state.claims.left / 100))
            heapq.heappush(events, (now + pause, number, state))
    sys.setprofile(None)
    figures = {
        "done": len(done),
        "fsyncs": busy["fsync"],
        "listings": busy["listdir"] + idle["listdir"],
        "made": busy["link"],
        "a shard": round(sum((busy + idle)[name] for name in CALLS) / shards, 1),
        "a shard without the looks of idle workers": round(sum(busy[name] for name in CALLS) / shards, 1),
        "a worker that ends": round(sum(idle[name] for name in CALLS) / workers, 1),
        # A look for a higher claim, and a touch of the own one (`Claim.look`, `Claim.beat`).
        "a worker and second": round(1 / shard_claims.LOOK + 1 / waits.HEARTBEAT, 2),
        "seconds": round(now),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
