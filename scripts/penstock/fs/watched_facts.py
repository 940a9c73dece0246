"""Facts of folders whose file system may hang: each queried by its own process, with a deadline. Also whether
the servers of a mounted file system are away, before a call on the mount waits for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.errors import PreflightError, TargetAwayError
from penstock.core.human import printable
from penstock.fs.capabilities import StorageFacts, facts
from penstock.fs.kinds import MountProof, kind_of, named_kind
from penstock.host import interpreter, waits
from penstock.host.kernel_facts import PROC, Mount, first_on_way

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.run_steps import CheckResult
    from penstock.fs.stores import StoreStatus


# Reads facts of folders whose file system may hang, each folder in a process of its own, with a deadline.
#
# If the server of a network mount is away, a call on the mount does not return. NFS tries for ever by
# default, BeeGFS for ten minutes (connCommRetrySecs). No signal ends such a call, and a thread that waits in
# it cannot be ended. So another process makes the call, and is left behind if it does not end. Folders on
# local disks are read directly, at a hundredth of the cost.

# seconds within which a file system must answer; even a loaded file system needs only a hundredth of it
ANSWER_WITHIN = 10.0
KILLED_WITHIN = 0.5  # seconds within which a killed process should end, if its call can end at all
TAKEN_WITHIN = 0.2  # seconds for reading an available answer if earlier folders have used up all time
# processes that even SIGKILL did not end; kept in this list, since nobody waits for them
_left_behind: list[subprocess.Popen[bytes]] = []


class SilentFolder(NamedTuple):
    """A folder whose file system did not answer."""

    path: Path
    mount: Mount  # the first mount on the way to the folder whose calls leave this machine
    seconds: float  # time spent waiting for the answer

    def error(self, what: str, kind: type[PreflightError] = PreflightError) -> PreflightError:
        """Make the error for this folder. `what` is the folder's readable name."""
        mount = " ".join(filter(None, (self.mount.type, self.mount.device, self.mount.point)))
        return kind(
            f"the file system of {what} does not answer",
            where=str(self.path),
            why=f"no answer within {self.seconds:.0f} s ({mount or 'its mount is not known'})",
            hint="look at its servers and the network; `stat -f` of the folder, in a shell that may hang, "
            "returns once it answers again",
        )


def watched_facts(
    paths: Sequence[Path], within: float | None = None, proc: str | os.PathLike[str] = PROC
) -> dict[Path, StorageFacts | SilentFolder | OSError]:
    """Read `capabilities.facts` of all folders at once. An answer may be an OSError, or a `SilentFolder` if
    nothing came in `within` seconds (ANSWER_WITHIN). If no network mount is on the way to a folder, this
    process reads it directly."""
    within = ANSWER_WITHIN if within is None else within
    answers: dict[Path, StorageFacts | SilentFolder | OSError] = {}
    asked = {}
    for path in dict.fromkeys(paths):
        mount = network_mount(os.path.join(os.getcwd(), path), proc)
        if mount is None:
            try:
                answers[path] = facts(path, proc)
            except OSError as error:
                answers[path] = error
        else:
            asked[path] = (mount, _started(path))
    deadline = time.monotonic() + within
    for path, (mount, process) in asked.items():
        answer = _answer(process, deadline)
        answers[path] = SilentFolder(path, mount, within) if answer is None else _read(path, answer)
    return answers


def network_mount(path: str, proc: str | os.PathLike[str] = PROC) -> Mount | None:
    """Follow symbolic links to an absolute path, and return the first mount on the way whose calls leave this
    machine, or None. No call is made on that mount or beyond it, so this never hangs. A mount of an unknown
    kind (such as an automounter) counts as leaving this machine."""
    return first_on_way(path, lambda mount: not kind_of(-1, mount.type).local, proc)


def _started(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*interpreter.command("penstock.fs.capabilities"), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )


def _answer(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """Return the process's output. If it does not end in time, kill it and return None. If it does not end
    even then, it is left behind, and the kernel ends it when its call returns."""
    try:
        with waits.interruptible():
            return process.communicate(timeout=max(TAKEN_WITHIN, deadline - time.monotonic()))[0]
    except subprocess.TimeoutExpired:
        process.kill()
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(KILLED_WITHIN)
    except subprocess.TimeoutExpired:
        _left_behind.append(process)
    return None


def _read(path: Path, answer: bytes) -> StorageFacts | OSError:
    try:
        message = json.loads(answer)
    except ValueError:
        return OSError(f"the process that looks at {path} died")
    if "errno" in message:
        return OSError(message["errno"], os.strerror(message["errno"]), str(path))
    fields = message["facts"]
    return StorageFacts(
        **{**fields, "traits": named_kind(fields["traits"]), "proof": MountProof(**fields["proof"])}
    )


# Checks whether the servers of a mounted file system are away, before a call on the mount waits for them.
#
# Such a call waits for minutes (BeeGFS: connCommRetrySecs, 600 s), and no signal ends it. If a client shows
# its servers in /proc (`Kind.shows_servers`), the module `fs.<product>_mount` reads this list. For other
# kinds of file systems, only the mount table is read. Connections are tried and the vendor's commands are
# run, but no call is made on the mount.

TARGET = "the target"  # readable name of the folder on an unresponsive mount


def require_answer(folder: Path) -> None:
    """Raise TargetAwayError if a server of the file system of `folder` is away. If the client shows no
    connection to some server, run the vendor's commands, and then query the mount in a separate process. An
    answer of the mount proves little, since the client has some answers in memory."""

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
