"""Runs a command to its end, from an argument list without a shell, with a deadline, and in the C locale. A
child process started with `dies_with` does not outlive its parent. This module also starts helper processes,
with which this process communicates over a socket (`wire`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
import types
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.human import masked_words, printable
from penstock.host import interpreter, waits
from penstock.host.wire import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def dies_with(parent: int) -> Callable[[], None]:
    """Return a `preexec_fn` that has the child killed when its parent THREAD dies. Use it only in a thread
    that outlives the child. It takes no lock and calls a single C function, looked up before the fork."""
    prctl, kill = _libc.prctl, signal.SIGKILL

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, kill, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), kill)

    return prepare


# If a command is missing, late or fails, the result is an `Answer`, not an error. The caller decides whether
# it can continue without the result. A vendor's missing command stops no run. A missing ssh-keygen stops a
# run that has to sign.

# Default seconds for a command. `beegfs-check-servers` needs 3 s for each kind with an absent server (6 tries
# of 500 ms, `--reachretries` and `--reachtimeout` of beegfs-ctl 7.4).
DEADLINE = 12.0
# Environment variables for every command, with which it finds the file system and logs in to it. Other
# variables could change the form of the output (`BEEGFS_COLUMNS`), or are secrets of a source. A caller adds
# the variables that its command needs.
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "TZ", "SSL_CERT_FILE",
    "BEEGFS_MGMTD_ADDR", "BEEGFS_TLS_DISABLE", "BEEGFS_TLS_CERT_FILE", "BEEGFS_AUTH_FILE",
    "BEEGFS_AUTH_DISABLE", "WEKA_TOKEN",
)  # fmt: skip
SHOWN = 300  # most characters of a command's own output in a message


class Answer(NamedTuple):
    """The result of a command."""

    argv: tuple[str, ...]
    # exit status, negative for a signal; None if the command did not run, or did not end in time
    code: int | None = None
    out: str = ""
    err: str = ""
    # Reason for a missing exit status, or "". If the command could not be started, this is `not there: ` and
    # the system's message. Other reasons: `no answer within 12 s`, or no time left in the budget.
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether the command ended with exit status 0."""
        return self.code == 0

    @property
    def there(self) -> bool:
        """Whether the command could be started. True also if its budget had no time left for it."""
        return self.code is not None or not self.why.startswith("not there")

    @property
    def words(self) -> str:
        """The command's own output in a single printable line, with secrets masked; or why there is none."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        said = "; ".join(line.strip() for line in lines if line.strip())
        return self.why or printable(masked_words(said)[:SHOWN]) or f"exit status {self.code}"


class TimeBudget:
    """Seconds for several commands together, from the budget's creation on. No command starts later."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def present(program: str) -> bool:
    """Return whether this program is on PATH."""
    return shutil.which(program) is not None


def run(
    argv: Sequence[str],
    budget: TimeBudget | None = None,
    deadline: float = DEADLINE,
    more: Mapping[str, str] = types.MappingProxyType({}),
    given: str = "",
    inherited: Sequence[int] = (),
    *,
    heard: bool = True,
) -> Answer:
    """Run a command to its end, or kill its process group after `deadline` seconds or the rest of the budget.

    A process that survives SIGKILL, since it hangs in the kernel, is left behind after another second.
    `more`: further environment variables. `given`: its standard input. `inherited`: open files that it gets
    with unchanged numbers. `heard`: whether its output is read. Never raises OSError.
    """
    command = tuple(argv)
    allowed = waits.within(deadline if budget is None else min(deadline, budget.left()))
    if allowed <= 0:
        return Answer(command, why="not asked: the commands before it took all of the time")
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"LC_ALL": "C", **more}
    try:
        # No `with`, since its end would wait for a process that hangs in the kernel.
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE if heard else subprocess.DEVNULL,
            stderr=subprocess.PIPE if heard else subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
            pass_fds=inherited,
        )
    except OSError as error:
        return Answer(command, why=f"not there: {error.strerror}")
    try:
        with waits.interruptible():
            out, err = child.communicate(given or None, timeout=allowed)
    except subprocess.TimeoutExpired:
        _kill(child)
        return Answer(command, why=f"no answer within {max(1, round(allowed))} s")
    except BaseException:
        _kill(child)
        raise
    return Answer(command, child.returncode, out or "", err or "")


def _kill(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.communicate(timeout=1)


_QUIET = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}  # signals that are blocked in a helper


def start_helper(
    module: str, *inherited: int, options: tuple[int, ...] = ()
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a process that runs `module`, which must end when its socket is closed. Its arguments are the
    descriptors of its socket and `inherited`, and `options`. It blocks signals of a terminal or of SLURM, so
    that only the parent decides. SIGKILL to the group ends all processes. Raises OSError."""
    ours, theirs = socket.socketpair()
    passed = (theirs.fileno(), *inherited)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _QUIET)
    try:
        process = subprocess.Popen(
            [*interpreter.command(module), *map(str, (*passed, *options))],
            stdin=subprocess.DEVNULL,
            pass_fds=passed,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, Channel(ours)
