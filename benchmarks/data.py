"""The benchmark's own data: made once, the same each time, and of no use to a compressor."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
FOLDER = 1000
"""Files in one folder."""


@dataclass(frozen=True)
class Work:
    """One kind of load. Sizes are even between `low` and `high` bytes."""

    name: str
    files: int
    low: int
    high: int
    text: str


FULL = (
    Work("L", 8, 512 * MIB, 512 * MIB, "8 x 512 MiB"),
    Work("M", 5_000, 1_000_000, 1_000_000, "5,000 x 1 MB"),
    Work("S", 20_000, 32_000, 110_000, "20,000 x 32 to 110 KB"),
    Work("T", 100_000, 4_000, 4_000, "100,000 x 4 KB"),
    Work("K", 200_000, 0, 0, "200,000 keys, listed only"),
)
QUICK = (
    Work("L", 2, 256 * MIB, 256 * MIB, "2 x 256 MiB"),
    Work("M", 400, 1_000_000, 1_000_000, "400 x 1 MB"),
    Work("S", 4_000, 32_000, 110_000, "4,000 x 32 to 110 KB"),
    Work("T", 10_000, 4_000, 4_000, "10,000 x 4 KB"),
    Work("K", 50_000, 0, 0, "50,000 keys, listed only"),
)


def make(root: Path, work: Work) -> tuple[int, int]:
    """The files of one work below `root/<name>`, unless they are there. Returns (files, bytes)."""
    folder, done = root / work.name, root / f"{work.name}.json"
    if done.exists() and (stated := json.loads(done.read_text()))["work"] == asdict(work):
        return int(stated["files"]), int(stated["bytes"])
    source = random.Random(work.name)
    pool = source.randbytes(64 * MIB)
    total = 0
    for index in range(work.files):
        if index % FOLDER == 0:
            parent = folder / f"{index // FOLDER:04d}"
            parent.mkdir(parents=True, exist_ok=True)
        size = source.randint(work.low, work.high)
        with (parent / f"{index:07d}.bin").open("wb") as file:
            left = size
            while left:
                begin = source.randrange(len(pool) - MIB)
                left -= file.write(pool[begin : begin + min(left, MIB)])
        total += size
    done.write_text(json.dumps({"work": asdict(work), "files": work.files, "bytes": total}))
    return work.files, total
