"""Who a reader's pin is for: the job of this process, or else the script or shell that called it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.dataset import holder as holders
from penstock.host.proc import process_stat

if TYPE_CHECKING:
    from penstock.dataset.holder import Holder


class PinOwner(NamedTuple):
    """The reader: a job or a process."""

    holder: Holder  # the pin lasts as long as its process
    program: str  # the name of that process's program

    @property
    def key(self) -> str:
        """A key common to all pins of this start of the job, or of this process."""
        holder = self.holder
        if holder.job:
            return f"{os.geteuid()}-{holder.cluster or 'cluster'}-{holder.job}-{holder.restart}"
        return f"{os.geteuid()}-{holder.host}-{holder.pid}-{holder.start}"


def this_owner() -> PinOwner:
    """Return the reader for whom this process runs. What /proc hides is left empty."""
    holder = holders.this_process("", "path")
    pid = _reader(os.getpid())
    process = process_stat(pid)
    return PinOwner(
        replace(holder, pid=pid, start=holders.start_time(pid) or ""),
        process.name if process is not None else "",
    )


def _reader(pid: int) -> int:
    """Return the process that most likely lives as long as the reading.

    | this process is called                         | its process group is led by | reader             |
    |------------------------------------------------|-----------------------------|--------------------|
    | by a script, in `$(...)` of it, by its children| the script                  | the script         |
    | at a shell's prompt                            | this process itself         | the shell above it |
    | at a prompt, in a pipeline                     | no process above this one   | the shell above it |
    | with nothing above it that can be seen         | any                         | the parent         |
    """
    group, above = os.getpgrp(), _above(pid)
    if group != pid and group in above:
        return group
    for ancestor in above:
        try:
            if os.getpgid(ancestor) != group:
                return ancestor
        except OSError:
            break
    return above[0] if above else pid


def _above(pid: int) -> list[int]:
    """Return the processes above, the parent first."""
    ancestors: list[int] = []
    while (process := process_stat(pid)) is not None and process.parent > 0:
        pid = process.parent
        ancestors.append(pid)
    return ancestors
