"""The kinds of file systems, and what each can do: the only table of it, and the only place with their names.
Pure; docs/filesystems.md shows it.

Other modules ask for an ability (`capabilities.facts(folder).traits.preallocate`), never for a name, so a new
file system is a new row here. A kind without a row is `UNKNOWN`: the least that is safe (fsync of each file,
no read is called `cold`, nothing is reserved, a hole is read before it counts as one).

What a row says of durability and caches, and from where that is known:

- `syncfs`: syncfs(2) returns when the data is on the disks, and reports a write-back that failed since Linux
  5.8. The clients of BeeGFS and Lustre have no `sync_fs` (Lustre: `lustre_super_operations` in
  llite/super25.c; its writepages only starts what an fsync makes durable by an OST_SYNC), so data is durable
  there by fsync of each file; that is done on NFS, too. Nobody has measured Lustre with penstock.
- `direct`: O_DIRECT is honoured: such a read comes from the device or the servers. tmpfs accepts it
  and reads memory. BeeGFS honours it in all of its cache modes (`client_module/source`). That servers read
  from their disks then, and not from their memory, is known of BeeGFS alone, where it also harms readers
  beside it: both depend on the mount's cache mode (`fs.beegfs.mount.proof`).
- `one_cache`: a file's bytes are in no cache of this machine but the page cache, which can be emptied of
  them. FUSE has a daemon's, overlay and 9p the layer below, ZFS and GPFS a pool.

`product` names the package whose `mount` module reads a mount of this kind: what the mount says goes
before the row, where it promises less (`mount_checks`).

`names_late`: local file systems have one cache of names. BeeGFS looks a name up again after 1 s
(tuneDirSubentryCacheValidityMS, tuneFileSubentryCacheValidityMS in beegfs-client.conf), WEKA after 1 s
(dentry_max_age_positive), doubled here; Lustre's locks take cached names back before a change; NFS's
acdirmax is 60 s (nfs(5)).

`commands` and `stubs` say how it is known of a file, before it is opened, that its data is not here
(`data_states`).

`links` and `inodes` say what is tried anew on each target (`fs.probe`, `staging_folder`). No decision
rests on `flock`, `folder_over`, `quota_trees` and `modes`: they are there for people who choose a target. ""
is not known. A run uses no ability of its row that the probe saw refused (`fs.probe.judgement`).
"""

from __future__ import annotations

from typing import NamedTuple

ALWAYS, REPORTS_ERRORS, NEVER = (0, 0), (5, 8), None
"""Since which kernel syncfs is enough: any, the one that reports errors by it, none."""


class Kind(NamedTuple):
    """What one kind of file system can do."""

    name: str
    magic: int | None = None
    """`f_type` of statfs(2); None: it is known by its name in the mount table alone."""
    types: tuple[str, ...] = ()
    """Its types in the mount table, where they are not its name alone."""
    syncfs: tuple[int, int] | None = NEVER
    """The first kernel with which one syncfs makes all that was written durable, and says so."""
    direct: bool = False
    """O_DIRECT reads pass this node's page cache."""
    one_cache: bool = False
    """No cache of this machine but the page cache holds a file's bytes."""
    preallocate: bool = False
    """Blocks are reserved before a large file is written: it lies together, and a full disk shows at once."""
    holes_told: bool = False
    """SEEK_HOLE counts pages that wait for write-back as data, so a hole that is stated is one."""
    local: bool = False
    """Its calls do not leave this machine."""
    holds_files: bool = True
    """False: it shows what the kernel has, and no file can be kept there."""
    links: str = ""
    """Whether a file may have names in two folders: `yes`, or on what that depends."""
    inodes: str = ""
    """Whether a file keeps its inode number from one look to the next."""
    flock: str = ""
    """Who sees flock(2): `machine`, `nodes`, or the setting on which that depends. Locks on the target are
    files made by O_EXCL or link(2): none rests on this."""
    folder_over: str = ""
    """What the rename of a folder may replace: `empty folder` or `nothing`. Releases are never renamed over
    anything: none rests on this."""
    quota_trees: str = ""
    """What a quota tree refuses between it and other folders."""
    modes: str = ""
    """Who may set modes, and what may change them."""
    acls: str = ""
    """What gives such a mount POSIX ACLs, for people; "": they are there, or it is not known."""
    product: str = ""
    """The package here whose `mount` module reads its mounts; "": there is none, and the row is all that is
    known."""
    commands: bool = False
    """Whether that package knows the vendor's commands too: `commands` asks them of targets and quotas,
    `states` of where the data of files is."""
    shows_servers: bool = False
    """Whether its client shows in /proc which servers are away: `shown_servers` of that package's `mount`
    module reads it, before a call on the mount would wait for them (`servers`)."""
    kept_names: tuple[str, ...] = ()
    """Names that it keeps for itself: no file or folder can have one."""
    names_late: float = 60.0
    """Seconds for which a client may show a folder's names as they were, at most, with the usual mount
    options; 0: what one node did is seen by all others at once."""
    ops: int = 0
    """Metadata operations a second that all runs below one root make together, unless the site sets
    `target.ops`; 0: as many as they can. No vendor names a number: it is a wish, for servers that others use,
    too."""
    stubs: bool = False
    """A file that has a size and no blocks may be a stub, whose data lies in an archive."""

    def syncfs_reaches(self, kernel: tuple[int, int]) -> bool:
        """Whether one syncfs is enough with this kernel."""
        return self.syncfs is not None and kernel >= self.syncfs


