"""What other packages call: preflight `check_target`, plan `check_plan`.

A kind of file system names its tools in the one table of kinds (`filesystem.kinds`, `Kind.tools`): a package
here of that name, whose `tools` module finds the vendor's commands. A kind that names none has nothing to
check, and costs nothing. Where the commands are not there, that is a note.
"""

from __future__ import annotations

import os
import shlex
import stat
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.core.checks import CheckResult
from penstock.core.text import printable
from penstock.filesystem.capabilities import facts
from penstock.filesystem.mounts import mount_of
from penstock.runtime.proc import PROC
from penstock.vendors import health, space
from penstock.vendors.placement import SizeClasses

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.filesystem.capabilities import StorageFacts


def has_tools(path: Path) -> bool:
    """Whether the vendor of the file system of `path` has commands that penstock can ask."""
    return bool(facts(path).traits.tools)


def check_target(
    path: Path, *, uid: int | None = None, gid: int | None = None, proc: str | os.PathLike[str] = PROC
) -> list[CheckResult]:
    """What the vendor's commands say of the file system that holds, or will hold, `path`: servers, targets,
    and the quotas of the account and group that its files will have (None: this process's, and as the folder
    gives it). [] for kinds without such commands. Never raises but OSError of the path itself."""
    seen = facts(path, proc)
    tools, missing = _tools(seen, path, proc)
    if tools is None:
        return missing
    folder = _existing(path)
    survey = tools.survey(str(folder), *_owner(folder, uid, gid))
    return [*health.judge(survey), *space.quotas(survey, SizeClasses())]


def check_plan(
    path: Path,
    sizes: SizeClasses,
    folders: int,
    *,
    uid: int | None = None,
    gid: int | None = None,
    proc: str | os.PathLike[str] = PROC,
) -> list[CheckResult]:
    """Whether files of these sizes and so many folders fit into `path` as it is striped now: the targets of
    its pool, the metadata, the quotas of their final owner. As `check_target` otherwise; what that said of
    servers is not repeated."""
    seen = facts(path, proc)
    tools, missing = _tools(seen, path, proc)
    if tools is None:
        return missing
    folder = _existing(path)
    survey = tools.survey(str(folder), *_owner(folder, uid, gid))

    def restripe(targets: int | None, pool: str) -> str:
        return shlex.join(tools.restripe(str(folder), targets, pool))

    return [
        *space.placed(survey, sizes, restripe),
        *space.metadata(survey, sizes, folders),
        *space.quotas(survey, sizes),
    ]


def _tools(seen: StorageFacts, path: Path, proc: str | os.PathLike[str]) -> tuple[Any, list[CheckResult]]:
    """The vendor's commands; else what to say of it."""
    if not seen.traits.tools:
        return None, []
    module = import_module(f"penstock.vendors.{seen.traits.tools}.tools")
    found = module.find(proc, point=mount_of(os.path.realpath(_existing(path)), proc).point)
    if found is not None:
        return found, []
    text = f"not there: {' or '.join(module.PROGRAMS)} on PATH; targets, pools and quotas are not known"
    mend = "install the vendor's commands on this machine, or put them on PATH; the run does not need them"
    return None, [CheckResult(f"commands of {printable(seen.kind)}", text, "note", "on PATH", mend)]


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _owner(folder: Path, uid: int | None, gid: int | None) -> tuple[int, int]:
    """User and group of new files in `folder`: its own group where it hands that on (setgid)."""
    if gid is None:
        seen = folder.stat()
        gid = seen.st_gid if seen.st_mode & stat.S_ISGID else os.getegid()
    return (os.geteuid() if uid is None else uid), gid
