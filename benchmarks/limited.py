"""A store that gives each connection only so much, as S3 does: large objects, few of them; and what a copy
costs again that is killed amid one. Peers run with their default flags, since those decide it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import contenders, data, extras
from benchmarks.server import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.run import Bench

RATE = 50 * data.MIB
"""Bytes a second and connection. S3 gives some 80 to 100 MB."""
KILLED_AT = 0.8


def run(bench: Bench, several: data.Work) -> dict[str, list[dict[str, Any]]]:
    """One large object, `several` large objects, and one whose copy is killed."""
    if not bench.go:
        return {}
    size = data.MOST[bench.options.size]
    one = data.Work("O", 1, size, size, f"1 x {size // data.MIB} MiB")
    killed = data.Work("P", 1, size * 3 // 2, size * 3 // 2, f"1 x {size * 3 // 2 // data.MIB} MiB")
    for work in (one, killed):
        data.make(bench.root, work)
    with Server(bench.root, bench.scratch, tls=False, go=bench.go, rate=RATE) as server:
        return {
            "limited-one": _copies(bench, one, server),
            "limited-several": _copies(bench, several, server),
            "limited-killed": _killed(bench, killed, server),
        }


def _task(bench: Bench, work: data.Work, server: Server) -> contenders.Task:
    scratch = bench.scratch / "run"
    target = Path("/dev/shm") / f"penstock-bench-{os.getpid()}"
    return contenders.Task(work.name, "http", bench.root / work.name, target, scratch, server.endpoint)


def _copies(bench: Bench, work: data.Work, server: Server) -> list[dict[str, Any]]:
    task = _task(bench, work, server)
    env = contenders.environment(task, bench.scratch) | {"PATH": bench.path}
    where, target = f"{contenders.BUCKET}/{work.name}", str(task.target)
    commands: dict[str, Sequence[Sequence[str]]] = {
        "penstock": [contenders.BY_NAME["penstock"].command(task)]
    }
    if shutil.which("s5cmd", path=bench.path):
        s5cmd = ["s5cmd", "--log", "error", "--endpoint-url", task.endpoint]
        commands["s5cmd, default flags"] = [[*s5cmd, "cp", f"s3://{where}/*", f"{target}/"]]
    if shutil.which("rclone", path=bench.path):
        rclone = ["rclone", "--config", "", "--log-level", "ERROR"]
        commands["rclone, default flags"] = [[*rclone, "copy", f"b:{where}", target]]
    rows = extras.alternate(bench, commands, env, memory=(task.target, work.files * work.high))
    return [row | {"what": f"{row['what']}: {work.text}"} for row in rows]


def _killed(bench: Bench, work: data.Work, server: Server) -> list[dict[str, Any]]:
    """By kill -9 when the server has sent most of it: what the next attempt costs, and what the server has
    sent beyond the object once it is whole."""
    task = _task(bench, work, server)
    env = contenders.environment(task, bench.scratch) | {"PATH": bench.path}
    # On a disk: in memory all is durable at once.
    folder = bench.cache / f"penstock-bench-{os.getpid()}"
    again: list[int] = []
    walls: list[float] = []
    for _ in range(bench.rounds):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        (folder / "target").mkdir()
        place = contenders.Task(
            work.name, "http", task.folder, folder / "target", folder, endpoint=task.endpoint
        )
        command = contenders.BY_NAME["penstock"].command(place)
        before = server.sent()
        with (folder / "told").open("wb") as told:
            process = subprocess.Popen(command, env=env, stdout=told, stderr=told, start_new_session=True)
            while server.sent() - before < KILLED_AT * work.high:
                if process.poll() is not None:
                    raise SystemExit(f"it ended before it was killed: {(folder / 'told').read_text()}")
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            begin = time.perf_counter()
            subprocess.run(command, env=env, stdout=told, stderr=told, check=True)
            walls.append(time.perf_counter() - begin)
        again.append(server.sent() - before - work.high)
        print(f"  killed at {KILLED_AT:.0%}: {again[-1] / data.MIB:.0f} MiB were sent again", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    middle = sorted(zip(again, walls, strict=True))[len(again) // 2]
    return [
        {
            "what": f"{work.text}, killed by kill -9 at {KILLED_AT:.0%}: MiB sent again (median, most)",
            "again": middle[0] / data.MIB,
            "most": max(again) / data.MIB,
            "wall": middle[1],
            "rounds": len(again),
        }
    ]
