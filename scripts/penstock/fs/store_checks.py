"""Asks a vendor's commands of a file system: about its health, about room for a plan, how to stripe a folder,
and where the data of files is.

Preflight calls `check_target` before it makes a file on the target. Then plan calls `check_plan`, and
`stripe`. What is about to read many files calls `data_states`. Runs the vendor's commands; `stripe` alone
changes anything.

A kind of file system names its product in the one table of kinds (`kinds`, `Kind.product`): a package
beside this module, whose `commands` module finds the vendor's commands. A kind that names none has nothing to
check, and costs nothing. Where the commands are not there, that is a note.
"""

from __future__ import annotations

import os
import shlex
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.fs.capabilities import facts
from penstock.fs.data_states import DataStates
from penstock.fs.kinds import AUTO, rules_of
from penstock.fs.mount_checks import check_chunk
from penstock.fs.quotas import owner_of_new, unnamed_group
from penstock.fs.stores import health, placement, space, striping
from penstock.fs.stores.facts import StoreStatus
from penstock.fs.stores.placement import SizeClasses
from penstock.fs.stores.striping import INHERIT
from penstock.host import command
from penstock.host.mounts import mount_of, nearest
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.documents.under_way import StillToWrite
    from penstock.fs.kinds import Kind


def has_tools(path: Path, named: str = AUTO) -> bool:
    """Whether the vendor of the file system of `path` has commands that penstock can ask; `named` is
    `target.filesystem`."""
    return bool(rules_of(facts(path).traits, named).commands)


def data_states(folder: Path, named: str = AUTO, proc: str | os.PathLike[str] = PROC) -> DataStates | None:
    """What says where the data of the files below `folder` is, before they are opened; to be closed. None
    where this kind of file system has neither archive nor tier: nothing needs to be asked. Raises OSError of
    the folder."""
    kind = rules_of(facts(folder, proc).traits, named)
    if not (kind.commands or kind.stubs):
        return None
    ask = None
    if kind.commands:
        point = mount_of(os.path.realpath(folder), proc).point
        ask = import_module(f"penstock.fs.{kind.product}.states").find(point, proc)
    return DataStates(folder, ask, stubs=kind.stubs)


class TargetChecks(NamedTuple):
    """What the vendor's client and commands say of a target."""

    results: list[CheckResult]
    in_order: bool = True  # False: a server or a target stops the run, and calls on the mount may hang


class PlanChecks(NamedTuple):
    """What the vendor's commands say of a plan."""

    results: list[CheckResult]
    """Of space, metadata and quotas, as the files will be striped, and of how they will be striped."""
    targets: int = 0
    """Over how many `stripe` is to stripe a file; 0: nothing is to be set."""
    chunk: int = 0  # of a stripe that `stripe` sets, bytes; 0: as the folder has it
    pool: str = ""
    """The storage pool that the files will lie in; "": not known."""
    chunk_files: int = 0
    """How many chunk files the files will be on all storage targets; 0: not known."""


