"""penstock before a change and after it: `python benchmarks/before_after.py --before PYTHON --after PYTHON`.

Each interpreter runs the penstock of its own checkout. penstock's rows of `run.py`, with the data of
`--size`: the loads T, S, M and L from a server over http and https and from a folder, the listing of K, and
of T verify, the audit of a published release, and the run of a source that did not change. Targets are in
memory, or below `--cache` where there is no /dev/shm.

The two take turns: each of `--pairs` rounds goes through all rows, and runs each once before and once
after, in the other order in the next round. A pair's ratio is the time before divided by the time after:
above 1 it got faster. Printed are the ratios' median, and an interval that holds the true median with at
least 95 % by the sign test (Conover, Practical Nonparametric Statistics, 3.2: two order statistics; it
assumes nothing of how times are spread). Fewer than six pairs have no such interval: the least and the
largest ratio stand there, with what they cover. A row is SLOWER when its whole interval lies below 0.95;
then the exit status is 1.

Time: 15 pairs of `--size middle` take 10 minutes on two idle cores; L has two objects in place of four, and
M, S and T have half of their files. The data is made, the server
built and both releases made before the clock starts. Results: `results/before-after-<size>.{md,json}`.
"""

from __future__ import annotations

import argparse
import atexit
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import contenders, data, measure  # noqa: E402
from benchmarks.run import machine  # noqa: E402
from benchmarks.server import Server, find_go  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SLOWER = 0.95
LEVEL = 0.95
CONFIG = "target: {{root: {root}, keep_free: 1MiB}}\ndatasets: {{bench: {{source: {source}}}}}\n"
SHARD = """\
import dataclasses, hashlib, importlib.util, json, pathlib, sys
from penstock.core.run_documents import ShardInfo
room = "tables" if importlib.util.find_spec("penstock.tables") else "formats"  # its name in older checkouts
read_shard = importlib.import_module(f"penstock.{room}.shards").read_shard
state = pathlib.Path(sys.argv[1])
rows = state / "00000.parquet"
entries = [entry for batch in read_shard(rows) for entry in batch]
digest = f"sha256:{hashlib.sha256(rows.read_bytes()).hexdigest()}"
shard = ShardInfo(0, len(entries), len(entries), sum(entry.length for entry in entries), 0, digest)
(state / "shard.json").write_text(json.dumps(dataclasses.asdict(shard)))
"""
"""Writes what `penstock_verify.py` reads beside a shard."""


def halved(work: data.Work) -> data.Work:
    """Half of a load's files."""
    half = work.files // 2
    return replace(work, files=half, text=f"{half:,} of {work.text}")


@dataclass(frozen=True)
class Side:
    """One of the two checkouts."""

    name: str
    python: str
    place: Path
    """For what it makes once, before the clock starts."""


@dataclass(frozen=True)
class Row:
    """One row: `seconds` is the time of one run."""

    name: str
    seconds: Callable[[Side], float]


@dataclass(frozen=True)
class Interval:
    """Of the median of ratios. `covers`: the probability that it holds the true one, at least."""

    low: float
    high: float
    covers: float

    @property
    def slower(self) -> bool:
        return self.covers >= LEVEL and self.high < SLOWER


def interval(ratios: Sequence[float]) -> Interval:
    """The narrowest symmetric pair of order statistics that covers the median with LEVEL; the outermost pair
    where none does."""
    ordered, count = sorted(ratios), len(ratios)
    rank, missed = 0, 2 * 0.5**count
    # One more value outside on each side, as long as what is missed stays below 1 - LEVEL.
    while (more := missed + 2 * math.comb(count, rank + 1) * 0.5**count) <= 1 - LEVEL and 2 * (
        rank + 1
    ) < count:
        rank, missed = rank + 1, more
    return Interval(ordered[rank], ordered[count - 1 - rank], 1 - missed)


