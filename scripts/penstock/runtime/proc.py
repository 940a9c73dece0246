"""What the kernel says of processes, by /proc. `proc` is its root: tests hand in a folder of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import os

PROC = "/proc"


class ProcessStat(NamedTuple):
    """One line of /proc/<pid>/stat, as far as it is used."""

    pid: int
    name: str
    """Of the program, its first 15 bytes; it may hold blanks and brackets."""
    state: str
    """One letter: `R`, `S`, `D`, `Z`, ..."""
    parent: int
    ticks: int
    """Of CPU that it used, in user and kernel mode (SC_CLK_TCK of them are a second)."""
    start: str
    """When it started, in ticks since boot: a process number that is used again has another."""

    @property
    def ended(self) -> bool:
        """A zombie has ended: only its parent has not asked yet how."""
        return self.state in "ZX"


def process_stat(pid: int | str, proc: str | os.PathLike[str] = PROC) -> ProcessStat | None:
    """Of one process (`self`: of this one). None where there is none, where this account may not look
    (`hidepid`), and where the line is not whole."""
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
