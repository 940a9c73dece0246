"""Which cores WEKA's containers keep, by what the kernel says of their processes: any account may read it,
unless /proc is mounted with `hidepid`.

A container's processes are called `/weka/wekanode --slot N --container-name NAME`. Slot 0 manages, and runs
where there is room; the others do the I/O, with threads that are pinned to the container's cores (weka/tools,
install/scripts.d/950_wekanode_cpu_affinity.sh, and the commands that WEKA's operator shows). A cpuset of a
cgroup, v1 or v2, is part of what the kernel lets a thread use. Not run on WEKA.

For `cores` and `mount` beside it. Reads /proc; changes nothing.
"""

from __future__ import annotations

import os

from penstock.core import cpu_lists
from penstock.host.proc import PROC

PROGRAM = "wekanode"


def cores_of_containers(proc: str | os.PathLike[str] = PROC) -> dict[str, str]:
    """The CPUs that the I/O processes of each container may run on, as lists of the kernel's form (`3-4,19`),
    by the container's name ("" where the process has none). A thread that may run wherever the first process
    of this host may is pinned to nothing, and says nothing. {} where nothing can be read."""
    anywhere = _allowed(f"{proc}/1/status")
    cpus: dict[str, set[int]] = {}
    for process in _numbers(str(proc)):
        words = _words(f"{proc}/{process}/cmdline")
        if not words or os.path.basename(words[0]) != PROGRAM or _given(words, "--slot") in ("", "0"):
            continue
        for thread in _numbers(f"{proc}/{process}/task"):
            allowed = _allowed(f"{proc}/{process}/task/{thread}/status")
            if allowed and allowed != anywhere:
                cpus.setdefault(_given(words, "--container-name"), set()).update(allowed)
    return {name: cpu_lists.listed(cores) for name, cores in cpus.items()}


def _numbers(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.isdecimal()]
    except OSError:
        return []


def _words(path: str) -> list[str]:
    try:
        with open(path, "rb") as stream:
            return os.fsdecode(stream.read(4096)).split("\0")
    except OSError:
        return []


def _given(words: list[str], option: str) -> str:
    """The value of `--option VALUE` or `--option=VALUE`; "" where it is not there."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            return after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _allowed(path: str) -> set[int]:
    """The CPUs of Cpus_allowed_list; empty where they cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            line = next((one for one in stream if one.startswith("Cpus_allowed_list:")), "")
        return set(cpu_lists.cpus(line.partition(":")[2]))
    except (OSError, ValueError):
        return set()
