"""Checks the target: folders, file system, free space, lock, mount, the owner's quotas, and servers. The
vendor's client and commands report on servers. Also checks the mounts of sources.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.errors import MAKE_ROOM, NoSpaceError, PreflightError
from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.dataset import dataset_lock, rights
from penstock.doctor.preflight.results import folders, roots
from penstock.fs import quotas as kernel_quotas
from penstock.fs import servers, store_checks
from penstock.fs.mount_checks import check_mount
from penstock.fs.quotas import unnamed_group
from penstock.host.kernel_facts import nearest
from penstock.target import access, dataset_folders, modes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.config.settings import DatasetConfig, TargetConfig
    from penstock.core.layout import DatasetLayout
    from penstock.dataset.context import Context
    from penstock.doctor.preflight.results import Answers, Looks
    from penstock.fs.capabilities import StorageFacts
    from penstock.fs.stores import StoreStatus


def check_mounts(context: Context, config: DatasetConfig, answers: Answers, looks: Looks) -> None:
    """Report on the mounts of all responsive folders."""
    looks.saw(*mount_checks(context.config.target, config, answers), what="a mount is not in order")


def mount_checks(target: TargetConfig, config: DatasetConfig, answers: Answers) -> list[CheckResult]:
    """Return the results for the mounts of all responsive folders, without repetitions."""
    results = []
    if not answers.silent(target.root):
        results += check_mount(target.root)
    if target.state_root is not None and not answers.silent(target.state_root):
        results += check_mount(target.state_root)
    for folder in folders(config.sources):
        if not answers.silent(folder):
            results += check_mount(folder, source=True)
    return list(dict.fromkeys(results))


def check_quotas(config: DatasetConfig, layout: DatasetLayout, answers: Answers, looks: Looks) -> None:
    """Check the quotas of a responsive target. Raises PreflightError for an unknown group."""
    if answers.silent(layout.root):
        return
    gid = modes.group_id(config.permissions)
    quotas = kernel_quotas.of_new_files(layout.releases, None, gid)
    checks = kernel_quotas.check(quotas)
    if gid is None:
        checks += unnamed_group(nearest(layout.root), enforced="group" in quotas.enforced)
    looks.saw(*checks, what="the target is not in order", where=str(layout.root))


# Checks of the target's servers, with the file system's client and its vendor's commands.
#
# They come before any check that makes a file, since making a file would wait for minutes if a server is
# missing.


def check_servers(layout: DatasetLayout, looks: Looks) -> tuple[StoreStatus | None, bool]:
    """Return the servers' state that the target's client shows in /proc (None if it shows none), and whether
    all servers are reachable. Makes no call on the mount."""
    shown, away = servers.servers_away(layout.root)
    if away:
        looks.gone(servers.away_error(layout.root, away), *away)
    return shown, not away


def check_vendor(
    context: Context,
    config: DatasetConfig,
    layout: DatasetLayout,
    answers: Answers,
    looks: Looks,
    shown: StoreStatus | None,
) -> bool:
    """Return whether the target's servers are in order. If they are not, the caller must make no file on the
    target. `shown` is the result of `check_servers`. For an unresponsive target, report only servers that the
    vendor's commands do not reach. Raises PreflightError for an unknown group."""
    if answers.silent(layout.root):
        away = servers.unreached_servers(layout.root)
        if away:
            looks.gone(servers.away_error(layout.root, away), *away)
        return not away
    target = context.config.target
    checks = store_checks.check_target(
        layout.releases,
        gid=modes.group_id(config.permissions),
        wish=target.striping,
        named=target.filesystem,
        shown=shown,
    )
    if checks.in_order:
        looks.saw(*checks.results, what="the target is not in order", where=str(layout.root))
    else:
        looks.gone(servers.away_error(layout.root, checks.results), *checks.results)
    return checks.in_order


def check_target(
    context: Context, layout: DatasetLayout, answers: Answers, looks: Looks, before: Path | None
) -> None:
    """Raise PreflightError or NoSpaceError for an unusable target. `before` is a receipt which shows that the
    dataset was published on this target before."""
    for root in roots(context.config.target):
        answers.require(root, "the target")
    if before is not None:
        _require_content(layout, before)
    dataset_folders.check_owner(layout)
    dataset_folders.check_root(layout.root)
    if layout.state_root is not None:
        dataset_folders.check_root(layout.state_root)
    store = answers.facts(layout.root, "the target")
    keep = context.config.target.kept(store.total_bytes)
    if store.read_only:
        raise PreflightError(
            "the target is mounted read-only",
            where=str(layout.root),
            hint="correct `target.root`, or the mount",
        )
    if store.free_bytes <= keep:
        raise NoSpaceError(
            "the target has no room",
            where=str(layout.root),
            why=f"{human.size(store.free_bytes)} are free, and target.keep_free is {human.size(keep)}",
            hint=f"{MAKE_ROOM}, or lower target.keep_free",
        )
    for folder in (layout.state, layout.state.parent, layout.state.parent.parent):
        if folder.is_dir():
            dataset_lock.try_out(folder, layout.dataset)
            break
    owners = context.config.target.owners
    looks.saw(
        *judged(layout.root, store, keep),
        *account(os.geteuid(), as_root=rights.as_root()),
        *trusted(os.geteuid(), owners, _owner(layout.root)),
        what="the target cannot be used by this account",
        where=printable(str(layout.root)),
    )


