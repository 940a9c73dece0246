"""The only table of the kinds of file systems and their abilities, and the only place with their names. Also
has the proofs that a mount's options give, and parsers for values of clients' options. All functions are
pure. docs/filesystems-kinds.md shows the table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# Parses values in the form that clients of file systems use in configurations and mount options. None means
# that a value is missing or not understood.

_FLAGS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def flag(text: str | None) -> bool | None:
    """Parse a switch. BeeGFS prints most switches as 0 or 1, and some as words."""
    return None if text is None else _FLAGS.get(text.strip().lower())


def number(text: str | None) -> int | None:
    """Parse a whole number that is not negative, in decimal digits."""
    text = "" if text is None else text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def one_of(values: tuple[str, ...] | None) -> str:
    """Return the last of an option's values, which is the valid one, or "" if there is none."""
    return values[-1] if values else ""


Method = Literal["any", "dropped", "synced", "direct"]

# Method by which reads bypass this machine's caches. O_DIRECT bypasses the caches under each method.
IN_WORDS: dict[Method, str] = {
    "any": "each read comes from the servers",
    "dropped": "a read by O_DIRECT, or after the pages were dropped, comes from the servers",
    "synced": "after an fsync, a read by O_DIRECT, or after the pages were dropped, comes from the servers",
    "direct": "a read by O_DIRECT alone comes from the servers",
}


class MountProof(NamedTuple):
    """The proofs that a mount gives, of where reads come from and where an fsync ends. By default a read
    counts as cold after its pages were dropped from the page cache (`kinds.Kind.one_cache`)."""

    method: Method = "dropped"
    fsync_ends: str = ""  # place where an fsync ends, with the reason; "" if it ends on the servers' disks
    # Whether the client passes O_DIRECT on to the servers, which then read from their disks, not from memory.
    # It passes O_DIRECT on only if no process on this node has the file open for plain reads.
    direct_from_disks: bool = False
    # Whether plain unaligned reads of a file fail while another process on this node has it open with
    # O_DIRECT.
    direct_harms: bool = False

    @property
    def drops_count(self) -> bool:
        """Whether a read through the page cache counts as cold after its pages were dropped.

        | method    | counts | reason                                                      |
        |-----------|--------|-------------------------------------------------------------|
        | `any`     | yes    | there is no cache; that pages are absent is checked anyway  |
        | `dropped` | yes    |                                                             |
        | `synced`  | yes    | written data is always durable before it is read back       |
        | `direct`  | no     | the client may have further caches beside the page cache    |
        """
        return self.method != "direct"


_WEAKEST_FIRST: tuple[Method, ...] = ("direct", "synced", "dropped", "any")


def weakest(proofs: list[MountProof]) -> MountProof:
    """Return the weakest of these proofs (one or more), since any of them may be the mount's proof."""
    method = min((proof.method for proof in proofs), key=_WEAKEST_FIRST.index)
    return MountProof(
        method,
        next((proof.fsync_ends for proof in proofs if proof.fsync_ends), ""),
        all(proof.direct_from_disks for proof in proofs),
        any(proof.direct_harms for proof in proofs),
    )


# The table of kinds of file systems and their abilities.
#
# Other modules check an ability (`capabilities.facts(folder).traits.preallocate`), never a name, so a new
# file system only needs a new row. A kind without a row gets the row `UNKNOWN`, with the fewest abilities,
# which is always safe. Each file gets an fsync, no read counts as `cold`, nothing is reserved, and a hole is
# read before it counts.
#
# Sources of the rows' statements on durability and caches:
#
# - `syncfs`: syncfs(2) returns when the data is on the disks, and since Linux 5.8 reports failed writes.
#   The clients of BeeGFS and Lustre have no `sync_fs`. On both, and on NFS, each file gets an fsync. (See
#   Lustre's `lustre_super_operations` in llite/super25.c. Its writepages only starts writes; an fsync makes
#   them durable with an OST_SYNC.) Lustre was not measured.
# - `direct`: an O_DIRECT read comes from the device or the servers. tmpfs accepts O_DIRECT and reads
#   memory. BeeGFS honours O_DIRECT in all cache modes (`client_module/source`). Only BeeGFS's servers are
#   known to read from their disks then; such reads may harm other readers. Disk reads and harm depend on the
#   mount's cache mode (`fs.beegfs_mount.proof`).
# - `one_cache`: the page cache, which can be emptied, is this machine's only cache of a file's bytes. FUSE
#   adds a daemon's cache. Overlay and 9p add the layer below, ZFS and GPFS a pool.
# - `product`: the module `fs.<product>_mount` reads a mount of this kind. If the mount promises less than
#   the row, the mount's promise counts (`mount_checks`).
# - `names_late`: local file systems have a single cache of names. BeeGFS looks a name up again after 1 s
#   (tuneDirSubentryCacheValidityMS, tuneFileSubentryCacheValidityMS in beegfs-client.conf), WEKA after 1 s
#   (dentry_max_age_positive). The rows state twice these times. Lustre's locks take cached names back before
#   a change. NFS keeps names for at most 60 s (acdirmax, nfs(5)).
# - `commands`, `stubs`: how data that is elsewhere is detected before a file is opened
#   (`store_checks.data_states`).
# - `links`, `inodes`: tried on each target (`fs.probe`, `staging_folder`).
# - `flock`, `folder_over`, `quota_trees`, `modes`: information for people who choose a target; no decision
#   depends on them. "" means unknown.
#
# A run does not use an ability of its row if the probe found that the target lacks it (`fs.probe_judgement`).

