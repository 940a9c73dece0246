"""Objects that are large for tests: copied in nine parts of half a MiB each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import xxhash
from tests.support.engine_runs import content, shard_run
from tests.support.records import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.engine_runs import ShardRun
    from tests.support.hostile import Hostile

    from penstock.core.model import Record

PART = 512 << 10
COUNT = 9
"""Parts of an object."""
SMALLER: dict[str, Any] = {"large_bytes": 4 << 20, "part_bytes": PART}
"""What a copy task is told, so that objects of this size are large."""
DATA = content(3, COUNT * PART - 77)
OTHER = content(4, len(DATA))
HEX = xxhash.xxh3_128_hexdigest(DATA)
"""Digest of DATA."""


def records(run: ShardRun) -> dict[str, Record]:
    """Path to record, as verify wrote them; no object of the shard is a giant."""
    rows = rows_of(run.folder / "records.parquet")
    return {entry.path: row.record for entry, row in zip(run.entries, rows, strict=True)}


def run_of(server: Hostile, folder: Path, **options: Any) -> ShardRun:
    """A shard of all that the server's bucket holds."""
    return shard_run(folder, f"s3://{server.bucket}/", endpoint_url=server.endpoint, anon=True, **options)


def ranges(server: Hostile, key: str = "big") -> Counter[str]:
    """How often each range of an object was asked for; the whole is ""."""
    return Counter(one.range for one in server.asked if one.method == "GET" and one.key == key)
