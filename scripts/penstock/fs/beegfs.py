"""Queries BeeGFS' commands, of version 7 or 8 (`beegfs_v7`, `beegfs_v8`), about a folder's file system, and
about stubs of files. Also finds the form of paths that version 8's command needs.

Formats and units are those of ThinkParQ's sources (`ctl/source/modes` of 7.4.7; `ctl/internal/cmd` of
beegfs-go 8.4), and of outputs of 7.4.7 and 8.3.1. Buddy mirrors, RDMA, and version 8's quotas and pools were
never tried.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.fs import beegfs_v7, beegfs_v8
from penstock.fs.beegfs_mount import SYS, client_version
from penstock.fs.stores import BUDGET, DEADLINE, DataState, Said, StatusQueries, StoreStatus
from penstock.host import command
from penstock.host.kernel_facts import (
    PROC,
    holding,
    mount_of,
    mounts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fs.quotas import Quota
    from penstock.fs.stores import Ask, Pattern, Server, Target


# Paths with which BeeGFS 8's command `beegfs` finds a file or a folder.
#
# The command takes the part of a path below the mount point, and looks it up from the file system's root. As
# mount point it takes the folder at which the device number changes on the way up. (Source: beegfs-go,
# `common/filesystem/fs.go`, and `ctl/pkg/ctl/entry/entry.go`, `getEntryAndOwnerFromPathViaRPC`.) Below a bind
# mount of a folder this gives a wrong path. The wrong path leads nowhere, or to another folder, whose
# striping would then be set. Version 7's `beegfs-ctl` does not need this: it passes the path itself to the
# client's kernel module.

CLIENT = "beegfs"  # type of BeeGFS' mounts in the mount table
UNMOUNTED = "none"


class CommandPaths(NamedTuple):
    """How paths below a mount point are passed to `beegfs`."""

    point: str = ""
    base: str = ""  # text that replaces the mount point at the beginning of a path
    mount: tuple[str, ...] = ()  # value of the option `--mount`; () if the option is not needed
    # mount point below which paths are passed, and without which the command prints them; "" if paths are
    # passed from the file system's root
    root: str = ""

    def of(self, path: str) -> str:
        """Return the path to pass to the command for this path."""
        if self.base == self.point:
            return path
        real = path if _below(path, self.point) else os.path.realpath(path)
        return self.base + real.removeprefix(self.point.rstrip("/")) if _below(real, self.point) else path


def find_paths(point: str, proc: str | os.PathLike[str]) -> CommandPaths:
    """Find out how paths below the mount at `point` are passed. A mount shows the whole file system, or only
    a folder of it (a bind mount).

    | mount at `point`    | whole is mounted, too | paths are passed        | `--mount`                      |
    |---------------------|-----------------------|-------------------------|--------------------------------|
    | whole, or not known | yes or no             | unchanged               | `point`, if several BeeGFS     |
    | a folder            | yes                   | below the whole's mount | that mount, if several BeeGFS  |
    | a folder            | no                    | from the whole's root   | `none`, which only root may use|
    """
    made = mounts(proc)
    mine = mount_of(point, proc) if point else None
    several = len({mounted.number for mounted in made if mounted.type == CLIENT}) > 1
    if mine is None or mine.type != CLIENT or mine.root in ("", "/"):
        return CommandPaths(point, point, (point,) if point and several else (), point)
    for mount in made:
        whole = mount.number == mine.number and mount.root == "/"
        if whole and holding(mount.point, made) == mount:
            base = mount.point.rstrip("/") + mine.root.rstrip("/")
            return CommandPaths(point, base, (mount.point,) if several else (), mount.point)
    return CommandPaths(point, mine.root.rstrip("/"), (UNMOUNTED,))


def _below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


# Finds BeeGFS' commands on this machine, and queries them about the file system of a folder.
#
# Only the command that `set_pattern` returns, and that the caller runs, changes anything.

PROGRAMS = (beegfs_v8.BEEGFS, beegfs_v7.CTL)  # names of the commands, of which one is enough


class Tools(NamedTuple):
    """The commands of a major version, for the file system of a folder."""

    version: Literal[7, 8]
    # the mount point, to be passed to each command if several BeeGFS are mounted; () if only one is
    mount: tuple[str, ...] = ()
    # the form of paths with which version 8's command finds a file or a folder
    addresses: CommandPaths = CommandPaths()

    @property
    def product(self) -> str:
        return beegfs_v7.PRODUCT if self.version == 7 else beegfs_v8.PRODUCT

    def set_pattern(self, folder: str, targets: int, chunk: int, now: Pattern | None) -> list[str]:
        """Return the command that stripes new files of `folder` over `targets` targets, in chunks of `chunk`
        bytes (0: unchanged). Other settings stay as they are `now`."""
        del now
        if self.version == 7:
            return beegfs_v7.set_pattern(folder, targets, chunk, self.mount)
        return beegfs_v8.set_pattern(self.addresses.of(folder), targets, chunk, self.addresses.mount)

    def refused(self, answer: command.Answer) -> bool:
        """Return whether this answer to `set_pattern` means that the account lacks the right to change it."""
        return (beegfs_v7.refused if self.version == 7 else beegfs_v8.refused)(answer.words)

    def pattern(self, folder: str, budget: command.TimeBudget | None = None) -> Pattern | None:
        """Read the pattern of new files in `folder`, or None if the commands do not state it."""
        reads = beegfs_v7.read_pattern if self.version == 7 else beegfs_v8.read_pattern
        return reads(command.run(self.entry_info(folder), budget).out)

    def entry_info(self, folder: str) -> list[str]:
        """Return the command that shows how new files of `folder` are striped."""
        if self.version == 7:
            return beegfs_v7.entry_info(folder, self.mount)
        return beegfs_v8.entry_info(self.addresses.of(folder), self.addresses.mount)

    def servers(self) -> list[Server]:
        """Return which servers can be reached, or [] if the commands do not answer within `stores.BUDGET`."""
        argv = beegfs_v7.check_servers(self.mount) if self.version == 7 else beegfs_v8.list_nodes(self.mount)
        reads = beegfs_v7.read_servers if self.version == 7 else beegfs_v8.read_servers
        return reads(command.run(argv, command.TimeBudget(BUDGET)).out)

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """Query the commands about the file system of `folder`, and about the quotas of its files' owner. An
        unanswered query becomes a `Silence`. Never raises."""
        if self.version == 7:
            return _status_7(self, StatusQueries(beegfs_v7.silence_cause), folder, uid, gid)
        return _status_8(self, StatusQueries(beegfs_v8.silence_cause), folder, uid, gid)


def find_tools(proc: str | os.PathLike[str] = PROC, sys: str = SYS, point: str = "") -> Tools | None:
    """Return the commands for the BeeGFS mounted at `point`, or None if this machine has none.

    | commands on PATH | client's module     | used |
    |------------------|---------------------|------|
    | `beegfs-ctl`     | any                 | 7    |
    | `beegfs`         | any                 | 8    |
    | both             | 7.x                 | 7    |
    | both             | 8.x, or not known   | 8    |
    | none             | any                 | none |
    """
    old, new = command.present(beegfs_v7.CTL), command.present(beegfs_v8.BEEGFS)
    if not old and not new:
        return None
    version: Literal[7, 8] = 7 if old and (not new or client_version(sys).startswith("7.")) else 8
    several = len({mount.number for mount in mounts(proc) if mount.type == CLIENT}) > 1
    return Tools(version, (point,) if point and several else (), find_paths(point, proc))


def _status_7(tools: Tools, asking: StatusQueries, folder: str, uid: int, gid: int) -> StoreStatus:
    mount = tools.mount
    targets: list[Target] = []
    for role in ("metadata", "storage"):
        # If a target did not answer, the exit status is not 0, but the other rows are valid.
        answer = asking.ask(f"{role} targets", beegfs_v7.list_targets(role, mount), useful=beegfs_v7.has_rows)
        targets += beegfs_v7.read_targets(role, answer.out)
    if not any(target.role == "storage" for target in targets) and command.present(beegfs_v7.DF):
        # Releases before 7.0 have no storage pools, and reject the option that shows them.
        targets_of_df = beegfs_v7.read_df(
            asking.ask("targets", beegfs_v7.df(mount), useful=beegfs_v7.has_rows).out
        )
        if targets_of_df:
            targets, asking.silences = targets_of_df, []
    servers: list[Server] = []
    if command.present(beegfs_v7.CHECK_SERVERS):
        answer = asking.ask("servers", beegfs_v7.check_servers(mount))
        servers = beegfs_v7.read_servers(answer.out)
        if answer.code not in (0, None) and re.search(r"^Management\s*=+\s*\Z", answer.out.strip()):
            # The command queries the management service first, and ends if it cannot be reached.
            asking.silences[-1] = asking.silences[-1]._replace(cause="management")
    pattern = beegfs_v7.read_pattern(asking.ask("stripe pattern", tools.entry_info(folder)).out)
    pool = pattern.pool if pattern else ""
    quotas: list[Quota] = []
    for scope, number in (("user", uid), ("group", gid)):
        quota_scope: Literal["user", "group"] = "user" if scope == "user" else "group"
        answer = asking.ask(
            f"quota of {scope} {number}", beegfs_v7.get_quota(quota_scope, number, pool, mount)
        )
        quotas += beegfs_v7.read_quotas(quota_scope, answer.out, pool)
    return StoreStatus(
        tools.product, tuple(targets), tuple(servers), pattern, tuple(quotas), tuple(asking.silences)
    )


def _status_8(tools: Tools, asking: StatusQueries, folder: str, uid: int, gid: int) -> StoreStatus:
    mount = tools.mount
    # Rows are valid with any exit status, which is 1 if the licence cannot be verified.
    pools = beegfs_v8.read_pools(
        asking.ask("storage pools", beegfs_v8.list_pools(mount), beegfs_v8.read_pools).out
    )
    targets = beegfs_v8.read_targets(
        asking.ask("targets", beegfs_v8.list_targets(mount), beegfs_v8.read_targets).out, pools
    )
    nodes = asking.ask("servers", beegfs_v8.list_nodes(mount), useful=beegfs_v8.read_servers)
    servers = beegfs_v8.read_servers(nodes.out)
    pattern = beegfs_v8.read_pattern(
        asking.ask("stripe pattern", tools.entry_info(folder), beegfs_v8.read_pattern).out
    )
    root = os.geteuid() == 0
    ids = (str(uid), str(gid)) if root else ("current", "current")
    pool = pattern.pool if pattern else ""
    quotas = beegfs_v8.read_quotas(
        asking.ask("quotas", beegfs_v8.list_usage(ids, pool, mount), beegfs_v8.read_quotas).out, pools
    )
    if not root and gid != os.getegid():
        why = "it is not this process's group, and only root may ask for another's"
        asking.silent(f"quota of group {gid}", beegfs_v8.list_usage(ids, pool, mount), why)
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


# Whether files in BeeGFS 8 are stubs, whose data is in a remote target (`beegfs entry info`).
#
# A stub is a small file with the address of its data. Its state says how the data is restored:
# `manual-restore`, `auto-restore` or `delayed-restore`. Penstock restores no data. States have these names
# from 8.4 on (`common/beegfs/entry.go` of beegfs-go). In 8.3.1 they are numbers in this order. Locks are
# numbers there, too: 1 against reading, 2 against writing, 3 against both. A file locked against reading is
# not opened either, since opening would wait for minutes. BeeGFS 7 has no stubs.
#
# `beegfs` reads the paths from its standard input, and prints the parts below the mount point.

LOCAL = ("available", "local", "none", "0")
STUBS = {
    "manualrestore": "manual", "autorestore": "auto", "delayedrestore": "delayed",
    "1": "manual", "2": "auto", "3": "delayed", "offloaded": "manual",
}  # fmt: skip


def ask_states(mounted: CommandPaths, paths: Sequence[str]) -> Said:
    """Query the states of files on a mount. `paths` and the result are those of `stores.Ask`."""
    asked = {mounted.of(path): path for path in paths}
    answer = command.run(
        states_argv(mounted.mount), deadline=DEADLINE, given="".join(f"{path}\0" for path in asked)
    )
    states = read_states(answer.out, [*asked], mounted.root)
    return Said.by(answer, {asked[path]: state for path, state in states.items()})


def states_argv(mount: tuple[str, ...] = ()) -> list[str]:
    """Return the command. Each path on its standard input must end with a NUL."""
    columns = ("--columns", "path,type,access,state")
    where = ("--mount", mount[0]) if mount else ()
    return [
        beegfs_v8.BEEGFS,
        "entry",
        "info",
        *columns,
        *beegfs_v8.LINES,
        *where,
        r"--stdin-delimiter=\x00",
        "-",
    ]


def find_states(point: str, proc: str | os.PathLike[str]) -> Ask | None:
    """Return the function that queries files on the mount at `point`, or None if the command is missing."""
    if not command.present(beegfs_v8.BEEGFS):
        return None
    return partial(ask_states, find_paths(point, proc))


def read_states(out: str, paths: Sequence[str], point: str) -> dict[str, DataState]:
    """Parse the states of files, by requested path. Only rows of regular files are used."""
    base = point.rstrip("/")
    asked = {path.removeprefix(base): path for path in paths if path.startswith(f"{base}/")}
    asked |= {path: path for path in paths}
    states = {}
    for row in beegfs_v8.rows(out):
        path = asked.get(str(row.get("path", "")))
        state = None if path is None else state_of(str(row.get("access", "")), str(row.get("state", "")))
        if path is not None and state is not None:
            states[path] = state
    return states


def state_of(access: str, state: str) -> DataState | None:
    """Return the state of a file with these columns.

    | `state`                | `access`         | result                             |
    |------------------------|------------------|------------------------------------|
    | `(n/a)`, or none       | any              | None, since it is no regular file  |
    | available, 0           | locked for       | offline, since nobody can read it  |
    |                        | reads, 1, 3      |                                    |
    | available, 0           | any other        | local                              |
    | manual-restore, 1, ... | any              | offline: a stub                    |
    | anything else          | any              | offline, with that word            |
    """
    word, lock = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (state, access))
    if word in ("", "na"):
        return None
    if word in STUBS:
        return DataState("offline", f"a stub (BeeGFS restores it: {STUBS[word]})")
    if word not in LOCAL:
        return DataState("offline", f"BeeGFS calls its data {word}")
    if lock in ("1", "3") or ("locked" in lock and "read" in lock):
        return DataState("offline", "BeeGFS has locked it against reading")
    return DataState("local")
