# ruff: noqa: E501, UP031 (output and its formats stand as in the source of the commands)
"""STAND-IN for BeeGFS' commands: `beegfs-ctl`, `beegfs-df` and `beegfs-check-servers` of version 7, `beegfs` of
version 8. No BeeGFS is behind it: a JSON description of a cluster is (`tests.vendors.beegfs_cluster`).

It refuses what the real commands refuse, with their exit statuses, and prints their formats, by the sources of
ThinkParQ/beegfs (tag 7.4.7, `ctl/source/modes`, `utils/scripts`) and ThinkParQ/beegfs-go (`ctl/internal/cmd`), and
as `recorded` has them of real ones (7.4.7, 8.3.1). Standard library alone: it starts with `python -S -E`.

Called as: <program> <description.json> <log.jsonl> <arguments ...>. Each call is a line of the log.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

GIB = 1 << 30
INVALID, INITIALIZATION, RUNTIME, NOT_REACHABLE, NOT_ONLINE, NOT_GOOD = 1, 2, 3, 5, 6, 7
"""Exit statuses of beegfs-ctl (`ctl/source/app/App.h`)."""
Json = dict[str, Any]


class RefusedError(Exception):
    """What the command says on standard error, and its exit status."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.words, self.code = words, code


def main() -> int:
    program, described, log, *arguments = sys.argv[1:]
    with open(described, encoding="utf-8") as stream:
        cluster = json.load(stream)
    last = arguments[-1] if arguments else ""
    line = {
        "argv": [program, *arguments],
        "locale": os.environ.get("LC_ALL", ""),
        "environment": sorted(os.environ),
        "entries": sorted(os.listdir(last)) if os.path.isdir(last) else None,
    }
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    if cluster.get("hangs") == program:
        reads, _ = os.pipe()
        os.read(reads, 1)
    called = {"beegfs-ctl": ctl, "beegfs-df": df, "beegfs-check-servers": check_servers, "beegfs": v8}[
        program
    ]
    try:
        return called(cluster, arguments, described)
    except RefusedError as error:
        sys.stderr.write(error.words + "\n")
        return error.code


def pattern_of(cluster: Json, path: str) -> Json:
    """The pattern of a folder: its own, or that of the nearest folder above that has one."""
    path = os.path.abspath(path)
    while path != "/" and path not in cluster["patterns"]:
        path = os.path.dirname(path)
    return {**cluster["pattern"], **cluster["patterns"].get(path, {})}


def keep(cluster: Json, described: str, path: str, changes: Json) -> None:
    path = os.path.abspath(path)
    cluster["patterns"][path] = {**pattern_of(cluster, path), **changes}
    if cluster.get("forgets"):
        cluster["patterns"].pop(path)
    with open(described + ".new", "w", encoding="utf-8") as stream:
        json.dump(cluster, stream)
    os.replace(described + ".new", described)


# Version 7