# first kernel with which syncfs is enough: any kernel, the kernel from which errors are reported, or no
# kernel
ALWAYS, REPORTS_ERRORS, NEVER = (0, 0), (5, 8), None


class Kind(NamedTuple):
    """The abilities of a kind of file system."""

    name: str
    magic: int | None = None  # `f_type` of statfs(2); None if only the type in the mount table is known
    types: tuple[str, ...] = ()  # the kind's types in the mount table; () if the only type is its name
    # the first kernel whose syncfs makes all written data durable, and reports failures
    syncfs: tuple[int, int] | None = NEVER
    direct: bool = False  # whether O_DIRECT reads bypass this node's page cache
    one_cache: bool = False  # whether the page cache is this machine's only cache of a file's bytes
    # Whether blocks are reserved before a large file is written. The file is then contiguous, and a full disk
    # is noticed at once.
    preallocate: bool = False
    # whether SEEK_HOLE counts pages that wait for write-back as data, so that a reported hole is real
    holes_told: bool = False
    local: bool = False  # whether calls on such a mount stay on this machine
    holds_files: bool = True  # whether it can keep files; False if it only shows the kernel's state
    links: str = ""  # whether a file may have names in two folders: `yes`, or what decides this
    inodes: str = ""  # whether a file keeps its inode number
    # Range of flock(2): `machine`, `nodes`, or the setting that decides this. It is not used for locks on the
    # target, which are files made with O_EXCL or link(2).
    flock: str = ""
    # What the rename of a folder may replace: `empty folder` or `nothing`. Releases never replace anything.
    folder_over: str = ""
    quota_trees: str = ""  # operations that fail between a quota tree and other folders
    modes: str = ""  # who may set modes, and what may change them
    acls: str = ""  # the setting that gives such a mount POSIX ACLs; "" if it always has ACLs, or if unknown
    product: str = ""  # the product in the names of its modules (`fs.<product>_mount`); "" if it has none
    # Whether the module `fs.<product>` runs the vendor's commands, which report on targets, quotas and the
    # places of files' data.
    commands: bool = False
    # Whether the file system's client shows in /proc which servers are away. `shown_servers` in
    # `fs.<product>_mount` reads this before a call on the mount would wait (`servers_away`).
    shows_servers: bool = False
    kept_names: tuple[str, ...] = ()  # reserved names, which no file or folder can have
    # Seconds for which a client may show a folder's old names, at most, with usual mount options. 0 means
    # that all nodes see a change at once.
    names_late: float = 60.0
    # Metadata operations a second that all runs below a root share, unless the site sets `target.ops`; 0
    # means no limit. No vendor states a number. The limit spares servers that other users need, too.
    ops: int = 0
    stubs: bool = False  # whether a file with a size and no blocks may be a stub, whose data is in an archive

    def syncfs_reaches(self, kernel: tuple[int, int]) -> bool:
        """Return whether a syncfs is enough with this kernel."""
        return self.syncfs is not None and kernel >= self.syncfs


# abilities that all file systems on a machine's own disks have
_HERE = Kind(
    "", local=True, syncfs=REPORTS_ERRORS, direct=True, one_cache=True, links="yes", inodes="stable",
    flock="machine", modes="owner", folder_over="empty folder", names_late=0.0,
)  # fmt: skip

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
    """Return the row for this number (`f_type` of statfs) and this type in the mount table.

    | the mount table's type     | the number   | row                                                |
    |----------------------------|--------------|----------------------------------------------------|
    | a row's                    | the same     | that row                                           |
    |                            | row's        |                                                    |
    | of a row without a number  | any          | that row                                           |
    | any other                  | a row's      | the number's row, as the table may hide that mount |
    | a row's                    | no row's     | the type's row                                     |
    | `fuse.<program>`           | no row's     | FUSE's                                             |
    | no row's                   | no row's     | `UNKNOWN`, with that type or number as its name    |
    """
    named = [row for row in TABLE if mounted_as and mounted_as in (row.types or (row.name,))]
    both = next((row for row in named if row.magic in (None, magic)), None)
    kind = both or next((row for row in TABLE if row.magic == magic), None) or next(iter(named), None)
    if kind is None and mounted_as.partition(".")[0] == "fuse":
        kind = named_kind("fuse")
    return kind or UNKNOWN._replace(name=mounted_as or f"unknown-{magic:x}")


def named_kind(name: str) -> Kind:
    """Return the row with this name, or else `UNKNOWN` with this name."""
    return next((row for row in TABLE if row.name == name), UNKNOWN._replace(name=name))


AUTO = "auto"  # value of `target.filesystem` that selects the mount's own row


def rules_of(mounted: Kind, named: str) -> Kind:
    """Return the row whose tools and rules apply: the mount's own row, or that of `target.filesystem`, a
    setting for tests. Durability and proofs always depend on the mount's own row."""
    return mounted if named in (AUTO, mounted.name) else named_kind(named)
