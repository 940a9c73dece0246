"""BeeGFS 7: command lines of `beegfs-ctl`, and parsers of its output; `fs.beegfs` runs them.

Functions named like beegfs-ctl's modes return a command line. `read_*` parse standard output, and skip
unknown lines. Neither beegfs-ctl nor `beegfs-check-servers`, a script that calls it, can print JSON. The
columns in the table of targets differ between releases (`Pool` became `Cap. Pool`) and options. A row has an
id, some words, the figures, and perhaps a node. So words are recognised by their content, not by the column.
A target that did not answer has zeros in the table, and ` [ERROR from ...]` appears on standard error. The
exit status is then 1, but the other rows are valid.

`mount` contains the mount point to query if several BeeGFS are mounted; if only one is, `mount` is empty.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, cast

from penstock.fs.quotas import Quota
from penstock.fs.stores import Pattern, Role, Server, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fs.stores import Capacity, Consistency, Reachability, SilenceCause


PRODUCT = "BeeGFS 7"  # name of the product in messages
CTL = "beegfs-ctl"
DF = "beegfs-df"
CHECK_SERVERS = "beegfs-check-servers"
GIB = 1 << 30
MILLION = 10**6
_ROW = re.compile(
    r"^\s*(?P<id>\d+)(?P<words>(?:\s+\S+)*?)"
    r"\s+(?P<total>[\d.]+)GiB\s+(?P<free>[\d.]+)GiB\s+\d+%\s+(?P<itotal>[\d.]+)M\s+(?P<ifree>[\d.]+)M\s+\d+%"
    r"(?:\s+(?P<node>\S.*?))?\s*$"
)
_CAPACITY = {"normal", "low", "emergency"}
_REACHABILITY = {"online", "probably-offline", "offline"}
_CONSISTENCY = {"good", "needs-resync", "resyncing", "bad"}
_SERVER = re.compile(
    r"^(?P<name>.+?) \[ID: (?P<id>[^\]]+)\]: (?P<state>reachable at (?P<route>.*)|UNREACHABLE)\s*$"
)
_ROLES: dict[str, Role] = {"Management": "management", "Metadata": "metadata", "Storage": "storage"}
_SUFFIX = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def list_targets(role: Role, mount: tuple[str, ...] = ()) -> list[str]:
    """Show the table of targets of a role: space as in `beegfs-df`, states, storage pools and nodes."""
    storage = role == "storage"
    pools = ["--storagepools"] if storage else []
    kind = "storage" if storage else "meta"
    return [CTL, "--listtargets", "--longnodes", "--state", *pools, "--pools", "--spaceinfo",
            f"--nodetype={kind}", *_mounted(mount)]  # fmt: skip


def df(mount: tuple[str, ...] = ()) -> list[str]:
    """Show the tables of both roles, without states, storage pools and nodes. Works before 7.0, too."""
    return [DF, *(("-p", mount[0]) if mount else ())]


def check_servers(mount: tuple[str, ...] = ()) -> list[str]:
    """Show which servers can be reached, and by which route."""
    return [CHECK_SERVERS, *(("-p", mount[0]) if mount else ())]


def entry_info(folder: str, mount: tuple[str, ...] = ()) -> list[str]:
    """Show how new files of `folder` are striped."""
    return [CTL, "--getentryinfo", *_mounted(mount), folder]


def get_quota(
    scope: Literal["user", "group"], number: int, pool: str, mount: tuple[str, ...] = ()
) -> list[str]:
    """Show use and limits of a user or group in the storage pool with this number, or in each pool if `pool`
    is no number."""
    pools = [f"--storagepoolid={pool}"] if pool.isdigit() else []
    return [CTL, "--getquota", "--csv", *pools, *_mounted(mount), "--uid" if scope == "user" else "--gid",
            str(number)]  # fmt: skip


def set_pattern(folder: str, targets: int, chunk: int = 0, mount: tuple[str, ...] = ()) -> list[str]:
    """Stripe new files of `folder` over `targets` targets, in chunks of `chunk` bytes (0: unchanged). Pool
    and kind of pattern are unchanged. The chunk size is passed in bytes, since the versions' suffixes differ.
    `1m` in version 7 is `1Mi` in version 8, which rejects `1M` (a million)."""
    chunks = [f"--chunksize={chunk}"] if chunk else []
    return [CTL, "--setpattern", f"--numtargets={targets}", *chunks, *_mounted(mount), folder]


def read_targets(role: Role, out: str) -> list[Target]:
    """Parse the targets in the output of `list_targets`, in `beegfs-df`'s part for this role, or in older
    releases' tables. Space is in bytes, or None if the target did not answer (a row of zeros). States that a
    table does not show are `unknown`."""
    return [target for line in out.splitlines() if (target := _target(role, line)) is not None]


def read_df(out: str) -> list[Target]:
    """Parse the two tables of `beegfs-df`: metadata servers, then storage targets."""
    head, _, tail = out.partition("STORAGE TARGETS:")
    return [*read_targets("metadata", head), *read_targets("storage", tail)]


def has_rows(out: str) -> bool:
    """Return whether `out` has any target's row, and so is valid despite the exit status."""
    return bool(read_targets("storage", out))