def options(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    given, left = {}, []
    for one in arguments:
        if one.startswith("--"):
            name, _, value = one.partition("=")
            given[name] = value
        else:
            left.append(one)
    return given, left


def ctl(cluster: Json, arguments: list[str], described: str) -> int:
    given, left = options(arguments)
    if not cluster["management"]:
        raise RefusedError("Management node communication failed: 10.0.0.1", RUNTIME)
    mount = given.pop("--mount", None)
    if mount is not None and not os.path.isdir(mount):
        raise RefusedError(f"Not a mount point: {mount}", INITIALIZATION)
    modes = {"--listtargets": list_targets, "--listnodes": list_nodes, "--getentryinfo": get_entry_info,
             "--setpattern": set_pattern, "--getquota": get_quota}  # fmt: skip
    chosen = [name for name in modes if name in given]
    if len(chosen) != 1:
        raise RefusedError("Invalid or missing mode.", INVALID)
    given.pop(chosen[0])
    return modes[chosen[0]](cluster, given, left, described)


def no_more(given: dict[str, str], left: list[str]) -> None:
    for name in [*given, *left]:
        raise RefusedError(f"Invalid argument: {name}", INVALID)


def list_targets(cluster: Json, given: dict[str, str], left: list[str], _: str) -> int:
    if cluster["version"] < "7.0" and "--storagepools" in given:
        raise RefusedError("Invalid argument: --storagepools", INVALID)
    flags = {name: given.pop(name, None) is not None for name in (
        "--nodesfirst", "--longnodes", "--hidenodeid", "--state", "--errorcodes", "--pools", "--spaceinfo",
        "--storagepools")}  # fmt: skip
    kind = given.pop("--nodetype", "storage").lower()
    if kind not in ("meta", "metadata", "storage"):
        raise RefusedError("Invalid node type.", INVALID)
    role = "storage" if kind == "storage" else "metadata"
    pool = given.pop("--storagepoolid", None)
    if pool is not None and role != "storage":
        raise RefusedError("--storagepoolid can only be used for storage nodes.", INVALID)
    if pool is not None and pool not in cluster["pools"]:
        raise RefusedError(f"Given storage pool ID {pool} can't be resolved to a pool.", INVALID)
    no_more(given, left)
    nodes = not flags["--hidenodeid"]
    heads = [("%8s", "TargetID", "========")]
    if flags["--state"]:
        heads += [("%16s", "Reachability", "============"), ("%12s", "Consistency", "===========")]
    if flags["--storagepools"]:
        heads.append(("%10s", "St. Pool", "========"))
    if flags["--pools"]:
        seed = cluster["version"] < "7.0"
        heads.append(("%11s", *(("Pool", "====") if seed else ("Cap. Pool", "========="))))
    if flags["--spaceinfo"]:
        heads += [("%12s", "Total", "====="), ("%12s", "Free", "===="), ("%4s", "%", "="),
                  ("%11s", "ITotal", "======"), ("%11s", "IFree", "====="), ("%4s", "%", "=")]  # fmt: skip
    if nodes:
        heads.append(("%8s", "NodeID", "======"))
    for row in (1, 2):
        print(" ".join(head[0] % head[row] for head in heads))
    code = 0
    for target in cluster["targets"]:
        if target["role"] != role or (pool is not None and str(target["pool"]) != pool):
            continue
        cells = ["%8d" % target["id"]]
        if flags["--state"]:
            cells += [
                "%16s" % target["reachability"],
                "%12s" % target["consistency"].lower().replace("good", "Good"),
            ]
            if flags["--errorcodes"] and target["consistency"] != "Good":
                code = code or NOT_GOOD
            elif flags["--errorcodes"] and target["reachability"] != "Online":
                code = code or NOT_ONLINE
        if flags["--storagepools"]:
            cells.append("%10s" % target["pool"])
        if flags["--pools"]:
            shown = target["capacity"]
            cells.append("%11s" % (f"[{shown}]" if cluster["version"] < "7.0" else shown))
        if flags["--spaceinfo"]:
            total, free, inodes, inodes_free = (target[name] for name in ("total", "free", "inodes", "ifree"))
            if not target["answers"]:
                named = f"beegfs-{'meta' if role == 'metadata' else role} {target['node']} [ID: {target['node_id']}]"
                sys.stderr.write(f" [ERROR from {named}: Communication error]\n")
                total = free = inodes = inodes_free = 0
                code = code or RUNTIME
            cells.append(f"{total / GIB:9.1f}GiB {free / GIB:9.1f}GiB {100 * free / total if total else 0:3.0f}% {inodes / 1e6:10.1f}M {inodes_free / 1e6:10.1f}M {100 * inodes_free / inodes if inodes else 0:3.0f}%")  # fmt: skip
        if nodes and flags["--longnodes"]:
            cells.append(
                f"  beegfs-{'meta' if role == 'metadata' else role} {target['node']} [ID: {target['node_id']}]"
            )
        elif nodes:
            cells.append("%8s" % target["node_id"])
        print(" ".join(cells))
    return code


def list_nodes(cluster: Json, given: dict[str, str], left: list[str], _: str) -> int:
    flags = {name: given.pop(name, None) is not None for name in ("--reachable", "--route", "--errorcodes")}
    kind = given.pop("--nodetype", "").lower()
    roles = {"management": "management", "metadata": "metadata", "meta": "metadata", "storage": "storage"}
    if kind not in roles:
        raise RefusedError("Invalid or missing node type.", INVALID)
    no_more(given, left)
    code = 0
    for server in cluster["servers"]:
        if server["role"] != roles[kind]:
            continue
        print(f"{server['name']} [ID: {server['id']}]")
        if flags["--reachable"]:
            print(f"   Reachable: {'<yes>' if server['reachable'] else '<no>'}")
        if flags["--route"]:
            print(f"   Route: {server['route'] if server['reachable'] else '<skipped unreachable>'}")
        if flags["--errorcodes"] and not server["reachable"]:
            code = NOT_REACHABLE
    return code


def get_entry_info(cluster: Json, given: dict[str, str], left: list[str], _: str) -> int:
    for name in ("--verbose", "--nomappings", "--null", "--unmounted"):
        given.pop(name, None)
    if not left:
        raise RefusedError("No path specified.", INVALID)
    path = left.pop(0)
    no_more(given, left)
    if not os.path.exists(path):
        raise RefusedError(f"Unable to stat path: {path}", RUNTIME)
    pattern = pattern_of(cluster, path)
    chunk = pattern["chunk"]
    shown = f"{chunk >> 20}M" if chunk % (1 << 20) == 0 else f"{chunk >> 10}K"
    print("Entry type: directory")
    print("EntryID: 0-5E9E76DD-C9")
    print("Metadata node: meta01 [ID: 1]")
    print("Stripe pattern details:")
    print(f"+ Type: {'Buddy Mirror' if pattern['kind'] == 'mirrored' else 'RAID0'}")
    print(f"+ Chunksize: {shown}")
    print(f"+ Number of storage targets: desired: {pattern['targets']}")
    if cluster["version"] >= "7.0":
        print(f"+ Storage Pool: {pattern['pool']} ({cluster['pools'][str(pattern['pool'])]})")
    return 0


def set_pattern(cluster: Json, given: dict[str, str], left: list[str], described: str) -> int:
    """Targets and chunk: of what else the command can set this stand-in knows nothing."""
    changes: Json = {"targets": int(given.pop("--numtargets", "0"))}
    if "--chunksize" in given:
        changes["chunk"] = int(given.pop("--chunksize"))
        if changes["chunk"] < 1 << 16:
            raise RefusedError(
                "Chunksize --chunksize out of bounds, must be between 65536 and 4294967295", RUNTIME
            )
        print(f"New chunksize: {changes['chunk']}")
    if not left:
        raise RefusedError("No path specified.", RUNTIME)
    path = left.pop(0)
    no_more(given, left)
    print(f"New number of storage targets: {changes['targets']}\n")
    if not os.path.isdir(path):
        raise RefusedError(f"Unable to stat path: {path}", RUNTIME)
    # The metadata server judges the rest.
    if not allowed(cluster, path):
        raise RefusedError("Node encountered an error: Permission denied", RUNTIME)
    keep(cluster, described, path, changes)
    return 0


def allowed(cluster: Json, path: str) -> bool:
    """Root may; others on their own folders, where `sysAllowUserSetPattern` is set."""
    mine = cluster["owners"].get(os.path.abspath(path), cluster["uid"]) == cluster["uid"]
    return bool(cluster["root"] or (cluster["allow_user_pattern"] and mine))


def get_quota(cluster: Json, given: dict[str, str], left: list[str], _: str) -> int:
    pool = given.pop("--storagepoolid", None)
    if pool is not None and not pool.isdigit():
        raise RefusedError("--storagepoolid must be a numeric value.", RUNTIME)
    csv = given.pop("--csv", None) is not None
    given.pop("--withzero", None)
    scopes = [name for name in ("--uid", "--gid") if given.pop(name, None) is not None]
    if len(scopes) == 2:
        raise RefusedError("Invalid configuration. Only one of --uid or --gid is allowed.", INVALID)
    if not scopes:
        raise RefusedError("Invalid configuration. One of --uid or --gid is required.", INVALID)
    if len([name for name in ("--all", "--list", "--range") if name in given]) > 1:
        raise RefusedError(
            "Invalid configuration. Only one of --all, --list, or --range is allowed.", INVALID
        )
    if not left:
        raise RefusedError("No ID specified.", INVALID)
    number = int(left.pop(0))
    no_more(given, left)
    if pool is not None and pool not in cluster["pools"]:
        raise RefusedError(f"Storage pool ID doesn't exist: {pool}.", INVALID)
    assert csv, "the stand-in has the CSV form alone"
    scope = "user" if scopes[0] == "--uid" else "group"
    for one in [pool] if pool is not None else cluster["pools"]:
        if pool is None:
            print(f"\nQuota information for storage pool {cluster['pools'][one]} (ID: {one}):\n")
        found = [quota for quota in cluster["quotas"]
                 if (quota["scope"], quota["id"], str(quota["pool"])) == (scope, number, one)]  # fmt: skip
        print("name,id,size,hard,files,hard")
        for quota in found:
            cells = [unlimited(quota[name]) for name in ("used", "limit", "files", "file_limit")]
            print(f"{scope}{number},{number},{','.join(cells)}")
        if not found:
            print(f"{scope}{number},{number},0 Byte,unlimited,0,unlimited")
    return 0


def unlimited(count: int | None) -> str:
    return "unlimited" if count is None else str(count)


def df(cluster: Json, arguments: list[str], described: str) -> int:
    """The script `utils/scripts/beegfs-df`."""
    more: list[str] = []
    while arguments:
        flag = arguments.pop(0)
        if flag == "-e":
            more.append("--errorcodes")
        elif flag in ("-p", "-s"):
            more.append({"-p": "--mount=", "-s": "--storagepoolid="}[flag] + arguments.pop(0))
        else:
            raise RefusedError(f"Invalid option: {flag}", 1)
    common = ["--listtargets", "--hidenodeid", "--pools", "--spaceinfo"]
    print("METADATA SERVERS:")
    codes = [
        attempt(cluster, [*common, *[one for one in more if "pool" not in one], "--nodetype=meta"], described)
    ]
    print()
    print("STORAGE TARGETS:")
    codes.append(attempt(cluster, [*common, *more, "--nodetype=storage"], described))
    return 1 if "--errorcodes" in more and any(codes) else 0


def attempt(cluster: Json, arguments: list[str], described: str) -> int:
    try:
        return ctl(cluster, arguments, described)
    except RefusedError as error:
        sys.stderr.write(error.words + "\n")
        return error.code


def check_servers(cluster: Json, arguments: list[str], _: str) -> int:
    """The script `utils/scripts/beegfs-check-servers`."""
    errors = False
    while arguments:
        flag = arguments.pop(0)
        if flag == "-e":
            errors = True
        elif flag in ("-p", "-c"):
            arguments.pop(0)
        else:
            raise RefusedError(f"Invalid option: {flag}", 1)
    for kind in ("Management", "Metadata", "Storage"):
        print(kind)
        print("==========")
        found = [server for server in cluster["servers"] if server["role"] == kind.lower()]
        if not cluster["management"] or (errors and any(not server["reachable"] for server in found)):
            sys.stderr.write("\n")
            return 1
        for server in found:
            state = f"reachable at {server['route']}" if server["reachable"] else "UNREACHABLE"
            print(f"{server['name']} [ID: {server['id']}]: {state}")
        print()
    return 0


# Version 8


def v8(cluster: Json, arguments: list[str], described: str) -> int:
    lowered = [one.split("=")[0].lower() + one[len(one.split("=")[0]) :] if one.startswith("--") else one
               for one in arguments]  # fmt: skip
    words: list[str] = []
    given: dict[str, str] = {}
    booleans = {"--raw", "--state", "--capacity", "--reachability-error", "--reachability-check", "--verbose",
                "--retro", "--recurse", "--yes", "--exceeded", "--force", "--disable-emojis", "--with-limits"}  # fmt: skip
    while lowered:
        one = lowered.pop(0)
        if not one.startswith("--"):
            words.append(one)
            continue
        name, equals, value = one.partition("=")
        if name not in booleans and not equals:
            if not lowered:
                raise RefusedError(f"Error: flag needs an argument: {name}", 1)
            value = lowered.pop(0)
        given[name] = value
    command, left = tuple(words[:2]), words[2:]
    commands = {("target", "list"): target_list, ("node", "list"): node_list, ("pool", "list"): pool_list,
                ("entry", "info"): entry_info, ("entry", "set"): entry_set,
                ("quota", "list-usage"): list_usage}  # fmt: skip
    if command not in commands:
        raise RefusedError(f'Error: unknown command {" ".join(command)!r} for "beegfs"', 1)
    form = given.pop("--output", "table")
    raw = given.pop("--raw", None) is not None
    mount = given.pop("--mount", "auto")
    if mount not in ("auto", "none") and not os.path.isdir(mount):
        raise RefusedError(f"Error: not a BeeGFS mount: {mount}", 1)
    if mount == "none" and not cluster["root"]:
        raise RefusedError("Error: only root can interact with an unmounted file system", 1)
    cluster["given_mount"] = mount
    why = ""
    if not (cluster["secret"] or cluster["root"]):
        why = 'couldn\'t read default auth file at "/etc/beegfs/conn.auth": open /etc/beegfs/conn.auth: permission denied'
    elif not cluster["management"]:
        why = ('rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp '
               '10.0.0.1:8010: connect: connection refused"')  # fmt: skip
    if why:
        about = {"entry": "unable to proceed without entity mappings: unable to get target list from management: ",
                 "node": "unable to proceed without a working management node: "}  # fmt: skip
        raise RefusedError(f"Error: {about.get(command[0], '')}{why}", 1)
    if command[0] == "quota" and not cluster["licensed"]:
        raise RefusedError("Error: rpc error: code = Unauthenticated desc = Get quota usage: License verification library "
                           "not loaded. Feature Quota unavailable.", 1)  # fmt: skip
    code = commands[command](cluster, given, left, described, form=form, raw=raw)
    if code == 0 and not cluster["licensed"]:
        raise RefusedError("Error: unable to verify licensed status: rpc error: code = Unknown desc = Get license: License "
                           "verification library not loaded.", 1)  # fmt: skip
    return code


def known(given: dict[str, str], *names: str) -> None:
    for name in given:
        if name not in names:
            raise RefusedError(f"Error: unknown flag: {name}", 1)


def show(rows: list[Json], form: str) -> None:
    if form != "ndjson":
        raise AssertionError("the stand-in prints lines of JSON alone")
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))


