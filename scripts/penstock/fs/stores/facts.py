"""What vendors' commands say of a file system, as types: made by `fs.beegfs`, `fs.lustre` and `fs.weka`,
judged by the modules beside this one. Pure. Sizes are in bytes; None is "not known".

The names are those of BeeGFS, which has the most of them: a target is one store of a server (Lustre: an OST
or MDT), a pool a set of targets, a pattern what new files of a folder get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from penstock.core.checks import CheckResult
    from penstock.fs.quotas import Quota

Role = Literal["storage", "metadata", "management"]
Capacity = Literal["normal", "low", "emergency", "closed", "unknown"]
"""BeeGFS's capacity pools: new files go to targets in `low` only where too few are `normal`, and to those in
`emergency` only where nothing else is left. `closed`: to none of these (Lustre)."""
Reachability = Literal["online", "probably-offline", "offline", "inactive", "unknown"]
"""`inactive`: taken out by the administrator; its files wait, no new ones come to it (Lustre)."""
Consistency = Literal["good", "needs-resync", "resyncing", "bad", "unknown"]


DataPlace = Literal["local", "tiered", "offline"]
"""Where a file's data is: here; behind a tier that reads it back by itself, at a cost; or only a stub of the
file is here."""


class DataState(NamedTuple):
    """Where the data of one file is."""

    place: DataPlace
    why: str = ""
    """In words; "" for `local`."""
    hinted: bool = False
    """Nobody said so: the file has a size and no blocks. A file of zeros alone can look like that, too."""


class Target(NamedTuple):
    """A store of data (`storage`) or of metadata."""

    role: Role
    id: str
    alias: str = ""
    node: str = ""
    pool: str = ""
    """The storage pool, by its number where that is known, else by its name; "" for metadata."""
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_inodes: int | None = None
    free_inodes: int | None = None
    capacity: Capacity = "unknown"
    reachability: Reachability = "unknown"
    consistency: Consistency = "unknown"
    further_pools: tuple[str, ...] = ()
    """Pools that it is in as well (Lustre)."""
    sized: bool = True  # False: only /proc names it, which has no figures of its space

    @property
    def name(self) -> str:
        """`storage target 104 (alias) on node`, for people."""
        alias = f" ({self.alias})" if self.alias and self.alias != self.id else ""
        return f"{self.role} target {self.id}{alias}" + (f" on {self.node}" if self.node else "")


class Server(NamedTuple):
    """A server process of the file system, as it is reached from this machine."""

    role: Role
    name: str
    id: str = ""
    reachable: bool | None = None
    route: str = ""
    """Address and protocol; "" where it is not known."""


class Pattern(NamedTuple):
    """How a folder's new files are striped."""

    kind: str
    """`raid0`; `mirrored`: each byte lies on two targets; `composite`: by ranges of the file (Lustre), of
    which the widest one's `targets` and `chunk_bytes` are these."""
    chunk_bytes: int
    targets: int
    """Over how many targets (or groups of two) a file is striped that is long enough."""
    pool: str = ""
    """The pool's number."""
    pool_name: str = ""
    objects_of_empty: bool = False
    """Whether a file has an object on each of its targets however small it is (Lustre)."""

    @property
    def copies(self) -> int:
        """On how many targets each byte lies."""
        return 2 if self.kind == "mirrored" else 1


TIB = 1 << 40
GIB = 1 << 30


class FillRules(NamedTuple):
    """How a product fills its targets, and what it counts: the defaults are those of BeeGFS."""

    storage_limits: tuple[int, ...] = (TIB, 20 * GIB, 0)
    """Free bytes of a storage target at which its state changes, as shipped; the last is that it is full.
    BeeGFS' management puts it into `low` and `emergency` (`storage low 1T, emergency 20G`). A site's own are
    not shown to users."""
    metadata_limits: tuple[int, ...] = (10 * GIB, 3 * GIB, 0)
    entry_bytes: float = 500 * 10**9 / (150 * 10**6)
    """Of metadata for each file or folder: 500 GB hold some 150 million of them (doc.beegfs.io, system
    requirements). Beside it stands their older rule, 0.3 to 0.5 % of the data. 0: inodes alone count."""
    folder_inodes: int = 4
    """On a metadata target of BeeGFS a folder is two folders and two files, a file is one (doc.beegfs.io)."""
    objects: str = "chunk files"
    """What a file is on its storage targets."""
    quota_counts: str = "chunk files"
    """What quotas count as files; what is not `objects` is files and folders."""


SilenceCause = Literal["", "management", "secret"]
"""Why a question got no answer: the management service was not reached; this account may not read the secret
that the service wants; "" for all else."""


class Silence(NamedTuple):
    """A question to the vendor's commands that got no answer."""

    about: str
    """What was asked, in words."""
    command: str
    """The command line."""
    why: str
    """The command's own words, or why it did not run."""
    cause: SilenceCause = ""


class StoreStatus(NamedTuple):
    """All that a vendor's commands said of the file system of one folder."""

    product: str
    """`BeeGFS 7`, for people."""
    targets: tuple[Target, ...] = ()
    servers: tuple[Server, ...] = ()
    pattern: Pattern | None = None
    quotas: tuple[Quota, ...] = ()
    silences: tuple[Silence, ...] = ()
    pools: tuple[tuple[str, str], ...] = ()
    """(number, name) of each storage pool, where the commands say them."""
    rules: FillRules = FillRules()
    results: tuple[CheckResult, ...] = ()
    """What the vendor's own package judges (WEKA)."""
    max_files: int | None = None
    """How many files the file system may have."""
    management_holds: bool = False  # calls on the mount wait while the management service is away

    def of_role(self, role: Role) -> list[Target]:
        """The targets of this role, in the order of the commands' answers."""
        return [target for target in self.targets if target.role == role]

    def in_pool(self) -> list[Target]:
        """The storage targets that new files of the folder can get: those of the pattern's pool; all where
        the pool is not known, of which `unmatched_pool` says whether it should be."""
        return self._of_pool() or self.of_role("storage")

    def filling(self, said: StoreStatus) -> StoreStatus:
        """What the vendor's commands `said`, and of what they did not say what this, from /proc, shows:
        targets and servers that they do not name, and states that they do not know."""
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
        """The pool of the pattern, where there are targets and none of them is known to be in it; else ""."""
        if self.pattern is None or not self.of_role("storage") or self._of_pool():
            return ""
        return self.pattern.pool_name or self.pattern.pool

    def _of_pool(self) -> list[Target]:
        pattern = self.pattern
        names = {pattern.pool, pattern.pool_name} - {""} if pattern else set()
        return [target for target in self.of_role("storage") if names & {target.pool, *target.further_pools}]
