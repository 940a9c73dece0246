"""The single controller of a working directory, and steps that end with it. Also the files by which ended
steps tell `penstock run` how, which itself only gets Snakemake's exit status, 0 or 1.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.core import human, run_steps
from penstock.core.errors import LockedError
from penstock.host.kernel_facts import process_stat

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator


# Reports how steps ended to `penstock run`, which itself only gets Snakemake's exit status, 0 or 1.
#
# A failing step writes a small JSON file into a folder that `penstock run` passes in the environment, and
# reads meanwhile. `penstock run` writes into this folder which signal stopped it. Unreadable or unwritable
# files raise nothing.

EXITS = "PENSTOCK_EXITS"  # variable with the folder's path; only `penstock run` sets it
SIGNAL = "signal"  # file with the number of the signal that stopped `penstock run`; its steps get SIGINT
# Exit statuses of a step that reported its own error (docs/commands.md, "Exit status").
STATUSES = frozenset({*range(1, 8), 129, 130, 143})
_ENDED = re.compile(
    r"RuleException:\nCalledProcessError.* -m penstock .*returned non-zero exit status (\d+)", re.DOTALL
)
_ENDINGS = (
    "Exiting because a job execution failed. Look above for error messages",
    "WorkflowError:\nAt least one job did not complete successfully.",
)


class CommandFailure(NamedTuple):
    """How a command, or its work for one dataset, failed."""

    code: int
    text: str  # readable message, or ""
    reason: str = ""  # what failed, or why, in a few words
    cancelled: bool = False  # whether `penstock cancel` ended it
    overtaken: bool = False  # whether another run took over the dataset


class Left(NamedTuple):
    """How a step ended."""

    command: str
    exit: int
    dataset: str = ""
    text: str = ""  # readable message, which `penstock run` shows, or ""
    reason: str = ""  # what failed, or why, in a few words
    cancelled: bool = False
    overtaken: bool = False

    @property
    def how(self) -> str:
        """One of the three words of `core.run_steps`."""
        if self.exit > 128:
            return run_steps.STOPPED
        return run_steps.CANCELLED if self.cancelled else run_steps.FAILED

    @property
    def why(self) -> str:
        """The first line of the message."""
        return self.text.partition("\n")[0]


def leave_exit(left: Left) -> bool:
    """Write a failure's exit status for the `penstock run` above. Returns whether there is a `penstock run`,
    which shows it."""
    folder = os.environ.get(EXITS)
    return write_exit(Path(folder), left) if folder and left.exit else False


def write_exit(folder: Path, left: Left) -> bool:
    """Do as `leave_exit` does, in this folder."""
    path = Path(folder, f"{time.time_ns():020d}-{os.getpid()}.json")
    try:
        path.write_text(json.dumps(left._asdict()), encoding="utf-8")
    except OSError:
        return False
    return True


def read_new_exits(folder: Path, read_before: dict[str, Left]) -> list[Left]:
    """Return the exit statuses written since the last call, the earliest first, and add them to
    `read_before` by file name. Incomplete files are left for a later call."""
    new = []
    for path in sorted(folder.glob("*.json")):
        if path.name not in read_before:
            with contextlib.suppress(OSError, ValueError, TypeError):
                read_before[path.name] = Left(**json.loads(path.read_text(encoding="utf-8")))
                new.append(read_before[path.name])
    return new


def pass_on_signal(folder: Path, number: int) -> None:
    """Write the number of the signal that stopped `penstock run`, before its steps get SIGINT."""
    with contextlib.suppress(OSError):
        (folder / SIGNAL).write_text(str(number))


def signal_sent(number: int) -> int:
    """Return the signal that stopped this step, or that stopped the `penstock run` that sent SIGINT."""
    folder = os.environ.get(EXITS)
    try:
        return int(Path(folder, SIGNAL).read_text()) if folder and number == signal.SIGINT else number
    except (OSError, ValueError):
        return number


def below_run() -> bool:
    """Return whether a `penstock run` started this process."""
    return EXITS in os.environ


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a line of Snakemake's log reports something that no step reported itself."""
    text = record.getMessage()
    ended = _ENDED.match(text)
    return text not in _ENDINGS and not (ended and int(ended[1]) in STATUSES)


# The single controller of a working directory, and steps that end with it. Also the processes above a step,
# with names that stay unique if a process id is reused.

# Names the processes above a step, safely even if process ids are reused, and watches them: a command ends
# when these processes end.
#
# A name is `<pid>.<start time in clock ticks since boot>`. Several names are separated by blanks.

ABOVE = "PENSTOCK_ABOVE"  # variable with the names of the processes above, the outermost first
ABOVE_HOST = "PENSTOCK_ABOVE_HOST"  # variable with the host of these processes
# Variable with the folder of the locks of the controller and its steps.
WORKFLOW = "PENSTOCK_WORKFLOW"


def above() -> list[str]:
    """Return the processes above this process, from the environment; none if they are on another host."""
    here = os.uname().nodename
    return os.environ.get(ABOVE, "").split() if os.environ.get(ABOVE_HOST, here) == here else []


def handed_down() -> dict[str, str]:
    """Return the variables by which processes below this process know it and the processes above it."""
    names = dict.fromkeys([*above(), name(os.getpid())])
    return {ABOVE: " ".join(names), ABOVE_HOST: os.uname().nodename}


