"""The mounts that this process sees, as the kernel lists them in /proc/self/mountinfo. Reads that file alone;
only `nearest` and `first_on_way` make calls to file systems, which wait where a server is away. `proc` is the
folder to read in place of /proc: tests give one of their own."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.host.proc import PROC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


MOST_LINKS = 40
"""Symbolic links that the kernel follows on the way to a file (path_resolution(7))."""


class Mount(NamedTuple):
    """One line of the file. Every field is empty where no mount is found."""

    number: str = ""
    """The number of its device: `8:1`."""
    point: str = ""
    type: str = ""
    """As mount(8) knows it: `ext4`, `nfs4`, `fuse.sshfs`."""
    options: str = ""
    """Those of the mount, then those of the file system."""
    device: str = ""
    root: str = ""
    """The folder of the file system that `point` shows, from its own root: `/`, and of a bind mount of a
    folder that folder."""

    def inside(self, path: str) -> str | None:
        """Where a real path lies in the file system, from its own root; None where it does not lie below
        `point`."""
        point = self.point.rstrip("/")
        if path != self.point and not path.startswith(f"{point}/"):
            return None
        return (self.root.rstrip("/") + path.removeprefix(point)).rstrip("/") or "/"

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """By option the values that it was given, in order; () for one without a value (`ro`)."""
        return option_values(self.options)


def option_values(options: str) -> dict[str, tuple[str, ...]]:
    """The values of each option in a list with commas, as `Mount.values`. An option may stand twice
    (`core=3,core=4`); commas between double quotes are part of a value (`context="...:c1,c2"`). Pure."""
    values: dict[str, tuple[str, ...]] = {}
    for one in re.findall(r'(?:[^,"]|"[^"]*"?)+', options):
        name, given, value = one.partition("=")
        values[name] = (*values.get(name, ()), *((value,) if given else ()))
    return values


def mounts(proc: str | os.PathLike[str] = PROC) -> list[Mount]:
    """All mounts in the order in which they were made; [] when they cannot be read. Lines that are torn are
    left out."""
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
    """The mount that holds a real path, as `holding` finds it among those of now."""
    return holding(path, mounts(proc))


def holding(path: str, among: Iterable[Mount]) -> Mount:
    """The mount that holds a real path: the deepest one, and of two on one point the later, which is the
    one that is seen. An empty one where none does."""
    best = Mount()
    for mount in among:
        if mount.inside(path) is not None and len(mount.point) >= len(best.point):
            best = mount
    return best


def first_on_way(
    path: str, wanted: Callable[[Mount], bool], proc: str | os.PathLike[str] = PROC
) -> Mount | None:
    """The first mount on the way to an absolute path, through symbolic links, that is `wanted`; None where
    none is. No call is made on it or beyond it."""
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
            # Else something is mounted there: it is no link, and may not answer.
            with contextlib.suppress(OSError):
                target = os.readlink(reached)
        links += bool(target)
        if target and links <= MOST_LINKS:
            left += target.split("/")[::-1]
            done = "/" if target.startswith("/") else done
        else:
            done = reached


def nearest(path: Path) -> Path:
    """The nearest that exists at or above `path`, of which the path is kept as it is written. Raises OSError
    where that cannot be seen."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def mount_of_device(number: int, proc: str | os.PathLike[str] = PROC) -> Mount:
    """A mount of the device of this number (`st_dev`); an empty one where there is none."""
    wanted = f"{os.major(number)}:{os.minor(number)}"
    return next((mount for mount in mounts(proc) if mount.number == wanted), Mount())


def _plain(text: str) -> str:
    """Blanks and the like stand as `\\040` in a line."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text) if "\\" in text else text
