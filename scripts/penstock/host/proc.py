"""What the kernel says of processes, by /proc. Tests replace `proc`."""

from __future__ import annotations

import os
from typing import NamedTuple

PROC = "/proc"
Root = str | os.PathLike[str]  # a folder in place of /proc, /sys or /, for tests


class ProcessStat(NamedTuple):
    """A line of /proc/<pid>/stat, as far as it is used."""

    pid: int
    name: str  # first 15 bytes of the program's name, which may hold blanks and brackets
    state: str  # a letter: `R`, `S`, `D`, `Z`, ...
    parent: int
    ticks: int  # CPU time in user and kernel mode: clock ticks of 1/SC_CLK_TCK s
    start: str  # in ticks since boot: differs when a process number is reused

    @property
    def ended(self) -> bool:
        """Whether the process has ended. A zombie has: its parent has yet to collect the exit status."""
        return self.state in "ZX"


def process_stat(pid: int | str, proc: Root = PROC) -> ProcessStat | None:
    """Return the stat of a process (`self`: this one). None: it does not exist, is hidden from this account
    (`hidepid`), or its line is incomplete."""
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
    """Return the living children of a process, by `task/<thread>/children` where the kernel has it
    (CONFIG_PROC_CHILDREN), else by reading every process."""
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
    stats = (process_stat(name, proc) for name in names)
    return [stat for stat in stats if stat is not None and stat.parent == pid and not stat.ended]


def peak_memory(pid: int | str, proc: Root = PROC) -> int:
    """Return the most resident bytes of a process since its last exec (VmHWM); 0: not known."""
    try:
        with open(f"{proc}/{pid}/status", errors="replace") as stream:
            line = next((text for text in stream if text.startswith("VmHWM:")), "")
        return int(line.split()[1]) << 10 if line else 0
    except (OSError, ValueError, IndexError):
        return 0


def umask(proc: Root = PROC) -> int | None:
    """Return this process's umask, or None. Not by setting it: other threads may create files now."""
    try:
        with open(f"{proc}/self/status", encoding="ascii", errors="replace") as stream:
            return next((int(line.split()[1], 8) for line in stream if line.startswith("Umask:")), None)
    except OSError:
        return None
