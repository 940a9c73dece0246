"""`make bench`: penstock and its peers side by side, on this machine, in one run.

Contenders alternate, each round begins with another one, each begins with an empty target and is
checked for the number of files and bytes that landed. Printed are medians. Penstock makes its bytes
durable inside its time; on a disk each peer is followed by one `sync -f`, inside its time too, so that
all have done the same for the disk.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import contenders, data, extras, limited, many, measure, peers, proof, tables  # noqa: E402
from benchmarks.server import Server, find_go  # noqa: E402

EXTRAS = ("limited", "listing", "latency", "whole", "growth", "proof", "many")


class Bench:
    """One run of the benchmark: its folders, its contenders, its rows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cache: Path = options.cache.absolute()
        self.root = self.cache / options.size
        self.growth = self.cache / "growth"
        self.scratch = self.cache / "scratch"
        self.aside = self.cache / "aside"
        for folder in (self.root, self.scratch, self.growth):
            folder.mkdir(parents=True, exist_ok=True)
        self.path = peers.path(self.cache)
        self.go = find_go(self.cache / "peers")
        found, self.missing = contenders.present(self.path)
        wanted = options.contenders.split(",") if options.contenders else [one.name for one in found]
        if unknown := set(wanted) - contenders.BY_NAME.keys():
            names = ", ".join(contenders.BY_NAME)
            raise SystemExit(f"no contender is named {min(unknown)!r}; there are: {names}")
        self.found = [one for one in found if one.name in wanted]
        self.rounds: int = options.rounds or (5 if options.size == "full" else 3)
        self.rows: list[dict[str, Any]] = []

    def load(self, work: data.Work, source: str, target: str, server: Server | None) -> None:
        """All rounds of one load; adds one row a contender."""
        data.make(self.root, work)
        running = [one for one in self.found if source in one.sources]
        costs: dict[str, list[dict[str, float]]] = {one.name: [] for one in running}
        told: dict[str, dict[str, Any]] = {}
        if not running:
            return
        # Not counted: reads the data into the page cache, and on a virtual machine makes the host
        # give the memory that the target takes; else whoever comes first pays for all.
        self.once(running[0], work, source, target, server)
        for number in range(self.rounds):
            shift = number % len(running)
            for one in running[shift:] + running[:shift]:
                if one.slow and number:
                    continue
                cost, told[one.name] = self.once(one, work, source, target, server)
                costs[one.name].append(cost)
        for one in running:
            self._row(one, work, source, target, costs[one.name], told[one.name])

    def once(
        self, one: contenders.Contender, work: data.Work, source: str, target: str, server: Server | None,
        root: Path | None = None,
    ) -> tuple[dict[str, float], dict[str, Any]]:  # fmt: skip
        """One run of one contender: (what it cost, what it told). Ends the benchmark when what landed
        is not all."""
        root = root or self.root
        files, size = data.make(root, work)
        folder = self._target(target)
        scratch = self.scratch / "run"
        measure.set_aside(scratch, self.aside)
        scratch.mkdir(parents=True)
        task = contenders.Task(
            work.name,
            source,
            root / work.name,
            folder,
            scratch,
            endpoint=server.endpoint if server else "",
            ca=server.ca if server else None,
        )
        env = contenders.environment(task, scratch) | {"PATH": self.path}
        if target == "tmpfs":
            measure.warm(folder, size)
        before = server.cpu() if server else 0.0
        cost = measure.run(one.command(task), env, scratch)
        if target == "disk" and one.name != "penstock" and not cost.status:
            # Else the peers' bytes would reach the disk in nobody's time.
            synced = measure.run(["sync", "-f", str(folder)], env, scratch)
            cost.wall, cost.cpu = cost.wall + synced.wall, cost.cpu + synced.cpu
        served = (server.cpu() if server else 0.0) - before
        landed = one.landed(task)
        seen = counted(landed)
        if cost.status or seen != (files, size):
            tail = (cost.errors or cost.output)[-2000:]
            raise SystemExit(
                f"{one.name} on {work.name} from {source} to {target}: exit {cost.status}, "
                f"{seen} of {(files, size)} landed\n{tail}"
            )
        told = json.loads(cost.output.splitlines()[-1]) if one.name == "penstock" else {}
        engine = float(told.get("seconds", 0.0))
        self._clear(folder, target)
        line = {
            "wall": cost.wall,
            "cpu": cost.cpu,
            "peak": cost.peak_process,
            "child": cost.peak_child,
            "sum": cost.peak_sum,
        }
        print(f"  {work.name} {source:6} {target:5} {one.name:9} {cost.wall:8.2f} s", flush=True)
        alone = {"engine": engine, "engine_cpu": float(told.get("cpu_seconds", 0.0))}
        return line | {"server": served} | alone, told

    def _target(self, kind: str) -> Path:
        base = Path("/dev/shm") if kind == "tmpfs" else self.cache
        folder = base / f"penstock-bench-{os.getpid()}"
        self._clear(folder, kind)
        folder.mkdir(mode=0o700)
        if kind == "disk":
            subprocess.run(["sync", "-f", str(folder)], check=True)
        return folder

    def _clear(self, folder: Path, kind: str) -> None:
        if kind == "disk":
            measure.set_aside(folder, self.aside)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def _row(
        self, one: contenders.Contender, work: data.Work, source: str, target: str,
        costs: list[dict[str, float]], told: dict[str, Any],
    ) -> None:  # fmt: skip
        files, size = data.make(self.root, work)

        def middle(name: str) -> float:
            return statistics.median(cost[name] for cost in costs)

        wall = middle("wall")
        row: dict[str, Any] = {"work": work.name, "text": work.text, "source": source, "target": target}
        row |= {"contender": one.name, "rounds": len(costs), "wall": wall, "files": files, "bytes": size}
        row |= {"walls": [round(cost["wall"], 3) for cost in costs]}
        row |= {"files_per_second": files / wall, "bytes_per_second": size / wall}
        row |= {"cpu_per_gb": middle("cpu") / (size / 1e9), "cpu_us_per_file": middle("cpu") / files * 1e6}
        row |= {"peak_process": max(cost["peak"] for cost in costs), "peak_sum": max(c["sum"] for c in costs)}
        row |= {"peak_child": max(cost["child"] for cost in costs)}
        row |= {"server_cpu": middle("server"), "cpu": middle("cpu"), "checks": one.checks}
        durable = "one `sync -f` at the end, inside the time" if target == "disk" else one.durable
        row["durable"] = f"{told['durability']}, inside the time" if told else durable
        if told:
            row |= {
                "engine": middle("engine"),
                "engines": [round(cost["engine"], 3) for cost in costs],
                "engine_cpu": middle("engine_cpu"),
                "why": told["why"],
                "workers": told["workers"],
                "streams": told["streams"],
            }
        self.rows.append(row)