class Comparison:
    """The folders of one comparison, and the commands that both sides run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.size: str = options.size
        self.cache: Path = options.cache.absolute()
        self.root = self.cache / f"before-after-{self.size}"
        self.scratch = self.cache / "scratch"
        self.aside = self.cache / "aside"
        shared = Path("/dev/shm")
        self.memory = os.access(shared, os.W_OK)
        self.base = (shared if self.memory else self.cache) / f"penstock-before-after-{os.getpid()}"
        for folder in (self.root, self.scratch, self.base):
            folder.mkdir(parents=True, exist_ok=True)
        works = {work.name: work for work in data.SIZES[self.size]}
        if self.size == "middle":
            works |= {name: halved(works[name]) for name in "LMST"}
        self.works = works
        self.bytes = {name: data.make(self.root, work)[1] for name, work in works.items()}

    def run(self, command: Sequence[str], env: Mapping[str, str], folder: Path | None = None) -> measure.Cost:
        scratch = self.base / "scratch"
        scratch.mkdir(exist_ok=True)
        cost = measure.run(command, env, scratch, folder)
        if cost.status:
            raise SystemExit(f"{' '.join(command)}: exit {cost.status}\n{cost.output}{cost.errors[-2000:]}")
        return cost

    def task(self, name: str, source: str, target: Path, server: Server | None) -> contenders.Task:
        state = self.base / "run"
        ends = (server.endpoint, server.ca) if server else ("", None)
        return contenders.Task(name, source, self.root / name, target, state, *ends)

    def environment(self, task: contenders.Task) -> dict[str, str]:
        return contenders.environment(task, self.base)

    def copy(self, name: str, source: str, server: Server | None, *more: str) -> Row:
        """One engine run with its start; with `--list-only` the listing alone."""
        work = self.works[name]

        def seconds(side: Side) -> float:
            target = self.base / "target"
            for folder in (target, self.base / "run"):
                self.clear(folder)
                folder.mkdir(mode=0o700)
            task = self.task(name, source, target, server)
            if self.memory and not more:
                measure.warm(target, self.bytes[name])
            command = [side.python, *contenders.BY_NAME["penstock"].command(task)[1:], *more]
            cost = self.run(command, self.environment(task))
            told = json.loads(cost.output.splitlines()[-1])
            if told["files"] != work.files or told.get("failures"):
                raise SystemExit(f"{side.name}: {told['files']} of {work.files} files of {name} landed")
            self.clear(target)
            return cost.wall

        return Row(f"{'listing' if more else name} from {source}, {work.text}", seconds)

    def verify(self) -> Row:
        """The engine's verify of a shard that was copied before, as its own process."""

        def seconds(side: Side) -> float:
            state = side.place / "state"
            (state / "records.parquet").unlink(missing_ok=True)
            data_folder = side.place / "target/bench/releases/.bench.staging/data"
            command = [side.python, str(HERE / "penstock_verify.py"), str(data_folder), str(state)]
            return self.run(command, self.environment(self.task("T", "folder", side.place, None))).wall

        return Row(f"verify, {self.works['T'].text}", seconds)

    def command(self, name: str, *words: str) -> Row:
        """A command on a release that was published before."""

        def seconds(side: Side) -> float:
            return self.penstock(side, *words).wall

        return Row(f"{name}, {self.works['T'].text}", seconds)

    def penstock(self, side: Side, *words: str) -> measure.Cost:
        config = side.place / "bench.yaml"
        command = [side.python, "-m", "penstock", "--config", str(config), "--progress", "off", *words]
        env = self.environment(self.task("T", "folder", side.place, None))
        return self.run(command, env, side.place)

    def prepare(self, side: Side) -> None:
        """A shard that was copied and is to be verified, and a published release."""
        side.place.mkdir()
        env = self.environment(self.task("T", "folder", side.place, None))
        source = self.root / "T"
        copy = [side.python, str(HERE / "penstock_copy.py"), "--source", str(source)]
        self.run([*copy, "--target", str(side.place / "target"), "--state", str(side.place / "state")], env)
        self.run([side.python, "-c", SHARD, str(side.place / "state")], env)
        (side.place / "bench.yaml").write_text(CONFIG.format(root=side.place / "root", source=source))
        self.penstock(side, "run", "bench")

    def clear(self, folder: Path) -> None:
        if self.memory:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            measure.set_aside(folder, self.aside)

    def end(self) -> None:
        for folder in (self.base, self.aside):
            shutil.rmtree(folder, ignore_errors=True)


def checkout(python: str) -> Path:
    """The folder of the checkout whose penstock an interpreter runs."""
    code = "import pathlib, penstock; print(pathlib.Path(penstock.__file__).parents[2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise SystemExit(f"{python} has no penstock: {done.stderr[-500:]}")
    return Path(done.stdout.strip())


