# ruff: noqa: E501, UP031 (output and its formats stand as in the source of the command)
"""STAND-IN for Lustre's `lfs`. No Lustre is behind it: a JSON description of one is (`tests.vendors.lustre_cluster`).

It refuses what the real command refuses, and prints its formats, by the source of lustre-release
(`lustre/utils/lfs.c`, `liblustreapi.c`, 2.15 and later). Words that this source does not have are marked.
Standard library alone: it starts with `python -S -E`.

Called as: <program> <description.json> <log.jsonl> <arguments ...>. Each call is a line of the log.
"""

from __future__ import annotations

import getopt
import json
import os
import re
import sys
from typing import Any, NoReturn

Json = dict[str, Any]
KIB = 1024
STRIPE_UNIT = 65536
MOST_STRIPES = 2000


class RefusedError(Exception):
    """What the command says on standard error, and its exit status."""

    def __init__(self, words: str, code: int = 1) -> None:
        super().__init__(words)
        self.words, self.code = words, code


def main() -> int:
    _, described, log, *arguments = sys.argv[1:]
    with open(described, encoding="utf-8") as stream:
        lustre = json.load(stream)
    last = arguments[-1] if arguments else ""
    line = {
        "argv": ["lfs", *arguments],
        "locale": os.environ.get("LC_ALL", ""),
        "entries": sorted(os.listdir(last)) if os.path.isdir(last) else None,
    }
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    if lustre.get("hangs"):
        reads, _ = os.pipe()
        os.read(reads, 1)
    commands = {"df": df, "osts": osts, "mdts": mdts, "pool_list": pool_list, "quota": quota,
                "getstripe": getstripe, "setstripe": setstripe}  # fmt: skip
    try:
        if not arguments or arguments[0] not in commands:
            raise RefusedError(
                f"lfs: '{arguments[0] if arguments else ''}' is not a valid command. See 'lfs --list-commands'.",
                22,
            )
        return commands[arguments[0]](lustre, arguments[1:], described)
    except RefusedError as error:
        sys.stderr.write(error.words + "\n")
        return error.code