NODE_TYPES = {"client": 1, "meta": 2, "storage": 3, "management": 4}


def identity(number: int, kind: str) -> Json:
    return {"num_id": number, "node_type": NODE_TYPES[kind]}


def target_list(
    cluster: Json, given: dict[str, str], left: list[str], _: str, *, form: str, raw: bool
) -> int:
    known(given, "--state", "--capacity", "--node-type", "--pool", "--columns", "--page-size")
    assert raw, "the stand-in prints bytes alone"
    del left
    rows = []
    new = cluster["version"] >= "8.1"
    for target in cluster["targets"]:
        kind = "meta" if target["role"] == "metadata" else "storage"
        pool = f"s:{target['pool']}" if kind == "storage" else "(n/a)"
        node = f"{kind[0]}:{target['node_id']}"
        row: Json = {"id": identity(target["id"], kind), "alias": target["alias"]}
        row |= (
            {"type": NODE_TYPES[kind], "node": node, "storage_pool": pool}
            if new
            else {"on node": node, "pool": pool}
        )
        if "--state" in given:
            consistency = target["consistency"]
            row |= {
                "reachability": target["reachability"],
                "consistency": "Needs-resync" if consistency == "Resyncing" else consistency,
            }
            row |= (
                {
                    "last_contact": "3s ago",
                    "sync_state": "Resyncing" if consistency == "Resyncing" else "Healthy",
                }
                if new
                else {"last contact": "3s ago"}
            )
        if "--capacity" in given:
            total, free, inodes, inodes_free = (target[name] for name in ("total", "free", "inodes", "ifree"))
            row["cap_pool" if new else "capacity pool"] = target["capacity"].capitalize()
            names = ("space", "space_used", "space_free", "inodes", "inodes_used", "inodes_free") if new else (
                "space", "sused", "sfree", "inodes", "iused", "ifree")  # fmt: skip
            values = [str(total), f"{total - free} ({100 - 100 * free / total:.2f}%)", str(free), str(inodes),
                      f"{inodes - inodes_free} ({100 - 100 * inodes_free / max(1, inodes):.2f}%)", str(inodes_free)]  # fmt: skip
            row |= dict(zip(names, values if target["answers"] else ["-"] * 6, strict=True))
        rows.append(row)
    show(rows, form)
    return 0


