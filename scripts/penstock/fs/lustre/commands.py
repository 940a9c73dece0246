"""Queries Lustre's `lfs` about the file system of a folder: its targets, striping and quotas.

Only the command of `set_pattern`, which the caller runs, changes anything.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from penstock.fs.kernel_quotas import project_of
from penstock.fs.lustre import lfs
from penstock.fs.stores.facts import FillRules, StoreStatus
from penstock.fs.stores.status_queries import StatusQueries
from penstock.host import command
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from penstock.fs.quotas import Quota, Scope
    from penstock.fs.stores.facts import Pattern, Role, Target

PROGRAMS = (lfs.LFS,)
MOST_POOLS = 8  # pools whose targets are queried
_ROLES: tuple[Role, ...] = ("metadata", "storage")
RULES = FillRules(
    storage_limits=(0,),
    metadata_limits=(0,),
    entry_bytes=0.0,
    folder_inodes=1,
    objects="objects",
    quota_counts="files",
)


class Tools(NamedTuple):
    """`lfs`, for the file system of a folder."""

    product: str = lfs.PRODUCT

    @staticmethod
    def set_pattern(folder: str, targets: int, chunk: int, now: Pattern | None) -> list[str]:
        """Return the command that stripes new files of `folder` over so many targets, in chunks of so many
        bytes (0: unchanged). `setstripe` keeps nothing of what the folder has `now`: chunk and pool are
        passed with it."""
        chunk = chunk or (now.chunk_bytes if now else lfs.CHUNK)
        return lfs.set_stripe(folder, targets, chunk, now.pool if now else "")

    @staticmethod
    def refused(answer: command.Answer) -> bool:
        """Return whether this answer to `set_pattern` denies the account the right to it."""
        return lfs.refused(answer.words)

    @staticmethod
    def pattern(folder: str, budget: command.TimeBudget | None = None) -> Pattern | None:
        """Read what new files of `folder` get now; None where `lfs` does not say."""
        return lfs.read_pattern(command.run(lfs.get_stripe(folder), budget).out)

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """Read what `lfs` reports of the file system of `folder`, and of its files' owner's and project's
        quotas. An unanswered query is a `Silence`; never raises."""
        asking = StatusQueries()
        targets = _targets(asking, folder)
        pattern = lfs.read_pattern(asking.ask("stripe pattern", lfs.get_stripe(folder), bool).out)
        pools = _pools(asking, folder)
        placed = [_in_pool(target, pools, pattern) for target in targets]
        quotas = _quotas(asking, folder, {"user": uid, "group": gid, "project": _project(folder)})
        return StoreStatus(
            self.product,
            tuple(placed),
            pattern=pattern,
            quotas=tuple(quotas),
            silences=tuple(asking.silences),
            pools=tuple((name, name) for name in pools),
            rules=RULES,
        )


def find(proc: str | os.PathLike[str] = PROC, point: str = "") -> Tools | None:
    """Return `lfs`, where it is on PATH. It finds the file system by the folder."""
    del proc, point
    return Tools() if command.present(lfs.LFS) else None


def _targets(asking: StatusQueries, folder: str) -> list[Target]:
    targets = lfs.read_targets(asking.ask("space of targets", lfs.df(folder), lfs.read_targets).out)
    argv = lfs.df(folder, inodes=True)
    inodes = lfs.read_inodes(asking.ask("inodes of targets", argv, lfs.read_inodes).out)
    for role in _ROLES:
        argv = lfs.listed(role, folder)
        names = lfs.read_listed(asking.ask(f"names of {role} targets", argv, lfs.read_listed).out)
        targets += lfs.states(names, targets, role)
    return [
        target._replace(total_inodes=inodes[target.id][0], free_inodes=inodes[target.id][1])
        if target.id in inodes
        else target
        for target in targets
    ]


def _pools(asking: StatusQueries, folder: str) -> dict[str, list[str]]:
    """Read the targets of each pool, by its name without the file system's."""
    names = lfs.read_pools(asking.ask("pools", lfs.pool_list(folder), bool).out)[:MOST_POOLS]
    return {
        name.partition(".")[2]: lfs.read_members(asking.ask(f"pool {name}", lfs.pool_list(name), bool).out)
        for name in names
    }


def _in_pool(target: Target, pools: dict[str, list[str]], pattern: Pattern | None) -> Target:
    """Put a target into its pools: the folder's first."""
    mine = [name for name, members in pools.items() if target.id in members]
    wanted = pattern.pool if pattern else ""
    mine.sort(key=lambda name: name != wanted)
    return target._replace(pool=mine[0], further_pools=tuple(mine[1:])) if mine else target


def _project(folder: str) -> int:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return project_of(fd)
    finally:
        os.close(fd)


def _quotas(asking: StatusQueries, folder: str, owner: dict[Scope, int]) -> list[Quota]:
    """Read quotas, but not of id 0, which nothing limits. Quotas that are not enabled are no silence."""
    quotas = []
    for scope, number in owner.items():
        if not number:
            continue
        before = len(asking.silences)
        answer = asking.ask(f"quota of {scope} {number}", lfs.quota(scope, number, folder), bool)
        held = lfs.read_quota(scope, number, answer.out)
        if held is not None:
            quotas.append(held)
        if asking.silences[before:] and "not enabled" in asking.silences[-1].why:
            asking.silences.pop()
    return quotas
