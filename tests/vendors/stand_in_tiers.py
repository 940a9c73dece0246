"""STAND-IN for two commands that say where data is: `lfs hsm_state` and `weka fs tier location`. Neither
Lustre nor WEKA is behind it: a JSON description is, of the flags of each path or name, or of its bytes in
the tiers.

`lfs` prints and ends as lustre/utils/lfs.c does. What `weka` prints as JSON, and how it fails, is our reading
of its manual: the columns are those of its reference. Standard library alone: it starts with `python -S -E`.

Called as: <program> <description.json> <log.jsonl> <arguments ...>. Each call is a line of the log.
"""

from __future__ import annotations

import json
import os
import sys

NAMES = ("exists", "dirty", "released", "archived", "never_release", "never_archive", "lost_from_hsm")
SHOWN = ("released", "exists", "dirty", "archived", "never_release", "never_archive", "lost_from_hsm")


def main() -> int:
    program, described, log, *arguments = sys.argv[1:]
    with open(described, encoding="utf-8") as stream:
        states = json.load(stream)
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(json.dumps([program, *arguments]) + "\n")
    return {"lfs": lfs, "weka": weka}[program](states, arguments)


def lfs(states: dict[str, int], arguments: list[str]) -> int:
    if arguments[:1] != ["hsm_state"] or len(arguments) < 2:
        sys.stderr.write("hsm_state: usage: lfs hsm_state <file> ...\n")
        return 1
    for path in arguments[1:]:
        if not os.path.lexists(path):
            sys.stderr.write(f"can't get hsm state for {path}: No such file or directory\n")
            return 2
        flags = states.get(path, states.get(os.path.basename(path), 0))
        names = {name for bit, name in enumerate(NAMES) if flags & 1 << bit}
        words = "".join(f" {name}" for name in SHOWN if name in names)
        print(f"{path}: (0x{flags:08x}){words}" + (", archive_id:1" if flags else ""))
    return 0


def weka(states: dict[str, list[int]], arguments: list[str]) -> int:
    options = {one for one in arguments if one.startswith("-")}
    paths = [one for one in arguments[3:] if not one.startswith("-")]
    if (
        arguments[:3] != ["fs", "tier", "location"]
        or not options <= {"--json", "-J", "--raw-units", "-R"}
        or not paths
    ):
        sys.stderr.write("error: unexpected argument\n")
        return 2
    if not options & {"--json", "-J"} or not options & {"--raw-units", "-R"}:
        raise AssertionError("the stand-in prints JSON in bytes alone")
    rows = []
    for path in paths:
        if not os.path.lexists(path):
            sys.stderr.write(f"error: {path}: No such file or directory\n")
            return 1
        size = os.stat(path).st_size
        written, cached, stored = states.get(path, states.get(os.path.basename(path), [size, 0, 0]))
        rows.append({
            "path": path, "file_type": "regular", "file_size": size, "ssd_write_cache_bytes": written,
            "ssd_read_cache_bytes": cached, "object_storage_bytes": stored, "remote_storage_bytes": 0,
        })  # fmt: skip
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