def options(
    name: str, arguments: list[str], short: str, long: list[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        return getopt.gnu_getopt(arguments, short, long)
    except getopt.GetoptError as error:
        raise RefusedError(f"lfs {name}: unrecognized option '{error.opt}'", 22) from None


def inside(name: str, paths: list[str]) -> str:
    if len(paths) != 1:
        raise RefusedError(f"lfs {name}: one path is wanted", 22)  # words of this stand-in
    if not os.path.exists(paths[0]):
        raise RefusedError(f"lfs {name}: cannot resolve path '{paths[0]}': No such file or directory", 2)
    return paths[0]


def df(lustre: Json, arguments: list[str], _: str) -> int:
    given, paths = options(
        "df", arguments, "ihlp:v", ["inodes", "human-readable", "lazy", "pool=", "verbose"]
    )
    flags = {name for name, _ in given}
    pool = next((value for name, value in given if name in ("-p", "--pool")), "")
    assert not flags & {"-h", "--human-readable"}, "the stand-in has KiB and whole numbers alone"
    inside("df", paths)
    if pool and pool.partition(".")[2] not in lustre["pools"]:
        raise RefusedError(f"error: cannot find pool '{pool}'", 2)  # words of this stand-in
    inodes = bool(flags & {"-i", "--inodes"})
    heads = (
        ("UUID", "Inodes", "IUsed", "IFree", "IUse%")
        if inodes
        else ("UUID", "1K-blocks", "Used", "Available", "Use%")
    )
    print("%-20s %11s %11s %11s %4s  Mounted on" % heads)
    code = 0
    for target in lustre["targets"]:
        kind, name = target["type"], target["name"] + "_UUID"
        if pool and kind == "OST" and target["name"] not in lustre["pools"][pool.partition(".")[2]]:
            continue
        if target["state"] == "inactive":
            if flags & {"-v", "--verbose"}:
                print("%-20s: inactive device" % name)
            continue
        if target["state"] == "away":
            if flags & {"-l", "--lazy"}:
                continue  # -EAGAIN
            print("%-20s: Cannot send after transport endpoint shutdown" % name)
            code = 108
            continue
        total, free = (
            (target["inodes"], target["ifree"]) if inodes else (target["total"] // KIB, target["free"] // KIB)
        )
        used = total - free
        print("%-20s %11d %11d %11d %3d%%  %s[%s:%d] %s" % (
            name, total, used, free, -(-100 * used // total) if total else 0, lustre["point"], kind, target["index"],
            target["flags"] if flags & {"-v", "--verbose"} else re.sub("[fa]", "", target["flags"])))  # fmt: skip
    print("\nfilesystem_summary:  %11d %11d %11d %3d%%  %s\n" % (1, 1, 0, 100, lustre["point"]))
    return code


def osts(lustre: Json, arguments: list[str], _: str) -> int:
    return listed(lustre, arguments, "OST", "OBDS:")


def mdts(lustre: Json, arguments: list[str], _: str) -> int:
    return listed(lustre, arguments, "MDT", "MDTS:")


def listed(lustre: Json, arguments: list[str], kind: str, head: str) -> int:
    inside(f"{kind.lower()}s", arguments)
    print(head)
    for target in lustre["targets"]:
        if target["type"] == kind:
            print(
                f"{target['index']}: {target['name']}_UUID {'INACTIVE' if target['state'] == 'inactive' else 'ACTIVE'}"
            )
    return 0


def pool_list(lustre: Json, arguments: list[str], _: str) -> int:
    if len(arguments) != 1:
        raise RefusedError("lfs pool_list: one name is wanted", 22)  # words of this stand-in
    if os.path.isdir(arguments[0]) or arguments[0] == lustre["name"]:
        print(f"Pools from {lustre['name']}:")
        for pool in lustre["pools"]:
            print(f"{lustre['name']}.{pool}")
        return 0
    pool = arguments[0].partition(".")[2]
    if pool not in lustre["pools"]:
        raise RefusedError(f"Cannot open pool '{arguments[0]}': No such file or directory", 2)
    print(f"Pool: {arguments[0]}")
    for name in lustre["pools"][pool]:
        print(f"{name}_UUID")
    return 0


def quota(lustre: Json, arguments: list[str], _: str) -> int:
    given, paths = options("quota", arguments, "qvhu:g:p:", ["pool="])
    scopes = {"-u": "usr", "-g": "grp", "-p": "prj"}
    asked = [(scopes[name], value) for name, value in given if name in scopes]
    if len(asked) != 1:
        raise RefusedError("lfs quota: only one of -u, -g or -p may be specified", 22)
    inside("quota", paths)
    ((scope, number),) = asked
    if scope not in lustre["enforced"]:
        raise RefusedError(f"{scope} quotas are not enabled.", 3)
    mine = {"usr": lustre["uid"], "grp": lustre["gid"]}.get(scope)
    if not lustre["root"] and mine != int(number) and scope != "prj":
        raise RefusedError("Permission denied.")
    found = next((one for one in lustre["quotas"] if (one["scope"], one["id"]) == (scope, int(number))), {})
    figure = "[%d]" if found.get("inexact") else "%d"
    cells = []
    for kind, unit in (("space", KIB), ("files", 1)):
        one = found.get(kind, {})
        used, soft, hard = (one.get(name, 0) // unit for name in ("used", "soft", "hard"))
        over = bool((hard and used >= hard) or one.get("grace"))
        grace = one.get("grace", "-")
        cells += [
            "%*s%s" % (6 if over else 7, figure % used, "*" if over else ""),
            "%7d" % soft,
            "%7d" % hard,
            "%7s" % grace,
        ]
    print(f"Disk quotas for {scope} {number} ({scope[0]}id {number}):")
    print(
        "%15s %7s %7s %7s %7s %7s %7s %7s %7s "
        % ("Filesystem", "kbytes", "bquota", "blimit", "bgrace", "files", "iquota", "ilimit", "igrace")
    )
    print("%15s %s " % (paths[0], " ".join(cells)))
    if found.get("inexact"):
        print(
            '1 Some errors happened when getting quota info. Some devices may be not working or deactivated. The data in "[]" is inaccurate.'
        )
        return 5
    return 0


def layout_of(lustre: Json, path: str) -> Json:
    path = os.path.abspath(path)
    while path != "/" and path not in lustre["layouts"]:
        path = os.path.dirname(path)
    found: Json = lustre["layouts"].get(path, lustre["layout"])
    return found


def getstripe(lustre: Json, arguments: list[str], _: str) -> int:
    given, paths = options("getstripe", arguments, "dy", ["directory", "yaml"])
    assert {name for name, _ in given} <= {"-d", "--directory"}, "the stand-in prints a folder's layout alone"
    path = inside("getstripe", paths)
    layout = layout_of(lustre, path)
    print(path)
    components = layout["components"]
    plain = len(components) == 1 and components[0]["end"] is None
    if not plain:
        print(f"  lcm_layout_gen:    0\n  lcm_mirror_count:  1\n  lcm_entry_count:   {len(components)}")
    start = 0
    for one in components:
        end = "EOF" if one["end"] is None else one["end"]
        space = "" if plain else "      "
        if not plain:
            print("    lcme_id:             N/A\n    lcme_mirror_id:      N/A\n    lcme_flags:          0")
            print(f"    lcme_extent.e_start: {start}\n    lcme_extent.e_end:   {end}")
        pool = f"{space} pool:          {layout['pool']}" if layout["pool"] else ""
        print(
            f"{space}stripe_count:  {one['count']}{space} stripe_size:   {one['size']}{space} pattern:       {one.get('pattern', 'raid0')}{space} stripe_offset: -1{pool}"
        )
        if not plain:
            print()
        start = one["end"]
    print()
    return 0


def parsed(text: str) -> int:
    """`llapi_parse_size`: one letter at the end, binary."""
    found = re.fullmatch(r"(\d+)([bkmgtpe]?)", text.lower())
    if found is None:
        raise RefusedError(f"lfs setstripe: bad stripe size '{text}'", 22)
    power = {"": 0, "b": 9, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}[found[2]]
    return int(found[1]) << power


def setstripe(lustre: Json, arguments: list[str], described: str) -> int:
    """A plain layout alone."""
    given, paths = options("setstripe", arguments, "c:S:p:i:", ["stripe-count=", "stripe-size=", "pool="])
    count, size, pool = 1, 1 << 20, ""
    for name, value in given:
        if name == "-c":
            if not re.fullmatch(r"-?\d+", value) or not -1 <= int(value) <= MOST_STRIPES:
                raise RefusedError(f"lfs setstripe: invalid stripe count '{value}'", 22)
            count = int(value)
        elif name == "-S":
            size = parsed(value)
            if size % STRIPE_UNIT or size >= 1 << 32:
                raise RefusedError(
                    f"lfs setstripe: invalid stripe size '{value}', must be a multiple of 64KiB", 22
                )
        elif name == "-p":
            if value not in lustre["pools"]:
                raise RefusedError(f"lfs setstripe: pool '{value}' does not exist", 22)
            pool = value
    path = inside("setstripe", paths)
    owner = lustre["owners"].get(os.path.abspath(path), lustre["uid"])
    if not lustre["root"] and (owner != lustre["uid"] or not lustre["users_may_stripe"]):
        raise RefusedError(f"lfs setstripe: setstripe error for '{path}': Operation not permitted")
    # What is not given is as the file system has it, not as the folder had it.
    made = [{"end": None, "count": count, "size": size}]
    lustre["layouts"][os.path.abspath(path)] = {"components": made, "pool": pool}
    if lustre.get("forgets"):
        lustre["layouts"].pop(os.path.abspath(path))
    with open(described + ".new", "w", encoding="utf-8") as stream:
        json.dump(lustre, stream)
    os.replace(described + ".new", described)
    return 0


def end(code: int) -> NoReturn:
    sys.stdout.flush()
    raise SystemExit(code)


if __name__ == "__main__":
    end(main())