def _require_content(layout: DatasetLayout, before: Path) -> None:
    """Raise PreflightError if the root is missing or empty. If its file system is not mounted, a run would
    begin a second tree below the mount point."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(layout.root) as entries:
        if next(entries, None) is not None:
            return
    raise PreflightError(
        "what was published in the target is not there any more",
        where=printable(str(layout.root)),
        why=f"{printable(str(before))} says that {layout.dataset} was published in it, and the folder is "
        + ("empty" if layout.root.is_dir() else "missing"),
        hint="mount its file system; where it was removed on purpose, `rm -r "
        f"{shlex.quote(str(before.parent.parent))}`, and the next run stages all of it",
    )


def described(root: Path, store: StorageFacts) -> str:
    """Describe the target: `ext4 on /, 42 GiB free`. For a missing root, describe the nearest folder above.
    The mount point reveals whether the target's file system is mounted."""
    prefix = "" if os.path.lexists(root) else "not there yet, "
    return prefix + printable(f"{store.kind} on {store.mount_point}, {human.size(store.free_bytes)} free")


def judged(root: Path, store: StorageFacts, keep: int) -> list[CheckResult]:
    """Judge the root, and whether reads bypass caches:

    | reads provably bypass this machine's caches | the root | results                   |
    |---------------------------------------------|----------|---------------------------|
    | any                                         | missing  | the target, a note        |
    | yes                                         | exists   | the target, ok            |
    | no                                          | any      | the target, and a warning |
    """
    where, exists = printable(str(root)), os.path.lexists(root)
    results = [
        CheckResult(
            "target",
            f"{where}, {described(root, store)}, durable by {store.durability}",
            "ok" if exists else "note",
            wanted=f"a folder that this account may write, with more than {human.size(keep)} free"
            if exists
            else "",
            mend="" if exists else "nothing where this file system is meant: the run makes the folder",
        )
    ]
    if not store.passable:
        results.append(
            CheckResult(
                "caches",
                f"{where} is {store.kind}: reads cannot be shown to pass this machine's caches there, so "
                "what is read back counts as `reread`, never as `cold`",
                "warning",
            )
        )
    return results


def _owner(root: Path) -> int:
    """Return the root's owner, or this account if it will make the missing root."""
    try:
        return root.stat().st_uid
    except FileNotFoundError:
        return os.geteuid()


def trusted(uid: int, owners: Sequence[str], root_owner: int) -> list[CheckResult]:
    """Warn if gates would not accept data that this account stages.

    | target.owners        | the account            | result                                           |
    |----------------------|------------------------|--------------------------------------------------|
    | include the account  | any                    | no result                                        |
    | include only others  | any                    | a warning                                        |
    | are not set          | owns the root          | no result                                        |
    | are not set          | does not own the root  | a warning: gates open only to this account       |
    """
    if not owners and uid != root_owner:
        state = f"target.owners are not set, and {access.in_words([str(root_owner)])} owns the root"
        lets_in = f"`gate` and `path` give what {access.in_words([str(uid)])} stages to that account alone"
        return [CheckResult("owners", f"{state}: {lets_in}", "warning", mend=access.naming(uid))]
    if not owners or access.is_listed(uid, owners):
        return []
    state = f"{access.in_words([str(uid)])} is not among target.owners ({access.in_words(owners)})"
    return [
        CheckResult(
            "owners",
            f"{state}: `gate` and `path` take nothing that it stages",
            "warning",
            mend="stage as one of them, or name this account there",
        )
    ]


def account(uid: int, *, as_root: bool) -> list[CheckResult]:
    """Judge the account:

    | the account | `--as-root` | result                               |
    |-------------|-------------|--------------------------------------|
    | root        | no          | stop: the other commands reject root |
    | root        | yes         | warning                              |
    | not root    | any         | no result                            |
    """
    if uid != 0:
        return []
    state = (
        "this is root (uid 0): no folder's mode fences a late writer of root, and most network mounts "
        "squash root"
    )
    mend = "stage by an account of its own"
    if as_root:
        return [CheckResult("account", state, "warning", mend=mend)]
    return [CheckResult("account", state, "stop", mend=f"{mend}; root itself stages with `--as-root` alone")]
