"""Makes docs/file-systems.md: what penstock believes of each kind of file system.

`python docs/file_systems.py` (`make docs`). All of it comes from `penstock.filesystem.kinds`. A test fails
where the page is not what this prints.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.filesystem.kinds import ALWAYS, NEVER, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.filesystem.kinds import Kind

PAGE = Path(__file__).parent / "file-systems.md"
HEAD = (
    "# What penstock believes of file systems\n\n"
    "One row for each kind, made by `make docs` from `scripts/penstock/filesystem/kinds.py`, which also says "
    "from where it is known. A kind that is not here is used in the safest way: fsync of each file, no read "
    "counts as `cold`.\n\n"
    "None of this was tried on a live BeeGFS, WEKA, Lustre, NFS, Ceph, CIFS or GPFS. The tests run on ext4 "
    "and tmpfs, and on XFS and btrfs where a machine can make them.\n\n"
    "## What decisions rest on\n\n"
    '"Durable by": what `engine.durability: auto` means. "Direct": O_DIRECT reads come from the device or '
    'the servers. "One cache": a file\'s bytes are in no cache of the node but the page cache; elsewhere '
    'nothing that is read back counts as `cold`. "Reserves": blocks of large files are reserved before they '
    'are written. "Holes": a hole that is stated is believed; elsewhere it is read. "Local": its calls do '
    "not leave the machine.\n\n"
)
TAIL = (
    "\n## For people who choose a target\n\n"
    "No decision of penstock rests on these; an empty cell is not known. Links between folders, stable inode "
    "numbers and the modes that were set are tried on each target. Locks are files made by O_EXCL or "
    "link(2), and no release is renamed over anything.\n\n"
)

TOOLS = (
    "\n## The vendor's commands\n\n"
    "On {names}, preflight and plan ask the vendor's own commands, where they are on PATH, which servers and "
    "targets are in order, how much room each target has, and what quotas are left: `beegfs-ctl` and "
    "`beegfs-check-servers` for version 7, `beegfs` for version 8. Where both are there, the version of the "
    "kernel's client (`/sys/module/beegfs/version`) decides, and 8 where that is not known. They are only "
    "asked; nothing is changed by them. Where there are none, or they give no answer within 40 s together, "
    "that is a note, and the run goes on.\n\n"
    "| what they show | preflight | plan |\n|---|---|---|\n"
    "| a storage or metadata server is not reached | stops, 3 | |\n"
    "| the management service is not reached | warns, with the time that is left | |\n"
    "| a target of the folder's pool is offline, probably offline, bad, or in the capacity pool `emergency` "
    "| stops, 3 | |\n"
    "| it needs a resync, or is in the capacity pool `low` | warns | |\n"
    "| what can come to lie on a target goes beyond its room above BeeGFS' limit for `low` | | stops, 6 |\n"
    "| metadata targets have too little room or inodes for files and folders | | stops, 6 |\n"
    "| a quota of the final owner or group is used up, or would be (it counts chunk files) | stops, 3 | "
    "stops, 6 |\n\n"
    "None of this was run on a BeeGFS. The tests call stand-ins of these commands (`tests/vendors`), written "
    "from the vendor's sources and as strict as these.\n"
)


def page() -> str:
    """The whole page."""
    rows = [row for row in TABLE if row.holds_files]
    first = ("kind", "durable by", "direct", "one cache", "reserves", "holes", "local")
    second = ("kind", "links between folders", "inodes", "flock is seen by", "a folder's rename replaces",
              "a quota tree refuses", "modes are set by")  # fmt: skip
    return HEAD + _table(first, map(_decided, rows)) + TAIL + _table(second, map(_known, rows)) + _tools(rows)


def _tools(rows: list[Kind]) -> str:
    return TOOLS.replace("{names}", " and ".join(row.name for row in rows if row.tools))


def _decided(row: Kind) -> Iterator[str]:
    yield row.name
    yield {ALWAYS: "syncfs", NEVER: "fsync"}.get(row.syncfs) or "syncfs (Linux {}.{})".format(
        *(row.syncfs or ALWAYS)
    )
    for can in (row.direct, row.one_cache, row.preallocate, row.holes_told, row.local):
        yield "yes" if can else "no"


def _known(row: Kind) -> Iterator[str]:
    yield from (row.name, row.links, row.inodes, row.flock, row.folder_over, row.quota_trees, row.modes)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
