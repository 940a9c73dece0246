"""The simulation beside real runs: `python -m benchmarks.scale_runs [--into FILE]`, as root, seven minutes.

It starts the tests' cluster (one slurmctld, four slurmd on this machine). Run A calibrates, with job options
of its own for verify, so that reading back is an array of its own; then run B, of other sizes, counts and
slots, and runs C and D, of which a node is lost for good early and late in copy, are each predicted, done and
compared. What binds an element is `engine.limit` (bytes) and `target.ops` (files),
so that CPUs stay idle and four nodes on one machine are as fast as four machines. The calibration is written
to FILE. Exit status 0 where each sum is predicted within a fifth.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import scale
from benchmarks.scale import predict
from benchmarks.scale_simulation import Shape
from tests.cluster.machine import Machine
from tests.cluster.place import Place
from tests.cluster.settings import NODES, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.scale_simulation import Calibration

LIMIT, OPS = "1MB/s", 200
POLL = 1.0
ROWS = Path(__file__).with_name("scale_rows.json")
WITHIN = 0.2
SLURMD_TIMEOUT, MESSAGE_TIMEOUT, EXPIRES, BACKFILL = 10.0, 10.0, 5.0, 3.0
"""As `tests.cluster.settings` has them: the last two are cred_expire and bf_interval."""
NOTICED = SLURMD_TIMEOUT * 7 / 6 + MESSAGE_TIMEOUT + EXPIRES + 1.0 + BACKFILL / 2
"""From the loss of a node until its element may start anew. slurmctld pings each third of SlurmdTimeout, so
half of that passes on average until a ping is without an answer, for which it waits; an element that is
requeued waits until its credential has expired, a second more, and for the scheduler. slurmctld's log had
28 s until the node counted as lost, and 7 s more; without the wait for the ping run D was predicted 17 s too
short."""
A = Shape([(260, 4_000), (200, 300_000), (80, 1_200_000)], 4, 4, shard_files=45, poll=POLL)
B = Shape([(300, 20_000), (60, 900_000), (40, 2_000_000)], 4, 3, shard_files=40, poll=POLL)
C = Shape([(200, 8_000), (300, 700_000)], 4, 4, shard_files=50, poll=POLL, lost=[(20.0, None)])
D = replace(C, lost=[(60.0, None)])
APART = {"verify": {"time": "1h"}}
"""Job options that differ from copy's, so that verify is an array of its own."""


def staged(
    place: Place, name: str, shape: Shape, receipt: Path, steps: Mapping[str, object] | None = None
) -> scale.Run:
    """Stage such a dataset all the way; its receipt and elements are copied beside `receipt`. `steps`: job
    options of their own."""
    bits = random.Random(name)
    for group, (count, size) in enumerate(shape.objects):
        for number in range(count):
            path = place.source / name / f"{group}" / f"{number // 100:02d}" / f"{number:06d}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bits.randbytes(size))
    place.configure(
        [name],
        engine={"limit": LIMIT},
        cluster={"max_elements": shape.slots, "poll": f"{shape.poll}s", "steps": steps or {}},
        target={"root": str(place.target), "keep_free": "16MiB", "ops": OPS},
        plan={"shard_files": shape.shard_files},
    )
    written = place.folder / "home" / "receipt.json"
    assert place.env
    process = place.penstock("--receipt", str(written), "--progress", "off", "run")
    lost = [*zip(shape.lost, reversed(NODES), strict=False)]
    if lost:
        place.until(lambda: any(submitted(place, name)), "copy's submission", process)
        (moment,) = submitted(place, name)
        for (when, _), node in lost:
            time.sleep(max(0.0, moment + when - time.time()))
            place.machine.kill_node(node)
    place.ends(process, seconds=600)
    place.published(name)
    document = json.loads(written.read_text())
    usage = document["datasets"][name]["usage"]
    shutil.copy(usage["file"], receipt.with_suffix(".parquet"))
    usage["file"] = str(receipt.with_suffix(".parquet"))
    receipt.write_text(json.dumps(document))
    shutil.copystat(written, receipt)
    return scale.measured(receipt)


def submitted(place: Place, name: str) -> Iterator[float]:
    """When copy was submitted."""
    for book in (place.target / name / ".penstock" / "runs").glob("*/arrays.jsonl"):
        yield from (
            line["at"] for line in map(json.loads, book.read_text().splitlines()) if "submitted" in line
        )


def compared(place: Place, name: str, shape: Shape, known: Calibration, folder: Path) -> bool:
    """Predict such a run, do it, print both. True where the sum was within a fifth."""
    forecast = predict(shape, known)
    print(f"\n{name}, predicted: {sum(forecast.parts):.1f} s; {scale.summary(forecast)}", flush=True)
    run = staged(place, name, shape, folder / f"{name}.json")
    document = json.loads((folder / f"{name}.json").read_text())
    resumed = document["datasets"][name]["resumed"]["files"]
    print("\n".join(scale.table(forecast, run.parts)))
    print(f"{name}, measured: {len(run.copy)} shards, {resumed} files were kept of attempts that died")
    return abs(sum(forecast.parts) / sum(run.parts) - 1) <= WITHIN


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--into", type=Path, default=Path(__file__).with_name("scale.json"))
    parser.add_argument("--keep", type=Path, help="a folder for the receipts")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="penstock-scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = json.loads(ROWS.read_text())["seconds"] if ROWS.exists() else {}
    machine = Machine.new(Settings())
    machine.up()
    machine.guard()
    try:
        with Place(machine) as place:
            staged(place, "a", A, folder / "a.json", APART)
            known = scale.calibrate(folder / "a.json", POLL, noticed=NOTICED, rows=rows)
            # The files of an element are bounded by its share of `target.ops`, which is that of all slots.
            known = replace(known, metadata=A.slots / known.copy.a_file, copy=replace(known.copy, a_file=0.0))
            options.into.write_text(json.dumps(asdict(known), indent=1) + "\n")
            print("\n".join(scale.table(predict(A, known), scale.measured(folder / "a.json").parts)))
            held = []
            for name, shape in (("b", B), ("c", C), ("d", D)):
                held.append(compared(place, name, shape, known, folder))
                machine.tidy()
    finally:
        machine.down()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
