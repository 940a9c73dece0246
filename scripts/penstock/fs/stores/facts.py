"""What vendors' commands report of a file system, as types. Sizes are in bytes; None is unknown.

Made by `fs.beegfs`, `fs.lustre` and `fs.weka`; judged by the modules here. The names are BeeGFS's. A target
is a store of a server (Lustre: an OST or MDT), a pool a set of targets, a pattern the striping of a folder's
new files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from penstock.core.events import CheckResult
    from penstock.fs.quotas import Quota

Role = Literal["storage", "metadata", "management"]
# BeeGFS's capacity pools: new files go to `low` targets only where too few are `normal`, and to `emergency`
# only where no others are left. `closed`: never (Lustre).
Capacity = Literal["normal", "low", "emergency", "closed", "unknown"]
# `inactive`: taken out by the administrator; its files wait, and it gets no new ones (Lustre)
Reachability = Literal["online", "probably-offline", "offline", "inactive", "unknown"]
Consistency = Literal["good", "needs-resync", "resyncing", "bad", "unknown"]


# Where a file's data is: here; behind a tier that reads it back by itself, at a cost; or elsewhere, with only
# a stub here.
DataPlace = Literal["local", "tiered", "offline"]


class DataState(NamedTuple):
    """Where the data of a file is."""

    place: DataPlace
    why: str = ""  # in words; "" for `local`
    # Only a guess, since the file has a size and no blocks. A file of zeros can look the same.
    hinted: bool = False


class Target(NamedTuple):
    """A store of data (`storage`) or of metadata."""

    role: Role
    id: str
    alias: str = ""
    node: str = ""
    pool: str = ""  # the storage pool, by its number if known, else by its name; "" for metadata
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_inodes: int | None = None
    free_inodes: int | None = None
    capacity: Capacity = "unknown"
    reachability: Reachability = "unknown"
    consistency: Consistency = "unknown"
    further_pools: tuple[str, ...] = ()  # other pools that it is in (Lustre)
    sized: bool = True  # False: only /proc names it, which has no figures of its space

    @property
    def name(self) -> str:
        """`storage target 104 (alias) on node`, for people."""
        alias = f" ({self.alias})" if self.alias and self.alias != self.id else ""
        return f"{self.role} target {self.id}{alias}" + (f" on {self.node}" if self.node else "")


class Server(NamedTuple):
    """A server process of the file system, as reached from this machine."""

    role: Role
    name: str
    id: str = ""
    reachable: bool | None = None
    route: str = ""  # address and protocol; "": unknown


class Pattern(NamedTuple):
    """How a folder's new files are striped."""

    # `raid0`; `mirrored`: each byte is on two targets; `composite`: by ranges of the file (Lustre), with
    # `targets` and `chunk_bytes` of the widest.
    kind: str
    chunk_bytes: int
    targets: int  # targets (or groups of two) of a long enough file
    pool: str = ""  # the pool's number
    pool_name: str = ""
    # a file has an object on each of its targets, however small it is (Lustre)
    objects_of_empty: bool = False

    @property
    def copies(self) -> int:
        """Targets that hold each byte."""
        return 2 if self.kind == "mirrored" else 1


TIB = 1 << 40
GIB = 1 << 30


class FillRules(NamedTuple):
    """How a product fills its targets, and what it counts; the defaults are BeeGFS's."""

    # Free bytes of a storage target at which its state changes, by default; the last: full. BeeGFS'
    # management puts it into `low` and `emergency` (`storage low 1T, emergency 20G`). A site's own limits are
    # hidden from users.
    storage_limits: tuple[int, ...] = (TIB, 20 * GIB, 0)
    metadata_limits: tuple[int, ...] = (10 * GIB, 3 * GIB, 0)
    # Of metadata for each file or folder: 500 GB hold some 150 million (doc.beegfs.io, system requirements).
    # Their older rule is 0.3 to 0.5 % of the data. 0: only inodes count.
    entry_bytes: float = 500 * 10**9 / (150 * 10**6)
    # on a metadata target of BeeGFS a folder is two folders and two files (doc.beegfs.io)
    folder_inodes: int = 4
    objects: str = "chunk files"  # what a file is on its storage targets
    quota_counts: str = "chunk files"  # what quotas count as files; if not `objects`, then files and folders


# Why a query got no answer: the management service was not reached; this account may not read the secret that
# the service wants; "" for all else.
SilenceCause = Literal["", "management", "secret"]


class Silence(NamedTuple):
    """A query to the vendor's commands without an answer."""

    about: str  # the query, in words
    command: str  # the command line
    why: str  # the command's own words, or why it did not run
    cause: SilenceCause = ""


class StoreStatus(NamedTuple):
    """All that a vendor's commands reported of the file system of a folder."""

    product: str  # `BeeGFS 7`, for people
    targets: tuple[Target, ...] = ()
    servers: tuple[Server, ...] = ()
    pattern: Pattern | None = None
    quotas: tuple[Quota, ...] = ()
    silences: tuple[Silence, ...] = ()
    # (number, name) of each storage pool, where the commands show them
    pools: tuple[tuple[str, str], ...] = ()
    rules: FillRules = FillRules()
    results: tuple[CheckResult, ...] = ()  # judgements of the vendor's own package (WEKA)
    max_files: int | None = None  # files that the file system may have
    management_holds: bool = False  # calls on the mount wait while the management service is away

    def of_role(self, role: Role) -> list[Target]:
        """Return the targets of this role, in the order of the commands' answers."""
        return [target for target in self.targets if target.role == role]

    def in_pool(self) -> list[Target]:
        """Return the storage targets for new files of the folder: those of the pattern's pool, or all where
        the pool is unknown (see `unmatched_pool`)."""
        return self._of_pool() or self.of_role("storage")

    def filling(self, said: StoreStatus) -> StoreStatus:
        """Return what the vendor's commands `said`, completed by this status from /proc: further targets and
        servers, and states that the commands do not know."""
        states = {(target.role, target.id): target for target in self.targets}
        targets = []
        for target in said.targets:
            state = states.pop((target.role, target.id), target)
            reach, good = target.reachability, target.consistency
            targets.append(
                target._replace(
                    reachability=state.reachability if reach == "unknown" else reach,
                    consistency=state.consistency if good == "unknown" else good,
                )
            )
        named = {(server.role, server.id) for server in said.servers}
        servers = [server for server in self.servers if (server.role, server.id) not in named]
        return said._replace(
            targets=(*targets, *states.values()),
            servers=(*said.servers, *servers),
            management_holds=self.management_holds,
        )

    @property
    def unmatched_pool(self) -> str:
        """The pattern's pool, if there are targets and none is known to be in it; else ""."""
        if self.pattern is None or not self.of_role("storage") or self._of_pool():
            return ""
        return self.pattern.pool_name or self.pattern.pool

    def _of_pool(self) -> list[Target]:
        pattern = self.pattern
        names = {pattern.pool, pattern.pool_name} - {""} if pattern else set()
        return [target for target in self.of_role("storage") if names & {target.pool, *target.further_pools}]
