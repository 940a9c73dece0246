"""For what a reader's pin is placed (a pin keeps a release from removal while it is read): the job of this
process, or else the script or shell that called it. Reads /proc and the environment; for `dataset.pins`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.dataset import holder as holders
from penstock.host.proc import process_stat

if TYPE_CHECKING:
    from penstock.dataset.holder import Holder


class PinOwner(NamedTuple):
    """Who reads: a job, or a process."""

    holder: Holder
    """Its process is the one that the pin lasts with."""
    program: str
    """The name of that process's program."""

    @property
    def key(self) -> str:
        """The same for all pins of this job's start, or of this process."""
        holder = self.holder
        if holder.job:
            return f"{os.geteuid()}-{holder.cluster or 'cluster'}-{holder.job}-{holder.restart}"
        return f"{os.geteuid()}-{holder.host}-{holder.pid}-{holder.start}"


def this_owner() -> PinOwner:
    """The reader for whom this process was called. Raises nothing: what /proc hides is left empty."""
    holder = holders.this_process("", "path")
    pid = _reader(os.getpid())
    seen = process_stat(pid)
    return PinOwner(
        replace(holder, pid=pid, start=holders.start_time(pid) or ""), seen.name if seen is not None else ""
    )


def _reader(pid: int) -> int:
    """The process that lives as long as the reading does, as far as that can be known.

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
    """The processes above, the parent first."""
    ancestors: list[int] = []
    while (seen := process_stat(pid)) is not None and seen.parent > 0:
        pid = seen.parent
        ancestors.append(pid)
    return ancestors
