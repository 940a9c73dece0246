"""Nodes that share the file system and nothing else: a UTS and a PID namespace each, frozen and woken."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import fixed_settings, warm
from tests.support.all_steps import STEPS
from tests.support.commands import PATIENCE, ROOT, until

from penstock.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ELEMENTS = ("penstock.jobs.element", "penstock.engine.worker", "pyarrow.parquet", "xxhash")
"""Modules that elements and their workers import."""

PROGRAM = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.support import nodes; nodes.program()"


def program() -> None:
    """All steps as a workflow takes them, on the node: what list met is named to those after it. When the
    step `pause` has ended it waits, holding nothing, for as long as the file that it makes then is there. (It
    is its namespace's first process, which cannot stop itself.)"""
    name, config, pause, receipt, paused = sys.argv[1:]
    socket.sethostname(name)
    del sys.path[0]
    for module in ELEMENTS:
        importlib.import_module(module)
    warm.enter_by_fork()
    run: list[str] = []
    for step in STEPS:
        code = main(["--config", config, "--receipt", receipt, "step", step, "data", *run])
        if code:
            sys.exit(code)
        run = run or ["--run", json.loads(Path(receipt).read_bytes())["run"]]
        if step == pause:
            Path(paused).touch()
            while Path(paused).exists():
                time.sleep(0.01)


class Node:
    """One run on a node of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log
        self.paused = log.with_suffix(".paused")

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def pids(self) -> list[int]:
        """All processes of the node, as this side numbers them."""
        found, more = [], [self.process.pid]
        while more:
            pid = more.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children") as children:
                        more += [int(child) for child in children.read().split()]
        return found

    def freeze(self) -> None:
        """SIGSTOP to every process, until none runs."""
        until(self._stop_all, "the node to stand still")

    def _stop_all(self) -> bool:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return self.frozen()

    def frozen(self) -> bool:
        """Whether its program (the child of unshare) stands still, and all below it."""
        states = [_state(pid) for pid in self.pids()[1:]]
        return "T" in states and set(states) <= set("TtZX")

    def ended(self) -> bool:
        return self.process.poll() is not None

    def wake(self) -> None:
        self.paused.unlink(missing_ok=True)
        for pid in reversed(self.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def end(self, within: float = PATIENCE) -> int:
        """Its exit status, once it has ended; fails with what it said where that takes longer."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the node had not ended after {within:.0f} s: {self.said()}") from None


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@contextlib.contextmanager
def node(
    name: str,
    config: Path,
    *,
    heartbeat: float | None,
    pause_after: str = "",
    mounted: tuple[Path, Path] | None = None,
) -> Iterator[Node]:
    """The whole way of dataset `data` on a node of this name; whatever is left of it is killed at the end.
    `mounted`: a mount, and the path under which the node sees it. Needs root."""
    folder = config.parent
    log = folder / f"{name}-{len(list(folder.glob('*.log')))}.log"
    words = [sys.executable, *warm.OPTIONS, "-c", PROGRAM, name, str(config), pause_after]
    words += [str(log.with_suffix(".json")), str(log.with_suffix(".paused"))]
    if mounted is not None:
        bind = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        words = ["sh", "-c", bind, "sh", *map(str, mounted), *words]
    given = fixed_settings.environment({"plan.shard_files": 13, "engine.workers": 1})
    if heartbeat is not None:
        given["PENSTOCK_TEST_HEARTBEAT"] = str(heartbeat)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", *words],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **given},
        )  # fmt: skip
    made = Node(process, log)
    try:
        yield made
    finally:
        # The namespace's first process takes all of it along.
        for pid in made.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
