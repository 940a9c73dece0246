"""Facts of folders whose file system may hang: asked of a process of its own for each, with a deadline.

A call on a network mount whose server is away does not return: NFS tries for ever by default, BeeGFS for ten
minutes (connCommRetrySecs). No signal ends a call that waits in the kernel uninterruptibly, and no thread
that waits in one can be ended; so the call is made by another process, which is left behind where it does
not end. Folders of this machine's own disks are looked at directly: that costs a hundredth of a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.errors import PreflightError
from penstock.fs.capabilities import StorageFacts, facts
from penstock.fs.kinds import kind_of, named_kind
from penstock.fs.mount_proof import MountProof
from penstock.host import interpreter, waits
from penstock.host.mounts import first_on_way
from penstock.host.proc import PROC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.host.mounts import Mount

ANSWER_WITHIN = 10.0
"""Seconds in which a file system must answer: a hundred times what a loaded one takes."""
KILLED_WITHIN = 0.5
"""Seconds in which a process that is killed is expected to end, where its call can be ended at all."""
TAKEN_WITHIN = 0.2
"""Seconds in which an answer that is there is read, after the folders before it took all of the time."""
_left_behind: list[subprocess.Popen[bytes]] = []
"""Processes that even SIGKILL did not end: kept, since nobody waits for them."""


class SilentFolder(NamedTuple):
    """A folder whose file system did not answer."""

    path: Path
    mount: Mount
    """The first mount on the way to it whose calls leave this machine."""
    seconds: float
    """How long it was waited for."""

    def error(self, what: str, kind: type[PreflightError] = PreflightError) -> PreflightError:
        """`what` is the folder for people."""
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
    """What `capabilities.facts` says of each folder, or the OSError that it raises; `SilentFolder` where no
    answer came in `within` seconds (ANSWER_WITHIN). All are asked at once. Folders without a network mount on
    the way are looked at by this process."""
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
    """The first mount on the way to an absolute path, through symbolic links, whose calls leave this
    machine; None where none does. No call is made on it or beyond it, so this never hangs. A mount of a kind
    without a row in the table (an automounter, say) may leave this machine."""
    return first_on_way(path, lambda mount: not kind_of(-1, mount.type).local, proc)


def _started(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*interpreter.command("penstock.fs.facts_process"), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )


def _answer(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """What the process wrote; None where it did not end in time. It is killed then, and left behind where it
    still does not end: the kernel ends it when its call returns."""
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
    seen = message["facts"]
    return StorageFacts(
        **{**seen, "traits": named_kind(seen["traits"]), "proof": MountProof(**seen["proof"])}
    )
