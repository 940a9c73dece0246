"""Reads facts from the kernel about processes, mounts, and this process's resources: its cgroup limits, the
number of processes that it may still start, its CPU time and memory. Also holds the job environment that the
cluster stated.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import resource
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import FailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.core.element_documents import ElementUsage


# Reads the kernel's facts about processes, and about the mounts that this process sees.
#
# Reads only /proc. `nearest` and `first_on_way` also make calls to file systems, which wait if a server is
# away. `proc` is the folder to read in place of /proc; tests pass a folder of their own.

PROC = "/proc"
Root = str | os.PathLike[str]  # a folder in place of /proc, /sys or /, for tests


class ProcessStat(NamedTuple):
    """The fields of /proc/<pid>/stat that are used here."""

    pid: int
    name: str  # first 15 bytes of the program's name, which may contain blanks and brackets
    state: str  # a letter: `R`, `S`, `D`, `Z`, ...
    parent: int
    ticks: int  # CPU time in user and kernel mode: clock ticks of 1/SC_CLK_TCK s
    start: str  # start in ticks since boot, which differs if a process number is reused

    @property
    def ended(self) -> bool:
        """Whether the process has ended. A zombie has ended: its parent must only collect its status."""
        return self.state in "ZX"


def process_stat(pid: int | str, proc: Root = PROC) -> ProcessStat | None:
    """Return the stat of a process (`self`: this process). None if it does not exist or is hidden from this
    account (`hidepid`), or if the line is incomplete."""
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
    """Return the running children of a process. Read `task/<thread>/children` if the kernel has it
    (CONFIG_PROC_CHILDREN), or else every process."""
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
    """Return the peak of a process's resident bytes since its last exec (VmHWM); 0 if not known."""
    try:
        with open(f"{proc}/{pid}/status", errors="replace") as stream:
            line = next((text for text in stream if text.startswith("VmHWM:")), "")
        return int(line.split()[1]) << 10 if line else 0
    except (OSError, ValueError, IndexError):
        return 0


def umask(proc: Root = PROC) -> int | None:
    """Return this process's umask, or None. Does not set it, since other threads may be creating files."""
    try:
        with open(f"{proc}/self/status", encoding="ascii", errors="replace") as stream:
            return next((int(line.split()[1], 8) for line in stream if line.startswith("Umask:")), None)
    except OSError:
        return None


MOST_LINKS = 40  # symbolic links that the kernel follows on the way to a file (path_resolution(7))


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo. Every field is empty if no mount is found."""

    number: str = ""  # number of its device: `8:1`
    point: str = ""
    type: str = ""  # type as mount(8) writes it: `ext4`, `nfs4`, `fuse.sshfs`
    options: str = ""  # options of the mount, then those of the file system
    device: str = ""
    # the folder of the file system that `point` shows, from its own root: `/`, or a bind mount's folder
    root: str = ""

    def inside(self, path: str) -> str | None:
        """Return a real path's place in the file system, from its own root; None if not below `point`."""
        point = self.point.rstrip("/")
        if path != self.point and not path.startswith(f"{point}/"):
            return None
        return (self.root.rstrip("/") + path.removeprefix(point)).rstrip("/") or "/"

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """The values of each option, in order; () for an option without a value (`ro`)."""
        return option_values(self.options)


def option_values(options: str) -> dict[str, tuple[str, ...]]:
    """Return the values of each option in a list with commas. An option may appear twice (`core=3,core=4`).
    A value in double quotes may contain commas (`context="...:c1,c2"`)."""
    values: dict[str, tuple[str, ...]] = {}
    for option in re.findall(r'(?:[^,"]|"[^"]*"?)+', options):
        name, equals, value = option.partition("=")
        values[name] = (*values.get(name, ()), *((value,) if equals else ()))
    return values


