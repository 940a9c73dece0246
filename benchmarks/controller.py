"""The memory of a controller's steps by files: `python benchmarks/controller.py 100000 1000000`.

The server makes its objects up. Each step is a command of its own; its peak is the largest sum of what its
processes have resident, shared pages counted in each. Copy and verify are not shown: on a cluster their
elements are other jobs. With --changed a release is made of the listing (`many.publish`), then each object
has another version: the second list and plan are the ones that matter. The figures of
`penstock.jobs.controller_memory` are these.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import many  # noqa: E402
from benchmarks.server import Server, find_go  # noqa: E402

STEPS = ("list", "plan", "copy", "permissions", "verify", "publish")
IN_ELEMENTS = ("copy", "verify")


def measure(place: many.Place, files: int, steps: tuple[str, ...], changed: int = 0) -> None:
    """Do these steps, and print what each took."""
    scratch = place.scratch
    with Server(scratch, scratch, tls=False, go=place.go, made=files, changed=changed) as server:
        for step in steps:
            cost = place.penstock(f"step {step}", server)
            if step not in IN_ELEMENTS:
                print(f"{files:>12,} {step:12} {cost.peak_sum / 2**20:6.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", type=int, nargs="+")
    parser.add_argument("--until", choices=STEPS, default=STEPS[-1], help="the last step")
    parser.add_argument("--changed", action="store_true", help="a second release, of which all is new")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".cache/bench")
    options = parser.parse_args()
    scratch = options.cache.absolute() / "controller"
    scratch.mkdir(parents=True, exist_ok=True)
    place = many.Place(scratch, find_go(options.cache / "peers"), os.environ["PATH"])
    for files in options.files:
        place.clear()
        if options.changed:
            measure(place, files, STEPS[:2])
            many.publish(place.target)
            measure(place, files, STEPS[:2], changed=1)
        else:
            measure(place, files, STEPS[: STEPS.index(options.until) + 1])
        place.clear()


if __name__ == "__main__":
    main()
