"""Checks whether the servers of a mounted file system are away, before a call on the mount waits for them.

Such a call waits for minutes (BeeGFS: connCommRetrySecs, 600 s), and no signal ends it. If a client shows its
servers in /proc (`Kind.shows_servers`), the module `fs.<product>_mount` reads this list. For other kinds of
file systems, only the mount table is read. Connections are tried and the vendor's commands are run, but no
call is made on the mount.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.core.errors import TargetAwayError
from penstock.core.human import printable
from penstock.fs.kinds import kind_of
from penstock.host.kernel_facts import PROC, Mount, first_on_way

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.run_steps import CheckResult
    from penstock.fs.stores import StoreStatus


TARGET = "the target"  # readable name of the folder on an unresponsive mount


def require_answer(folder: Path) -> None:
    """Raise TargetAwayError if a server of the file system of `folder` is away. If the client shows no
    connection to some server, run the vendor's commands, and then query the mount in a separate process. An
    answer of the mount proves little, since the client has some answers in memory."""
    from penstock.fs.watched_facts import SilentFolder, watched_facts

    shown = require_servers(folder)
    if shown is None or all(server.reachable is not None for server in shown.servers):
        return
    if away := unreached_servers(folder):
        raise away_error(folder, away)
    answer = watched_facts([folder])[folder]
    if isinstance(answer, SilentFolder):
        raise answer.error(TARGET, TargetAwayError)


def require_servers(path: Path, proc: str | os.PathLike[str] = PROC) -> StoreStatus | None:
    """Return the status that /proc shows (see `servers_away`). Raises TargetAwayError if a server is away."""
    shown, away = servers_away(path, proc)
    if away:
        raise away_error(path, away)
    return shown


def servers_away(
    path: Path, proc: str | os.PathLike[str] = PROC
) -> tuple[StoreStatus | None, list[CheckResult]]:
    """Return the servers and targets that /proc shows for the file system of `path`, and a result for each
    server that is away. The management service is included if each call waits for it. Waits at most some
    seconds for the servers. The status is None if /proc shows nothing for this kind of file system, or the
    mount's client is unknown."""
    mount = _mount(path, proc)
    if mount is None:
        return None, []
    from penstock.fs import stores

    shown: StoreStatus | None = _product(mount, "_mount").shown_servers(mount, proc)
    judged = [] if shown is None else stores.judge(shown._replace(targets=()))
    return shown, [result for result in judged if result.verdict == "stop"]


def unreached_servers(path: Path, proc: str | os.PathLike[str] = PROC) -> list[CheckResult]:
    """For an unresponsive mount, return a result for each server that the vendor's commands do not reach. The
    commands connect to the servers themselves. Returns [] for kinds of file systems without such commands, or
    if the commands give no answer."""
    mount = _mount(path, proc)
    tools = None if mount is None else _product(mount).find_tools(proc, point=mount.point)
    if tools is None:
        return []
    from penstock.fs import stores
    from penstock.fs.stores import StoreStatus

    judged = stores.judge(StoreStatus(tools.product, servers=tuple(tools.servers())))
    return [result for result in judged if result.verdict == "stop"]


def away_error(path: Path, results: Sequence[CheckResult]) -> TargetAwayError:
    """Make an error from the results that stop a run."""
    stops = [result for result in results if result.verdict == "stop"]
    return TargetAwayError(
        "a server or a target of the file system is away",
        where=printable(str(path)),
        why="; ".join(f"{result.about}: {result.found}" for result in stops),
        hint="; ".join(dict.fromkeys(result.mend for result in stops)),
    )


def _mount(path: Path, proc: str | os.PathLike[str]) -> Mount | None:
    """Follow symbolic links to the mount of `path`, and return it if its client shows its servers. A link on
    a remote mount of another kind is not followed, since that mount may be unresponsive. A link on this
    machine's root file system is followed, whatever its kind."""

    def stops(mount: Mount) -> bool:
        kind = kind_of(-1, mount.type)
        return kind.shows_servers or not (kind.local or mount.point == "/")

    mount = first_on_way(os.path.abspath(path), stops, proc)
    return mount if mount is not None and kind_of(-1, mount.type).shows_servers else None


def _product(mount: Mount, suffix: str = "") -> Any:
    return import_module(f"penstock.fs.{kind_of(-1, mount.type).product}{suffix}")
