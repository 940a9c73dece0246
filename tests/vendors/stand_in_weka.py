# ruff: noqa: E501 (output and its formats stand as they are printed)
"""STAND-IN for WEKA's `weka`. No WEKA is behind it: a JSON description of one is (`tests.vendors.weka_cluster`).

It knows the three questions that penstock asks, and refuses everything else, as the command refuses accounts
that are not logged in and formats that it does not have. Keys and figures are those of outputs that sites
publish (`weka status --json` of 4.4.2) and of WEKA's CSI driver. Its words are this stand-in's own: no source of
the command is at hand. Standard library alone: it starts with `python -S -E`.

Called as: <program> <description.json> <log.jsonl> <arguments ...>. Each call is a line of the log.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
FORMATS = ("view", "csv", "markdown", "json", "oldview")


def main() -> int:
    _, described, log, *arguments = sys.argv[1:]
    with open(described, encoding="utf-8") as stream:
        weka = json.load(stream)
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(
            json.dumps({"argv": ["weka", *arguments], "locale": os.environ.get("LC_ALL", "")}) + "\n"
        )
    if weka.get("hangs"):
        reads, _ = os.pipe()
        os.read(reads, 1)
    if not weka["logged_in"]:
        return refused("error: Authentication Failed: you are not logged in; use 'weka user login'")
    if arguments[:1] == ["status"]:
        return status(weka, arguments[1:])
    if arguments[:3] == ["fs", "quota", "list"]:
        return quota_list(weka, arguments[3:])
    if arguments[:1] == ["fs"] and "quota" not in arguments:
        return file_systems(weka, arguments[1:])
    return refused(f"error: {' '.join(arguments)}: not a command that reads")


def refused(words: str) -> int:
    sys.stderr.write(words + "\n")
    return 1


def parsed(arguments: list[str], *flags: str) -> tuple[str, set[str], list[str], str]:
    """The format, the flags, what is neither, and what is wrong."""
    form, given, left, words = "view", set(), [], list(arguments)
    while words:
        word = words.pop(0)
        if word in ("-J", "--json"):
            form = "json"
        elif word in ("-f", "--format"):
            form = words.pop(0) if words else ""
        elif word in flags:
            given.add(word)
        elif word.startswith("-"):
            return form, given, left, f"error: unknown option {word}"
        else:
            left.append(word)
    return form, given, left, "" if form in FORMATS else f"error: invalid format: {form}"


def shown(form: str, value: object) -> int:
    assert form == "json", "the stand-in has JSON alone"
    print(json.dumps(value, indent=4))
    return 0


def status(weka: Json, arguments: list[str]) -> int:
    form, _, left, wrong = parsed(arguments)
    return refused(wrong or "error: too many arguments") if wrong or left else shown(form, weka["status"])


def file_systems(weka: Json, arguments: list[str]) -> int:
    form, given, left, wrong = parsed(arguments, "-R", "--raw-units", "--force-fresh")
    if wrong or left:
        return refused(wrong or "error: too many arguments")
    raw = bool(given & {"-R", "--raw-units"})
    return shown(
        form, [one if raw else {**one, "available_total": "1.00 TB"} for one in weka["file_systems"]]
    )


def quota_list(weka: Json, arguments: list[str]) -> int:
    form, given, left, wrong = parsed(arguments, "--all", "-R", "--raw-units")
    if wrong or len(left) > 1:
        return refused(wrong or "error: too many arguments")
    if left and left[0] not in [one["name"] for one in weka["file_systems"]]:
        return refused(f"error: Filesystem {left[0]} does not exist")
    if not weka["may_list_quotas"]:
        return refused("error: Permission denied: this operation requires the role OrgAdmin")
    rows = [one for one in weka["quotas"] if not left or one["fsName"] == left[0]]
    if "--all" not in given:
        rows = [one for one in rows if one["total_bytes"] > (one.get("soft_limit_bytes") or 1 << 64)]
    return shown(form, rows)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    raise SystemExit(code)
