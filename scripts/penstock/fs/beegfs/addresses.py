"""BeeGFS 8: by which path `beegfs` finds a file or a folder.

It looks a path up from the file system's root, by what is left of it below the mount point, which is where
the number of the device changes on the way up (beegfs-go: `common/filesystem/fs.go`, and
`ctl/pkg/ctl/entry/entry.go`, `getEntryAndOwnerFromPathViaRPC`). Below a bind mount of a folder that is
another path: nothing may be there, or another folder, whose striping it would set. `beegfs-ctl` of version 7
asks the client's kernel module about the path as it stands, and needs none of this.

For `commands` and `states` beside it. Reads the mount table; changes nothing.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock.host.mounts import holding, mount_of, mounts

CLIENT = "beegfs"
"""The type of its mounts."""
UNMOUNTED = "none"


class CommandPaths(NamedTuple):
    """How `beegfs` is given the paths of what lies below one mount point."""

    point: str = ""
    base: str = ""
    """What stands for `point` in a path that the command is given."""
    mount: tuple[str, ...] = ()
    """The value of `--mount`; () where none is needed."""
    root: str = ""
    """The mount point below which paths are given: the command prints what is left of them. "" for the file
    system itself."""

    def of(self, path: str) -> str:
        """The path that the command is given for this one."""
        if self.base == self.point:
            return path
        real = path if _below(path, self.point) else os.path.realpath(path)
        return self.base + real.removeprefix(self.point.rstrip("/")) if _below(real, self.point) else path


def find(point: str, proc: str | os.PathLike[str]) -> CommandPaths:
    """How paths are given of what is mounted at `point`.

    | the mount shows       | the whole is mounted, too | paths are given     | `--mount`                    |
    |-----------------------|---------------------------|---------------------|------------------------------|
    | the whole, or unknown | any                       | as they are         | the point, if several BeeGFS |
    | a folder              | yes                       | below that mount    | its point, likewise          |
    | a folder              | no                        | from the whole's    | `none`, which the command    |
    |                       |                           | root                | allows root alone            |
    """
    made = mounts(proc)
    mine = mount_of(point, proc) if point else None
    several = len({one.number for one in made if one.type == CLIENT}) > 1
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