def read_servers(out: str) -> list[Server]:
    """Parse the servers in the output of `check_servers`. The heading above a server states its role. Servers
    without a heading are storage servers."""
    servers: list[Server] = []
    role: Role = "storage"
    for line in out.splitlines():
        role = _ROLES.get(line.strip(), role)
        server = _SERVER.match(line.strip())
        if server:
            up = server["state"] != "UNREACHABLE"
            servers.append(Server(role, server["name"], server["id"], up, server["route"] or ""))
    return servers


def read_pattern(out: str) -> Pattern | None:
    """Parse the pattern in the output of `entry_info`, or return None. Its `pool` is the pool's number."""
    kind = re.search(r"^\s*\+ Type: (.+?)\s*$", out, re.MULTILINE)
    chunk = re.search(r"^\s*\+ Chunksize: (\d+)([KMG]?)\s*$", out, re.MULTILINE)
    targets = re.search(r"^\s*\+ Number of (?:storage targets|\S.*?): desired: (\d+)", out, re.MULTILINE)
    pool = re.search(r"^\s*\+ Storage Pool: (\d+)\s+\((.*)\)\s*$", out, re.MULTILINE)
    if kind is None or chunk is None or targets is None:
        return None
    return Pattern(
        kind="mirrored" if "mirror" in kind[1].lower() else kind[1].lower(),
        chunk_bytes=int(chunk[1]) * _SUFFIX[chunk[2]],
        targets=int(targets[1]),
        pool=pool[1] if pool else "",
        pool_name=pool[2] if pool else "",
    )


def read_quotas(scope: Literal["user", "group"], out: str, pool: str = "") -> list[Quota]:
    """Parse the rows of `get_quota`, with bytes and chunk files. A limit of None means no limit. `pool` was
    passed to the command. If it is "", the output has a table for each pool, below the pool's name."""
    return list(_quotas(scope, out, pool))


def refused(words: str) -> bool:
    """Return whether beegfs-ctl's message means that this account may not set the pattern."""
    return bool(re.search(r"only root|permission|not allowed|not permitted|EPERM", words, re.IGNORECASE))


def silence_cause(words: str) -> SilenceCause:
    """Classify why beegfs-ctl got no answer, judging by its message."""
    if re.search(r"auth(?:entication)? file", words, re.IGNORECASE):
        return "secret"
    return "management" if re.search(r"mgmtd|management", words, re.IGNORECASE) else ""


def _mounted(mount: tuple[str, ...]) -> list[str]:
    return [f"--mount={mount[0]}"] if mount else []


def _target(role: Role, line: str) -> Target | None:
    row = _ROW.match(line)
    if row is None:
        return None
    words = [word.strip("[]").lower() for word in row["words"].split()]
    total, free = _scaled(row["total"], GIB), _scaled(row["free"], GIB)
    inodes, inodes_free = _scaled(row["itotal"], MILLION), _scaled(row["ifree"], MILLION)
    pool = next((word for word in words if word.isdigit()), "")
    return Target(
        role=role,
        id=row["id"],
        node=_node(row["node"] or ""),
        pool=pool if role == "storage" else "",
        total_bytes=total or None,
        free_bytes=free if total else None,
        total_inodes=inodes or None,
        free_inodes=inodes_free if inodes else None,
        capacity=cast("Capacity", _state(words, _CAPACITY)),
        reachability=cast("Reachability", _state(words, _REACHABILITY)),
        consistency=cast("Consistency", _state(words, _CONSISTENCY)),
    )


def _scaled(figure: str, unit: int) -> int:
    return int(float(figure) * unit)


def _state(words: list[str], states: set[str]) -> str:
    return next((word for word in words if word in states), "unknown")


def _node(text: str) -> str:
    """Return `storage01` from `beegfs-storage storage01 [ID: 1]`; other text unchanged."""
    named = re.match(r"(?:beegfs-\S+ )?(\S+) \[ID: ", text)
    return named[1] if named else text


def _quotas(scope: Literal["user", "group"], out: str, pool: str) -> Iterator[Quota]:
    for line in out.splitlines():
        headed = re.match(r"Quota information for storage pool .*\(ID: (\d+)\):", line)
        if headed:
            pool = headed[1]
        fields = [field.strip() for field in line.rsplit(",", 5)]
        if len(fields) == 6 and fields[1].isdigit():
            yield Quota(
                scope,
                int(fields[1]),
                pool,
                used=_count(fields[2]),
                limit=_count(fields[3]),
                used_files=_count(fields[4]),
                file_limit=_count(fields[5]),
            )


def _count(field: str) -> int | None:
    """Parse the number in `1024`, `0 Byte` or `12+` (some disks count no inodes). Returns None for
    `unlimited` and `-`."""
    number = re.match(r"(\d+)(?: Byte|\+)?$", field)
    return int(number[1]) if number else None
