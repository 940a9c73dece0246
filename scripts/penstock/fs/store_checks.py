"""Queries a vendor's commands about a file system's health, room for a plan, striping, and places of data.

Preflight calls `check_target` before it makes a file on the target. Later, the plan command calls
`check_plan` and `stripe`. Only `stripe` changes anything. Each entry in the table of file systems
(`fs.kinds`) has a product (`Kind.product`), the name of the module in `fs` that finds the vendor's commands.
Without a product there is nothing to check. If the commands are missing, the result is a note.
"""

from __future__ import annotations

import os
import shlex
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.human import printable
from penstock.core.run_steps import CheckResult
from penstock.fs import placement, stores
from penstock.fs.capabilities import facts
from penstock.fs.kinds import AUTO, rules_of
from penstock.fs.mount_checks import check_chunk
from penstock.fs.placement import INHERIT, SizeClasses
from penstock.fs.quotas import owner_of_new, unnamed_group
from penstock.fs.stores import DataStates, StoreStatus
from penstock.host import command
from penstock.host.kernel_facts import PROC, mount_of, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.dataset_documents import StillToWrite
    from penstock.fs.kinds import Kind


def has_tools(path: Path, named: str = AUTO) -> bool:
    """Return whether the vendor of this file system has commands that penstock can run. `named` is the option
    `target.filesystem`."""
    return bool(rules_of(facts(path).traits, named).commands)


def data_states(folder: Path, named: str = AUTO, proc: str | os.PathLike[str] = PROC) -> DataStates | None:
    """Return an object that finds out where the data of files below `folder` is, before the files are opened.
    The caller must close the object. Returns None if this kind of file system has neither archive nor tier.
    Raises OSError if a call on the folder fails."""
    kind = rules_of(facts(folder, proc).traits, named)
    if not (kind.commands or kind.stubs):
        return None
    ask = None
    if kind.commands:
        point = mount_of(os.path.realpath(folder), proc).point
        ask = import_module(f"penstock.fs.{kind.product}").find_states(point, proc)
    return DataStates(folder, ask, stubs=kind.stubs)


class TargetChecks(NamedTuple):
    """The report of the vendor's client and commands on a target."""

    results: list[CheckResult]
    in_order: bool = True  # whether no server or target is away; if one is away, calls on the mount may hang


class PlanChecks(NamedTuple):
    """The report of the vendor's commands on a plan."""

    # results on space, metadata and quotas (all with the planned striping), and on the striping
    results: list[CheckResult]
    targets: int = 0  # number of targets over which `stripe` must stripe a file; 0 if there is nothing to set
    chunk: int = 0  # bytes of a chunk that `stripe` must set; 0 to keep the folder's chunk size
    pool: str = ""  # the storage pool of the plan's files; "" if unknown
    chunk_files: int = 0  # number of the plan's chunk files on all storage targets; 0 if unknown


def check_target(
    path: Path,
    *,
    gid: int | None = None,
    wish: str = INHERIT,
    named: str = AUTO,
    shown: StoreStatus | None = None,
    proc: str | os.PathLike[str] = PROC,
) -> TargetChecks:
    """Judge the servers, targets and quotas of the file system on which `path` is, or will be. `shown` is the
    status that the client shows in /proc (`watched_facts.servers_away`). The quotas are those of this
    process's account and of the group `gid`; None means the group that the folder gives to files. Returns no
    results if the vendor has no commands. Raises only OSError, if a call on the path itself fails."""
    kind = rules_of(facts(path, proc).traits, named)
    tools, missing = _tools(kind, path, proc)
    if tools is None:
        status = shown or StoreStatus(kind.name)
        results = [*missing, *stores.judge(status), *_unstriped(kind, wish)]
        return TargetChecks(results, not stores.away(status))
    folder = nearest(path)
    status = tools.status(str(folder), *owner_of_new(folder, None, gid))
    if shown is not None:
        status = shown.filling(status)
    none = SizeClasses()
    chosen = placement.choose(wish, status, none)
    chunks: list[CheckResult] = []
    if status.pattern is not None:
        chunks = check_chunk(path, chosen.chunk or status.pattern.chunk_bytes, proc, named=named)
    counted = any(quota.scope == "group" and (quota.limit or quota.file_limit) for quota in status.quotas)
    unnamed = unnamed_group(folder, enforced=True) if gid is None and counted else []
    # The checks of the kernel's quotas already warn on any file system if new files get the folder's group.
    stops = [result for result in unnamed if result.verdict == "stop"]
    judged = stores.judge(status)
    results = [*judged, *placement.quotas(status, none), *stops, *chosen.results, *chunks]
    return TargetChecks(results, not stores.away(status))


