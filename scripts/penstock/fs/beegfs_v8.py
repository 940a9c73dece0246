"""BeeGFS 8: command lines of `beegfs`, and parsers of its output; `fs.beegfs` runs them.

`--output ndjson --raw` prints lines of JSON, with sizes in bytes. Functions named after their query return a
command line. `read_*` parse standard output, and skip unknown lines. `mount` contains the mount point to
query if several BeeGFS are mounted, or nothing.

`--output json` would print several lists for more than a page of rows, and `health df` prints headings
between its tables. So neither is used. Column names differ between 8.0 (`on node`, `pool`, `sfree`) and 8.4
(`node`, `storage_pool`, `space_free`), and both kinds of names are read. In 8.3.1, types of nodes are
numbers, and nodes and pools have the form `s:1`, with and without --raw. Other releases' words and aliases
are read as well. If the licence cannot be verified, a command prints its rows, which are valid, and ends with
status 1.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock.fs.quotas import Quota
from penstock.fs.stores import Pattern, Role, Server, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fs.stores import Capacity, Consistency, Reachability, SilenceCause


PRODUCT = "BeeGFS 8"
BEEGFS = "beegfs"
LINES = ("--output", "ndjson", "--raw")
# Limits of this value or more mean no limit, since `set-limits unlimited` stores the largest number of 63
# bits.
UNLIMITED = 1 << 62
# {word, letter or number of a node's type: role}. Clients (1) have no role.
_ROLES: dict[str, Role] = {
    "meta": "metadata", "m": "metadata", "2": "metadata",
    "storage": "storage", "s": "storage", "3": "storage",
    "management": "management", "4": "management",
}  # fmt: skip
_CAPACITY = ("normal", "low", "emergency")
_REACHABILITY = ("online", "probably-offline", "offline")
_CONSISTENCY = ("good", "needs-resync", "bad")


def list_targets(mount: tuple[str, ...] = ()) -> list[str]:
    return [BEEGFS, "target", "list", "--state", "--capacity", *LINES, *_mounted(mount)]


def list_nodes(mount: tuple[str, ...] = ()) -> list[str]:
    """List nodes. The exit status is 5 if any node cannot be reached, and the rows show which node."""
    return [BEEGFS, "node", "list", "--reachability-error", *LINES, *_mounted(mount)]


def list_pools(mount: tuple[str, ...] = ()) -> list[str]:
    return [BEEGFS, "pool", "list", *LINES, *_mounted(mount)]


def entry_info(folder: str, mount: tuple[str, ...] = ()) -> list[str]:
    return [BEEGFS, "entry", "info", *LINES, *_mounted(mount), folder]


def list_usage(ids: tuple[str, str], pool: str = "", mount: tuple[str, ...] = ()) -> list[str]:
    """Show the use and the limits of users and groups. `ids` are ids of users, then ids of groups, in the
    command's form. Only root may query other ids than `current`. `pool` is a storage pool, or "" for all."""
    pool_option = ["--pool", pool] if pool else []
    return [
        BEEGFS,
        "quota",
        "list-usage",
        "--uids",
        ids[0],
        "--gids",
        ids[1],
        *pool_option,
        *LINES,
        *_mounted(mount),
    ]


def set_pattern(folder: str, targets: int, chunk: int = 0, mount: tuple[str, ...] = ()) -> list[str]:
    """Do the same as `beegfs_v7.set_pattern`, with the command of version 8."""
    chunks = [f"--chunk-size={chunk}"] if chunk else []
    return [BEEGFS, "entry", "set", f"--num-targets={targets}", *chunks, *_mounted(mount), folder]


def _mounted(mount: tuple[str, ...]) -> list[str]:
    return ["--mount", mount[0]] if mount else []


def rows(out: str) -> Iterator[dict[str, Any]]:
    """Iterate over the JSON objects in the lines of `out`, which may also be inside lists. Lines without JSON
    are skipped, since the command prints some remarks for people on standard output."""
    for line in out.splitlines():
        try:
            value = json.loads(line) if line.strip() else None
        except ValueError:
            continue
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, dict):
                yield {str(name).lower().replace(" ", "_"): field for name, field in row.items()}


def read_targets(out: str, pools: dict[str, str] | None = None) -> list[Target]:
    """Parse the output of `list_targets`. `pools` maps a pool's alias to its number (`read_pools`)."""
    return [_target(row, pools or {}) for row in rows(out) if "id" in row]


def _target(row: dict[str, Any], pools: dict[str, str]) -> Target:
    number, kind = _identity(row["id"])
    pool = _text(row, "storage_pool", "pool")
    poolless = pool in ("", "n/a", "(n/a)", "-")
    role = _ROLES.get(kind or _text(row, "type", "node_type").lower(), "metadata" if poolless else "storage")
    return Target(
        role=role,
        id=number,
        alias=_text(row, "alias"),
        node=_text(row, "node", "on_node"),
        pool=_pool(pool, pools) if role == "storage" else "",
        total_bytes=_count(row, "space"),
        free_bytes=_count(row, "space_free", "sfree"),
        total_inodes=_count(row, "inodes") or None,
        free_inodes=_count(row, "inodes_free", "ifree") if _count(row, "inodes") else None,
        capacity=cast("Capacity", _one(_text(row, "cap_pool", "capacity_pool"), _CAPACITY)),
        reachability=cast("Reachability", _one(_text(row, "reachability"), _REACHABILITY)),
        consistency=cast("Consistency", _consistency(row)),
    )