def name(pid: int) -> str:
    """Return the name of a live process. Raises ProcessLookupError."""
    process = process_stat(pid)
    if process is None:
        raise ProcessLookupError(pid)
    return f"{pid}.{process.start}"


def alive(named: str) -> bool:
    """Return whether the process of this name still exists; a zombie counts as ended."""
    pid = named.partition(".")[0]
    process = process_stat(pid) if pid.isdecimal() else None
    return process is not None and not process.ended and f"{process.pid}.{process.start}" == named


@contextlib.contextmanager
def watched(names: str, ended: Callable[[], None]) -> Iterator[None]:
    """Call `ended` once, when any of these processes has ended, from a thread or before the block."""
    descriptors = []
    gone = False
    for named in names.split():
        pid = named.partition(".")[0]
        try:
            descriptors.append(os.pidfd_open(int(pid)))
        except (ValueError, OSError):
            gone = True
        # Open first, then compare: while the process is open, its id cannot pass to another process.
        gone = gone or not alive(named)
    wake, woken = os.pipe2(os.O_CLOEXEC)
    thread = None
    if gone:
        ended()
    elif descriptors:
        thread = threading.Thread(
            target=_watch, args=(descriptors, wake, ended), name="watch-above", daemon=True
        )
        thread.start()
    try:
        yield
    finally:
        os.close(woken)
        if thread is not None:
            thread.join()
        for fd in (wake, *descriptors):
            os.close(fd)


def _watch(descriptors: list[int], wake: int, ended: Callable[[], None]) -> None:
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    poll.register(wake, select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    if wake not in ready:
        ended()


# Ensures a single controller in a working directory, and steps that do not outlive it.
#
# Snakemake's own lock survives kill -9, so the profiles disable it (`nolock`). These locks are the kernel's
# and end with their holder. `penstock run` calls `refuse_second`; the Snakemake below it calls `take`.

_held: set[Path] = set()  # folders of which this process is the controller


def take(folder: Path, say: Callable[[str], None], *, alone: bool = True) -> None:
    """Make this process the controller of the working directory until it ends. A second call does nothing.

    Steps that this process starts end when it, or a process above it, has ended. `alone` is False if the
    workflow has other rules than penstock's, whose signals Snakemake handles.

    Raises LockedError if another controller is at work. Waits for remaining steps of a killed controller, and
    says so.
    """
    if folder in _held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    # The file is never closed, so the lock lasts as long as this process. Its children do not inherit it.
    controller = os.open(folder / "controller", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _lock(controller, say)
    steps = os.open(folder / "steps", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock_steps(steps, say)
    finally:
        os.close(steps)
    _held.add(folder)
    if alone:
        # From now on Snakemake stops its jobs on SIGINT (before, cli.snakemake_start handles it).
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _let_steps_begin()
    os.environ.update(handed_down())
    os.environ[WORKFLOW] = str(folder)
    os.ftruncate(controller, 0)
    os.pwrite(controller, " ".join([os.uname().nodename, *above()]).encode(), 0)


def _let_steps_begin() -> None:
    """Make this process's threads, and their steps, begin with SIGINT blocked until `cli.main` unblocks it.
    SIGINT would end a starting interpreter with a traceback, which Snakemake reports as a failed rule."""
    start = threading.Thread.start

    def start_blocked(thread: threading.Thread) -> None:
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            start(thread)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    threading.Thread.start = start_blocked  # type: ignore[method-assign,assignment]


def refuse_second(folder: Path) -> None:
    """Raise LockedError if a controller is at work in the working directory. The final check is in `take`."""
    try:
        controller = os.open(folder / "controller", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # there never was a controller, or a later write to another account's folder fails
    try:
        fcntl.flock(controller, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _refuse_living(controller)
    finally:
        os.close(controller)


def _lock(controller: int, say: Callable[[str], None]) -> None:
    try:
        fcntl.flock(controller, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _refuse_living(controller)
        say("waiting for the remains of a killed run to end")
        fcntl.flock(controller, fcntl.LOCK_EX)


def _refuse_living(controller: int) -> None:
    """Raise LockedError unless the lock's holder was killed on this host."""
    host, *names = os.pread(controller, 4096, 0).decode("ascii", "replace").split() or [""]
    away = host not in ("", os.uname().nodename)
    if away or all(alive(name) for name in names):
        # The last name is the Snakemake; if there is a `penstock run` above it, there are more names.
        what = "`penstock run`" if len(names) > 1 else "a Snakemake"
        pid = names[0].partition(".")[0] if names else ""
        since = human.local(os.fstat(controller).st_mtime)
        who = f": process {pid} on {host}, since {since}" if names else ""
        stop = f"stop it (`kill {pid}` on {host})" if names else "stop it"
        error = LockedError(
            f"{what} is at work in this working directory already{who}",
            where=os.getcwd(),
            hint=f"wait for it, {stop}, or work in another directory",
        )
        leave_exit(Left("snakemake", error.exit_code, text=str(error), reason=error.what))
        raise error


def _lock_steps(steps: int, say: Callable[[str], None]) -> None:
    try:
        fcntl.flock(steps, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for the steps of a killed run to end")
        fcntl.flock(steps, fcntl.LOCK_EX)
    fcntl.flock(steps, fcntl.LOCK_UN)
