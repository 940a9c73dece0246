"""What vendors' commands say of a file system, typed. Bytes are bytes; None is "not known".

The names are those of BeeGFS, which has the most of them: a target is one store of a server (Lustre: an OST
or MDT), a pool a set of targets, a pattern what new files of a folder get.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from penstock.filesystem.quotas import Quota

Role = Literal["storage", "metadata", "management"]
Capacity = Literal["normal", "low", "emergency", "unknown"]
"""BeeGFS's capacity pools: new files go to targets in `low` only where too few are `normal`, and to those in
`emergency` only where nothing else is left."""
Reachability = Literal["online", "probably-offline", "offline", "unknown"]
Consistency = Literal["good", "needs-resync", "resyncing", "bad", "unknown"]


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
    """`raid0`, or `mirrored`: each byte lies on two targets."""
    chunk_bytes: int
    targets: int
    """Over how many targets (or groups of two) a file is striped that is long enough."""
    pool: str = ""
    """The pool's number."""
    pool_name: str = ""

    @property
    def copies(self) -> int:
        return 2 if self.kind == "mirrored" else 1


class Silence(NamedTuple):
    """A question to the vendor's commands that got no answer."""

    about: str
    command: str
    why: str
    management: bool = False
    """Whether the words say that the management service was not reached."""


class Survey(NamedTuple):
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

    def of_role(self, role: Role) -> list[Target]:
        return [target for target in self.targets if target.role == role]

    def in_pool(self) -> list[Target]:
        """The storage targets that new files of the folder can get: those of the pattern's pool; all where
        the pool is not known."""
        storage = self.of_role("storage")
        if self.pattern is None:
            return storage
        names = {self.pattern.pool, self.pattern.pool_name} - {""}
        return [target for target in storage if target.pool in names] or storage
