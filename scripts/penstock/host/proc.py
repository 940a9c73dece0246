"""Reads the kernel's facts about processes, and about the mounts that this process sees.

Reads only /proc. `nearest` and `first_on_way` also make calls to file systems, which wait if a server is
away. `proc` is the folder to read in place of /proc; tests pass a folder of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


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
            # Otherwise this is a mount point, which is no link and may not respond.
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
