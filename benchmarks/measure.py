"""Runs one command and says what it cost: wall time, CPU of all its processes, peak memory."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAMPLE_SECONDS = 0.05


@dataclass
class Cost:
    wall: float
    cpu: float
    """User and system seconds of the command and all that it waited for."""
    peak_process: int
    """Bytes: the largest resident set of one process."""
    peak_child: int
    """The same, of all but the first process: of a penstock run, its largest worker."""
    peak_sum: int
    """Bytes: the largest sum over its processes (shared pages counted in each), as sampled."""
    status: int
    output: str
    errors: str


def run(argv: Sequence[str], env: Mapping[str, str], scratch: Path, folder: Path | None = None) -> Cost:
    """Runs to the end, in `folder` where one is given; output goes to files, so that no pipe holds it up."""
    out, err = scratch / "stdout", scratch / "stderr"
    with out.open("wb") as output, err.open("wb") as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(argv, env=dict(env), stdout=output, stderr=errors, cwd=folder)
        sampler = _Sampler(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    sampler.stop()
    return Cost(
        wall,
        usage.ru_utime + usage.ru_stime,
        sampler.process,
        sampler.child,
        sampler.total,
        process.returncode,
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
    )


class _Sampler:
    """Not rusage's maximum: that of a child begins with what its parent had before exec."""

    def __init__(self, root: int) -> None:
        self._root, self.process, self.child, self.total = root, 0, 0, 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)  # of a run that is interrupted
        self._thread.start()

    def _watch(self) -> None:
        own = _command(self._root)
        while True:
            pids = _tree(self._root)
            seen = [_resident(pid) for pid in pids]
            self.process = max([self.process, *(most for most, _ in seen)])
            for pid, (most, _) in zip(pids, seen, strict=True):
                # Between vfork and exec a child shows its parent's memory, and its command line.
                if pid != self._root and most > self.child and _command(pid) not in (b"", own):
                    self.child = most
            self.total = max(self.total, sum(now for _, now in seen))
            if self._ending.wait(SAMPLE_SECONDS):
                return

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()


def _tree(root: int) -> list[int]:
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _resident(pid: int) -> tuple[int, int]:
    """(the most so far, now) in bytes; zeros for a process that has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}
    if "VmHWM" not in fields:
        return 0, 0
    return int(fields["VmHWM"].split()[0]) * 1024, int(fields["VmRSS"].split()[0]) * 1024


def warm(folder: Path, size: int) -> None:
    """Have as much memory at hand as the load takes: a virtual machine gives freed memory back to its
    host within seconds, and whoever starts later would pay several times as much for each page."""
    zeros = bytes(1 << 20)
    path = folder.with_name(folder.name + ".warm")
    with path.open("wb") as file:
        for _ in range(-(-size // len(zeros))):
            file.write(zeros)
    path.unlink()


def set_aside(folder: Path, aside: Path) -> None:
    """Make room for the next run on a disk: free the bytes below `folder`, but not the inodes, which wait
    in `aside` for the benchmark's end. For minutes ext4 looks at every inode that was freed meanwhile each
    time it makes a file (`recently_deleted` in fs/ext4/ialloc.c): two thirds of everybody's CPU, the more
    the later one's turn is."""
    if not folder.exists():
        return
    for where, _, names in os.walk(folder):
        # What is published has no write bit.
        os.chmod(where, 0o700)
        for path in (os.path.join(where, name) for name in names):
            if not os.path.islink(path):
                os.chmod(path, 0o600)
                os.truncate(path, 0)
    aside.mkdir(parents=True, exist_ok=True)
    folder.rename(aside / f"{time.time_ns()}")
    # What this asks of the disk is nobody's time.
    os.sync()
