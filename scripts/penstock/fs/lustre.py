"""Queries Lustre's only command, `lfs`, about the targets, striping and quotas of a folder, and about files
whose data was released to an archive. Also has its command lines, and parsers of its output.

This module is written from the source of lustre-release (2.15 and later: `lustre/utils/lfs.c`,
`liblustreapi.c`) and from outputs of sites. The module was never tried on a live Lustre.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from penstock.fs.quotas import Quota, project_of
from penstock.fs.stores import (
    DEADLINE,
    DataState,
    FillRules,
    Pattern,
    Said,
    StatusQueries,
    StoreStatus,
    Target,
)
from penstock.host import command
from penstock.host.kernel_facts import PROC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.fs.quotas import Scope
    from penstock.fs.stores import Ask, Role


# Command lines of `lfs`, and parsers of its output.
#
# `lfs` prints no JSON. Its figures are whole numbers in KiB (`-h` is never passed), and the parsers return
# bytes. Formats are those of `lustre/utils/lfs.c` (`showdf`, `print_quota`) and `liblustreapi.c` (the
# layouts), of 2.15 and later. Older forms are read as well: a file system's long name on its own line, and
# `none` for a grace time that is over.

PRODUCT = "Lustre"
LFS = "lfs"
KIB = 1 << 10
CHUNK = 1 << 20  # bytes of a stripe that Lustre uses if the folder's layout states 0
ALL = 0xFFFF  # number of targets that stands for all targets (`-1`)
# Letters for the states of a target that gets no new objects (`obd_statfs_state_names` in lustre_user.h):
# read-only, no creation, no space, no inodes.
CLOSED = set("RNSI")
_ROW = re.compile(
    r"^(?P<name>\S+)\s+(?P<total>\d+)\s+\d+\s+(?P<free>\d+)\s+\d+%\s+\S.*\[(?P<type>MDT|OST):\d+\]\s*(?P<state>\S*)\s*$"
)
_TROUBLE = re.compile(r"^(?P<name>\S*?(?P<type>MDT|OST)[0-9a-f]{4}\S*)\s*: (?P<why>.+?)\s*$")
_LISTED = re.compile(r"^\d+: (?P<name>\S+) (?P<state>ACTIVE|INACTIVE)\s*$")
_ROLES: dict[str, Role] = {"MDT": "metadata", "OST": "storage"}
_FLAGS: dict[Scope, str] = {"user": "-u", "group": "-g", "project": "-p"}
_TIMES = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}


def df(folder: str, *, inodes: bool = False, pool: str = "") -> list[str]:
    """Show the table of targets: space in KiB, or inodes. `--lazy` leaves out targets that are not connected,
    instead of waiting, and `-v` shows inactive targets."""
    return [
        LFS,
        "df",
        "--lazy",
        "-v",
        *(["-i"] if inodes else []),
        *(["--pool", pool] if pool else []),
        folder,
    ]


def listed(role: Role, folder: str) -> list[str]:
    """List all targets with this role, whether they respond or not."""
    return [LFS, "osts" if role == "storage" else "mdts", folder]


def pool_list(what: str) -> list[str]:
    """List the pools of a file system, if `what` is a folder, or a pool's targets, if `what` is `<file
    system>.<pool>`."""
    return [LFS, "pool_list", what]


def quota(scope: Scope, number: int, folder: str) -> list[str]:
    return [LFS, "quota", _FLAGS[scope], str(number), folder]


def get_stripe(folder: str) -> list[str]:
    """Print the folder's own layout, which new files in it get."""
    return [LFS, "getstripe", "-d", folder]


def set_stripe(folder: str, targets: int, chunk: int, pool: str = "") -> list[str]:
    """Give a folder only this plain layout, since `setstripe` replaces all settings."""
    pools = ["-p", pool] if pool else []
    return [LFS, "setstripe", "-c", str(targets), "-S", size(chunk), *pools, folder]


def size(count: int) -> str:
    """Format bytes with powers of 1024 (`llapi_parse_size`), such as `1G`, `4M` or `64K`."""
    power, letter = next(
        (at, letter) for at, letter in ((30, "G"), (20, "M"), (10, "K")) if count % (1 << at) == 0
    )
    return f"{count >> power}{letter}"


def short(name: str) -> str:
    """Return `lustre-OST0003` for `lustre-OST0003_UUID`."""
    return name.removesuffix("_UUID")


def read_targets(out: str) -> list[Target]:
    """Parse the rows of `lfs df` in KiB, without the summary."""
    return [target for line in out.splitlines() if (target := _target(line)) is not None]


def _target(line: str) -> Target | None:
    row = _ROW.match(line)
    if row is not None:
        return Target(
            _ROLES[row["type"]],
            short(row["name"]),
            total_bytes=int(row["total"]) * KIB,
            free_bytes=int(row["free"]) * KIB,
            capacity="closed" if CLOSED & set(row["state"]) else "unknown",
            reachability="online",
        )
    trouble = _TROUBLE.match(line)
    if trouble is None:
        return None
    made = Target(_ROLES[trouble["type"]], short(trouble["name"]))
    if trouble["why"] == "inactive device":
        return made._replace(capacity="closed", reachability="inactive")
    return made._replace(reachability="offline")


def read_inodes(out: str) -> dict[str, tuple[int, int]]:
    """Parse `lfs df -i`. Returns {target: (all inodes, free inodes)}."""
    inodes = {}
    for line in out.splitlines():
        row = _ROW.match(line)
        if row is not None:
            inodes[short(row["name"])] = (int(row["total"]), int(row["free"]))
    return inodes


def read_listed(out: str) -> dict[str, bool]:
    """Parse `lfs osts` or `lfs mdts`. Returns {target: whether it is active}."""
    return {
        short(row["name"]): row["state"] == "ACTIVE"
        for line in out.splitlines()
        if (row := _LISTED.match(line.strip())) is not None
    }


def read_pools(out: str) -> list[str]:
    """Parse the lines below `Pools from lustre:`, such as `lustre.flash`."""
    return [line.strip() for line in out.splitlines() if re.fullmatch(r"[^\s.:]+\.\S+", line.strip())]


def read_members(out: str) -> list[str]:
    """Parse the targets below a line such as `Pool: lustre.flash`."""
    return [short(line.strip()) for line in out.splitlines() if re.search(r"-OST[0-9a-f]{4}", line)]


class Figures(NamedTuple):
    """The figures in a quota's line, either those for bytes or those for files."""

    used: int
    soft: int
    hard: int
    grace: float | None
    exact: bool


def read_quota(scope: Scope, number: int, out: str) -> Quota | None:
    """Parse the first line of figures in the output of `lfs quota`, or return None.

    | figure or grace     | meaning                                                            |
    |---------------------|--------------------------------------------------------------------|
    | `123`               | the figure is exact                                                |
    | `123*`              | the figure is exact, and exceeds a limit                           |
    | `[123]`             | a target did not answer, so that the use is not known              |
    | 0 as a limit        | no limit                                                           |
    | `-`                 | no grace time is running                                           |
    | `expired`, `none`   | the grace time has ended                                           |
    | `6d23h59m58s`       | the rest of the grace time                                         |
    """
    fields = _fields(out)
    if fields is None:
        return None
    space, files = _figures(fields[:4]), _figures(fields[4:])
    if space is None or files is None:
        return None
    return Quota(
        scope,
        number,
        used=space.used * KIB if space.exact else None,
        limit=space.hard * KIB or None,
        used_files=files.used if files.exact else None,
        file_limit=files.hard or None,
        soft_limit=space.soft * KIB or None,
        soft_file_limit=files.soft or None,
        grace=space.grace,
        file_grace=files.grace,
    )


def _fields(out: str) -> list[str] | None:
    """Find the eight figures after the file system's name, or on the line below it if the name is long."""
    lines = out.splitlines()
    head = next((at for at, line in enumerate(lines) if line.split()[:1] == ["Filesystem"]), len(lines))
    for line in lines[head + 1 : head + 3]:
        words = line.split()
        if len(words) >= 8:
            return words[-8:]
    return None


def _figures(fields: Sequence[str]) -> Figures | None:
    used, soft, hard = (re.fullmatch(r"(\[?)(\d+)(?:\*?\]?|\]\*)", field) for field in fields[:3])
    if used is None or soft is None or hard is None:
        return None
    return Figures(int(used[2]), int(soft[2]), int(hard[2]), _grace(fields[3]), not used[1])


def _grace(text: str) -> float | None:
    if text in ("expired", "none"):
        return 0.0
    if re.fullmatch(r"(?:\d+[wdhms])+", text) is None:
        return None
    return float(sum(int(count) * _TIMES[unit] for count, unit in re.findall(r"(\d+)([wdhms])", text)))


def read_pattern(out: str) -> Pattern | None:
    """Parse the layout in the output of `get_stripe`, or return None. If there are several components, the
    widest counts. Components on metadata targets (`mdt`) are skipped."""
    blocks = re.split(r"^\s*lcme_extent\.e_start:", out, flags=re.MULTILINE)
    components = [component for block in blocks if (component := _component(block)) is not None]
    if not components:
        return None
    targets, chunk = max(components, key=lambda component: component[0])
    pool = re.search(r"\b(?:lmm_)?pool:\s+(\S+)", out)
    copies = re.search(r"lcm_mirror_count:\s+(\d+)", out)
    composite = len(blocks) > 2
    kind = "mirrored" if copies and int(copies[1]) > 1 else "composite" if composite else "raid0"
    name = pool[1] if pool else ""
    # Each component except the first gets its objects when its first byte is written.
    return Pattern(kind, chunk, targets, name, name, objects_of_empty=not composite)


def _component(block: str) -> tuple[int, int] | None:
    """Parse a component's number of targets and bytes of a chunk."""
    count = re.search(r"\b(?:lmm_)?stripe_count:\s+(-?\d+)", block)
    chunk = re.search(r"\b(?:lmm_)?stripe_size:\s+(\d+)", block)
    kind = re.search(r"\b(?:lmm_)?pattern:\s+(\S+)", block)
    if count is None or chunk is None or (kind is not None and kind[1].startswith("mdt")):
        return None
    targets = int(count[1])
    return ALL if targets < 0 else max(1, targets), int(chunk[1]) or CHUNK


def states(names: dict[str, bool], targets: Sequence[Target], role: Role) -> Iterator[Target]:
    """Yield the targets of `names` (`lfs osts`, `lfs mdts`) that did not respond, and so are not in
    `targets`."""
    reported = {target.id for target in targets}
    for name, active in names.items():
        if name not in reported:
            state: Literal["unknown", "inactive"] = "unknown" if active else "inactive"
            yield Target(role, name, reachability=state, capacity="unknown" if active else "closed")


def refused(words: str) -> bool:
    """Return whether lfs' message means that the account lacks the right to run the command."""
    return bool(re.search(r"permission denied|not permitted", words, re.IGNORECASE))


# Queries Lustre's `lfs` about the file system of a folder: its targets, striping and quotas.
#
# Only the command that `set_pattern` returns, and that the caller runs, changes anything.

PROGRAMS = (LFS,)
MOST_POOLS = 8  # number of pools whose targets are queried, at most
_ROLE_NAMES: tuple[Role, ...] = ("metadata", "storage")
RULES = FillRules(
    storage_limits=(0,),
    metadata_limits=(0,),
    entry_bytes=0.0,
    folder_inodes=1,
    objects="objects",
    quota_counts="files",
)


class Tools(NamedTuple):
    """Queries with `lfs` about the file system of a folder."""

    product: str = PRODUCT

    @staticmethod
    def set_pattern(folder: str, targets: int, chunk: int, now: Pattern | None) -> list[str]:
        """Return the command that stripes new files of `folder` over `targets` targets, in chunks of `chunk`
        bytes (0: unchanged). `setstripe` replaces all settings, so chunk and pool of the folder's pattern
        `now` are passed, too."""
        chunk = chunk or (now.chunk_bytes if now else CHUNK)
        return set_stripe(folder, targets, chunk, now.pool if now else "")

    @staticmethod
    def refused(answer: command.Answer) -> bool:
        """Return whether this answer to `set_pattern` means that the account lacks the right to change it."""
        return refused(answer.words)

    @staticmethod
    def pattern(folder: str, budget: command.TimeBudget | None = None) -> Pattern | None:
        """Read the pattern of new files in `folder`, or None if `lfs` does not state it."""
        return read_pattern(command.run(get_stripe(folder), budget).out)

    def status(self, folder: str, uid: int, gid: int) -> StoreStatus:
        """Query `lfs` about the file system of `folder`, and about the quotas of its files' owner and
        project. An unanswered query becomes a `Silence`. Never raises."""
        asking = StatusQueries()
        targets = _targets(asking, folder)
        pattern = read_pattern(asking.ask("stripe pattern", get_stripe(folder), bool).out)
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


def find_tools(proc: str | os.PathLike[str] = PROC, point: str = "") -> Tools | None:
    """Return the queries with `lfs`, or None if it is not on PATH. `lfs` needs no mount point."""
    del proc, point
    return Tools() if command.present(LFS) else None


def _targets(asking: StatusQueries, folder: str) -> list[Target]:
    targets = read_targets(asking.ask("space of targets", df(folder), read_targets).out)
    argv = df(folder, inodes=True)
    inodes = read_inodes(asking.ask("inodes of targets", argv, read_inodes).out)
    for role in _ROLE_NAMES:
        argv = listed(role, folder)
        names = read_listed(asking.ask(f"names of {role} targets", argv, read_listed).out)
        targets += states(names, targets, role)
    return [
        target._replace(total_inodes=inodes[target.id][0], free_inodes=inodes[target.id][1])
        if target.id in inodes
        else target
        for target in targets
    ]


def _pools(asking: StatusQueries, folder: str) -> dict[str, list[str]]:
    """Read the targets of each pool. The keys are the pools' names without the file system's name."""
    names = read_pools(asking.ask("pools", pool_list(folder), bool).out)[:MOST_POOLS]
    return {
        name.partition(".")[2]: read_members(asking.ask(f"pool {name}", pool_list(name), bool).out)
        for name in names
    }


def _in_pool(target: Target, pools: dict[str, list[str]], pattern: Pattern | None) -> Target:
    """Return the target with its pools, beginning with the folder's pool."""
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
    """Read the owner's quotas, except for id 0, which has no limits. Disabled quotas give no `Silence`."""
    quotas = []
    for scope, number in owner.items():
        if not number:
            continue
        before = len(asking.silences)
        answer = asking.ask(f"quota of {scope} {number}", quota(scope, number, folder), bool)
        held = read_quota(scope, number, answer.out)
        if held is not None:
            quotas.append(held)
        if asking.silences[before:] and "not enabled" in asking.silences[-1].why:
            asking.silences.pop()
    return quotas


# Whether the data of files was released to an archive (`lfs hsm_state` for many files at once).
#
# `lfs` opens each file without reading it (O_RDONLY | O_NONBLOCK, `llapi_hsm_state_get` in
# lustre/utils/liblustreapi_hsm.c). Only reading would restore the file's data. The command prints a line for
# each file, `<path>: (0x0000000d) released exists archived, archive_id:1`, and ends at the first file that it
# cannot open.

RELEASED, LOST = 0x4, 0x40  # flags of `enum hsm_states` in lustre_user.h
_STATE_FLAGS = re.compile(r": \(0x([0-9a-f]{8})\)[^\n]*(?:\n|\Z)")


def ask_states(paths: Sequence[str]) -> Said:
    """Query the states of files. The parameter and the result are those of `stores.Ask`."""
    answer = command.run(states_argv(paths), deadline=DEADLINE)
    return Said.by(answer, read_states(answer.out, paths))


def states_argv(paths: Sequence[str]) -> list[str]:
    return [LFS, "hsm_state", *paths]


def find_states(point: str, proc: str | os.PathLike[str]) -> Ask | None:  # noqa: ARG001 (it finds the mount itself)
    """Return the function that queries the command, or None if the command is missing."""
    return ask_states if command.present(LFS) else None


def read_states(out: str, paths: Sequence[str]) -> dict[str, DataState]:
    """Parse the states of files, by path. Lines are in the order of `paths`, which may have line feeds."""
    states = {}
    at = 0
    for path in paths:
        line = _STATE_FLAGS.match(out, at + len(path)) if out.startswith(path, at) else None
        if line is None:
            break
        states[path] = state_of(int(line[1], 16))
        at = line.end()
    return states


def state_of(flags: int) -> DataState:
    """Return the state of a file with these flags.

    | released | lost | state                                    |
    |----------|------|------------------------------------------|
    | no       | any  | local, whether archived or not           |
    | yes      | no   | offline: in the archive                  |
    | yes      | yes  | offline: the archive has lost it         |
    """
    if not flags & RELEASED:
        return DataState("local")
    return DataState(
        "offline", "released, and lost by the archive" if flags & LOST else "released to the archive"
    )
