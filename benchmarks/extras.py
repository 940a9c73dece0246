"""What is no plain copy: listings, metadata latency, and the way to the published, verified state."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import contenders, data, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.run import Bench
    from benchmarks.server import Server

HERE = Path(__file__).resolve().parent
LATENCY_FILES = {
    500: {"quick": 1000, "middle": 5000, "full": 20_000},
    2000: {"quick": 300, "middle": 500, "full": 2000},
}
"""Microseconds a call: how many files; rsync and cp make some hundred a second, or fewer."""
CONFIG = """\
target: {{root: {root}}}
datasets:
  bench:
    source: s3://{bucket}/{work}/
    storage_options: {{endpoint_url: "{endpoint}"}}
"""


def alternate(
    bench: Bench,
    commands: dict[str, Sequence[Sequence[str]]],
    env: dict[str, str],
    *,
    rounds: int = 0,
    memory: tuple[Path, int] | None = None,
) -> list[Any]:
    """Medians of whole command sequences, in turn; each begins with an empty scratch and target. `memory`:
    a target in memory, and the bytes that will land there. Of `penstock_copy.py` also the seconds of its copy
    alone (`engines`), and their CPU."""
    walls: dict[str, list[float]] = {name: [] for name in commands}
    copies: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    names = list(commands)
    rounds = rounds or bench.rounds
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            scratch = bench.scratch / "run"
            for folder in (scratch, bench.cache / "state"):
                measure.set_aside(folder, bench.aside)
            (scratch / "target").mkdir(parents=True)
            if memory:
                shutil.rmtree(memory[0], ignore_errors=True)
                measure.warm(*memory)
                memory[0].mkdir(mode=0o700)
            wall = cpu = 0.0
            for command in commands[name]:
                cost = measure.run(command, env, scratch)
                if cost.status:
                    raise SystemExit(f"{' '.join(command)}: exit {cost.status}\n{cost.errors[-2000:]}")
                wall, cpu = wall + cost.wall, cpu + cost.cpu
                copies[name] += copy_alone(cost.output)
            walls[name].append(wall)
            cpus[name].append(cpu)
            print(f"  {name:40} {wall:8.2f} s", flush=True)
    if memory:
        shutil.rmtree(memory[0], ignore_errors=True)
    return [
        {"what": name, "wall": statistics.median(walls[name]), "cpu": statistics.median(cpus[name]),
         "rounds": rounds, "walls": [round(wall, 3) for wall in walls[name]]}
        | _alone(copies[name])
        for name in names
    ]  # fmt: skip


def copy_alone(printed: str) -> list[tuple[float, float]]:
    """What `penstock_copy.py` printed of its copy, by the engine's own outcome: seconds and CPU seconds; []
    of another program."""
    last = (printed.splitlines() or [""])[-1]
    outcome = json.loads(last) if last.startswith("{") else {}
    return [(outcome["seconds"], outcome["cpu_seconds"])] if "cpu_seconds" in outcome else []


def _alone(copies: list[tuple[float, float]]) -> dict[str, Any]:
    if not copies:
        return {}
    walls, cpus = zip(*copies, strict=True)
    return {"engine": statistics.median(walls), "engines": list(walls), "engine_cpu": statistics.median(cpus)}


def _task(bench: Bench, work: data.Work, server: Server | None) -> contenders.Task:
    return contenders.Task(
        work.name,
        "http" if server else "folder",
        bench.root / work.name,
        bench.scratch / "run" / "target",
        bench.scratch / "run",
        endpoint=server.endpoint if server else "",
    )


def listing(bench: Bench, work: data.Work, server: Server) -> list[dict[str, Any]]:
    """Listing every key, penstock's to Parquet, the peers' to a file of lines."""
    task = _task(bench, work, server)
    env = contenders.environment(task, bench.scratch) | {"PATH": bench.path}
    commands: dict[str, Sequence[Sequence[str]]] = {
        "penstock, to Parquet": [[*contenders.BY_NAME["penstock"].command(task), "--list-only"]]
    }
    where = f"s3://{contenders.BUCKET}/{work.name}/*"
    if shutil.which("s5cmd", path=bench.path):
        commands["s5cmd ls"] = [["s5cmd", "--endpoint-url", server.endpoint, "ls", where]]
    if shutil.which("rclone", path=bench.path):
        where = f"b:{contenders.BUCKET}/{work.name}"
        commands["rclone lsf -R"] = [["rclone", "--config", "", "lsf", "-R", "--fast-list", where]]
    rows: list[dict[str, Any]] = alternate(bench, commands, env)
    return [row | {"keys": work.files, "keys_per_second": work.files / row["wall"]} for row in rows]


def step(config: Path, name: str) -> list[str]:
    words = [sys.executable, "-m", "penstock", "--config", str(config), "--progress", "off"]
    return [*words, "step", name, "bench"]


def steps(config: Path) -> list[list[str]]:
    """All that leads to a verified, published release, without Snakemake."""
    names = ("list", "plan", "copy", "permissions", "verify", "publish")
    return [step(config, name) for name in names]


def whole(bench: Bench, work: data.Work, server: Server, target: str) -> list[dict[str, Any]]:
    """To the published and verified state, against copying and then comparing by reading all again. On a
    disk the peer's copy is made durable too; it reads again from the page cache, penstock reads cold."""
    task = _task(bench, work, server)
    env = contenders.environment(task, bench.scratch) | {"PATH": bench.path}
    config = bench.scratch / "whole.yaml"
    root = task.scratch / "target"
    if target == "tmpfs":
        root = Path("/dev/shm") / f"penstock-bench-{os.getpid()}"
    config.write_text(
        CONFIG.format(root=root, bucket=contenders.BUCKET, work=work.name, endpoint=server.endpoint)
    )
    run = f'cd "{task.scratch}" && exec "$@"'
    commands: dict[str, Sequence[Sequence[str]]] = {
        "penstock run (Snakemake, all steps)": [["sh", "-c", run, "sh", *step(config, "run")]],
        "penstock, its steps one by one": steps(config),
    }
    if shutil.which("rclone", path=bench.path):
        rclone = ["rclone", "--config", "", "--log-level", "ERROR", "--transfers", "32", "--checkers", "16"]
        rclone += ["--fast-list"]
        where = f"b:{contenders.BUCKET}/{work.name}"
        copy = [
            [*rclone, "copy", where, str(root)],
            *([["sync", "-f", str(root)]] if target == "disk" else []),
        ]
        commands["rclone copy, rclone check --download"] = [
            *copy,
            [*rclone, "check", "--download", where, str(root)],
        ]
    size = data.make(bench.root, work)[1]
    return alternate(bench, commands, env, memory=(root, size) if target == "tmpfs" else None)


