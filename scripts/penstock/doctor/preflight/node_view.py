"""A node's view: its answer to the probe, beside what this machine sees. Elements work on nodes, so the
mount there is the one that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import penstock
from penstock.core import human
from penstock.core.checks import VERDICTS, CheckResult
from penstock.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.checks import Verdict
    from penstock.core.documents.node_answer import MountSeen, NodeAnswer, OwnerSeen

OF_ONE_HOST = ("addr=", "clientaddr=", "mountaddr=", "mountport=", "port=", "container_name=")
"""Mount options that name the host itself or its connection: they differ between machines that see the
same."""


def judged(
    node: str,
    answer: NodeAnswer,
    target: MountSeen,
    sources: Mapping[str, MountSeen],
    known: Sequence[CheckResult],
) -> list[CheckResult]:
    """What the answer of a node says; `node` is its name. `target`, `sources` (by their URLs) and `known`
    (what checks of the mounts saw) are of this machine. What the node's checks saw just as here is not
    repeated."""
    name = printable(node)
    results = mount_results(f"target on {name}", answer.target, target)
    for source in answer.sources:
        if source.error:
            continue  # what cannot be opened stops the run, with its own words
        if source.mount is not None:
            results += mount_results(f"source on {name}", source.mount, sources.get(source.url))
        else:
            results.append(CheckResult(f"source on {name}", printable(source.url)))
    seen = {(one.about, one.found) for one in known}
    checks = [one for one in answer.checks if (one.get("about"), one.get("found")) not in seen]
    return results + [_handed_on(name, one) for one in checks]


def mount_results(about: str, there: MountSeen, local: MountSeen | None) -> list[CheckResult]:
    """The mount that a node sees, compared with the one that this machine sees at the same path.

    | on the node                                        | results                                       |
    |----------------------------------------------------|-----------------------------------------------|
    | nothing is known of it                             | a note                                        |
    | any                                                | the mount, ok                                 |
    | another file system than here                      | and a warning                                 |
    | the same file system, other options than here      | and a note                                    |
    | reads cannot be shown to pass its caches, here yes | and a warning, of a folder that is written to |
    """
    where = printable(there.path)
    if there.error:
        return [CheckResult(about, f"{where}: not known ({printable(there.error)})", "note")]
    results = [
        CheckResult(
            about,
            f"{where}, {there.kind}, {human.size(there.free_bytes)} free, durable by {there.durability}",
        )
    ]
    if local is None or local.error:
        return results
    if there.kind != local.kind:
        state = f"{_shown(there)} on the node, {_shown(local)} on this machine"
        mend = "what holds on the nodes counts for copying and reading back; mount the same on both"
        results.append(CheckResult(about, state, "warning", "one file system under one path", mend))
    else:
        mine, theirs = _options(local), _options(there)
        if mine != theirs:
            only = [f"on the node alone: {', '.join(sorted(theirs - mine))}"] if theirs - mine else []
            only += [f"on this machine alone: {', '.join(sorted(mine - theirs))}"] if mine - theirs else []
            results.append(CheckResult(about, printable(f"other mount options, {'; '.join(only)}"), "note"))
    if local.passable and not there.passable:
        state = (
            f"{where} is {there.kind} there: reads cannot be shown to pass the node's caches, so what is "
            "read back counts as `reread`, never as `cold`"
        )
        results.append(CheckResult(about, state, "warning"))
    return results


def version_results(about: str, there: str) -> list[CheckResult]:
    """The version of penstock that elements would run on a node; "" where it does not say."""
    if there in ("", penstock.__version__):
        return []
    found = f"it is of version {printable(there)}, and this one of {penstock.__version__}"
    mend = "have this version under that path on all nodes, or name its interpreter there in cluster.python"
    return [CheckResult(about, found, "stop", "one version for a run", mend)]


WHERE_IDS_ARE_MAPPED = (
    "compare the accounts of both machines; numbers are mapped by mounts with the option `idmapped`, by "
    "Lustre's nodemap (`lctl get_param 'nodemap.*'` on its MGS), by NFS's idmapd, and in containers"
)


def owner_results(about: str, there: OwnerSeen, local: OwnerSeen) -> list[CheckResult]:
    """Owner and group of one file that a node made for this account, as seen there and here. A name is ""
    where a machine has none.

    | number      | name                          | results                                            |
    |-------------|-------------------------------|----------------------------------------------------|
    | the same    | the same, or one is not known | ok                                                 |
    | the same    | another                       | a warning: one number, two accounts                |
    | another     | the same                      | a note: id-mapped, names are compared              |
    | another     | another, or one is not known  | a warning: id-mapped, and names cannot be compared |
    """
    results = []
    pairs = (
        ("owner", (there.uid, there.user), (local.uid, local.user)),
        ("group", (there.gid, there.group), (local.gid, local.group)),
    )
    for what, (number, name), (mine, my_name) in pairs:
        owners = (
            f"the {what} of a file that it made is {_numbered(number, name)} there and "
            f"{_numbered(mine, my_name)} here"
        )
        named = bool(name and my_name)
        if number != mine:
            by_name = named and name == my_name
            state = f"id-mapped: {owners}"
            state += "; audits compare it by name" if by_name else "; an audit elsewhere finds another owner"
            verdict: Verdict = "note" if by_name else "warning"
            results.append(
                CheckResult(about, printable(state), verdict, "one number for one file", WHERE_IDS_ARE_MAPPED)
            )
        elif named and name != my_name:
            results.append(
                CheckResult(
                    about, printable(owners), "warning", "one name for one number", WHERE_IDS_ARE_MAPPED
                )
            )
    both = (
        f"owner {_numbered(local.uid, local.user)}, group {_numbered(local.gid, local.group)}, there as here"
    )
    return results or [CheckResult(about, printable(both))]


def _numbered(number: int, name: str) -> str:
    return f"{number} ({name})" if name else str(number)


def _shown(mount: MountSeen) -> str:
    return printable(f"{mount.kind} ({mount.device})" if mount.device else mount.kind)


def _options(mount: MountSeen) -> set[str]:
    return {one for one in mount.options.split(",") if one and not one.startswith(OF_ONE_HOST)}


def _handed_on(name: str, row: Mapping[str, str]) -> CheckResult:
    """A result of the node's own checks. A verdict that this version does not know is a note."""
    verdict: Verdict = next((one for one in VERDICTS if one == row.get("verdict")), "note")
    return CheckResult(
        about=printable(f"{row.get('about', '')} on {name}"),
        found=printable(row.get("found", "")),
        verdict=verdict,
        wanted=printable(row.get("wanted", "")),
        mend=printable(row.get("mend", "")),
    )
