"""handover: what root has to do so that another account owns a dataset. Looks, and changes nothing."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from penstock.cluster.abilities import abilities_of
from penstock.errors import ConfigError, FailedError, PenstockError
from penstock.filesystem.owners import group_name, user_name, user_number
from penstock.ownership import promises
from penstock.ownership.promise_judgement import LIVING, verdict
from penstock.policy import accounts, handover
from penstock.state import run_store
from penstock.state.submission_log import ArrayBook
from penstock.steps.run_state import held_by

if TYPE_CHECKING:
    from penstock.core.documents.step_results import HandoverResult
    from penstock.core.layout import DatasetLayout
    from penstock.state.context import Context


def run(context: Context, dataset: str, who: str) -> HandoverResult:
    """The commands, what may still run, and what else has to be changed. Raises ConfigError for an account
    that this machine does not know, FailedError where there is no dataset to give, or it has it already."""
    layout = context.layout(dataset)
    new = user_number(who)
    if new is None:
        raise ConfigError(f"this machine knows no account {who!r}", hint="give its name, or its number")
    try:
        seen = layout.folder.lstat()
    except FileNotFoundError:
        raise FailedError("there is no dataset to give", where=str(layout.folder)) from None
    if not stat.S_ISDIR(seen.st_mode):
        raise FailedError("the dataset's folder is no folder", where=str(layout.folder))
    old = seen.st_uid
    if old == new:
        raise FailedError(
            f"{accounts.told([str(new)])} owns the dataset already",
            where=str(layout.folder),
            hint="what is left of another owner below it is found by `find FOLDER ! -uid NUMBER`",
        )
    theirs = [one for one in promises.read_all(context.storage, layout) if one.promise.dataset == dataset]
    paths = [(layout.promises / one.name).absolute() for one in theirs]
    return {
        "dataset": dataset,
        "old": accounts.told([str(old)]),
        "new": accounts.told([str(new)]),
        "alive": _alive(context, layout, old),
        "commands": handover.commands(layout, old, new, paths),
        "then": _then(context, layout, old, new),
    }


def _alive(context: Context, layout: DatasetLayout, old: int) -> list[str]:
    """What works for the dataset, or may: nothing may, when its files change hands."""
    told = [
        str(one)
        for one in promises.read_all(context.storage, layout)
        if one.promise.dataset == layout.dataset and verdict(one, time.time()) == LIVING
    ]
    if os.geteuid() not in (0, old):
        return [*told, f"not known to this account: ask {accounts.told([str(old)])}, by `status`"]
    if holder := held_by(layout):
        told.insert(0, f"the dataset's lock is held: {holder}")
    try:
        book = ArrayBook(run_store.open_run(layout).folder.arrays)
        told += [
            f"array {one.array or one.name} of {one.step} may not have ended"
            for one in book.open()
            if not abilities_of(one.kind).elements_end_with_controller
        ]
    except (PenstockError, OSError):
        pass  # nothing was listed yet
    return told


def _then(context: Context, layout: DatasetLayout, old: int, new: int) -> list[str]:
    target, permissions = context.config.target, context.dataset(layout.dataset).permissions
    root, name = layout.root.absolute(), accounts.told([str(new)])
    told = []
    if not accounts.is_listed(new, accounts.owners_told(root, target.owners)):
        told.append(f"name {name} in target.owners of each configuration, and of the site's file")
    if permissions.group is not None:
        told.append(f"{name} must be a member of the group {permissions.group}, or no run can set it")
    else:
        gid = layout.folder.lstat().st_gid
        told.append(f"groups stay as they are: that of the dataset's folder is {group_name(gid) or gid}")
    before = user_name(old) or f"uid {old}"
    told += [
        f"{name} must be allowed to write in {root}; from then on it stages, and {before} no more",
        "bytes and files move to the quota of the new owner: look at its limits before",
        "profiles, credential files and SLURM's accounts are those of the new account",
        "each ctime moves: with `verify.linked: 30d` the next release reads all linked files",
    ]
    if target.sign_with is not None:
        told.append("target.sign_with is a key of the old account: give the new one its own, and list it")
    return told
