"""Which cores WEKA's containers keep, by the kernel's view of their processes, open to any account without
`hidepid`.

A container's processes are called `/weka/wekanode --slot N --container-name NAME`. Slot 0 manages, and runs
anywhere. The others do the I/O, with threads pinned to the container's cores (weka/tools,
install/scripts.d/950_wekanode_cpu_affinity.sh, and commands of WEKA's operator). A cpuset of a cgroup, v1 or
v2, limits what the kernel lets a thread use. Not run on WEKA.
"""

from __future__ import annotations

import os

from penstock.core import range_lists
from penstock.host.proc import PROC

PROGRAM = "wekanode"


def cores_of_containers(proc: str | os.PathLike[str] = PROC) -> dict[str, str]:
    """Return the CPUs that each container's I/O processes may use, as lists in the kernel's form (`3-4,19`).
    By the container's name ("": the process has none). A thread that may run wherever this host's first
    process may is not pinned, and is skipped. {} where nothing can be read."""
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
    return {name: range_lists.listed(cores) for name, cores in cpus.items()}


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
    """Return the value of `--option VALUE` or `--option=VALUE`; "" without it."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            return after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _allowed(path: str) -> set[int]:
    """Read Cpus_allowed_list; empty where it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            line = next((row for row in stream if row.startswith("Cpus_allowed_list:")), "")
        return set(range_lists.cpus(line.partition(":")[2]))
    except (OSError, ValueError):
        return set()
