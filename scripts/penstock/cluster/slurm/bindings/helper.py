"""The process that has pyslurm (`worker`), and calls to it: one at a time, each with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cluster.slurm.client import AGAIN, ANSWER_WITHIN, SAID, environment, kind_of, say
from penstock.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = Path(__file__).with_name("worker.py")
START_WITHIN = 30
"""Seconds for the interpreter to start and to import pyslurm: with a wrong SLURM_CONF libslurm looks for a
controller for up to a minute."""
CALL_WITHIN = int(ANSWER_WITHIN)
"""Seconds for one call, as for a command: libslurm gives up after its MessageTimeout and some repeats."""
_TOLD = 400
"""How much of what the helper wrote to standard error a message has."""


class HelperLostError(Exception):
    """The helper could not be started, ended, or gave no answer in time; it is gone. What became of its last
    call is not known."""


class PyslurmRaisedError(Exception):
    """pyslurm (or the helper) raised an exception that is no answer of SLURM's. Its last call may have been
    carried out."""


class Greeting(NamedTuple):
    """What the helper says once it has imported pyslurm."""

    pyslurm: str
    """pyslurm's version; its first two numbers are the release of SLURM that it was built for."""
    python: str


class Helper:
    """A helper that has imported pyslurm. Calls of several threads go one after the other. It ends with this
    object, and with this process, also within a call (`worker.end_with`)."""

    def __init__(self, python: str) -> None:
        """Raises HelperLostError."""
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        theirs, ours = os.pipe()
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER), str(START_WITHIN), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env=environment(),
                cwd="/",
                start_new_session=True,
                pass_fds=(theirs,),
            )
        except OSError as error:
            self._words.close()
            os.close(ours)
            raise HelperLostError(f"{python} cannot be run: {error.strerror}") from error
        finally:
            os.close(theirs)
        self._lock = threading.Lock()
        self._number = 0
        self._rest = b""
        self.end = weakref.finalize(self, _end, self._process, self._words, ours)
        """Ends the helper; the second time it does nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._calls, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._calls, False)
        os.set_blocking(self._answers, False)
        with self._lock:
            told = self._result(time.monotonic() + START_WITHIN)
        self.greeting = Greeting(str(told["pyslurm"]), str(told["python"]))

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, name: str, given: Mapping[str, object]) -> Any:
        """What the worker's call of this name returns. Raises FailedError with SLURM's own words for a
        refusal, TransientError while SLURM does not answer, PyslurmRaisedError, and HelperLostError; after
        the last of them no call succeeds."""
        with self._lock:
            if not self.end.alive:
                raise HelperLostError("it was ended before")
            self._number += 1
            line = json.dumps({"id": self._number, "call": name, "given": given, "within": CALL_WITHIN})
            deadline = time.monotonic() + CALL_WITHIN
            self._send(line.encode() + b"\n", deadline)
            return self._result(deadline)

    def _send(self, line: bytes, deadline: float) -> None:
        left = memoryview(line)
        while left:
            self._wait(self._calls, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._calls, left) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._lost() from None

    def _result(self, deadline: float) -> Any:
        answer = self._answer(deadline)
        if (failed := answer.get("failed")) is None:
            return answer.get("result")
        words = str(failed["words"])
        if failed["kind"] == "raised":
            raise PyslurmRaisedError(words)
        # `Success` is what libslurm calls an error whose number it did not keep.
        kind = TransientError if words in ("", "Success") else kind_of(words)
        if issubclass(kind, TransientError):
            raise kind("pyslurm did not reach SLURM", why=words or "no reason given")
        raise kind("SLURM refused a call of pyslurm", why=words)

    def _answer(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            self._wait(self._answers, select.POLLIN, deadline)
            try:
                part = os.read(self._answers, 1 << 16)
            except BlockingIOError:
                continue
            if not part:
                raise self._lost()
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("id") != self._number:
            raise self._lost("it answered what was not called for")
        return answer

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        after = SAID
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(1000 * min(after, left)):
                return
            say(f"pyslurm has not answered: it is waited for {max(0.0, left - after):.0f} s more")
            after = AGAIN
        raise self._lost("it gave no answer in time")

    def _lost(self, why: str = "") -> HelperLostError:
        """Ends the helper, and says why it is lost: by its exit, and by what it wrote last."""
        if not why:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            code = self._process.poll()
            why = "it closed its output" if code is None else f"it ended with {_status(code)}"
        size = os.fstat(self._words.fileno()).st_size
        said = os.pread(self._words.fileno(), _TOLD, max(0, size - _TOLD)).decode(errors="replace").split()
        self.end()
        return HelperLostError(f"{why}: {' '.join(said)}" if said else why)


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"status {code}"


def _end(process: subprocess.Popen[bytes], words: Any, lifeline: int) -> None:
    """End by its own id, and reap. A helper that waits for a call ends by itself when its input is closed."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
        # One that hangs in the kernel is left to init.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5.0)
    words.close()
    os.close(lifeline)


def release(version: str) -> tuple[int, ...]:
    """`25.11.2` and `25.11.2-1` are (25, 11), `26.05.5` and `26.5.0` (26, 5); () of what has no such form."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()