def check_target(
    path: Path,
    *,
    gid: int | None = None,
    wish: str = INHERIT,
    named: str = AUTO,
    shown: StoreStatus | None = None,
    proc: str | os.PathLike[str] = PROC,
) -> TargetChecks:
    """What the client has `shown` in /proc (`servers.servers_away`) and the vendor's commands say of the file
    system that holds, or will hold, `path`: servers, targets, and the quotas of this process's account and of
    the group that its files will have (None: as the folder gives it). Nothing for kinds without such
    commands. Never raises but OSError of the path itself."""
    kind = rules_of(facts(path, proc).traits, named)
    tools, missing = _tools(kind, path, proc)
    if tools is None:
        status = shown or StoreStatus(kind.name)
        results = [*missing, *health.judge(status), *_unstriped(kind, wish)]
        return TargetChecks(results, not health.away(status))
    folder = nearest(path)
    status = tools.status(str(folder), *owner_of_new(folder, None, gid))
    if shown is not None:
        status = shown.filling(status)
    none = SizeClasses()
    chosen = striping.choose(wish, status, none)
    chunks: list[CheckResult] = []
    if status.pattern is not None:
        chunks = check_chunk(path, chosen.chunk or status.pattern.chunk_bytes, proc, named=named)
    counted = any(one.scope == "group" and (one.limit or one.file_limit) for one in status.quotas)
    unnamed = unnamed_group(folder, enforced=True) if gid is None and counted else []
    # That a folder hands its group on is said of all file systems alike, beside the kernel's quotas.
    stops = [one for one in unnamed if one.verdict == "stop"]
    judged = health.judge(status)
    results = [*judged, *space.quotas(status, none), *stops, *chosen.results, *chunks]
    return TargetChecks(results, not health.away(status))


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
    """Whether files of these sizes and so many folders fit into a folder that is made in `path`, striped as
    wished, beside what `others` will still write: the targets of its pool, the metadata, the quotas
    of their final owner. As `check_target` otherwise; what that said of servers is not repeated."""
    kind = rules_of(facts(path, proc).traits, named)
    tools, missing = _tools(kind, path, proc)
    if tools is None:
        return PlanChecks([*missing, *_unstriped(kind, wish)])
    folder = nearest(path)
    status = tools.status(str(folder), *owner_of_new(folder, None, gid))
    chosen = striping.choose(wish, status, sizes)
    if status.pattern is not None and chosen.targets:
        chunk = chosen.chunk or status.pattern.chunk_bytes
        wished = status.pattern._replace(targets=chosen.targets, chunk_bytes=chunk)
        status = status._replace(pattern=wished)
    status = space.beside(status, others)
    results = [
        *space.placed(status, sizes),
        *space.metadata(status, sizes, folders),
        *space.files_allowed(status, sizes, folders),
        *space.quotas(status, sizes, folders),
        *health.silences(status),
        *chosen.results,
    ]
    if status.pattern is None:
        return PlanChecks(results)
    pool = status.pattern.pool or status.pattern.pool_name
    objects = placement.chunk_files(sizes, status.pattern)
    return PlanChecks(results, chosen.targets, chosen.chunk, pool, objects)


def pool_of(path: Path, *, named: str = AUTO, proc: str | os.PathLike[str] = PROC) -> str:
    """The storage pool that new files of this folder get, by one command of the vendor's; "" where no command
    says it, or the folder cannot be asked about."""
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
    """Set on `folder`, which holds nothing yet, over how many targets its new files are striped (0: nothing
    is set), and in which chunks (bytes; 0: as it has them); then read that back. What is read back counts:
    BeeGFS 8 sets the pattern, and ends with 1 where it cannot verify its licence."""
    if not targets:
        return []
    tools, missing = _tools(rules_of(facts(folder, proc).traits, named), folder, proc)
    if tools is None:
        return missing
    now = tools.pattern(str(folder))
    answer = command.run(tools.set_pattern(str(folder), targets, chunk, now))
    set_now = tools.pattern(str(folder))
    # Where an administrator is to do it, it holds for what comes later, below the folder above.
    above = shlex.join(tools.set_pattern(str(folder.parent), targets, chunk, now))
    if not (answer.ok or striping.holds(targets, chunk, set_now)):
        return [striping.failed(answer.words, above, set_now, refused=tools.refused(answer))]
    return [striping.compared(targets, chunk, set_now, answer)]


def _unstriped(kind: Kind, wish: str) -> list[CheckResult]:
    """Where nothing can be striped that was to be."""
    if wish == INHERIT:
        return []
    text = f"nothing is striped on {printable(kind.name)}: penstock has no command for it here"
    return [CheckResult(striping.KEY, text, "warning", mend=f"set {striping.KEY}: {INHERIT}")]


def _tools(kind: Kind, path: Path, proc: str | os.PathLike[str]) -> tuple[Any, list[CheckResult]]:
    """The vendor's commands; else what to say of it."""
    if not kind.commands:
        return None, []
    module = import_module(f"penstock.fs.{kind.product}.commands")
    found = module.find(proc, point=mount_of(os.path.realpath(nearest(path)), proc).point)
    if found is not None:
        return found, []
    text = f"not there: {' or '.join(module.PROGRAMS)} on PATH; targets, pools and quotas are not known"
    mend = "install the vendor's commands on this machine, or put them on PATH; the run does not need them"
    return None, [CheckResult(f"commands of {printable(kind.name)}", text, "note", "on PATH", mend)]