_HERE = Kind(
    "", local=True, syncfs=REPORTS_ERRORS, direct=True, one_cache=True, links="yes", inodes="stable",
    flock="machine", modes="owner", folder_over="empty folder", names_late=0.0,
)  # fmt: skip
"""What the file systems of one machine's disks have in common."""

TABLE: tuple[Kind, ...] = (
    _HERE._replace(
        name="ext4", magic=0xEF53, types=("ext4", "ext3", "ext2"), preallocate=True, holes_told=True,
        quota_trees="links and renames (project ids)",
    ),
    _HERE._replace(
        name="xfs", magic=0x58465342, preallocate=True, holes_told=True,
        quota_trees="links and renames (project ids)",
    ),
    _HERE._replace(name="btrfs", magic=0x9123683E, quota_trees="links and renames (subvolumes)"),
    _HERE._replace(name="f2fs", magic=0xF2F52010, syncfs=NEVER, direct=False),
    _HERE._replace(name="zfs", magic=0x2FC12FC1, syncfs=NEVER, direct=False, one_cache=False),
    _HERE._replace(
        name="tmpfs", magic=0x01021994, syncfs=ALWAYS, direct=False, one_cache=False, holes_told=True
    ),
    Kind("ramfs", 0x858458F6, local=True, flock="machine", folder_over="empty folder", names_late=0.0),
    Kind("overlay", 0x794C7630, ("overlay", "overlayfs"), local=True, flock="machine", names_late=0.0),
    Kind(
        "beegfs", 0x19830326, direct=True, one_cache=True, folder_over="nothing", modes="owner",
        links="since 7.4, without sysCreateHardlinksAsSymlinks",
        flock="machine; nodes with tuneUseGlobalFileLocks", product="beegfs", commands=True,
        shows_servers=True, kept_names=("#fSiDs#",), ops=5000, names_late=2.0,
        acls="have an administrator set sysXAttrsEnabled and sysACLsEnabled for the client, and "
        "storeClientXAttrs and storeClientACLs for the metadata servers",
        stubs=True,
    ),
    Kind(
        "wekafs", syncfs=REPORTS_ERRORS, direct=True, one_cache=True, quota_trees="links and renames",
        modes="owner; mount options may force others", product="weka", commands=True,
        acls="have an administrator mount it with the option `acl`",
        names_late=2.0,
    ),
    Kind(
        "lustre", 0x0BD00BD0, direct=True, one_cache=True, flock="by the mount option flock",
        product="lustre", commands=True, ops=5000, names_late=0.0,
        acls="have an administrator allow ACLs on the metadata servers (`acl`)",
        stubs=True,
    ),
    Kind(
        "nfs", 0x6969, ("nfs", "nfs4"), direct=True, one_cache=True, flock="nodes; machine with local_lock",
        modes="owner; the server may squash", product="nfs",
        acls="NFS 4 has ACLs of its own, which are not set: have it mounted by NFS 3",
        stubs=True,
    ),
    Kind("ceph", 0x00C36400, one_cache=True),
    Kind("cifs", 0xFF534D42, one_cache=True, modes="the mount options"),
    Kind("gpfs", 0x47504653, stubs=True),
    Kind("9p", 0x01021997),
    Kind("fuse", 0x65735546, inodes="by the daemon", modes="the daemon"),
    *(
        Kind(name, holds_files=False)
        for name in (
            "proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "mqueue",
            "bpf", "pstore",
        )
    ),
)  # fmt: skip

UNKNOWN = Kind("")


def kind_of(magic: int, mounted_as: str) -> Kind:
    """The row of the file system with this number (`f_type` of statfs) and this type in the mount table
    (`mounted_as`).

    | the mount table's type     | the number   | row                                                |
    |----------------------------|--------------|----------------------------------------------------|
    | a row's                    | that row's   | that row                                           |
    | of a row without a number  | any          | that row                                           |
    | any other                  | a row's      | the number's row: another mount may hide the named |
    | a row's                    | no row's     | the type's row                                     |
    | `fuse.<program>`           | no row's     | FUSE's                                             |
    | no row's                   | no row's     | `UNKNOWN`, under that type or number               |
    """
    named = [row for row in TABLE if mounted_as and mounted_as in (row.types or (row.name,))]
    both = next((row for row in named if row.magic in (None, magic)), None)
    kind = both or next((row for row in TABLE if row.magic == magic), None) or next(iter(named), None)
    if kind is None and mounted_as.partition(".")[0] == "fuse":
        kind = named_kind("fuse")
    return kind or UNKNOWN._replace(name=mounted_as or f"unknown-{magic:x}")


def named_kind(name: str) -> Kind:
    """The row of this name; `UNKNOWN` under this name where there is none."""
    return next((row for row in TABLE if row.name == name), UNKNOWN._replace(name=name))


AUTO = "auto"
"""The mount's own row."""


def rules_of(mounted: Kind, named: str) -> Kind:
    """The row whose tools and rules hold: the mount's own, or that which tests name (`target.filesystem`, a
    setting without a key). Durability and evidence rest on the mount's own row, always."""
    return mounted if named in (AUTO, mounted.name) else named_kind(named)
