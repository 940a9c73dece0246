"""The target: its folders, its file system, its room, and whether it holds a lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.errors import MAKE_ROOM, NoSpaceError, PreflightError
from penstock.locks import dataset_lock
from penstock.policy import accounts, rights
from penstock.steps.preflight.answers import roots
from penstock.views import human

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.layout import DatasetLayout
    from penstock.filesystem.capabilities import StorageFacts
    from penstock.state.context import Context
    from penstock.steps.preflight.answers import Answers
    from penstock.steps.preflight.looks import Looks


def check(context: Context, layout: DatasetLayout, answers: Answers, looks: Looks) -> None:
    """Raises PreflightError or NoSpaceError for a target that cannot be used."""
    for root in roots(context.config.target):
        answers.require(root, "the target")
    context.storage.check_owner(layout)
    context.storage.check_root(layout.root)
    if layout.state_root is not None:
        context.storage.check_root(layout.state_root)
    seen = answers.facts(layout.root, "the target")
    keep = context.config.target.kept(seen.total_bytes)
    if seen.read_only:
        raise PreflightError(
            "the target is mounted read-only",
            where=str(layout.root),
            hint="correct `target.root`, or the mount",
        )
    if seen.free_bytes <= keep:
        raise NoSpaceError(
            "the target has no room",
            where=str(layout.root),
            why=f"{human.size(seen.free_bytes)} are free, and target.keep_free is {human.size(keep)}",
            hint=f"{MAKE_ROOM}, or lower target.keep_free",
        )
    for folder in (layout.state, layout.state.parent, layout.state.parent.parent):
        if folder.is_dir():
            dataset_lock.try_out(folder, layout.dataset)
            break
    owners = context.config.target.owners
    looks.saw(
        *judged(layout.root, seen, keep),
        *account(os.geteuid(), told=rights.as_root()),
        *trusted(os.geteuid(), owners, _owner(layout.root)),
        what="the target cannot be used by this account",
        where=printable(str(layout.root)),
    )


def judged(root: Path, seen: StorageFacts, keep: int) -> list[CheckResult]:
    """
    | a read passes this machine's caches | results                   |
    |-------------------------------------|---------------------------|
    | it can be shown to                  | the target, ok            |
    | it cannot                           | the target, ok; a warning |
    """
    where = printable(str(root))
    room = f"{human.size(seen.free_bytes)} free"
    results = [
        CheckResult(
            "target",
            f"{where}, {seen.kind}, {room}, durable by {seen.durability}",
            wanted=f"a folder that this account may write, with more than {human.size(keep)} free",
        )
    ]
    if not seen.passable:
        results.append(
            CheckResult(
                "caches",
                f"{where} is {seen.kind}: reads cannot be shown to pass this machine's caches there, so "
                "what is read back counts as `reread`, never as `cold`",
                "warning",
            )
        )
    return results


def _owner(root: Path) -> int:
    """Of a root that is not there yet, the account that will make it."""
    try:
        return root.stat().st_uid
    except FileNotFoundError:
        return os.geteuid()


def trusted(uid: int, owners: Sequence[str], root_owner: int) -> list[CheckResult]:
    """A warning where gates would not take what this account stages.

    | target.owners     | the account            | result                                              |
    |-------------------|------------------------|-----------------------------------------------------|
    | name it           |                        | nothing                                             |
    | name others alone |                        | a warning                                           |
    | are not set       | owns the root          | nothing                                             |
    | are not set       | does not own the root  | a warning: gates open to this account and no other  |
    """
    if not owners and uid != root_owner:
        found = f"target.owners are not set, and {accounts.told([str(root_owner)])} owns the root"
        lets_in = f"`gate` and `path` give what {accounts.told([str(uid)])} stages to that account alone"
        return [CheckResult("owners", f"{found}: {lets_in}", "warning", mend=accounts.naming(uid))]
    if not owners or accounts.is_listed(uid, owners):
        return []
    found = f"{accounts.told([str(uid)])} is not among target.owners ({accounts.told(owners)})"
    return [
        CheckResult(
            "owners",
            f"{found}: `gate` and `path` take nothing that it stages",
            "warning",
            mend="stage as one of them, or name this account there",
        )
    ]


def account(uid: int, *, told: bool) -> list[CheckResult]:
    """
    | the account | `--as-root` | result                             |
    |-------------|-------------|------------------------------------|
    | root        | no          | stop: the other commands refuse it |
    | root        | yes         | warning                            |
    | another     |             | nothing                            |
    """
    if uid != 0:
        return []
    found = (
        "this is root (uid 0): no folder's mode fences a late writer of root, and most network mounts "
        "squash root"
    )
    mend = "stage by an account of its own"
    if told:
        return [CheckResult("account", found, "warning", mend=mend)]
    return [CheckResult("account", found, "stop", mend=f"{mend}; root itself stages with `--as-root` alone")]
