"""BeeGFS 8: by which path `beegfs` finds a file or a folder.

It looks up a path from the file system's root by its part below the mount point: where the device number
changes on the way up. (Source: beegfs-go, `common/filesystem/fs.go`, and `ctl/pkg/ctl/entry/entry.go`,
`getEntryAndOwnerFromPathViaRPC`.) Below a bind mount of a folder that is another path: of nothing, or of
another folder, whose striping it would set. `beegfs-ctl` of version 7 asks the client's kernel module about
the path itself, and needs none of this.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock.host.proc import holding, mount_of, mounts

CLIENT = "beegfs"  # the type of its mounts
UNMOUNTED = "none"


class CommandPaths(NamedTuple):
    """How paths below a mount point are passed to `beegfs`."""

    point: str = ""
    base: str = ""  # what replaces `point` in the command's path
    mount: tuple[str, ...] = ()  # the value of `--mount`; (): not needed
    # The mount point below which paths are passed: the command prints only the rest of them. "": the file
    # system itself.
    root: str = ""

    def of(self, path: str) -> str:
        """Return the path to pass to the command for this path."""
        if self.base == self.point:
            return path
        real = path if _below(path, self.point) else os.path.realpath(path)
        return self.base + real.removeprefix(self.point.rstrip("/")) if _below(real, self.point) else path


def find(point: str, proc: str | os.PathLike[str]) -> CommandPaths:
    """Find how paths below the mount at `point` are passed.

    | the mount shows       | the whole is mounted, too | paths are given     | `--mount`                    |
    |-----------------------|---------------------------|---------------------|------------------------------|
    | the whole, or unknown | any                       | as they are         | the point, if several BeeGFS |
    | a folder              | yes                       | below that mount    | its point, likewise          |
    | a folder              | no                        | from the whole's    | `none`, which the command    |
    |                       |                           | root                | allows root alone            |
    """
    made = mounts(proc)
    mine = mount_of(point, proc) if point else None
    several = len({mounted.number for mounted in made if mounted.type == CLIENT}) > 1
    if mine is None or mine.type != CLIENT or mine.root in ("", "/"):
        return CommandPaths(point, point, (point,) if point and several else (), point)
    for mount in made:
        whole = mount.number == mine.number and mount.root == "/"
        if whole and holding(mount.point, made) == mount:
            base = mount.point.rstrip("/") + mine.root.rstrip("/")
            return CommandPaths(point, base, (mount.point,) if several else (), mount.point)
    return CommandPaths(point, mine.root.rstrip("/"), (UNMOUNTED,))


def _below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
