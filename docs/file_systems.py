"""Makes the pages of docs/ with tables of file systems: what penstock assumes of each kind, what else is
known of it, and which test shows what.

`python docs/file_systems.py` (`make docs`). The tables of kinds come from `penstock.fs.kinds`; which test
shows a requirement stands here. Tests fail where a page is not what this prints, and where a test that it
names is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.kinds import ALWAYS, NEVER, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.fs.kinds import Kind

HERE = Path(__file__).parent
FIRST = """\
# File systems

Penstock stages onto any POSIX file system that passes its probe. What it assumes of each kind is in
[a table](filesystems-kinds.md): when data is durable, and when a read comes past the caches. A kind that is
not in the table is used in the safest way: fsync of each file, and no read counts as `cold`.

| question | page |
|---|---|
| What about BeeGFS? On what was it run? | [filesystems-beegfs.md](filesystems-beegfs.md) |
| What about Lustre? | [filesystems-lustre.md](filesystems-lustre.md) |
| What about WEKA? | [filesystems-weka.md](filesystems-weka.md) |
| What about NFS? What is read of a mount? | [filesystems-mounts.md](filesystems-mounts.md) |
| When do the vendor's commands stop a run? | [filesystems-commands.md](filesystems-commands.md) |
| Quotas, several runs on one file system, metadata operations | [filesystems-room.md](filesystems-room.md) |
| ACLs | [filesystems-acls.md](filesystems-acls.md) |
| Files whose data lies in an archive | [filesystems-archives.md](filesystems-archives.md) |
| What is assumed of each kind, and what else is known? | [filesystems-kinds.md](filesystems-kinds.md) |
| Which test shows what? | [filesystems-tests.md](filesystems-tests.md) |

## What to do

1. Try the file system, in about a minute ([selftest.md](selftest.md)):

   ```sh
   penstock selftest /beegfs/datasets
   ```

2. Name it in `target.root`. All other keys of [`target`](configuration-target.md) have defaults.
3. `penstock preflight` looks at the mount, here and on nodes. What is in the way stops it with status 3, and
   what would be better is a warning.

If the file system is full, or its servers are away, [runbook.md](runbook.md) has the steps.

## What was tried

| file system | how |
|---|---|
| ext4, tmpfs | the tests run on them |
| XFS, btrfs | the tests run on them where a machine can make them |
| BeeGFS 7.4.7 and 8.3.1 | under a second kernel: one metadata server, five storage targets, TCP |
| WEKA, Lustre, NFS, Ceph, CIFS, GPFS | not on a live one |
"""
DECISIONS = """\
# File systems: what is known of each kind

## What decisions rest on

"""
LEGEND = """
| column | means |
|---|---|
| durable by | each file by fsync, or many by syncfs |
| direct | O_DIRECT reads come from the device or the servers. Only of BeeGFS is it known that its servers \
then read from their disks, not from memory |
| one cache | a file's bytes are in no cache of the node but the page cache; elsewhere nothing that is read \
back counts as `cold` |
| reserves | blocks of large files are reserved before they are written |
| holes | a hole that is stated is believed; elsewhere it is read |
| local | its calls do not leave the machine |

`scripts/penstock/fs/kinds.py` has the table, and says from where each row is known.
"""
KNOWN = """
## For people who choose a target

No decision of penstock rests on these; an empty cell is not known.

Plan tries on each target what its file system really does: links, renames, modes, reservations and some
thirty abilities more. It uses no ability that was refused there. Locks are files made by O_EXCL or link(2),
and no release is renamed over anything.

"""
TESTS = """\
# File systems: the tests

For those who change penstock: which test shows which behaviour.

## Which test shows what

The ids are those of the requirements that the tests carry in their names.

