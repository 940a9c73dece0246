"""Finds BeeGFS' commands on this machine (`v7` or `v8`), and queries them about the file system of a folder.

Only the command of `set_pattern`, which the caller runs, changes anything.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.fs.beegfs import addresses, v7, v8
from penstock.fs.beegfs.addresses import CommandPaths
from penstock.fs.beegfs.proc_states import SYS, client_version
from penstock.fs.stores.facts import StoreStatus
from penstock.fs.stores.status_queries import BUDGET, StatusQueries
from penstock.host import command
from penstock.host.proc import PROC, mounts

if TYPE_CHECKING:
    from penstock.fs.quotas import Quota
    from penstock.fs.stores.facts import Pattern, Server, Target

CLIENT = addresses.CLIENT  # the type of its mounts
PROGRAMS = (v8.BEEGFS, v7.CTL)  # any of these is enough


class Tools(NamedTuple):
    """The commands of a major version, for the file system of a folder."""

    version: Literal[7, 8]
    # the mount point, where several BeeGFS are mounted: each command then names it
    mount: tuple[str, ...] = ()
    addresses: CommandPaths = CommandPaths()  # the paths by which version 8 finds a file or a folder

    @property
    def product(self) -> str:
        return v7.PRODUCT if self.version == 7 else v8.PRODUCT

    def set_pattern(self, folder: str, targets: int, chunk: int, now: Pattern | None) -> list[str]:
        """Return the command that stripes new files of `folder` over so many targets, in chunks of so many
        bytes (0: unchanged). All else stays as it is `now`."""
        del now
        if self.version == 7:
            return v7.set_pattern(folder, targets, chunk, self.mount)
        return v8.set_pattern(self.addresses.of(folder), targets, chunk, self.addresses.mount)

    def refused(self, answer: command.Answer) -> bool:
        """Return whether this answer to `set_pattern` denies the account the right to it."""
        return (v7.refused if self.version == 7 else v8.refused)(answer.words)

    def pattern(self, folder: str, budget: command.TimeBudget | None = None) -> Pattern | None:
        """Read what new files of `folder` get now; None where the commands do not say."""
        reads = v7.read_pattern if self.version == 7 else v8.read_pattern
        return reads(command.run(self.entry_info(folder), budget).out)

    def entry_info(self, folder: str) -> list[str]:
        """Return the command that shows how new files of `folder` are striped."""
        if self.version == 7:
            return v7.entry_info(folder, self.mount)
        return v8.entry_info(self.addresses.of(folder), self.addresses.mount)

    def servers(self) -> list[Server]:
        """Read which servers are reached; [] where the commands do not answer within
        `status_queries.BUDGET`."""
        argv = v7.check_servers(self.mount) if self.version == 7 else v8.list_nodes(self.mount)
        reads = v7.read_servers if self.version == 7 else v8.read_servers
        return reads(command.run(argv, command.TimeBudget(BUDGET)).out)

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """Read what the commands report of the file system of `folder`, and of its files' owner's quotas. An
        unanswered query is a `Silence`; never raises."""
        if self.version == 7:
            return _status_7(self, StatusQueries(v7.silence_cause), folder, uid, gid)
        return _status_8(self, StatusQueries(v8.silence_cause), folder, uid, gid)


def find(proc: str | os.PathLike[str] = PROC, sys: str = SYS, point: str = "") -> Tools | None:
    """Choose the commands for the BeeGFS mounted at `point`; None where this machine has none.

    | commands on PATH | the client's module | used |
    |------------------|---------------------|------|
    | `beegfs-ctl`     | any                 | 7    |
    | `beegfs`         | any                 | 8    |
    | both             | 7.x                 | 7    |
    | both             | 8.x, or not known   | 8    |
    | none             | any                 | none |
    """
    old, new = command.present(v7.CTL), command.present(v8.BEEGFS)
    if not old and not new:
        return None
    version: Literal[7, 8] = 7 if old and (not new or client_version(sys).startswith("7.")) else 8
    several = len({mount.number for mount in mounts(proc) if mount.type == CLIENT}) > 1
    return Tools(version, (point,) if point and several else (), addresses.find(point, proc))


def _status_7(tools: Tools, asking: StatusQueries, folder: str, uid: int, gid: int) -> StoreStatus:
    mount = tools.mount
    targets: list[Target] = []
    for role in ("metadata", "storage"):
        # Ignore the exit status: it is not 0 if a target did not answer, and the other rows count.
        answer = asking.ask(f"{role} targets", v7.list_targets(role, mount), useful=v7.has_rows)
        targets += v7.read_targets(role, answer.out)
    if not any(target.role == "storage" for target in targets) and command.present(v7.DF):
        # Releases before 7.0 have no storage pools, and refuse the option that shows them.
        targets_of_df = v7.read_df(asking.ask("targets", v7.df(mount), useful=v7.has_rows).out)
        if targets_of_df:
            targets, asking.silences = targets_of_df, []
    servers: list[Server] = []
    if command.present(v7.CHECK_SERVERS):
        answer = asking.ask("servers", v7.check_servers(mount))
        servers = v7.read_servers(answer.out)
        if answer.code not in (0, None) and re.search(r"^Management\s*=+\s*\Z", answer.out.strip()):
            # It queries the management service first, and ends where beegfs-ctl does not reach it.
            asking.silences[-1] = asking.silences[-1]._replace(cause="management")
    pattern = v7.read_pattern(asking.ask("stripe pattern", tools.entry_info(folder)).out)
    pool = pattern.pool if pattern else ""
    quotas: list[Quota] = []
    for scope, number in (("user", uid), ("group", gid)):
        quota_scope: Literal["user", "group"] = "user" if scope == "user" else "group"
        answer = asking.ask(f"quota of {scope} {number}", v7.get_quota(quota_scope, number, pool, mount))
        quotas += v7.read_quotas(quota_scope, answer.out, pool)
    return StoreStatus(
        tools.product, tuple(targets), tuple(servers), pattern, tuple(quotas), tuple(asking.silences)
    )


def _status_8(tools: Tools, asking: StatusQueries, folder: str, uid: int, gid: int) -> StoreStatus:
    mount = tools.mount
    # Rows count whatever the exit status: it is 1 where the licence cannot be verified.
    pools = v8.read_pools(asking.ask("storage pools", v8.list_pools(mount), v8.read_pools).out)
    targets = v8.read_targets(asking.ask("targets", v8.list_targets(mount), v8.read_targets).out, pools)
    nodes = asking.ask("servers", v8.list_nodes(mount), useful=v8.read_servers)
    servers = v8.read_servers(nodes.out)
    pattern = v8.read_pattern(asking.ask("stripe pattern", tools.entry_info(folder), v8.read_pattern).out)
    root = os.geteuid() == 0
    ids = (str(uid), str(gid)) if root else ("current", "current")
    pool = pattern.pool if pattern else ""
    quotas = v8.read_quotas(asking.ask("quotas", v8.list_usage(ids, pool, mount), v8.read_quotas).out, pools)
    if not root and gid != os.getegid():
        why = "it is not this process's group, and only root may ask for another's"
        asking.silent(f"quota of group {gid}", v8.list_usage(ids, pool, mount), why)
    owned = [
        quota
        for quota in quotas
        if quota.id == (uid if quota.scope == "user" else gid) and quota.pool in ("", pool)
    ]
    return StoreStatus(
        tools.product,
        tuple(targets),
        tuple(servers),
        pattern,
        tuple(owned),
        tuple(asking.silences),
        tuple((number, name) for name, number in pools.items()),
    )
