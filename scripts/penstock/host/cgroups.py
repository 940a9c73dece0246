"""What the kernel lets this process use: CPUs, and memory by the limits of its cgroups.

A process has the least limit on the path from its own cgroup to the root. SLURM limits the job's cgroup; the
step's and the task's below it have no limit.

| version of cgroups | memory limit of one cgroup, bytes                                |
|--------------------|------------------------------------------------------------------|
| 1                  | memory.limit_in_bytes; without a limit a number near 2^63        |
| 2                  | the lesser of memory.max and memory.high; `max` where there is none |

Above memory.high the kernel slows processes down until they fit. Both versions can be mounted side by side;
each controller is in one of them. A limit of the machine's memory or more does not count.

The CPUs are those of Cpus_allowed_list in /proc/self/status: the kernel keeps them within the cpuset of the
process's cgroup, and `sched_setaffinity` (SLURM's task/affinity) removes more. Tests replace `proc`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.host.mounts import mounts
from penstock.host.proc import PROC, Root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.host.mounts import Mount

_FILES = {"cgroup": ("memory.limit_in_bytes",), "cgroup2": ("memory.max", "memory.high")}
_PEAKS = {"cgroup": "memory.max_usage_in_bytes", "cgroup2": "memory.peak"}
_ENDLESS = 1 << 62  # larger limits do not count, if the machine's memory is not known


def memory_limit(proc: Root = PROC) -> int | None:
    """Return the least memory limit of this process's cgroups in bytes; None: none applies or is readable."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", _text(f"{proc}/meminfo"), re.MULTILINE)
    least = min(_limits(proc), default=_ENDLESS)
    return least if least < (int(total[1]) << 10 if total else _ENDLESS) else None


def memory_peak(name: str, proc: Root = PROC) -> tuple[int, str]:
    """Return the most bytes ever charged to the cgroup `name` on this process's path, with cached files, and
    the file that says so. (0, ""): no mount shows it, or version 2 before Linux 5.19."""
    for mount, names in _counting("memory", proc):
        if name in names:
            file = _PEAKS[mount.type]
            folder = "/".join([mount.point.rstrip("/"), *names[: names.index(name) + 1]])
            peak = _text(f"{folder}/{file}").strip()
            if peak.isdecimal():
                return int(peak), file
    return 0, ""


def process_limits(proc: Root = PROC) -> list[tuple[int, int]]:
    """Return (`pids.max`, current number) of each cgroup on this process's path that limits processes."""
    limits = []
    for mount, names in _counting("pids", proc):
        for folder in _folders_up(mount, names):
            most, now = (_text(f"{folder}/pids.{name}").strip() for name in ("max", "current"))
            if most.isdecimal() and now.isdecimal():
                limits.append((int(most), int(now)))
    return limits


def _limits(proc: Root) -> Iterator[int]:
    for mount, names in _counting("memory", proc):
        yield from _limits_up(mount, names)


def _counting(controller: str, proc: Root) -> Iterator[tuple[Mount, Sequence[str]]]:
    """Return mounts of this process's cgroups with this controller, and their names below the mount's top."""
    # A later mount hides an earlier one.
    latest = mounts(proc)[::-1]
    for line in _text(f"{proc}/self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, colon, path = named.partition(":")
        kind = "cgroup" if controllers else "cgroup2"
        if not colon or (controllers and controller not in controllers.split(",")):
            continue
        # The counting hierarchy of version 1 is mounted with the controller's name as an option.
        fitting = [
            mount
            for mount in latest
            if mount.type == kind and (not controllers or controller in mount.values)
        ]
        ways = [(mount, names) for mount in fitting if (names := _below(mount.root, path)) is not None]
        # If no mount shows the process's own cgroup, a mount's top is the nearest visible one.
        yield from [*ways, *((mount, []) for mount in fitting)][:1]


def _limits_up(mount: Mount, names: Sequence[str]) -> Iterator[int]:
    """Return the limits of a cgroup and of all above it, up to the mount's top."""
    for folder in _folders_up(mount, names):
        for name in _FILES[mount.type]:
            limit = _text(f"{folder}/{name}").strip()
            if limit.isdecimal():
                yield int(limit)


def _folders_up(mount: Mount, names: Sequence[str]) -> list[str]:
    return ["/".join([mount.point.rstrip("/"), *names[:depth]]) for depth in range(len(names), -1, -1)]


def _below(root: str, path: str) -> list[str] | None:
    """Return the names between the cgroup that a mount shows and the process's. None: the process's is not
    below it, as the kernel writes by `/..` of cgroups outside a namespace."""
    if path != root and not path.startswith(root.rstrip("/") + "/"):
        return None
    names = [name for name in path.removeprefix(root.rstrip("/")).split("/") if name]
    return None if ".." in names else names


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except OSError:
        return ""
