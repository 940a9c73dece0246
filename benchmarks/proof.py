"""What proof costs: an audit against `xxhsum -c`, verify against a plain cold read; both from the disk.

Caches are dropped before each run, for all contenders alike: by the kernel (programs, folders and inodes
too) where this is root, else of the files' bytes alone; a row of its own says which. What the programs
themselves load is read in again before the clock starts: the data is cold, not the software. Contenders
take turns, each round begins with another one, and the first round is not counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import contenders, data, measure

from penstock.core.run_documents import ShardInfo
from penstock.tables.run_tables import read_shard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.run import Bench

HERE = Path(__file__).resolve().parent
DROP = Path("/proc/sys/vm/drop_caches")
STEPS = ("list", "plan", "copy", "permissions", "verify", "publish")
CONFIG = "target: {{root: {root}}}\ndatasets:\n  bench: {{source: {source}}}\n"
MODULES = (
    "pyarrow.parquet",
    "penstock.cli.main",
    "penstock.keep.audit_step",
    "penstock.engine.reread_shard",
    "penstock.engine.shard_readings",
    "penstock.engine.rereader",
    "penstock.engine.worker",
    "multiprocessing.context",
)
LOADED = "import " + ", ".join(MODULES)
AUDIT, XXHSUM = "penstock audit", "xxhsum -c manifest.xxh128"
VERIFY, PLAIN = "penstock, verify of a shard", "plain cold read, nothing hashed"


def run(bench: Bench, works: Mapping[str, data.Work], names: Sequence[str] = "TSL") -> dict[str, Any]:
    """All rows, by the names of the tables: `audit`, and `verify-<work>` for each of `names`."""
    found: dict[str, Any] = {"audit": audit(bench, works["T"])}
    return found | {f"verify-{name}": verify(bench, works[name]) for name in names}


def audit(bench: Bench, work: data.Work) -> list[dict[str, Any]]:
    """The whole command on a published release, against Debian's tool on its manifest."""
    if not shutil.which("xxhsum", path=bench.path):
        return [{"what": "not measured: no xxhsum"}]
    files, _ = data.make(bench.root, work)
    root, env = _empty(bench)
    config = root / "bench.yaml"
    config.write_text(CONFIG.format(root=root / "target", source=bench.root / work.name))
    step = [sys.executable, "-m", "penstock", "--config", str(config), "--progress", "off"]
    try:
        for name in STEPS:
            _run([*step, "step", name, "bench"], env, root)
        release = (root / "target/bench/current").resolve()
        commands = {
            AUDIT: [*step, "audit", "bench"],
            XXHSUM: ["env", "-C", str(release), "xxhsum", "-c", "--quiet", "manifest.xxh128"],
        }
        return _alternate(bench, commands, env, root, release / "data", files)
    finally:
        shutil.rmtree(root)


def verify(bench: Bench, work: data.Work) -> list[dict[str, Any]]:
    """The engine's verify of one shard as its own process, start and records in its time, against as many
    processes that only read."""
    files, _ = data.make(bench.root, work)
    root, env = _empty(bench)
    state, target = root / "state", root / "target"
    try:
        copy = [sys.executable, str(HERE / "penstock_copy.py"), "--source", str(bench.root / work.name)]
        workers = int(_run([*copy, "--target", str(target), "--state", str(state)], env, root)["workers"])
        landed = target / "bench/releases/.bench.staging/data"
        rows = state / "00000.parquet"
        entries = [entry for batch in read_shard(rows) for entry in batch]
        digest = f"sha256:{hashlib.sha256(rows.read_bytes()).hexdigest()}"
        size = sum(entry.length for entry in entries)
        told = ShardInfo(0, len(entries), len(entries), size, 0, digest)
        (state / "shard.json").write_text(json.dumps(asdict(told)))
        listed = root / "list"
        listed.write_text("".join(f"{entry.path}\n" for entry in entries))
        commands = {
            VERIFY: [sys.executable, str(HERE / "penstock_verify.py"), str(landed), str(state)],
            PLAIN: [sys.executable, str(HERE / "cold_read.py"), str(landed), str(listed), str(workers)],
        }
        return _alternate(bench, commands, env, root, landed, files)
    finally:
        shutil.rmtree(root)


def _empty(bench: Bench) -> tuple[Path, dict[str, str]]:
    root = bench.cache / f"proof-{os.getpid()}"
    root.mkdir(mode=0o700)
    task = contenders.Task("", "folder", root, root, root)
    return root, contenders.environment(task, root) | {"PATH": bench.path}


def _run(command: Sequence[str], env: Mapping[str, str], scratch: Path) -> dict[str, Any]:
    """What it printed as JSON on its last line, if it did."""
    cost = measure.run(command, env, scratch)
    if cost.status:
        raise SystemExit(f"{' '.join(command)}: exit {cost.status}\n{cost.errors[-2000:]}")
    last = (cost.output.splitlines() or [""])[-1]
    told: dict[str, Any] = json.loads(last) if last.startswith("{") else {}
    return told | {"wall": cost.wall, "cpu": cost.cpu}


def _alternate(
    bench: Bench,
    commands: Mapping[str, Sequence[str]],
    env: Mapping[str, str],
    scratch: Path,
    read: Path,
    files: int,
) -> list[dict[str, Any]]:
    names, caches = list(commands), ""
    costs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(bench.rounds + 1):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            caches = forget(read)
            _run([sys.executable, "-c", LOADED], env, scratch)
            cost = _run(commands[name], env, scratch)
            print(f"  {name:40} {cost['wall']:8.2f} s", flush=True)
            if number:
                costs[name].append(cost)
    rows: list[dict[str, Any]] = []
    for name, seen in costs.items():
        wall, cpu = (statistics.median(cost[key] for cost in seen) for key in ("wall", "cpu"))
        row = {"what": name, "wall": wall, "cpu": cpu, "rounds": len(seen), "files": files}
        row |= {"walls": [round(cost["wall"], 3) for cost in seen], "files_per_second": files / wall}
        rows.append(row)
    return [*rows, {"what": f"before each run: {caches}"}]


def forget(folder: Path) -> str:
    """Have the kernel forget what it holds of these files; says how much it did."""
    os.sync()
    try:
        DROP.write_text("3")
        return "all caches dropped"
    except PermissionError:
        for where, _, names in os.walk(folder):
            for name in names:
                fd = os.open(os.path.join(where, name), os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        return "the files' bytes dropped, their inodes not (no root)"