def counted(folder: Path) -> tuple[int, int]:
    """(files, bytes) below a folder."""
    files = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            files, size = files + 1, size + os.lstat(os.path.join(where, name)).st_size
    return files, size


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.machine(),
    )  # fmt: skip
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "memory": memory,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def targets(options: argparse.Namespace, source: str) -> list[str]:
    if options.targets:
        return [target for target in options.targets.split(",") if target]
    return ["tmpfs", "disk"] if source == "folder" or options.size != "middle" else ["tmpfs"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--size", choices=list(data.SIZES), default="full", help="middle: some ten minutes; full: some hours"
    )
    parser.add_argument("--quick", dest="size", action="store_const", const="quick", help="--size quick")
    parser.add_argument("--full", dest="size", action="store_const", const="full", help="--size full")
    parser.add_argument("--rounds", type=int, help="rounds of each load (default 5, quick 3)")
    parser.add_argument("--works", default="L,M,S,T", help="of L M S T (default: all)")
    parser.add_argument("--sources", default="folder,http,https")
    parser.add_argument(
        "--targets", default="", help="tmpfs, disk (default: both; middle: disk from folders only)"
    )
    parser.add_argument("--contenders", default="", help="names, separated by commas (default: all found)")
    parser.add_argument("--extras", default=",".join(EXTRAS), help="of these, or none")
    parser.add_argument("--cache", type=Path, default=Path(".cache/bench"), help="data, peers, targets")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--no-install", action="store_true", help="take the peers that are there")
    options = parser.parse_args()
    if not options.no_install:
        peers.install(options.cache.absolute())
    bench = Bench(options)
    # Not between the runs: see `measure.set_aside`.
    atexit.register(shutil.rmtree, bench.aside, ignore_errors=True)
    if bench.missing:
        print(f"not found, so not measured: {', '.join(bench.missing)}")
    works = {work.name: work for work in data.SIZES[options.size]}
    chosen = [works[name] for name in options.works.split(",") if name]
    wanted = [name for name in options.extras.split(",") if name in EXTRAS]
    for work in [
        *chosen,
        *(works[name] for name, extra in (("K", "listing"), ("L", "limited")) if extra in wanted),
    ]:
        data.make(bench.root, work)
    more: dict[str, Any] = {}
    for source in filter(None, options.sources.split(",")):
        with ExitStack() as stack:
            server = None
            if source != "folder":
                tls = source == "https"
                server = stack.enter_context(Server(bench.root, bench.scratch, tls=tls, go=bench.go))
            for target in targets(options, source):
                for work in chosen:
                    bench.load(work, source, target, server)
                    save(bench, chosen, more)
            if source == "http" and server:
                if "listing" in wanted:
                    more["listing"] = extras.listing(bench, works["K"], server)
                if "whole" in wanted:
                    more["whole"] = extras.whole(bench, works["S"], server, "tmpfs")
                    more["whole-disk"] = extras.whole(bench, works["S"], server, "disk")
    if "limited" in wanted:
        more |= limited.run(bench, works["L"])
        save(bench, chosen, more)
    if "latency" in wanted:
        more["latency"] = extras.latency(bench, works["S"], 500)
        more["latency2"] = extras.latency(bench, works["S"], 2000)
    if "growth" in wanted:
        more["growth"] = extras.growth(bench)
    if "proof" in wanted:
        more |= proof.run(bench, works)
    if "many" in wanted and bench.go:
        place = many.Place(bench.cache / "many", bench.go, bench.path)
        more |= many.run(place, many.SIZES[options.size], many.STAGED[options.size])
    print(save(bench, chosen, more))
    print(f"written: {options.results}/{options.size}.{{md,json,svg}}")
    return 0


def save(bench: Bench, chosen: list[data.Work], more: dict[str, Any]) -> str:
    """Write what was measured so far (a run that is ended early leaves that); returns the table."""
    options = bench.options
    results = {"machine": machine(), "server": "s3d" if bench.go else "demo", "rows": bench.rows, **more}
    results["missing"] = bench.missing
    results["load"] = [asdict(work) for work in chosen]
    options.results.mkdir(parents=True, exist_ok=True)
    text = tables.markdown(results)
    name = options.size
    (options.results / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.results / f"{name}.md").write_text(text)
    (options.results / f"{name}.svg").write_text(tables.plot(results))
    if more.get("growth"):
        (options.results / f"{name}-growth.svg").write_text(tables.growth_plot(more["growth"]))
    if more.get("many"):
        text += "\n".join([*many.markdown(more["many"], more["many-staged"]), ""])
        (options.results / f"{name}.md").write_text(text)
        (options.results / f"{name}-many.svg").write_text(many.plot(more["many"]))
    return text


if __name__ == "__main__":
    raise SystemExit(main())