def check_plan(
    path: Path,
    sizes: SizeClasses,
    folders: int,
    *,
    gid: int | None = None,
    wish: str = INHERIT,
    named: str = AUTO,
    others: Sequence[StillToWrite] = (),
    proc: str | os.PathLike[str] = PROC,
) -> PlanChecks:
    """Judge whether files of these sizes, and this number of folders, fit in a new folder in `path` with the
    wished striping. Checks the targets in the folder's pool, the metadata, and the final owner's quotas, as
    if `others` had already written their data. Other parameters are those of `check_target`; its results on
    servers are not repeated."""
    kind = rules_of(facts(path, proc).traits, named)
    tools, missing = _tools(kind, path, proc)
    if tools is None:
        return PlanChecks([*missing, *_unstriped(kind, wish)])
    folder = nearest(path)
    status = tools.status(str(folder), *owner_of_new(folder, None, gid))
    chosen = placement.choose(wish, status, sizes)
    if status.pattern is not None and chosen.targets:
        chunk = chosen.chunk or status.pattern.chunk_bytes
        wished = status.pattern._replace(targets=chosen.targets, chunk_bytes=chunk)
        status = status._replace(pattern=wished)
    status = placement.beside(status, others)
    results = [
        *placement.placed(status, sizes),
        *placement.metadata(status, sizes, folders),
        *placement.files_allowed(status, sizes, folders),
        *placement.quotas(status, sizes, folders),
        *stores.silences(status),
        *chosen.results,
    ]
    if status.pattern is None:
        return PlanChecks(results)
    pool = status.pattern.pool or status.pattern.pool_name
    objects = placement.chunk_files(sizes, status.pattern)
    return PlanChecks(results, chosen.targets, chosen.chunk, pool, objects)


def pool_of(path: Path, *, named: str = AUTO, proc: str | os.PathLike[str] = PROC) -> str:
    """Return the storage pool of new files in this folder, or "" if unknown. Runs a single command."""
    try:
        tools, _ = _tools(rules_of(facts(path, proc).traits, named), path, proc)
        pattern = tools.pattern(str(nearest(path))) if tools is not None else None
    except OSError:
        return ""
    return "" if pattern is None else pattern.pool_name or pattern.pool


def stripe(
    folder: Path,
    targets: int,
    chunk: int = 0,
    *,
    named: str = AUTO,
    proc: str | os.PathLike[str] = PROC,
) -> list[CheckResult]:
    """Set the number of targets (0: do nothing) and the chunk size in bytes (0: unchanged) for new files in
    the empty `folder`. Only the pattern that is read back counts, since BeeGFS 8 sets the pattern but ends
    with status 1 if it cannot verify its licence."""
    if not targets:
        return []
    tools, missing = _tools(rules_of(facts(folder, proc).traits, named), folder, proc)
    if tools is None:
        return missing
    now = tools.pattern(str(folder))
    answer = command.run(tools.set_pattern(str(folder), targets, chunk, now))
    set_now = tools.pattern(str(folder))
    # The advice concerns the folder above: if an administrator sets its pattern, later folders get that
    # pattern.
    above = shlex.join(tools.set_pattern(str(folder.parent), targets, chunk, now))
    if not (answer.ok or placement.holds(targets, chunk, set_now)):
        return [placement.failed(answer.words, above, set_now, refused=tools.refused(answer))]
    return [placement.compared(targets, chunk, set_now, answer)]


def _unstriped(kind: Kind, wish: str) -> list[CheckResult]:
    """Return a warning if a striping is wished that cannot be set."""
    if wish == INHERIT:
        return []
    text = f"nothing is striped on {printable(kind.name)}: penstock has no command for it here"
    return [CheckResult(placement.KEY, text, "warning", mend=f"set {placement.KEY}: {INHERIT}")]


def _tools(kind: Kind, path: Path, proc: str | os.PathLike[str]) -> tuple[Any, list[CheckResult]]:
    """Return the vendor's commands without results, or None with the results to show."""
    if not kind.commands:
        return None, []
    module = import_module(f"penstock.fs.{kind.product}")
    tools = module.find_tools(proc, point=mount_of(os.path.realpath(nearest(path)), proc).point)
    if tools is not None:
        return tools, []
    text = f"not there: {' or '.join(module.PROGRAMS)} on PATH; targets, pools and quotas are not known"
    mend = "install the vendor's commands on this machine, or put them on PATH; the run does not need them"
    return None, [CheckResult(f"commands of {printable(kind.name)}", text, "note", "on PATH", mend)]