"""


class Shown(NamedTuple):
    """A requirement, and the module below tests/ that shows it: names or docstrings there carry the id."""

    id: str
    what: str
    tests: str


SHOWN = (
    Shown("N5", "NFS sources: version, noatime, ro", "fs/test_nfs_client.py"),
    Shown("N6", "kernel parameters beside two tables, and a drop-in", "target/test_host_tuning.py"),
    Shown("O1", "BeeGFS: the staging folder is striped before its first file", "vendors/test_striping.py"),
    Shown("O1", "the units and the command of each version", "vendors/test_beegfs_texts.py"),
    Shown("O1", "BeeGFS: the folder itself is striped below a bind mount", "vendors/test_bind_mounts.py"),
    Shown("A1", "BeeGFS: targets' tables of both versions", "vendors/test_beegfs_texts.py"),
    Shown("A1", "each state of a target", "vendors/test_health.py"),
    Shown("A1", "room on each target", "vendors/test_space.py"),
    Shown("A2", "BeeGFS: servers that are reached, and one that is not", "vendors/test_health.py"),
    Shown("A5", "BeeGFS: what the metadata need", "vendors/test_space.py"),
    Shown("L9", "WEKA: the kernel's command line, notes only", "target/test_host_tuning.py"),
    Shown("S20", "NFS sources: Kerberos, 16 groups, root", "fs/test_nfs_client.py"),
    Shown("S20", "a mount that hangs", "fs/test_watched_facts.py"),
    Shown("S19", "owners by number and by name; an id-mapped mount", "fs/test_owners.py"),
    Shown("S19", "a file of a node, seen there and here", "run/test_node_view.py"),
    Shown("S19", "accounts of an ACL by number and by name, on a node and here", "run/test_node_view.py"),
    Shown("S19", "ACLs on an id-mapped mount", "audit/test_permissions.py"),
    Shown("O2", "BeeGFS: a chunk against the RDMA buffers", "fs/test_beegfs_client.py"),
    Shown("O2", "the same by preflight, of the target's chunks", "vendors/test_target_checks.py"),
    Shown("O5", "BeeOND is a warning", "fs/test_beegfs_client.py"),
    Shown("A7", "BeeGFS: the deadline without the management service", "fs/test_mount_checks.py"),
    Shown("L6", "WEKA: four cache modes, four ways to a cold read", "fs/test_weka_client.py"),
    Shown("L6", "a read counts by the mount's cache mode", "fs/test_mount_checks.py"),
    Shown("L7", "WEKA: cores of its own, or UDP", "fs/test_weka_client.py"),
    Shown(
        "S11",
        "a budget of metadata operations for all engines, and for repairs",
        "engine/test_ops_budget.py",
    ),
    Shown("S17", "two runs onto a file system that takes one", "run/test_room_beside_others.py"),
    Shown("S17", "a repair counts other runs, and plans count a repair", "run/test_room_beside_others.py"),
    Shown("S17", "workers end before `target.keep_free` is reached", "target/test_room_watch.py"),
    Shown("S17", "what other runs will write, on BeeGFS' targets and quotas", "vendors/test_space.py"),
    Shown("L8", "WEKA: 30 streams and more, writes of 1 MiB", "fs/test_weka_client.py"),
    Shown("O3", "writes of 1 MiB and more; fsync is in the reported seconds", "engine/test_write_size.py"),
    Shown("A4", "no page in memory when a cold read begins; tmpfs", "audit/test_caches.py"),
    Shown(
        "S28",
        "WEKA: the cores of each container, or that they are not known",
        "fs/test_weka_client.py",
    ),
    Shown("D4", "one answer of each of four nodes, judged", "slurm/test_filesystems.py"),
    Shown("S21", "selftest: its limits; a quota filled with the flag alone", "filesystems/test_selftest.py"),
    Shown("A8", "quotas of the kernel, on ext4 and XFS that have them", "fs/test_kernel_quotas.py"),
    Shown("A8", "quotas of BeeGFS", "vendors/test_target_checks.py"),
    Shown("A2", "WEKA: what is active, available and licensed", "vendors/test_weka.py"),
    Shown("A5", "WEKA: how many files the file system may have", "vendors/test_weka.py"),
    Shown("A8", "WEKA: quotas of folders", "vendors/test_weka.py"),
    Shown("S15", "WEKA: quotas are read, never set", "vendors/test_weka.py"),
    Shown("S15", "WEKA: quotas of a target below a bind mount", "vendors/test_weka.py"),
    Shown("S18", "what is left free on large file systems", "config/test_loading.py"),
    Shown("A1", "Lustre: targets, pools, room on each", "vendors/test_lustre.py"),
    Shown("A5", "Lustre: inodes of metadata and storage targets", "vendors/test_lustre.py"),
    Shown("A8", "Lustre: quotas of user, group and project", "vendors/test_lustre.py"),
    Shown("A8", "Lustre: what `lfs quota` prints", "vendors/test_lustre_texts.py"),
    Shown("O1", "Lustre: layouts are set before the first file", "vendors/test_lustre.py"),
    Shown("S13", "Lustre: a composite layout is left as it is", "vendors/test_lustre.py"),
    Shown("S18", "the group is named where it decides the quota", "fs/test_kernel_quotas.py"),
    Shown("S18", "the same by the quotas of BeeGFS", "vendors/test_target_checks.py"),
    Shown(
        "N8",
        "umask 077, a policy of 2750 and 0640: each inode as stated; drift is reported and repaired",
        "audit/test_permissions.py",
    ),
    Shown(
        "S14",
        "a dataset readable by two groups and no third, by ACLs and default ACLs; drift is a finding",
        "audit/test_permissions.py",
    ),
    Shown("S14", "an ACL before a chmod and after it ends the same", "target/test_acls.py"),
    Shown("S14", "preflight refuses NFSv4 ACLs by name", "run/test_preflight.py"),
    Shown("S14", "targets without ACLs stop preflight or plan", "filesystems/test_acls.py"),
    Shown("S14", "a node whose mount keeps no ACLs is named and stops", "run/test_node_view.py"),
    Shown("S14", "ACLs for which xattrs have no room stop plan", "fs/test_probe_judgement.py"),
    Shown("S12", "an inherited ACL costs no call that changes something", "target/test_acls.py"),
    Shown("S12", "under another ACL nothing is linked from the release before", "audit/test_permissions.py"),
    Shown(
        "S12",
        "unchanged files are reflinks on XFS and btrfs, links on ext4; what links would double is refused",
        "run/test_reuse.py",
    ),
    Shown("S16", "where data is: states, batches, the hint of no blocks", "vendors/test_data_states.py"),
    Shown("S16", "BeeGFS: stubs below a bind mount", "vendors/test_bind_mounts.py"),
    Shown(
        "S16", "an audit counts what is offline or tiered, and reads none of it", "audit/test_data_away.py"
    ),
    Shown("S16", "linked files that are away are not read back", "run/test_linked_away.py"),
    Shown("S16", "plan stops at what a source would have fetched", "run/test_source_recall.py"),
    Shown("S16", "a stub on the test bed is neither opened nor read", "filesystems/test_stubs.py"),
    Shown("S16", "the same with the guard off: it restores itself", "filesystems/test_guards.py"),
)


def pages() -> dict[str, str]:
    """Return the text of each page, by its file's name."""
    rows = [row for row in TABLE if row.holds_files]
    first = ("kind", "durable by", "direct", "one cache", "reserves", "holes", "local")
    second = ("kind", "links between folders", "inodes", "flock is seen by", "a folder's rename replaces",
              "a quota tree refuses", "modes are set by")  # fmt: skip
    shown = ((one.id, one.what, f"`tests/{one.tests}`") for one in SHOWN)
    return {
        "filesystems.md": FIRST,
        "filesystems-kinds.md": (
            DECISIONS
            + _table(first, map(_decided, rows))
            + LEGEND
            + KNOWN
            + _table(second, map(_known, rows))
        ),
        "filesystems-tests.md": TESTS + _table(("id", "what", "tests"), shown),
    }


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
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
