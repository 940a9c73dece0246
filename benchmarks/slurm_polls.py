"""What one look at an array's elements costs, by each way of asking SLURM: CPU of slurmctld and slurmdbd,
bytes, time and CPU of the asker.

    make pyslurm && python benchmarks/slurm_polls.py        on a machine whose SLURM pyslurm fits, as root
    tests/cluster/suite.sh forky .suites/venv-forky/bin/python benchmarks/slurm_polls.py

It starts the tests' cluster (four slurmd on this machine) with accounting, queues 2,000 held jobs of another
account, and one array of 200 elements of which three run. Each way then asks again and again for `--seconds`,
and its row is printed. The CPU of a daemon is what its process used meanwhile (/proc/PID/stat), less what it
uses in as many idle seconds. Bytes are what a relay on the loopback handed to the asker, in a second, shorter
round. It takes some five minutes where nothing else runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.machine import Machine
from tests.cluster.processes import wait_for
from tests.cluster.settings import ORDINARY, Settings
from tests.support.pyslurm_python import REAL

from penstock.cluster.slurm.answers import SACCT_FIELDS, SQUEUE_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLOCK = os.sysconf("SC_CLK_TCK")
ELEMENTS = 200
LOOKS = (10, 5000)
"""The fewest and the most looks of one way."""
FOREIGN = """
import sys, pwd, pyslurm
script, count, account = open(sys.argv[1]).read(), int(sys.argv[2]), pwd.getpwnam(sys.argv[3])
for _ in range(count):
    pyslurm.JobSubmitDescription(
        name="foreign", script=script, environment={"PATH": "/usr/bin:/bin"}, working_directory="/",
        standard_output="/dev/null", user_id=account.pw_uid, group_id=account.pw_gid, priority=0,
    ).submit()
"""
PYSLURM = """
import sys, pyslurm
array, polls = int(sys.argv[1]), int(sys.argv[2])
def table():
    return [job.state for job in pyslurm.Jobs.load().values() if job.array_id == array]
def job():
    return [pyslurm.Job.load(array).state]
def db():
    return [job.state for job in pyslurm.db.Jobs.load(pyslurm.db.JobFilter(ids=[array])).values()]
look = {"table": table, "job": job, "db": db}[sys.argv[3]]
print("ready", flush=True)
sys.stdin.readline()
for _ in range(polls):
    seen = look()
print(len(seen), flush=True)
"""


@dataclass
class Cost:
    """Of one look: milliseconds, and bytes that the asker received."""

    way: str
    controller: float
    database: float
    asker: float
    wall: float
    received: int
    records: int


class Relay:
    """Hands on what comes to its port, and counts what goes back."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.received = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self._to))
            for pair in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        try:
            while block := source.recv(1 << 16):
                self.received += len(block) if back else 0
                sink.sendall(block)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--foreign", type=int, default=2000)
    options = parser.parse_args()
    if REAL is None:
        print("pyslurm was not built here (tests/cluster/pyslurm.sh): its rows are left out", file=sys.stderr)
    machine = Machine.new(Settings(accounting=True))
    try:
        machine.up()
        machine.guard()
        began = time.monotonic()
        array = fill(machine, options.foreign)
        release = machine.run("sbatch", "--version").stdout.strip()
        jobs = f"{options.foreign} foreign jobs, queued in {time.monotonic() - began:.0f} s; array {array}"
        print(f"{release}, {jobs}\n\n{HEAD}", flush=True)
        for way, words in ways(array).items():
            print(row(measured(machine, array, way, words, options.seconds)), flush=True)
    finally:
        machine.down()
    return 0


def ways(array: str) -> dict[str, list[str]]:
    """The commands of each way; of pyslurm the name of a look."""
    found = {
        "squeue -j ARRAY, penstock's fields": [
            "squeue", "--array", "-h", "--states=all", "-j", array, "-O", SQUEUE_FIELDS,
        ],
        "squeue --json -j ARRAY": ["squeue", "--json", "-j", array],
        "squeue --json": ["squeue", "--json"],
        "sacct -j ARRAY": ["sacct", "-X", "-P", "-n", "-j", array, "-o", SACCT_FIELDS],
    }  # fmt: skip
    if REAL is not None:
        found |= {
            "pyslurm Jobs.load()": ["table"],
            "pyslurm Job.load(ARRAY)": ["job"],
            "pyslurm db.Jobs": ["db"],
        }
    return found