def node_list(cluster: Json, given: dict[str, str], left: list[str], _: str, *, form: str, raw: bool) -> int:
    known(given, "--node-type", "--with-nics", "--reachability-check", "--reachability-error")
    del left, raw
    checked = "--reachability-error" in given or "--reachability-check" in given
    rows: list[Json] = [{"alias": "c1-1-node1", "id": identity(1, "client"), "type": NODE_TYPES["client"],
                         "nics": "ethernet:eth0 (10.0.0.9:8004)", "reachable": "yes"}]  # fmt: skip
    for server in cluster["servers"]:
        kind = "meta" if server["role"] == "metadata" else server["role"]
        row: Json = {"id": identity(server["id"], kind), "type": NODE_TYPES[kind], "alias": server["name"]}
        if checked:
            row |= {"nics": "ethernet:eth0 (10.0.0.1:8003)\nrdma:ib0 (10.1.0.1:8003)",
                    "reachable": "yes\nno" if server["reachable"] else "no\nno"}  # fmt: skip
        rows.append(row)
    show(rows, form)
    if "--reachability-error" in given and not all(server["reachable"] for server in cluster["servers"]):
        raise RefusedError("Error: at least one node is unreachable", 5)
    return 0


def pool_list(cluster: Json, given: dict[str, str], left: list[str], _: str, *, form: str, raw: bool) -> int:
    known(given, "--with-limits")
    del left, raw
    show(
        [
            {
                "id": identity(int(number), "storage"),
                "alias": alias,
                "mirrors": "",
                "targets": ",".join(
                    f"s:{target['id']}"
                    for target in cluster["targets"]
                    if target["role"] == "storage" and str(target["pool"]) == number
                ),
            }
            for number, alias in cluster["pools"].items()
        ],
        form,
    )
    return 0