def _consistency(row: dict[str, Any]) -> str:
    state = _one(_text(row, "consistency"), _CONSISTENCY)
    running = "resyncing" in (_text(row, "sync_state") + _text(row, "consistency")).lower()
    return "resyncing" if running and state != "bad" else state


def _identity(value: object) -> tuple[str, str]:
    """Parse number and type in an `id`: `{"num_id": 1, "node_type": 3}`, `storage:1`, `s:1`, or a number."""
    if isinstance(value, dict):
        fields = {str(name).lower().replace("_", ""): field for name, field in value.items()}
        return str(fields.get("numid", "")), str(fields.get("nodetype", "")).lower()
    kind, _, number = str(value).rpartition(":")
    return number, kind.lower()


def _pool(text: str, pools: dict[str, str]) -> str:
    """Return the number of a pool stated as `s:1` or by its alias; an unknown text unchanged."""
    numbered = re.fullmatch(r"s(?:torage)?:(\d+)", text)
    return numbered[1] if numbered else pools.get(text, text)


def _text(row: dict[str, Any], *names: str) -> str:
    return next((str(row[name]) for name in names if row.get(name) is not None), "")


def _one(text: str, words: tuple[str, ...]) -> str:
    return text.lower() if text.lower() in words else "unknown"


def _count(row: dict[str, Any], *names: str) -> int | None:
    number = re.match(r"(\d+)\b", _text(row, *names))
    return int(number[1]) if number else None


def read_pools(out: str) -> dict[str, str]:
    """Parse the number of each pool, by its alias."""
    return {_text(row, "alias"): _identity(row["id"])[0] for row in rows(out) if "id" in row}


def read_servers(out: str) -> list[Server]:
    """Parse the output of `list_nodes`, without clients. Each address of a node has its own line; the node is
    reached if any of its addresses is."""
    servers = []
    for row in rows(out):
        number, kind = _identity(row.get("id", ""))
        role = _ROLES.get(kind or _text(row, "type").lower())
        if role is None:
            continue
        answers = _text(row, "reachable").split()
        up = "yes" in answers if answers and "?" not in answers else None
        servers.append(Server(role, _text(row, "alias"), number, up))
    return servers


def read_pattern(out: str) -> Pattern | None:
    """Parse the pattern of `entry_info`: `RAID0 (4x1048576)` with --raw, `RAID0 (4x1M)` without."""
    for row in rows(out):
        pattern = re.match(r"(.+?)\s*\((\d+)x(\d+)([KMG]?)i?B?\)", _text(row, "stripe_pattern"))
        pool = re.match(r"(.*)\((\d+)\)$", _text(row, "storage_pool"))
        if pattern:
            scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[pattern[4]]
            return Pattern(
                kind="mirrored" if "mirror" in pattern[1].lower() else pattern[1].lower(),
                chunk_bytes=int(pattern[3]) * scale,
                targets=int(pattern[2]),
                pool=pool[2] if pool else "",
                pool_name=pool[1].strip() if pool else "",
            )
    return None


def read_quotas(out: str, pools: dict[str, str] | None = None) -> list[Quota]:
    """Parse the rows of `list_usage`. Their form is `used/limit`, with `?` for an unknown figure, and an
    infinity sign for no limit."""
    quotas = []
    for row in rows(out):
        scope = _text(row, "type").lower()
        number = _text(row, "id")
        if scope not in ("user", "group") or not number.isdigit():
            continue
        used, limit = _used_of(_text(row, "space"))
        used_files, file_limit = _used_of(_text(row, "inode", "inodes"))
        pool = _text(row, "pool", "storage_pool")
        quotas.append(
            Quota(
                cast("Literal['user', 'group']", scope),
                int(number),
                _pool(pool, pools or {}),
                used,
                limit,
                used_files,
                file_limit,
            )
        )
    return quotas


def _used_of(text: str) -> tuple[int | None, int | None]:
    used, _, limit = text.partition("/")
    most = int(limit) if limit.isdigit() else None
    return (int(used) if used.isdigit() else None), (None if most is None or most >= UNLIMITED else most)


def refused(words: str) -> bool:
    """Do the same as `beegfs_v7.refused`, for the messages of version 8."""
    return bool(
        re.search(
            r"only root|permission|not allowed|not permitted|only be (?:used|changed)|EPERM",
            words,
            re.IGNORECASE,
        )
    )


def silence_cause(words: str) -> SilenceCause:
    """Classify why a command got no answer, judging by its message.

    | first text that the message contains             | cause        |
    |--------------------------------------------------|--------------|
    | `License`, also as `Unauthenticated ... License` | ""           |
    | `auth file`, `Unauthenticated`                   | `secret`     |
    | `permission denied`                              | ""           |
    | `code = Unavailable`, `connection refused`,      | `management` |
    | `deadline exceeded`, ...                         |              |
    | none of these                                    | ""           |

    Only root can read the secret, /etc/beegfs/conn.auth, by default.
    """
    if re.search(r"licen[sc]e", words, re.IGNORECASE):
        return ""
    if re.search(r"auth(?:entication)? file|\bUnauthenticated\b", words, re.IGNORECASE):
        return "secret"
    if re.search(r"permission denied", words, re.IGNORECASE):
        return ""
    away = r"code = Unavailable|connection (?:error|refused)|deadline ?exceeded|no route to host|i/o timeout"
    return "management" if re.search(away, words, re.IGNORECASE) else ""
