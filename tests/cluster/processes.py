"""Daemons of the test cluster: started apart from this process, found and ended by their id."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclass(frozen=True)
class Daemon:
    """One started process; `born` tells it from a later one with the same id."""

    name: str
    pid: int
    born: int

    @property
    def alive(self) -> bool:
        return born(self.pid) == self.born


def born(pid: int) -> int:
    """Start time of a process in clock ticks; 0 when it is gone or only waits to be reaped."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> Daemon:
    """Start a daemon in a session of its own, its output in `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
            cwd="/",
            start_new_session=True,
        )
    process.returncode = 0  # `born` reaps it: no warning about a child that still runs
    return Daemon(name, process.pid, born(process.pid))


def stop(daemon: Daemon, *, patience: float = 5.0) -> None:
    """SIGTERM, then SIGKILL. Returns when the process is gone."""
    if not daemon.alive:
        return
    signal_to(daemon.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while daemon.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    kill(daemon)


def kill(daemon: Daemon) -> None:
    """SIGKILL, and wait until it is gone."""
    if daemon.alive:
        signal_to(daemon.pid, signal.SIGKILL)
        wait_for(lambda: not daemon.alive, f"{daemon.name} to end")


def signal_to(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


@contextlib.contextmanager
def halted(*numbers: int) -> Iterator[None]:
    """Processes that do nothing meanwhile."""
    for pid in numbers:
        signal_to(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in numbers:
            signal_to(pid, signal.SIGCONT)


def below(*tops: int) -> set[int]:
    """These processes and all that descends from them, as far as it lives."""
    found = set(tops)
    everyone = {pid: parent(pid) for pid in pids()}
    while more := {pid for pid, above in everyone.items() if above in found} - found:
        found |= more
    return found & everyone.keys()


def program(pid: int) -> str:
    """The name of the file that a process runs; "" of one that is gone or a zombie."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def wait_for(
    condition: Callable[[], object], what: str, *, seconds: float = 60.0, every: float = 0.05
) -> None:
    """Wait until the condition holds. Raises TimeoutError that names what was awaited."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(every)


_reserved: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, below the range that the kernel gives out itself. They are this
    process's to its end: clusters that start side by side get none twice, in whatever tree of the machine."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15000, 32000)
        # An abstract name is there as long as its socket, and is seen wherever the port is.
        mark = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            try:
                mark.bind(f"\0penstock-tests-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                mark.close()
                continue
        _reserved.append(mark)
        found.append(port)
    return found