def entry_info(cluster: Json, given: dict[str, str], left: list[str], _: str, *, form: str, raw: bool) -> int:
    known(given, "--retro", "--verbose", "--recurse", "--columns", "--stdin-delimiter")
    if not left:
        raise RefusedError("Error: missing <path> argument. Usage: info <path> [<path>] ...", 1)
    # `util.GetStdinDelimiterFromString`: a line feed, or one character, which may be written `\\x00`.
    delimiter = given.get("--stdin-delimiter", "\n").replace("\\x00", "\0").replace("\\n", "\n")
    if len(delimiter) != 1:
        raise RefusedError(f"Error: invalid delimiter {delimiter!r}: must be a single character", 1)
    if left == ["-"]:
        left = [path for path in sys.stdin.read().split(delimiter) if path]
    wanted = given.get("--columns", ",".join(COLUMNS)).split(",")
    for name in wanted:
        if name not in (*COLUMNS, *MORE_COLUMNS):
            raise RefusedError(f"Error: unknown column {name!r}", 1)
    for given_path in left:
        path, printed = looked_up(cluster, given_path)
        if not os.path.lexists(path):
            raise RefusedError(f"Error: stat {path}: no such file or directory", 1)
        pattern = pattern_of(cluster, path)
        chunk = str(pattern["chunk"]) if raw else f"{pattern['chunk'] >> 20}M"
        kind = "Buddy Mirror" if pattern["kind"] == "mirrored" else "RAID0"
        folder = os.path.isdir(path)
        row = {
            "path": printed,
            "entry_id": "0-5E9E76DD-C9", "type": 1 if folder else 2, "meta_node": "m:1",
            "meta_mirror": "(unmirrored)",
            "storage_pool": f"{cluster['pools'][str(pattern['pool'])]} ({pattern['pool']})" if folder else "(file)",
            "stripe_pattern": f"{kind} ({pattern['targets']}x{chunk})",
            "storage_targets": "(directory)" if folder else "s:101",
            "storage_mirrors": "(directory)" if folder else "(unmirrored)", "remote_targets": "(none)",
            "cool_down": "(n/a)", "client_sessions": "(directory)" if folder else "Reading: 0, Writing: 0",
            "access": "(n/a)", "state": "(n/a)",
        }  # fmt: skip
        if not folder:
            access, state = state_of(cluster, path)
            row |= {"access": access, "state": state}
        show([{name: row[name] for name in wanted}], form)
    return 0


