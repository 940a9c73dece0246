"""What the kernel says of processes, by /proc, which is all that is read. `proc` is the folder to read in its
place: tests give one of their own."""

from __future__ import annotations

import os
from typing import NamedTuple

PROC = "/proc"
Root = str | os.PathLike[str]
"""A folder to read in place of /proc, /sys or /: tests give one of their own."""


class ProcessStat(NamedTuple):
    """One line of /proc/<pid>/stat, as far as it is used."""

    pid: int
    name: str
    """The program's name, its first 15 bytes; it may hold blanks and brackets."""
    state: str
    """One letter: `R`, `S`, `D`, `Z`, ..."""
    parent: int
    ticks: int
    """CPU time that it used, in user and kernel mode: clock ticks, SC_CLK_TCK of which are a second."""
    start: str
    """When it started, in ticks since boot: a process number that is used again has another."""

    @property
    def ended(self) -> bool:
        """Whether the process has ended; a zombie has, and only waits for its parent to collect the exit
        status."""
        return self.state in "ZX"


def process_stat(pid: int | str, proc: Root = PROC) -> ProcessStat | None:
    """The stat of one process (`self`: this one). None where the process is not there, where this account may
    not see it (`hidepid`), and where the line is incomplete."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as stream:
            head, _, tail = stream.read().rpartition(b")")
        number, _, name = head.partition(b"(")
        fields = tail.split()
        return ProcessStat(
            pid=int(number),
            name=name.decode("utf-8", "replace"),
            state=fields[0].decode("ascii"),
            parent=int(fields[1]),
            ticks=int(fields[11]) + int(fields[12]),
            start=fields[19].decode("ascii"),
        )
    except (OSError, ValueError, IndexError):
        return None


def children(pid: int, proc: Root = PROC) -> list[ProcessStat]:
    """The processes that this one started and that have not ended. By `task/<thread>/children` where the
    kernel has it (CONFIG_PROC_CHILDREN), else by a look at every process."""
    names: list[str] = []
    try:
        for thread in os.listdir(f"{proc}/{pid}/task"):
            with open(f"{proc}/{pid}/task/{thread}/children") as stream:
                names += stream.read().split()
    except OSError:
        try:
            names = [name for name in os.listdir(proc) if name.isdecimal()]
        except OSError:
            return []
    found = (process_stat(name, proc) for name in names)
    return [one for one in found if one is not None and one.parent == pid and not one.ended]


def peak_memory(pid: int | str, proc: Root = PROC) -> int:
    """The most bytes of memory that a process had resident since its last exec (VmHWM); 0 where /proc does
    not say, or the process has ended."""
    try:
        with open(f"{proc}/{pid}/status", errors="replace") as stream:
            line = next((one for one in stream if one.startswith("VmHWM:")), "")
        return int(line.split()[1]) << 10 if line else 0
    except (OSError, ValueError, IndexError):
        return 0


def umask(proc: Root = PROC) -> int | None:
    """The umask of this process, read without setting it, since other threads may create files now. None
    where the kernel does not say it."""
    try:
        with open(f"{proc}/self/status", encoding="ascii", errors="replace") as stream:
            return next((int(line.split()[1], 8) for line in stream if line.startswith("Umask:")), None)
    except OSError:
        return None