def mounts(proc: str | os.PathLike[str] = PROC) -> list[Mount]:
    """Return all mounts in the order of mounting, or [] if unreadable. Torn lines are left out."""
    try:
        with open(f"{proc}/self/mountinfo", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            lines = stream.read().split("\n")
    except OSError:
        return []
    made = []
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if len(fields) >= 6 and len(tail) >= 3:
            options = f"{fields[5]},{tail[2]}"
            device, root = _plain(tail[1]), _plain(fields[3])
            made.append(Mount(fields[2], _plain(fields[4]), tail[0], options, device, root))
    return made


def mount_of(path: str, proc: str | os.PathLike[str] = PROC) -> Mount:
    """Return the mount that holds a real path now."""
    return holding(path, mounts(proc))


def holding(path: str, among: Iterable[Mount]) -> Mount:
    """Return the mount that contains a real path: the deepest. Of two mounts on the same point the later one
    hides the other. An empty `Mount` if none contains the path."""
    best = Mount()
    for mount in among:
        if mount.inside(path) is not None and len(mount.point) >= len(best.point):
            best = mount
    return best


def first_on_way(
    path: str, wanted: Callable[[Mount], bool], proc: str | os.PathLike[str] = PROC
) -> Mount | None:
    """Return the first `wanted` mount on the way to an absolute path, through symbolic links, or None. Makes
    no call on that mount or beyond it."""
    made = mounts(proc)
    done, left, links = "/", path.split("/")[::-1], 0
    while True:
        mount = holding(done, made)
        if wanted(mount):
            return mount
        if not left:
            return None
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            done = os.path.dirname(done)
            continue
        reached = os.path.join(done, name)
        target = ""
        if holding(reached, made) == mount:
            # A mount point is skipped: it is never a link, and its server may be away.
            with contextlib.suppress(OSError):
                target = os.readlink(reached)
        links += bool(target)
        if target and links <= MOST_LINKS:
            left += target.split("/")[::-1]
            done = "/" if target.startswith("/") else done
        else:
            done = reached


def nearest(path: Path) -> Path:
    """Return the nearest existing path at or above `path`, as written. Raises OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def mount_of_device(number: int, proc: str | os.PathLike[str] = PROC) -> Mount:
    """Return a mount of the device with this number (`st_dev`), or an empty `Mount` if there is none."""
    wanted = f"{os.major(number)}:{os.minor(number)}"
    return next((mount for mount in mounts(proc) if mount.number == wanted), Mount())


def _plain(text: str) -> str:
    """Decode blanks and the like, which are written as `\\040` in a line."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text) if "\\" in text else text


# The job environment of this process: job, element, restarts, node, CPUs and memory that the cluster gave
# it.
#
# A process sets it once, at its start (`cli.main`), to the values that the interface to the cluster reads
# (`cluster.registry.read_job_environment`). Layers below that interface (locks, the engine's sizing) read it
# here, independent of any scheduler. If it is not set, the process is in no job.

# Environment variable with the CPUs that an element may use, if no scheduler states them. The local cluster
# sets it, and a site may do so.
GIVEN_CPUS = "PENSTOCK_CPUS"


class JobEnvironment(NamedTuple):
    """The job that this process is in, according to the cluster. A field that the cluster does not state is
    empty. It is a NamedTuple because every command loads it: a frozen dataclass takes 1.5 ms longer to import
    (`python -X importtime`)."""

    job: str = ""  # the job's number; for an array's element the element's own number
    # Whether the kernel confirms that this process is in the job `job`. Processes that a job starts inherit
    # the job's number and may outlive the job. An unproven number will do as a label, such as in an attempt's
    # name. A lock needs a proven one, since others ask the scheduler whether that job still runs.
    proven: bool = False
    cluster: str = ""  # the cluster's name, without which a job's number means nothing
    array: str = ""  # the array's decimal number, if the job is an element
    array_name: str = ""  # submitted name of the job or array (`ArraySpec.name`)
    element: int | None = None  # the element's index in its array
    restarts: int = 0  # how often the scheduler restarted the job
    node: str = ""  # the node's name in the cluster
    cpus: int | None = None  # number of CPUs that this process may use, at least 1
    cpus_from: str = ""  # environment variable from which `cpus` comes, for messages
    memory: int | None = None  # bytes granted on this node, at least 1
    # Name of the job's own control group, or "". Of all processes, only those of the job have it as a part of
    # the paths in /proc/self/cgroup.
    cgroup: str = ""
    # time at which an element is to stop, before its job's end, in seconds since the epoch; 0 if not known
    stop_at: float = 0.0


_entered_job = [JobEnvironment()]


def current_job() -> JobEnvironment:
    """Return the environment that was entered last, or an empty one if none was entered."""
    return _entered_job[0]


def enter_job(environment: JobEnvironment) -> None:
    """Set what `current_job` returns, for all threads of this process."""
    _entered_job[0] = environment


def host_name() -> str:
    """Return the node's name in the cluster, or else this machine's name."""
    return current_job().node or os.uname().nodename


# The CPUs and the memory that the kernel lets this process use, according to the limits of its cgroups.
#
# The least limit on the path from a process's own cgroup to the root applies. SLURM limits the job's cgroup;
# the cgroups of the step and the task below it have no limit.
#
# | version of cgroups | memory limit of one cgroup, bytes                                |
# |--------------------|------------------------------------------------------------------|
# | 1                  | memory.limit_in_bytes; a number near 2^63 means no limit         |
# | 2                  | the lesser of memory.max and memory.high; `max` means no limit   |
#
# Above memory.high the kernel slows processes down until they use less. Both versions can be mounted side by
# side, and each controller is in only one of them. A limit that equals or exceeds the machine's memory is
# ignored.
#
# The CPUs are those of Cpus_allowed_list in /proc/self/status. The kernel keeps them within the cpuset of the
# process's cgroup, and `sched_setaffinity` (SLURM's task/affinity) removes more. Tests replace `proc`.

_FILES = {"cgroup": ("memory.limit_in_bytes",), "cgroup2": ("memory.max", "memory.high")}
_PEAKS = {"cgroup": "memory.max_usage_in_bytes", "cgroup2": "memory.peak"}
_ENDLESS = 1 << 62  # larger limits do not count, if the machine's memory is not known


def memory_limit(proc: Root = PROC) -> int | None:
    """Return the least memory limit of this process's cgroups in bytes; None if none applies or is
    readable."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", _text(f"{proc}/meminfo"), re.MULTILINE)
    least = min(_limits(proc), default=_ENDLESS)
    return least if least < (int(total[1]) << 10 if total else _ENDLESS) else None


def memory_peak(name: str, proc: Root = PROC) -> tuple[int, str]:
    """Return the peak of bytes charged to the cgroup `name` on this process's cgroup path, page cache
    included. Also return the name of the kernel file that states the peak. Returns (0, "") if no mount shows
    the cgroup, or for version 2 before Linux 5.19."""
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
    """Yield, for each hierarchy that has this controller, a mount that shows it, and the path components from
    the mount's top to this process's cgroup."""
    # A later mount hides an earlier one.
    latest = mounts(proc)[::-1]
    for line in _text(f"{proc}/self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, colon, path = named.partition(":")
        kind = "cgroup" if controllers else "cgroup2"
        if not colon or (controllers and controller not in controllers.split(",")):
            continue
        # In version 1 the hierarchy of a controller is mounted with the controller's name as an option.
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
    """Return the names between the cgroup that a mount shows and the process's cgroup. None if the latter is
    not below it; the kernel writes `/..` for cgroups outside a namespace."""
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


# The number of processes and threads that this account may still start, and the error if the kernel refuses.
#
# Two limits cause an EAGAIN. `ulimit -u` (RLIMIT_NPROC) counts all processes and threads of the account on
# this machine, except for root. `pids.max`, which SLURM, systemd (TasksMax) and containers set, counts those
# of a cgroup.

# Usage is counted only for limits below this. Larger limits are the machine's default, and counting costs
# some 10 us for each process.
NEAR = 1024


def room(proc: Root = PROC) -> int | None:
    """Return how many processes and threads may still be started, or None without a limit below NEAR."""
    left = []
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if 0 <= limit < NEAR and os.geteuid() != 0:
        left.append(limit - _tasks(os.getuid(), proc))
    left += [most - now for most, now in process_limits(proc) if most < NEAR]
    return max(0, min(left)) if left else None


def refused(error: BaseException) -> FailedError | None:
    """Return the error to raise if the kernel refused a process or thread, or None for any other `error`."""
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    process = isinstance(error, BlockingIOError) and error.filename is None
    return too_few() if thread or process else None


def too_few() -> FailedError:
    """Return the error for a refused process, with the current limits."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [f"`ulimit -u` is {limit}"] if limit >= 0 else []
    limits += [f"a cgroup's pids.max is {most}, {now} are used" for most, now in process_limits()]
    return FailedError(
        "the system lets this account start no more processes or threads",
        why="; ".join(limits),
        hint="raise that limit, or end other processes of this account; the same command goes on",
    )


def _tasks(uid: int, proc: Root) -> int:
    """Count processes and threads of this user."""
    tasks = 0
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                if os.stat(f"{proc}/{name}").st_uid == uid:
                    tasks += len(os.listdir(f"{proc}/{name}/task"))
            except OSError:
                continue  # it ended meanwhile
    return tasks


# Measures the CPU time and memory of this process and the processes that it starts.
#
# | figure         | read from                                  | of                                    |
# |----------------|--------------------------------------------|---------------------------------------|
# | CPU seconds    | getrusage                                  | this process, and children that ended |
# |                | /proc/<pid>/stat                           | children that are still running       |
# | peak of memory | VmHWM of /proc/<pid>/status                | this process and its living children  |
# | the job's peak | `memory.peak` (cgroup v2, Linux 5.19), or  | all that the job's own control group  |
# |                | `memory.max_usage_in_bytes` (v1)           | was charged for, cached files too     |
#
# The peak of memory is an upper bound: processes peak at different moments, and shared pages count in each
# process. But helpers that start and end between two readings are missed. `ru_maxrss` is not used, since an
# exec keeps it, so that a small child shows the size of its parent (getrusage(2), fs/exec.c).
#
# An element registers its `Meter` by `enter_meter`. Code that ends helper processes calls `read_peaks`
# shortly before that, since their peaks cannot be read afterwards.

_TICK = os.sysconf("SC_CLK_TCK")


class Meter:
    """Measures this process from its start on."""

    def __init__(self, cgroup: str = "", proc: str = PROC) -> None:
        """`cgroup`: the name of the job's own control group (`JobEnvironment.cgroup`)."""
        self._cgroup, self._proc = cgroup, proc
        age = _age(proc)
        self._start, self._began = time.monotonic() - age, time.time() - age
        self._peak, self._processes, self._others = 0, 0, 0.0
        self._job: tuple[int, str] = (0, "")

    def look(self) -> None:
        """Read the peaks of this process and of its running children now."""
        own = process_stat("self", self._proc)
        stats = children(own.pid, self._proc) if own is not None else []
        # A child that ends at this moment counts in one of the two sums, or, in this reading, in neither.
        self._others = _cpu(resource.RUSAGE_CHILDREN) + sum(child.ticks for child in stats) / _TICK
        peaks = [peak_memory("self", self._proc), *(peak_memory(child.pid, self._proc) for child in stats)]
        if sum(peaks) > self._peak:
            self._peak, self._processes = sum(peaks), sum(map(bool, peaks))
        if self._cgroup:
            self._job = memory_peak(self._cgroup, self._proc)

    def used(self, usage: ElementUsage) -> ElementUsage:
        """Return `usage` with the figures so far. Reads two small files of every child."""
        self.look()
        return usage._replace(
            began=round(self._began, 3),
            seconds=round(time.monotonic() - self._start, 3),
            cpu_seconds=round(_cpu(resource.RUSAGE_SELF) + self._others, 3),
            memory_peak=self._peak,
            processes=self._processes,
            job_memory_peak=self._job[0],
            job_memory_file=self._job[1],
        )


def _cpu(who: int) -> float:
    """Return seconds in user and kernel mode."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _age(proc: str) -> float:
    """Return the seconds since this process was started (an exec does not count), or 0 if not known."""
    own = process_stat("self", proc)
    if own is None or not own.start.isdecimal():
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(own.start) / _TICK)


_entered_meter: list[Meter | None] = [None]


def enter_meter(meter: Meter | None) -> None:
    """Let `read_peaks` read for this meter in all threads of this process, or for no meter if it is None."""
    _entered_meter[0] = meter


def read_peaks() -> None:
    """Read the peaks for the entered meter, if any. Call it before helpers of this process end."""
    meter = _entered_meter[0]
    if meter is not None:
        meter.look()


# Number of new objects between two searches for cycles. With Python's default of 700, these searches took an
# eighth of the CPU time when a million files were planned and published. Of a worker's CPU time they took a
# tenth. Batches of rows have no cycles.
YOUNG_OBJECTS = 50_000


def collect_garbage_rarely() -> None:
    """Collect garbage rarely in this process from now on."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