def looked_up(cluster: Json, path: str) -> tuple[str, str]:
    """Where the file is, and the path that is printed: below the mount, not as it was given. Version 8 looks for what
    is left of the path below the mount point, from the file system's root: `mounts` of the description are the points
    of its mounts, `store` is the folder that stands for its root."""
    if not cluster.get("mounts"):
        return path, "/" + os.path.relpath(path, cluster["mount"]) if cluster.get("mount") else path
    mount = cluster["given_mount"]
    if mount == "auto":
        mount = max(
            (one for one in cluster["mounts"] if f"{path}/".startswith(f"{one}/")), key=len, default=""
        )
        if not mount:
            raise RefusedError(f"Error: {path}: unable to initialize file system client", 1)
    left = path if mount == "none" else path.removeprefix(mount)
    return cluster["store"] + left, left


COLUMNS = ("path", "entry_id", "type", "meta_node", "meta_mirror", "storage_pool", "stripe_pattern", "storage_targets",
           "storage_mirrors", "remote_targets")  # fmt: skip
MORE_COLUMNS = ("cool_down", "client_sessions", "access", "state")


def state_of(cluster: Json, path: str) -> tuple[str | int, str | int]:
    """Access flags and data state of a file: those of the description; else, on the test bed, whether it is a stub
    there, which restores itself when it is opened. There are three forms, one after the other: numbers (8.3.1 prints
    these), names in capitals, names with dashes; `state_form` of the description chooses."""
    access, state = cluster.get("states", {}).get(path, ("unlocked", "available"))
    try:
        if os.getxattr(path, "user.temperfs.state") == b"offline":
            state = "auto-restore"
    except OSError:
        pass
    form = cluster.get("state_form", "numbers")
    if form == "dashes":
        return access, state
    if form == "numbers":
        locks = ("unlocked", "locked-read", "locked-write", "locked-read-write")
        states = ("available", "manual-restore", "auto-restore", "delayed-restore", "unavailable")
        return locks.index(access), states.index(state)
    words = {
        "unlocked": "Unlocked",
        "locked-read": "Locked (read)",
        "locked-read-write": "Locked (read+write)",
    }
    return words[access], "".join(word.capitalize() for word in state.split("-"))


