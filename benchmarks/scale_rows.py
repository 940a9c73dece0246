"""What each object costs by itself: `python -m benchmarks.scale_rows --objects 1000000 --staged 200000`.

The server makes its objects up (`server.py`), so it needs a Go toolchain. List and plan of so many objects
are measured alone; so many small files are then staged all the way on this machine. What a tenth of them
takes is subtracted, so that the start of each command is not counted a million times over. Prints seconds and
bytes for each object, and peaks of memory; `--into FILE` keeps them: the figures of docs/scale.md, of which
`scale_runs.py` reads the seconds. Three minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import many
from benchmarks.server import Server, find_go

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).resolve().parent
ALL_THE_WAY = ("list", "plan", "copy", "permissions", "verify", "publish")
KEPT = {
    "listing": ".penstock/runs/*/listing*",
    "shards": ".penstock/runs/*/shard*/**/*",
    "journals": ".penstock/runs/*/journal/**/*",
    "records": ".penstock/runs/*/records/**/*",
    "manifests": "releases/*/manifest.*",
}
"""Files that grow with the objects, below the dataset's folder."""


class Figures(dict[str, dict[str, float]]):
    """`seconds` and `mib` by step, `bytes` by kind of file."""


def took(place: many.Place, objects: int, steps: Sequence[str]) -> Figures:
    """What these steps of so many objects take and leave."""
    figures = Figures(seconds={}, mib={}, bytes={})
    place.clear()
    with Server(place.scratch, place.scratch, tls=False, go=place.go, made=objects) as server:
        for step in steps:
            cost = place.penstock(f"step {step}", server)
            figures["seconds"][step], figures["mib"][step] = cost.wall, cost.peak_sum / 2**20
            for kind, pattern in KEPT.items():
                files = [path for path in (place.target / "many").glob(pattern) if path.is_file()]
                size = sum(path.stat().st_size for path in files)
                figures["bytes"][kind] = max(size, figures["bytes"].get(kind, 0))
            print(f"{objects:>10,} {step:12} {cost.wall:7.1f} s {cost.peak_sum / 2**20:6.0f} MiB", flush=True)
    place.clear()
    return figures


def each(more: Mapping[str, float], fewer: Mapping[str, float], objects: int) -> dict[str, float]:
    """What one object adds, by two sizes of which the other is a tenth."""
    return {name: (value - fewer[name]) / (objects - objects // 10) for name, value in more.items() if value}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--staged", type=int, default=200_000)
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".cache/bench")
    parser.add_argument("--into", type=Path, default=HERE / "scale_rows.json")
    options = parser.parse_args()
    scratch = options.cache.absolute() / "scale"
    scratch.mkdir(parents=True, exist_ok=True)
    place = many.Place(scratch, find_go(options.cache / "peers"), "/usr/bin:/bin")
    figures = Figures(seconds={}, mib={}, bytes={})
    for objects, steps in ((options.staged, ALL_THE_WAY), (options.objects, ALL_THE_WAY[:2])):
        fewer, more = took(place, objects // 10, steps), took(place, objects, steps)
        figures["mib"] |= more["mib"]
        for kind in ("seconds", "bytes"):
            figures[kind] |= each(more[kind], fewer[kind], objects)
    shutil.rmtree(scratch)
    options.into.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