def markdown(results: Mapping[str, Any]) -> str:
    of = results["machine"]
    lines = ["# Before and after", ""]
    lines.append(
        f"Before: {results['before']}. After: {results['after']}. Size {results['size']}, to "
        f"{results['target']}; {of['cpus']} x {of['cpu']}, Linux {of['kernel']}, "
        f"Python {of['python']}, {of['at']}; {results['minutes']:.0f} minutes."
    )
    lines += [
        "",
        "| row | pairs | before s | after s | before / after | interval | |",
        "|---|--:|--:|--:|--:|---|---|",
    ]
    for row in results["rows"]:
        covers = "" if row["covers"] >= LEVEL else f" ({100 * row['covers']:.0f} %)"
        lines.append(
            f"| {row['row']} | {row['pairs']} | {row['before']:.2f} | {row['after']:.2f} "
            f"| {row['ratio']:.3f} | {row['low']:.3f} to {row['high']:.3f}{covers} "
            f"| {'SLOWER' if row['slower'] else ''} |"
        )
    lines += ["", f"Intervals: {100 * LEVEL:.0f} % of the median of the pairs' ratios, by the sign test."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--before", required=True, metavar="PYTHON", help="the older checkout's interpreter")
    parser.add_argument("--after", required=True, metavar="PYTHON", help="the newer checkout's interpreter")
    parser.add_argument("--size", choices=("quick", "middle"), default="middle")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--rows", default="", help="only rows whose name begins so, such as `T,verify`")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    options = parser.parse_args()
    comparison = Comparison(options)
    atexit.register(comparison.end)
    sides = [
        Side(name, python, comparison.base / name)
        for name, python in (("before", options.before), ("after", options.after))
    ]
    places = {side.name: str(checkout(side.python)) for side in sides}
    with ExitStack() as stack:
        go = find_go(comparison.cache / "peers")
        servers = {
            source: stack.enter_context(
                Server(comparison.root, comparison.scratch, tls=source == "https", go=go)
            )
            for source in ("http", "https")
        }
        rows = [
            comparison.copy(name, source, servers.get(source))
            for source in ("http", "https", "folder")
            for name in "TSML"
        ]
        rows += [
            comparison.copy("K", "http", servers["http"], "--list-only"),
            comparison.verify(),
            comparison.command("audit", "audit", "bench"),
            comparison.command("rerun", "run", "bench"),
        ]
        begins = tuple(options.rows.split(","))
        rows = [row for row in rows if row.name.startswith(begins)]
        for side in sides:
            comparison.prepare(side)
        times = compare(rows, sides, options.pairs)
    results = {"machine": machine(), "size": options.size, **places, "minutes": times.minutes}
    results["target"] = "memory" if comparison.memory else "disk"
    results["rows"] = [summary(row.name, times.of[row.name]) for row in rows]
    options.results.mkdir(parents=True, exist_ok=True)
    text, name = markdown(results), f"before-after-{options.size}"
    (options.results / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.results / f"{name}.md").write_text(text)
    print(text)
    return int(any(row["slower"] for row in results["rows"]))


@dataclass(frozen=True)
class Times:
    """Seconds (before, after) of each pair, by row."""

    of: Mapping[str, list[tuple[float, float]]]
    minutes: float


def compare(rows: Sequence[Row], sides: Sequence[Side], pairs: int) -> Times:
    """All pairs, after one run of each row that is not counted: it brings data and programs into memory."""
    begin = time.monotonic()
    of: dict[str, list[tuple[float, float]]] = {row.name: [] for row in rows}
    for row in rows:
        row.seconds(sides[0])
    for number in range(pairs):
        for row in rows:
            took = {side.name: row.seconds(side) for side in (sides if number % 2 == 0 else sides[::-1])}
            of[row.name].append((took["before"], took["after"]))
            print(f"  {number + 1:3} {row.name:50} {took['before']:8.2f} {took['after']:8.2f} s", flush=True)
    return Times(of, (time.monotonic() - begin) / 60)


def summary(name: str, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ratios = [before / after for before, after in pairs]
    of = interval(ratios)
    return {
        "row": name,
        "pairs": len(pairs),
        "before": statistics.median(before for before, _ in pairs),
        "after": statistics.median(after for _, after in pairs),
        "ratio": statistics.median(ratios),
        "low": of.low,
        "high": of.high,
        "covers": of.covers,
        "slower": of.slower,
        "seconds": [[round(value, 3) for value in pair] for pair in pairs],
    }


if __name__ == "__main__":
    raise SystemExit(main())