def entry_set(
    cluster: Json, given: dict[str, str], left: list[str], described: str, *, form: str, raw: bool
) -> int:
    del form, raw
    known(given, "--num-targets", "--chunk-size")
    if not left:
        raise RefusedError("Error: missing <path> argument. Usage: set <path> [<path>] ...", 1)
    changes: Json = {"targets": int(given["--num-targets"])}
    updates = f"DefaultNumTargets ({changes['targets']})"
    if "--chunk-size" in given:
        changes["chunk"] = int(given["--chunk-size"])
        if changes["chunk"] < 1 << 16:
            raise RefusedError(f'Error: invalid argument "{changes["chunk"]}" for "--chunk-size" flag: parsed chunksize '
                               f"({changes['chunk']} bytes) is out of bounds (must be between 65536 bytes and 4294967295 "
                               "bytes)", 1)  # fmt: skip
        updates = f"Chunksize ({changes['chunk']}), {updates}"
    done = 0
    for given_path in left:
        path, _ = looked_up(cluster, given_path)
        if os.path.isdir(path):  # others are ignored silently
            if not allowed(cluster, path):
                raise RefusedError("Error: Operation not permitted", 1)
            keep(cluster, described, path, changes)
            done += 1
    sys.stderr.write(f"Summary: processed {done} entries | configuration updates: {updates}\n")
    return 0


def list_usage(cluster: Json, given: dict[str, str], left: list[str], _: str, *, form: str, raw: bool) -> int:
    known(given, "--uids", "--gids", "--pool", "--exceeded")
    assert raw, "the stand-in prints bytes alone"
    del left
    wanted = set()
    for scope, flag in (("user", "--uids"), ("group", "--gids")):
        value = given.get(flag, "current" if len({"--uids", "--gids"} & set(given)) == 0 else "")
        if value == "current":
            wanted.add((scope, cluster["uid"] if scope == "user" else cluster["gid"]))
        elif value:
            if not cluster["root"]:
                raise RefusedError(f"Error: only root can query arbitrary {scope} ids", 1)
            wanted |= {(scope, int(number)) for number in value.split(",")}
    pool = given.get("--pool")
    rows = []
    for quota in cluster["quotas"]:
        alias = cluster["pools"][str(quota["pool"])]
        if (quota["scope"], quota["id"]) in wanted and pool in (None, str(quota["pool"]), alias):
            rows.append({
                "name": f"{quota['scope']}{quota['id']}", "id": quota["id"], "type": quota["scope"], "pool": alias,
                "space": used_of(quota["used"], quota["limit"]), "inode": used_of(quota["files"], quota["file_limit"]),
            })  # fmt: skip
    show(rows, form)
    remark = ("INFO: Quota usage information is fetched every 30s from the server nodes" if rows
              else "WARNING: No information found for the specified ID(s).")  # fmt: skip
    sys.stderr.write(remark + "\n")
    return 0


def used_of(used: int | None, limit: int | None) -> str:
    return f"{'?' if used is None else used}/{'∞' if limit is None else limit}"


def end(code: int) -> NoReturn:
    sys.stdout.flush()
    raise SystemExit(code)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    end(main())
