"""Runs one command to its end and returns what became of it: an argument list, never a shell; a deadline; the
C locale.

For the commands of file systems' vendors (the packages of `fs`), ssh-keygen, and the helper that resolves AWS
profiles. A command that is not there, that does not end in time or that fails is an `Answer`, not an error:
the caller decides whether it can do without. A vendor's missing command stops no run, a missing ssh-keygen
stops one that has to sign. Starts processes, and kills those that take too long; touches nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
import types
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.text import masked_words, printable
from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEADLINE = 12.0
"""Seconds for one command, unless the caller says. `beegfs-check-servers` takes 3 s for each kind of server
of which one is away (6 tries of 500 ms, `--reachretries` and `--reachtimeout` of beegfs-ctl 7.4)."""
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "TZ", "SSL_CERT_FILE",
    "BEEGFS_MGMTD_ADDR", "BEEGFS_TLS_DISABLE", "BEEGFS_TLS_CERT_FILE", "BEEGFS_AUTH_FILE",
    "BEEGFS_AUTH_DISABLE", "WEKA_TOKEN",
)  # fmt: skip
"""Environment variables that reach every command: how it finds and is let into the file system. Others could
change the form of its output (`BEEGFS_COLUMNS`), or are secrets of a source; a caller adds what its command
needs."""
SHOWN = 300
"""Characters of a command's own words that a message shows."""


class Answer(NamedTuple):
    """What became of a command."""

    argv: tuple[str, ...]
    code: int | None = None
    """Its exit status, negative for a signal; None where it did not run or did not end in time."""
    out: str = ""
    err: str = ""
    why: str = ""
    """Why there is no exit status: `not there: ` and the system's words where it could not be started, `no
    answer within 12 s`, or that the budget had no time left for it; "" where there is one."""

    @property
    def ok(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.code == 0

    @property
    def there(self) -> bool:
        """False where the command could not be started; True also where it was not tried, since its budget
        had no time left."""
        return self.code is not None or not self.why.startswith("not there")

    @property
    def words(self) -> str:
        """The command's own words on one line, safe on a terminal, without what it calls a secret; else why
        it has none."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        said = "; ".join(line.strip() for line in lines if line.strip())
        return self.why or printable(masked_words(said)[:SHOWN]) or f"exit status {self.code}"


class TimeBudget:
    """Seconds that several commands may take together, from when it is made. A command for which none are
    left is not started."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; 0 when none are."""
        return max(0.0, self._end - time.monotonic())


def present(program: str) -> bool:
    """Whether PATH has this program."""
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
    """Run one command to its end, or until the `deadline` (seconds) or the budget is used up: its process
    group is then killed. One that SIGKILL does not end, since it hangs in the kernel, is left behind after a
    further second. `more` are environment variables for it alone, `given` is its standard input, `inherited`
    are open files that it has under the same numbers. Not `heard`: what it prints is not read. Never raises
    OSError."""
    command = tuple(argv)
    allowed = waits.within(deadline if budget is None else min(deadline, budget.left()))
    if allowed <= 0:
        return Answer(command, why="not asked: the commands before it took all of the time")
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"LC_ALL": "C", **more}
    try:
        # Not a `with`: at its end a process that hangs in the kernel would be waited for.
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
