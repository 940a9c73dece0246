"""Makes docs/filesystems.md: what penstock believes of each kind of file system.

`python docs/file_systems.py` (`make docs`). The tables of kinds come from `penstock.fs.kinds`; what
is read of a mount, and which test shows it, stands here. Tests fail where the page is not what this prints,
and where a test that it names is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.kinds import ALWAYS, NEVER, TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.fs.kinds import Kind

PAGE = Path(__file__).parent / "filesystems.md"
HEAD = (
    "# What penstock believes of file systems\n\n"
    "One row for each kind, made by `make docs` from `scripts/penstock/fs/kinds.py`, which also says "
    "from where it is known. A kind that is not here is used in the safest way: fsync of each file, no read "
    "counts as `cold`.\n\n"
    "BeeGFS 7.4.7 and 8.3.1 were tried under a second kernel, with one metadata server and five storage "
    "targets, over TCP ([what it was run on](#what-it-was-run-on)); no live WEKA, Lustre, NFS, Ceph, CIFS or "
    "GPFS was. The tests run on ext4 and tmpfs, and on XFS and btrfs where a machine can make them.\n\n"
    "## What decisions rest on\n\n"
    '"Durable by": each file by fsync, or many by syncfs. "Direct": O_DIRECT reads come from the device or '
    "the servers; that servers read from their disks then, not from memory, is known of BeeGFS alone. "
    '"One cache": a file\'s bytes are in no cache of the node but the page cache; elsewhere '
    'nothing that is read back counts as `cold`. "Reserves": blocks of large files are reserved before they '
    'are written. "Holes": a hole that is stated is believed; elsewhere it is read. "Local": its calls do '
    "not leave the machine.\n\n"
)
TAIL = (
    "\n## For people who choose a target\n\n"
    "No decision of penstock rests on these; an empty cell is not known. Plan tries on each target what its "
    "file system really does (links, renames, modes, reservations and some thirty abilities more), and uses "
    "no ability that was refused there. Locks are files made by O_EXCL or "
    "link(2), and no release is renamed over anything.\n\n"
)
MOUNTS = (
    "\n## What a mount says\n\n"
    "Preflight reads the mounts of the target, and of sources that are folders, on the machine where it "
    "runs; on SLURM its probe job reads those of a node. What is worse there, or on another kind of file "
    "system, is a row with the node's name, and what would stop the run stops it. "
    "The elements read the target's mount on their nodes. A gateway (BeeGFS or WEKA by NFS) goes by the "
    "rules of what it is mounted as; on FUSE no file is `cold`.\n\n"
    "**None of this was run on a live WEKA or Lustre, and of BeeGFS what says so.** The formats are those "
    "of the vendors' sources and manuals; the tests read fixtures that were written from them.\n\n"
)
RUN = (
    "\n## What it was run on\n\n"
    "BeeGFS alone was run: `make test-beegfs` ([README](../tests/beegfs_bed/README.md)) boots a guest of "
    "User Mode Linux that runs the vendor's servers, client and commands, unchanged, and stages onto the "
    "mount as an ordinary user.\n\n"
    "| | |\n|---|---|\n"
    "| BeeGFS | 7.4.7 and 8.3.1, built from the published sources; each with one management service, one "
    "metadata server, two storage servers with five targets (ext4 and XFS), and the client with "
    "`tuneFileCacheType = buffered`, its default |\n"
    "| kernel | Linux 6.1.176 (User Mode Linux of Debian 12), TCP on one node |\n"
    "| date | 2026-11-29 |\n"
    "| scenarios | selftest and preflight; odd names and sizes; linked releases, rollback, gc, repair; a "
    "byte flipped on a target's disk; ten kills of a run; striping and pools; quotas of the targets; a full "
    "target; servers that stop and come back; a job that reads beside audits; version 8's secret of the "
    "management service; `tests/fs` and the conformance suite of storage |\n\n"
    "It does not show: RDMA; several metadata servers, or many storage servers; a metadata server that is "
    "away alone; a client of 7.4 with servers of 8; a pool that was removed, which only the stand-ins of the "
    "commands have; buddy mirrors; two nodes with their caches; SLURM on it; version 8's quotas, pools and "
    "remote targets, which want the vendor's licence; `tuneFileCacheType` other than `buffered`; and nothing "
    "of speed.\n"
)
READ = (
    (
        "BeeGFS",
        (
            "`/proc/fs/beegfs/<client>/config` of the clients that do not contradict the mount's `cfgFile` "
            "and `sysMgmtdHost`; the configuration file that it names, for sysTargetOfflineTimeoutSecs"
        ),
        (
            "tuneFileCacheType (none: each read is cold; buffered, native: by O_DIRECT, or after the pages "
            "were dropped; not known: by O_DIRECT alone. In each known mode an O_DIRECT read comes from the "
            "targets' disks; with buffered and none other reads of that file on the node fail meanwhile, so "
            "`verify.direct` decides what is read so. Seen on 7.4.7 and 8.3.1), "
            "tuneRemoteFSync (false: a warning, and `evidence.fsync_ends` in the seal), "
            "sysCreateHardlinksAsSymlinks, sysRenameEbusyAsXdev, quotaEnabled, connCommRetrySecs, RDMA "
            "buffers, locks, xattrs, ACLs, a key with `MetaCache` or `MetadataCache` in its name (the name "
            "of 8.4's key is in no source that was at hand). BeeOND "
            "(`beegfs_ondemand`, or `beeond` in mount point or `cfgFile`) is a warning: it is removed "
            "with its job"
        ),
    ),
    (
        "WEKA",
        "mount options of wekafs; what /proc says of WEKA's own processes (`wekanode`)",
        (
            "the cache mode (forcedirect: each read is cold; readcache, writecache: by O_DIRECT, or after "
            "the pages were dropped; coherent, none or several: by O_DIRECT alone), sync_on_close, acl, "
            "obs_direct, masks of modes, a second mount of the same file system, and each container's cores "
            "and net: by the options `core=` and `net=`, else the CPUs that its processes may run on "
            "(`Cpus_allowed_list`, which a cpuset bounds), else not known, with the command for root"
        ),
    ),
    ("Lustre", "mount options", "flock, localflock, user_xattr"),
    (
        "NFS",
        "mount options",
        (
            "version (3 as a source is a warning), noatime, soft, sec (Kerberos: a note that each node needs "
            "a ticket; AUTH_SYS: more than 16 groups, and root, which exports squash), local_lock, acdirmax, "
            "fsc (a cache on the node's disk: O_DIRECT alone is cold)"
        ),
    ),
    (
        "any",
        "mount option idmapped; `/proc/self/uid_map` and `gid_map`",
        (
            "that owners have other numbers here than elsewhere (an id-mapped mount, as of BeeGFS; a "
            "container). Lustre's nodemap and NFS's idmapd leave no sign on a client: on SLURM the probe "
            "job writes a file, and preflight compares its owner and group there and here, by number and "
            "by name. Audits compare both, too, and repairs go by the name"
        ),
    ),
)


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
TESTS = (
    "\n## Which test shows what\n\n"
    "The ids are those of the requirements that the tests carry in their names.\n\n"
)

TOOLS = (
    "\n## The vendor's commands\n\n"
    "On {names}, preflight and plan ask the vendor's own commands, where they are on PATH, which servers and "
    "targets are in order, how much room each target has, and what quotas are left: on BeeGFS `beegfs-ctl` "
    "and `beegfs-check-servers` for version 7, `beegfs` for version 8; on Lustre `lfs`; on WEKA `weka`. "
    "Where both of BeeGFS' are there, the version of the "
    "kernel's client (`/sys/module/beegfs/version`) decides, and 8 where that is not known. One thing is "
    "changed by them, and not with `target.striping: inherit`: over how many targets, and in which chunks, "
    "the empty staging folder's new files are striped. Where there are none, or they give no answer within "
    "40 s "
    "together, that is a note, and the run goes on.\n\n"
    "On BeeGFS the kernel's client is read first, in `/proc/fs/beegfs`: it shows states of targets, "
    "servers and its connections to any account, without a command, a secret or a licence. A server that "
    "ended just now still looks well there, for minutes. So preflight, plan, selftest and each command "
    "that reads the target (`status`, `gate`, `releases`, `metrics`, ...) open a TCP connection to each "
    "address that the client is connected to, 3 s for all of them, and close it again. Where a server "
    "does not take it, or all of its targets are offline, they end with 3 before they make a call on the "
    "target: each would wait for the server for ten minutes (`connCommRetrySecs`), and no signal would "
    "end it. Once a call has failed on a server the client forgets its address: then the vendor's "
    "commands are asked, and the mount must "
    "answer a process of its own within 10 s. A path is followed through symbolic links of this machine's "
    "own disks and root. The steps of a run that passed its preflight wait for a server that goes away "
    "later. What the commands do not say is taken from the client. On version 8 that is all that an "
    "ordinary account gets as shipped, since `/etc/beegfs/conn.auth` is root's. Where it cannot verify "
    "its licence, a command of version 8 prints its rows and ends with 1: the rows count.\n\n"
    "| what they show | preflight | plan |\n|---|---|---|\n"
    "| a storage or metadata server is not reached; on WEKA I/O is not started, data are not available, or "
    "the file system is not ready | stops, 3 | |\n"
    "| the management service is not reached | stops, 3, with a client of BeeGFS 7, which then answers no "
    "call; else warns, with the time that is left | |\n"
    "| a target of the folder's pool is offline, probably offline, bad, or in the capacity pool `emergency` "
    "| stops, 3 | |\n"
    "| it needs a resync, or is in the capacity pool `low`; on Lustre: it is inactive, takes no new files, "
    "or gave no figures | warns | |\n"
    "| a target's even share of the plan and a margin of 10 %, or the largest file's part on it, goes "
    "beyond its room: on BeeGFS above its limit for `low`, on Lustre until it is full | | stops, 6 |\n"
    "| metadata targets have too little room or inodes for files and folders; on WEKA the file system may "
    "not have so many files (`max_files`) | | stops, 6 |\n"
    "| on WEKA drives or servers are not active, redundancy is lost, the drives fill up, or the licence does "
    "not allow that I/O is started | warns | |\n"
    "| no target is known to be in the pool of the folder's pattern, which was removed, say | warns; all "
    "targets are looked at | warns |\n"
    "| the site refuses what `target.striping` sets, or fewer targets have room than it wishes | | warns |\n"
    "| a quota of the final owner or group (on Lustre: of the folder's project, too; on WEKA: of the folder "
    "or of one above it) is used up, or would be; BeeGFS counts chunk files, Lustre files and folders, WEKA "
    "bytes alone | stops, 3 | stops, 6 |\n"
    "| a soft limit is passed, or would be | warns, with its grace; stops, 3, where that is over | warns; "
    "stops, 6 |\n\n"
    "On Lustre `target.striping` leaves a folder with a composite layout (PFL) as it is: of such a "
    "layout the widest component counts for space. Since `lfs setstripe` replaces all of a layout, chunk and "
    "pool are given as the folder has them. A figure in brackets, of which `lfs quota` says that it is not "
    "exact, counts as not known.\n\n"
    "Version 8 of BeeGFS looks a path up from the file system's root, by what is left of it below the mount "
    "point. So below a bind mount of a folder it is given the path below a mount of the whole file system, "
    "if one is there; else the path from the root with `--mount none`, which it allows root alone. Version "
    "7 asks the kernel's client, and is given the path as it stands.\n\n"
    "On WEKA nothing is set. Its quotas are asked by `weka fs quota list`, which an account may need a role "
    "for: where it is refused, that is a note, and so it is where nobody is logged in. How long a soft limit "
    "has been passed is not said by it. A quota's folder is compared with where the target lies in the file "
    "system: below a bind mount of a folder (`/proc/self/mountinfo`) that is another path than the one below "
    "the mount. Keys are those of WEKA's REST API (`weka/csi-wekafs`, `apiclient`) "
    "and of outputs that sites publish.\n\n"
    "On BeeGFS 7.4.7 and 8.3.1 all of this was run, without buddy mirrors and RDMA, with one metadata "
    "server, and of version 8 without quotas and further pools, which need its licence; the tests read what "
    "these commands and clients printed (`tests/vendors/recorded`). None of it was run on a Lustre or a "
    "WEKA. "
    "The tests call stand-ins of the commands (`tests/vendors`), written from their sources and as strict as "
    "these: ThinkParQ/beegfs 7.4.7 and beegfs-go 8.4; lustre-release of 2.15 and later "
    "(`lustre/utils/lfs.c`: `showdf`, `print_quota`; "
    "`liblustreapi.c` for layouts), and outputs that sites publish.\n"
)
STATES = (
    "\n"
    "## Data that is not there\n\n"
    "A file can be listed whose data lies elsewhere: in an archive, of which the file system keeps a "
    "stub, or in an object store behind it. Who opens or reads such a file has its data fetched. So an "
    "audit, verify (of linked files), a repair, and a plan of what is to be copied from a folder, ask "
    "first where the data of files is, of up to 500 files by one command; penstock opens none of them for "
    "it.\n\n"
    "| kind | asked | tiered: read at a cost | offline: never read |\n"
    "|---|---|---|---|\n"
    "| beegfs | `beegfs entry info --columns path,type,access,state`, of version 8, with the paths on its"
    " standard input | | stubs (`manual-restore`, `auto-restore`, `delayed-restore`), what is "
    "`unavailable`, files locked against reading |\n"
    "| lustre | `lfs hsm_state`, which opens files without reading them and so restores none | | released"
    " files |\n"
    "| wekafs | `weka fs tier location --json --raw-units` | files of which a part is in the object store"
    " alone | |\n"
    "| {hints} | where no command answers, the blocks | | files of more than 4 KiB that have a size and "
    "no blocks, unless they are zeros alone by their digest |\n\n"
    "The blocks are a hint: such a file may be a stub, or damaged; it is restored, or looked at, by "
    "people. What is fetched or sent away between the question and the reading is not noticed. Nothing is"
    " asked on the file systems of this machine's disks (of an archive behind XFS, such as DMF's, "
    "penstock knows nothing), on FUSE, and on kinds without a row here; of GPFS only blocks are looked "
    "at. [audit-reading.md](audit-reading.md#data-that-is-not-there) and "
    "[sources-folders.md](sources-folders.md#an-archive-behind-the-folder) say what "
    "follows.\n\n"
    "None of this was run on a Lustre or WEKA, nor on stubs of a BeeGFS; of its files that are here 8.3.1's "
    "own answers are read. BeeGFS' and Lustre's forms are those of their sources; of WEKA's the columns are "
    "from its manual, and how it writes them as JSON is our reading.\n"
)

QUOTAS = (
    "\n## Quotas that the kernel counts\n\n"
    "On each file system that answers quotactl(2), ext4 and XFS among them, preflight and plan ask the "
    "quotas of the files' final owner: user, group (`permissions.group`; else the folder's own, where it has "
    "the setgid bit), and the project that the target folder hands on. A quota that is used up, or a soft "
    "limit whose grace is over, stops preflight with 3; one that this plan would pass stops it with 6; a "
    "soft limit is a warning, with what is left of its grace. Which quotas an account may see is the "
    "kernel's rule: its own and those of its groups, a project's as root alone. What is in force and may not "
    "be seen is a note. Of id 0 nothing is asked. What other runs will still write counts as used.\n\n"
    "Where group quotas are in force, no group is configured and the target's root hands none on, preflight "
    "stops; where the root hands its group on and none is configured, it warns. The quotas that vendors' "
    "commands show count as well.\n\n"
    "On NFS the server's quotas are not asked (its rquota service); nor is there an answer where the kernel "
    "counts none. There a quota shows first when it is passed: as EDQUOT, while files are written.\n\n"
    "The tests set quotas on an ext4 and an XFS under a second kernel (User Mode Linux), since not every "
    "machine's own counts them.\n"
)


BESIDE = (
    "\n## Runs beside each other\n\n"
    "Each run states in `<dataset>/under-way.json` what it will still write ([formats.md](formats.md)): "
    "plan states it, then counts what is free: of the file system, of the vendor's targets and of quotas, "
    "less what the other living runs below this root state. Where both do not fit it ends with exit "
    "status 6 and names the others, their accounts and bytes. Copy lowers the figures once a minute; "
    "publish, a step that fails and `penstock cancel` remove them. A repair does the same for the files "
    "that it will fetch, which need their space once more until they are replaced, and a rehearsal for "
    "each of its slices. Of two plans at the same moment, one at least is refused, and perhaps both; "
    "nothing was copied then, and the same command tries again.\n\n"
    "A run counts while its file was touched within five minutes, by the file system's clock: by the "
    "process that holds the dataset's lock and by the elements, every 10 s. So one that was killed counts "
    "for five minutes more, unless `penstock cancel` ends it. Runs of this account and of those that "
    "`target.owners` names are counted; what any other account states is said, and refuses nothing.\n\n"
    "Plans do not see everything: runs below another root, what other programs write, and, where folders "
    "are listed late (NFS), a run that was planned within that minute. So each element that copies looks "
    "at the free space and at the quotas that the kernel counts, once a minute, and the more often the "
    "sooner `target.keep_free` can be reached. It ends with 6 before that, and what it staged is kept: "
    "the same command goes on once there is room. Quotas that only a vendor's commands know are met as "
    "EDQUOT, which ends with 6 as well. On ext4 and XFS the blocks of a file are reserved when it is "
    "begun: there free space can fall below `target.keep_free` by the files that are begun between two "
    "looks.\n\n"
    "While a run of a version before 1.0 lives, which posted in `<root>/.promises`, nothing is planned "
    "beside it; `penstock gc` removes what dead ones left.\n"
)

ACLS = (
    "\n"
    "## ACLs\n"
    "\n"
    "`permissions.acl` gives named users and groups their rights on every file and folder, as POSIX ACL; "
    "folders get the same entries as default ACL. The staging's `data` gets the default ACL before its "
    "first file, so files and folders inherit theirs when they are made: the worker reads that of the first "
    "file of each folder, and sets those of its files where it came out otherwise. Publish reads them all. "
    "A default ACL gives what is made in a folder at most what its own mode says, so an inherited entry may "
    "read `r-x` under the mask `r--`; lists are compared by what they allow.\n"
    "\n"
    "| what | where it is looked at | what happens |\n"
    "|---|---|---|\n"
    "| a user or group that this machine, or on SLURM a node, does not know | preflight | stops, 3 |\n"
    "| a user or group with another number on a node | preflight | stops, 3, where this machine's number is "
    "another account there; warns where it is nobody's; a note where the mount maps numbers |\n"
    "| the target answers that it has no ACLs, or no extended attributes | preflight, by a read; on SLURM "
    "by its probe job on nodes, too | stops, 3, with what an administrator sets; a node by its name |\n"
    "| NFSv4 ACLs (NFS 4; BeeGFS from 8.4) | preflight, likewise, by their xattr | stops, 3, by name: they "
    "are not set |\n"
    "| an ACL is refused or changed when it is tried | plan's probe | stops, 3 |\n"
    "| a folder's two ACLs are larger than what an inode's xattrs may hold (WEKA: 1,024 bytes in all) | "
    "plan's probe | stops, 3, with the bytes |\n"
    "| a default ACL is not inherited | plan's probe | warns: each file costs a call of its own |\n"
    "| what was set reads back as something else (masks of a mount) | permissions, of folders; verify, of "
    "giants; publish, of all files, by permissions | ends with 1, and names the file |\n"
    "| the mount maps numbers of users and groups | audit, repair | ACLs are not compared; a repair ends "
    "with 1 before it changes anything |\n"
    "\n"
    "What a chmod does after an ACL was set: it sets the mask. The permissions step and a repair end the "
    "same in both orders. POSIX ACLs on BeeGFS need sysXAttrsEnabled and sysACLsEnabled for the client, "
    "storeClientXAttrs and storeClientACLs for the metadata servers (from 8.2 sysACLsRevalidate=cache "
    "lets a client go by an ACL that was taken away, for a while); on WEKA the mount option `acl`. The "
    "tests run on ext4 and tmpfs; ACLs were never set on a BeeGFS, WEKA or Lustre.\n"
)


OPS = (
    "\n## Metadata operations a second\n\n"
    "`target.ops` is a budget of metadata operations a second for all runs below a root: 5000 on BeeGFS "
    "and Lustre, none elsewhere, unless the site sets it ([site.md](site.md)). Copies wait their turn "
    "before they create, link, rename or remove a file, set its times, or enter a folder for the first "
    "time; a small file is three operations. So do the steps that remove a staging or set modes, and "
    "repairs: their elements as those of a copy, and the process that puts files in their places (four "
    "operations a file, two for each folder that it opens). Writes, fsyncs, reads, verify and audit are not "
    "counted.\n\n"
    "The budget is divided as the cap of a link is ([bandwidth.md](bandwidth.md#how-it-is-kept)), by "
    "files in `<root>/.operations/`: evenly among the runs, repairs, rehearsals, `du` and removals that "
    "live, the part of a run evenly among its elements at work. Of an account 8 count, "
    "whatever it claims. A run that begins beside others makes its first operation after 32 s on local "
    "file systems and Lustre, 34 s on BeeGFS and WEKA and 95 s elsewhere, so that the sum stays within "
    "the budget; alone at once, after 2 s and after 63 s. The part of one that died is free after 60 s "
    "(121 s). A run that lists, verifies or waits claims a thousandth beside others; elements that wait "
    "in a queue have their part, which nobody uses. A process that cannot write in the folder, as on a "
    "full file system, takes a tenth of the budget, and nobody counts it.\n\n"
    "In a test, four engines on one machine with 600 operations a second together make that many over 5 "
    "s, give or take 10 %, and so do the other three after one was killed. A repair beside a copy has "
    "half of it. The "
    "budget was not tried against the metadata servers of a BeeGFS or Lustre.\n"
)


def page() -> str:
    """The whole page."""
    rows = [row for row in TABLE if row.holds_files]
    first = ("kind", "durable by", "direct", "one cache", "reserves", "holes", "local")
    second = ("kind", "links between folders", "inodes", "flock is seen by", "a folder's rename replaces",
              "a quota tree refuses", "modes are set by")  # fmt: skip
    shown = ((one.id, one.what, f"`tests/{one.tests}`") for one in SHOWN)
    return (
        HEAD + _table(first, map(_decided, rows))
        + MOUNTS + _table(("client", "what is read", "what is taken from it"), READ)
        + TAIL + _table(second, map(_known, rows))
        + _tools(rows)
        + RUN
        + QUOTAS
        + BESIDE
        + OPS
        + ACLS
        + STATES.replace("{hints}", ", ".join(row.name for row in rows if row.stubs))
        + TESTS + _table(("id", "what", "tests"), shown)
    )  # fmt: skip


def _tools(rows: list[Kind]) -> str:
    return TOOLS.replace("{names}", " and ".join(row.name for row in rows if row.commands))


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
