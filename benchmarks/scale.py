"""How long a run takes on another cluster, predicted from one that was measured.

    python -m benchmarks.scale calibrate RECEIPT --poll 15 > FILE     from `penstock --receipt RECEIPT run`
    python -m benchmarks.scale predict SHAPE --calibration FILE [--measured RECEIPT]

`calibrate` reads the receipt, and the `elements.parquet` that it names: what an element takes to start, for a
byte and for a file, and what the steps between take. `predict` simulates another run (`scale_simulation.py`;
SHAPE is its `Shape` as JSON) and prints its times, beside those of a run that really was. `scale_runs.py`
does both on the test cluster; docs/scale.md has its figures, and what they say of 1,000 nodes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq
from benchmarks.scale_simulation import Calibration, Pace, Shape, Step, Work, cut, noticed

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = ("preflight, list, plan", "copy", "permissions", "verify", "publish, report")


class Element(NamedTuple):
    """What did one shard of a real run; times in seconds since the epoch."""

    node: str
    submitted: float
    started: float
    ended: float
    work: Work
    streams: int


class Run(NamedTuple):
    """A real run."""

    parts: Sequence[float]
    """Seconds of each of `PARTS`."""
    copy: Sequence[Element]
    verify: Sequence[Element]
    files: int


@dataclass(frozen=True)
class Forecast:
    """A run that was simulated."""

    parts: Sequence[float]
    """Seconds of each of `PARTS`."""
    shards: int
    why: str
    arrays: int
    queries: int
    """Of slurmctld."""
    again: float
    """Files that were copied once more, since their node was lost; and those that the next attempt kept."""
    kept: float


def measured(receipt: Path) -> Run:
    """The run of this receipt, which was its dataset's only one. Raises OSError where the receipt, or the
    `elements.parquet` that it names, cannot be read."""
    document = json.loads(receipt.read_text())
    (result,) = document["datasets"].values()
    submitted: dict[tuple[str, str], float] = {}
    for row in pq.read_table(result["usage"]["file"]).to_pylist():
        place, moment = (row["step"], row["node"]), row["submitted"].timestamp()
        submitted[place] = min(moment, submitted.get(place, moment))

    def queued(step: str, node: str) -> float:
        """Who read a shard back may be a worker of copy."""
        return submitted.get((step, node)) or submitted["copy", node]

    elements: dict[str, list[Element]] = {"copy": [], "verify": []}
    for one in result["elements"]:
        elements[one["step"]].append(
            Element(
                one["node"], queued(one["step"], one["node"]), one["started"], one["ended"],
                Work(one["files"], one["bytes"]), one["streams"],
            )
        )  # fmt: skip
    moments = [int(document["invocation"].partition("-")[0]) / 1e9]
    moments.append(min(one.submitted for one in elements["copy"]))
    moments.append(max(one.ended for one in elements["copy"]))
    # What was read back beside the copy is part of it.
    moments.append(max(moments[-1], min(one.submitted for one in elements["verify"])))
    moments.append(max(moments[-1], *(one.ended for one in elements["verify"])))
    moments.append(receipt.stat().st_mtime)
    parts = [later - earlier for earlier, later in pairwise(moments)]
    return Run(parts, elements["copy"], elements["verify"], result["files"])


def calibrate(receipt: Path, poll: float, **site: Any) -> Calibration:
    """What a run says of which each shard was done in one attempt. `site`: fields of `Calibration` that it
    cannot say (`noticed`, `starts`, `rows`)."""
    run = measured(receipt)
    empty = Pace(0.0, 0.0, 0.0, 0.0, 0.0)
    known = Calibration(0.0, 0.0, 0.0, empty, empty, **site)
    before, copied, between, verified, after = run.parts
    return replace(
        known,
        before=before - known.rows_of(run.files, "list", "plan"),
        between=between - known.rows_of(run.files, "permissions") - noticed(poll, copied),
        after=after - known.rows_of(run.files, "publish") - noticed(poll, verified),
        copy=pace(run.copy),
        verify=pace(run.verify),
        streams=run.copy[0].streams,
    )


def pace(elements: Sequence[Element]) -> Pace:
    """Of elements of which some were bound by their bytes and some by their files. Which ones, the fit itself
    says: it is made anew until no element changes sides."""
    by_node: dict[str, list[Element]] = {}
    for one in sorted(elements, key=lambda one: one.started):
        by_node.setdefault(one.node, []).append(one)
    turns = [later.started - one.ended for some in by_node.values() for one, later in pairwise(some)]
    first = statistics.median(some[0].started - some[0].submitted for some in by_node.values())
    took = [one.ended - one.started for one in elements]
    a_byte = min(s / one.work.size for s, one in zip(took, elements, strict=True))
    a_file = min(s / one.work.files for s, one in zip(took, elements, strict=True))
    fixed, sides = 0.0, [True]
    while sides != (sides := [one.work.size * a_byte >= one.work.files * a_file for one in elements]):
        rows = [
            (1.0, one.work.size, 0.0) if by_bytes else (1.0, 0.0, one.work.files)
            for by_bytes, one in zip(sides, elements, strict=True)
        ]
        fixed, a_byte, a_file = least_squares(rows, took)
    return Pace(first, statistics.median(turns) if turns else first, fixed, a_byte, a_file)


def least_squares(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """The factors, none below 0, that bring the rows nearest to the values: by turns, each by itself."""
    factors = [0.0] * len(rows[0])
    for _ in range(3000):
        for column in range(len(factors)):
            factors[column], product, square = 0.0, 0.0, 0.0
            for row, value in zip(rows, values, strict=True):
                product += row[column] * (value - sum(f * x for f, x in zip(factors, row, strict=True)))
                square += row[column] ** 2
            factors[column] = max(0.0, product / square) if square else 0.0
    return factors


def predict(shape: Shape, known: Calibration) -> Forecast:
    """The whole way, from the command to its end."""
    decision, works = cut(shape)
    step = Step(shape, known, known.copy, works, shape.lost, known.verify)
    ended = step.run()
    parts = (
        known.before + known.rows_of(shape.files, "list", "plan"),
        step.copied,
        known.between + known.rows_of(shape.files, "permissions") + step.notice(),
        ended - step.copied,
        known.after + known.rows_of(shape.files, "publish"),
    )
    return Forecast(parts, len(works), decision.why, step.arrays, step.queries, step.again, step.kept)


def loaded(path: Path) -> Calibration:
    """A calibration that was printed as JSON."""
    raw = json.loads(path.read_text())
    return Calibration(**{**raw, "copy": Pace(**raw["copy"]), "verify": Pace(**raw["verify"])})


def table(forecast: Forecast, real: Sequence[float] = ()) -> list[str]:
    """Lines of a table: seconds by part and in sum, and those of a real run beside them."""
    said = [*zip((*PARTS, "in sum"), (*forecast.parts, sum(forecast.parts)), strict=True)]
    if not real:
        return ["| | predicted |", "|---|--:|", *(f"| {name} | {value:,.1f} s |" for name, value in said)]
    lines = ["| | predicted | measured | error |", "|---|--:|--:|--:|"]
    for (name, value), was in zip(said, (*real, sum(real)), strict=True):
        lines.append(f"| {name} | {value:.1f} s | {was:.1f} s | {100 * (value / was - 1):+.0f} % |")
    return lines


def summary(forecast: Forecast) -> str:
    """One line of what else the simulation counted."""
    return (
        f"{forecast.shards:,} shards ({forecast.why}), {forecast.arrays} arrays, "
        f"{forecast.queries:,} queries of slurmctld, of lost nodes {forecast.again:,.0f} files again, "
        f"{forecast.kept:,.0f} kept"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("calibrate", "predict"))
    parser.add_argument("file", type=Path, help="a run's receipt, or a shape")
    parser.add_argument("--calibration", type=Path, default=Path(__file__).with_name("scale.json"))
    parser.add_argument("--measured", type=Path, help="the receipt of the run that was predicted")
    parser.add_argument("--poll", type=float, default=15.0, help="seconds between two queries in that run")
    options = parser.parse_args()
    if options.what == "calibrate":
        print(json.dumps(asdict(calibrate(options.file, options.poll)), indent=1))
        return
    forecast = predict(Shape(**json.loads(options.file.read_text())), loaded(options.calibration))
    print("\n".join(table(forecast, measured(options.measured).parts if options.measured else ())))
    print(f"\n{summary(forecast)}")


if __name__ == "__main__":
    main()