def fill(machine: Machine, foreign: int) -> str:
    """Queue the foreign jobs and the array; its id, once three elements run."""
    body = "#!/bin/sh\nexec sleep 3600\n"
    script = machine.folder / "job.sh"
    script.write_text(body)
    script.chmod(0o755)
    if REAL is None:
        command = f"sbatch -Q --hold --uid={ORDINARY} --chdir=/ --output=/dev/null {script}"
        subprocess.run(
            ["xargs", "-P2", "-I{}", "sh", "-c", f"{command} >/dev/null"],
            input="\n".join(map(str, range(foreign))), text=True, env=machine.env, check=True,
        )  # fmt: skip
    else:  # one process: each start of sbatch costs more than a submission
        subprocess.run(
            ["/usr/bin/python3", "-c", FOREIGN, str(script), str(foreign), ORDINARY],
            env={**machine.env, "PYTHONPATH": str(REAL)}, check=True,
        )  # fmt: skip
    words = ["sbatch", "--parsable", f"--array=0-{ELEMENTS - 1}%3", "--exclusive", "--chdir=/"]
    array = machine.run(*words, "--output=/dev/null", str(script)).stdout.strip()

    def run() -> bool:
        return len(machine.run("squeue", "-h", "--array", "-t", "R", "-j", array).stdout.splitlines()) == 3

    wait_for(run, "three elements")
    held = machine.run("squeue", "-h", "-t", "PD").stdout.splitlines()
    assert len(held) == foreign + 1, len(held)
    return array


def spent(machine: Machine, name: str) -> float:
    """CPU seconds of a daemon."""
    fields = Path(f"/proc/{machine.daemons[name].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def measured(machine: Machine, array: str, way: str, words: Sequence[str], seconds: float) -> Cost:
    daemons = ("slurmctld", "slurmdbd", "database")
    took, _, _ = look(machine.env, array, words, 3)
    polls = min(max(int(3 * seconds / took), LOOKS[0]), LOOKS[1])
    before = [spent(machine, name) for name in daemons]
    time.sleep(seconds)  # what the daemons use by themselves
    idle = [(spent(machine, name) - old) / seconds for name, old in zip(daemons, before, strict=True)]
    before = [spent(machine, name) for name in daemons]
    took, cpu, records = look(machine.env, array, words, polls)
    used = [spent(machine, name) - old for name, old in zip(daemons, before, strict=True)]
    own = [max(0.0, a - b * took) * 1000 / polls for a, b in zip(used, idle, strict=True)]
    received = counted(machine, array, words)
    return Cost(way, own[0], own[1] + own[2], cpu * 1000 / polls, took * 1000 / polls, received, records)


def look(env: Mapping[str, str], array: str, words: Sequence[str], polls: int) -> tuple[float, float, int]:
    """So many looks, one after the other: seconds, CPU seconds of the asker, records of the last look."""
    if len(words) == 1:
        given = {**env, "PYTHONPATH": str(REAL)}
        asker = subprocess.Popen(
            ["/usr/bin/python3", "-c", PYSLURM, array, str(polls), words[0]],
            env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert asker.stdin is not None
        assert asker.stdout is not None
        assert asker.stdout.readline() == "ready\n"
        start = cpu_of(asker.pid)
        began = time.monotonic()
        asker.stdin.write("\n")
        asker.stdin.flush()
        records = int(asker.stdout.readline())
        seconds = time.monotonic() - began
        cpu = cpu_of(asker.pid) - start
        asker.communicate()
        return seconds, cpu, records
    lines = 0
    began, start = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(polls):
        done = subprocess.run(words, env=dict(env), capture_output=True, text=True, check=True)
        lines = done.stdout.count('"array_job_id":') if "--json" in words else len(done.stdout.splitlines())
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    return time.monotonic() - began, cpu, lines


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def counted(machine: Machine, array: str, words: Sequence[str]) -> int:
    """Bytes that one look receives, by relays before slurmctld and slurmdbd that a slurm.conf names."""
    relays = {name: Relay(machine.ports[name]) for name in ("slurmctld", "slurmdbd")}
    folder = Path(tempfile.mkdtemp(dir=machine.folder))
    folder.chmod(0o755)
    text = machine.conf.read_text()
    for key, name in (("SlurmctldPort", "slurmctld"), ("AccountingStoragePort", "slurmdbd")):
        text = text.replace(f"{key}={machine.ports[name]}\n", f"{key}={relays[name].port}\n")
    (folder / "slurm.conf").write_text(text)
    shutil.copy(machine.folder / "cgroup.conf", folder)
    env = {**machine.env, "SLURM_CONF": str(folder / "slurm.conf")}
    totals = []
    for polls in (1, 4):
        before = sum(one.received for one in relays.values())
        look(env, array, words, polls)
        totals.append(sum(one.received for one in relays.values()) - before)
    # The difference is what three looks receive: what a start costs is left out.
    return (totals[1] - totals[0]) // 3


HEAD = """\
| way | slurmctld, CPU | slurmdbd and database, CPU | asker, CPU | time | bytes | lines or records |
|---|---|---|---|---|---|---|"""


def row(one: Cost) -> str:
    cpu = f"{one.controller:.2f} ms | {one.database:.2f} ms | {one.asker:.1f} ms | {one.wall:.1f} ms"
    return f"| {one.way} | {cpu} | {one.received:,} | {one.records} |"


if __name__ == "__main__":
    sys.exit(main())
