"""What each test costs: `pytest -p tests.support.profile` with PENSTOCK_TEST_PROFILE=FILE, as root.

A line of FILE is a test: CPU seconds of its worker and of all processes that it started, also of those that
others adopted (a cgroup of version 1 counts them), but for slurmd and its jobs; wall seconds, processes and
threads started (the worker's PID namespace counts them: exact where that is its own, as by `unshare --pid
--fork --mount-proc`).

`python -m tests.support.profile FILE...` prints the table by folder and the dearest files.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

GROUPS = Path("/sys/fs/cgroup/cpuacct")
DEAREST = 40


class Profile:
    """Measures the tests of one process."""

    def __init__(self, file: str) -> None:
        self._out = open(file, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        self._group = GROUPS / f"penstock-tests-{secrets.token_hex(4)}"
        self._group.mkdir()
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def _figures(self) -> tuple[float, float, int]:
        cpu = int((self._group / "cpuacct.usage").read_text())
        jobs = self._group / "jobs" / "cpuacct.usage"
        if jobs.exists():
            cpu -= int(jobs.read_text())
        return cpu / 1e9, time.monotonic(), int(Path("/proc/sys/kernel/ns_last_pid").read_text())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = self._figures()
        result = yield
        cpu, wall, starts = (after - first for after, first in zip(self._figures(), before, strict=True))
        self._out.write(json.dumps([item.nodeid, round(cpu, 3), round(wall, 3), starts]) + "\n")
        return result


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    file = os.environ.get("PENSTOCK_TEST_PROFILE")
    if file and not (config.getoption("numprocesses", None) and not hasattr(config, "workerinput")):
        config.pluginmanager.register(Profile(file), "penstock-profile")


def _table(rows: dict[str, list[Any]], title: str, most: int | None = None) -> None:
    print(f"\n{'tests':>6} {'CPU s':>8} {'wall s':>8} {'starts':>7}  {title}")
    dearest = sorted(rows.items(), key=lambda row: -row[1][1])
    for name, (tests, cpu, wall, starts) in dearest[:most]:
        print(f"{tests:6} {cpu:8.1f} {wall:8.1f} {starts:7}  {name}")


def main(files: Sequence[str]) -> None:
    folders: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, 0.0, 0])
    modules: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, 0.0, 0])
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            name, *figures = json.loads(line)
            module = name.split("::")[0].removeprefix("tests/")
            for row in (folders["all"], folders[module.split("/")[0]], modules[module]):
                row[:] = [old + more for old, more in zip(row, (1, *figures), strict=True)]
    _table(folders, "folder")
    _table(modules, "file", DEAREST)


if __name__ == "__main__":
    main(sys.argv[1:])