def growth(bench: Bench) -> list[dict[str, Any]]:
    """Time against the number of files, from a folder to tmpfs: list, plan one shard, copy. Beside it the
    least that it can be (`named`): a source that is larger than what the machine keeps of it in memory
    costs both more."""
    counts = data.GROWTH + ((1_000_000,) if bench.options.size == "full" else ())
    rows: list[dict[str, Any]] = []
    for count in counts:
        work = data.Work(f"G{count}", count, 4_000, 4_000, f"{count:,} x 4 KB")
        data.make(bench.growth, work)
        costs = []
        for _ in range(1 if count > 100_000 else bench.rounds):
            least, _ = bench.once(contenders.BY_NAME["named"], work, "folder", "tmpfs", None, bench.growth)
            cost, told = bench.once(
                contenders.BY_NAME["penstock"], work, "folder", "tmpfs", None, bench.growth
            )
            costs.append(
                {
                    "least": least["wall"],
                    "wall": cost["wall"],
                    "engine": told["seconds"],
                    "cpu": cost["cpu"],
                    "peak": cost["peak"],
                }
            )
        middle = {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}
        rows.append(middle | {"files": count, "rounds": len(costs)})
    return rows


def latency(bench: Bench, work: data.Work, microseconds: int) -> list[dict[str, Any]]:
    """A folder to a folder where each metadata call takes that much longer."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return [{"what": "not measured: no C compiler for the shim that delays the calls"}]
    shim = bench.scratch / "slow.so"
    build = [compiler, "-O2", "-shared", "-fPIC", "-o", str(shim), str(HERE / "slow.c"), "-ldl"]
    subprocess.run(build, check=True)
    task = _task(bench, work, None)
    wanted = LATENCY_FILES[microseconds][bench.options.size]
    # In memory, so that what is waited for is the delay alone, and no disk.
    base = Path("/dev/shm") / f"penstock-bench-{os.getpid()}"
    folder, target = base / "source", base / "target"
    shutil.rmtree(base, ignore_errors=True)
    for file in sorted((bench.root / work.name).rglob("*.bin"))[:wanted]:
        place = folder / file.parent.name
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place / file.name)
    size = sum(file.stat().st_size for file in folder.rglob("*.bin"))
    count = sum(len(names) for _, _, names in os.walk(folder))
    env = contenders.environment(task, bench.scratch) | {"PATH": bench.path}
    env |= {"SLOW_MICROSECONDS": str(microseconds), "SLOW_BELOW": str(base)}
    env["LD_PRELOAD"] = str(shim)
    env["PENSTOCK_TEST_SETTINGS"] = '{"engine.workers": 4}'
    config = bench.scratch / "latency.yaml"
    config.write_text(
        f"target: {{root: {target}}}\nengine: {{streams: 64}}\ndatasets: {{bench: {{source: {folder}}}}}\n"
    )
    commands: dict[str, Sequence[Sequence[str]]] = {
        "penstock, 64 streams": [
            [sys.executable, str(HERE / "penstock_copy.py"), "--target", str(target), "--source", str(folder),
             "--state", str(bench.cache / "state"), "--workers", "4", "--streams", "64"]
        ],
        "penstock, all steps to the published state": steps(config),
        "rsync -a": [["rsync", "-a", f"{folder}/", f"{target}/"]],
        "cp -a": [["cp", "-a", f"{folder}/.", str(target)]],
    }  # fmt: skip
    # What waits hardly varies, and takes long.
    rounds = 0 if bench.options.size == "full" else 1
    rows: list[dict[str, Any]] = alternate(bench, commands, env, rounds=rounds, memory=(target, size))
    shutil.rmtree(base)
    return [row | {"files": count, "files_per_second": count / row["wall"]} for row in rows]
