"""1,000 nodes, 20 PB and 10^9 objects, predicted: `python -m benchmarks.scale_large`, some seconds.

What steps take beside their elements is as `scale_runs.py` measured it (`scale.json`), what they take for
each object as `scale_rows.py` did (`scale_rows.json`). What a worker copies and reads back is assumed, as
penstock assumes it of a target that was never measured. SLURM's timeouts are its defaults. Prints the table
of docs/scale.md.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import scale
from benchmarks.scale import PARTS, predict
from benchmarks.scale_simulation import Shape

from penstock.core import human
from penstock.core.estimates import ASSUMED_BYTES, ASSUMED_FILES

if TYPE_CHECKING:
    from benchmarks.scale_simulation import Calibration

PB = 10**15
HERE = Path(__file__).resolve().parent
NOTICED = 300 * 7 / 6 + 10 + 120 + 1 + 30 / 2
"""Seconds, as `scale_runs.NOTICED`, with SlurmdTimeout=300, MessageTimeout=10, cred_expire=120 and
bf_interval=30, which are SLURM's defaults."""
OPS, A_FILE = 5000, 3
"""`target.ops` of BeeGFS and Lustre, and what a small file takes of it (docs/filesystems-room.md)."""
STARTS = 100
"""Elements that SLURM starts a second."""
WHOLE = Shape([(10**9, 20 * PB // 10**9)], 1000, 1000)


def cases(known: Calibration) -> dict[str, tuple[Shape, Calibration]]:
    """Shape and site of each row of the table."""
    copy = replace(known.copy, a_byte=1 / ASSUMED_BYTES, a_file=1 / ASSUMED_FILES)
    verify = replace(known.verify, a_byte=1 / ASSUMED_BYTES, a_file=1 / ASSUMED_FILES)
    site = replace(known, copy=copy, verify=verify, noticed=NOTICED, starts=STARTS, metadata=None)
    site = replace(site, rows=json.loads((HERE / "scale_rows.json").read_text())["seconds"])
    half = replace(copy, a_byte=2 * copy.a_byte, a_file=2 * copy.a_file)
    lost = [(3600.0, None)] * 10
    return {
        "nothing binds but the nodes": (WHOLE, site),
        "half of the nodes": (replace(WHOLE, nodes=500, slots=500), site),
        "a node gives copying and reading back half of its speed each": (WHOLE, replace(site, copy=half)),
        "10 nodes lost after an hour": (replace(WHOLE, lost=lost), site),
        "a link of 1 Tbit/s": (WHOLE, replace(site, link=1e12 / 8)),
        "a link of 70 Gbit/s": (WHOLE, replace(site, link=70e9 / 8)),
        "a link of 70 Gbit/s, 16 nodes": (
            replace(WHOLE, nodes=16, slots=16), replace(site, link=70e9 / 8)
        ),
        "5,000 metadata operations a second (`target.ops` of BeeGFS and Lustre)": (
            WHOLE, replace(site, metadata=OPS / A_FILE)
        ),
        "10^6 objects of 20 GB": (replace(WHOLE, objects=[(10**6, 20 * 10**9)]), site),
        "a tenth: 2 PB, 10^8 objects, 100 nodes": (
            replace(WHOLE, objects=[(10**8, 20 * 10**6)], nodes=100, slots=100), site
        ),
    }  # fmt: skip


def row(name: str, shape: Shape, site: Calibration) -> str:
    """A line of the table."""
    forecast = predict(shape, site)
    said = [human.duration(part) for part in (*forecast.parts, sum(forecast.parts))]
    counts = [f"{count:,}" for count in (forecast.shards, forecast.arrays, forecast.queries)]
    return "| " + " | ".join([name, *said, *counts]) + " |"


def main() -> None:
    known = scale.loaded(HERE / "scale.json")
    print("| " + " | ".join(["", *PARTS, "in sum", "shards", "arrays", "queries"]) + " |")
    print("|---" + "|--:" * 9 + "|")
    begun = time.process_time()
    for name, (shape, site) in cases(known).items():
        print(row(name, shape, site))
    print(f"\n{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
