"""The benchmark's own data: made once, the same each time, and of no use to a compressor."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from awscrt import checksums

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
MIDDLE = (
    Work("L", 4, 512 * MIB, 512 * MIB, "4 x 512 MiB"),
    Work("M", 1_500, 1_000_000, 1_000_000, "1,500 x 1 MB"),
    Work("S", 10_000, 32_000, 110_000, "10,000 x 32 to 110 KB"),
    Work("T", 40_000, 4_000, 4_000, "40,000 x 4 KB"),
    Work("K", 200_000, 0, 0, "200,000 keys, listed only"),
)
QUICK = (
    Work("L", 2, 256 * MIB, 256 * MIB, "2 x 256 MiB"),
    Work("M", 400, 1_000_000, 1_000_000, "400 x 1 MB"),
    Work("S", 4_000, 32_000, 110_000, "4,000 x 32 to 110 KB"),
    Work("T", 10_000, 4_000, 4_000, "10,000 x 4 KB"),
    Work("K", 50_000, 0, 0, "50,000 keys, listed only"),
)

MOST = {"full": 2048 * MIB, "middle": 1024 * MIB, "quick": 512 * MIB}
"""One large object, by size of the benchmark; the one whose copy is killed is half as large again."""
SIZES = {"quick": QUICK, "middle": MIDDLE, "full": FULL}
GROWTH = (1_000, 3_000, 10_000, 30_000, 100_000)
"""Counts of 4 KB files for the plot of time against count; a million more in the full run."""


def make(root: Path, work: Work) -> tuple[int, int]:
    """The files of one work below `root/<name>`, unless they are there. Returns (files, bytes).

    Beside them `<name>.crc64nvme`: what the server states of each, in the files' order.
    """
    folder, done = root / work.name, root / f"{work.name}.json"
    sums = root / f"{work.name}.crc64nvme"
    if done.exists() and sums.exists() and (stated := json.loads(done.read_text()))["work"] == asdict(work):
        return int(stated["files"]), int(stated["bytes"])
    source = random.Random(work.name)
    pool = source.randbytes(64 * MIB)
    total = 0
    with sums.open("w") as lines:
        for index in range(work.files):
            if index % FOLDER == 0:
                parent = folder / f"{index // FOLDER:04d}"
                parent.mkdir(parents=True, exist_ok=True)
            size = source.randint(work.low, work.high)
            crc = 0
            with (parent / f"{index:07d}.bin").open("wb") as file:
                left = size
                while left:
                    begin = source.randrange(len(pool) - MIB)
                    block = pool[begin : begin + min(left, MIB)]
                    crc = checksums.crc64nvme(block, crc)
                    left -= file.write(block)
            stated = base64.b64encode(crc.to_bytes(8, "big")).decode()
            lines.write(f"{stated} {work.name}/{parent.name}/{index:07d}.bin\n")
            total += size
    done.write_text(json.dumps({"work": asdict(work), "files": work.files, "bytes": total}))
    return work.files, total
