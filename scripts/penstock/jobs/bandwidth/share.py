"""An element's share of a network link: a thread that holds slots (equal parts of the link's cap), and the
rate that follows from them.

An element that copies makes one `Share` where `bandwidth.folder` is configured; the engine asks it what the
workers may read (`host.pacing.Allowances`). Its thread reads the cap file, and makes, renames and removes
small files in the link's folder.

The thread alone touches the folder, so an engine never waits for it. It hands what the element may do to the
workers itself, before it carries out the next operation: slots are given back SETTLE seconds after that, also
while the engine's main thread stands in a call to a file system. When the folder does
not answer, the thread hangs, the last beat grows old, and `Share` allows nothing from VALID seconds after its
beginning; the workers know that moment beforehand.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from penstock.core.errors import FailedError
from penstock.core.text import printable
from penstock.dataset import holder as processes
from penstock.host.pacing import Allowance, clock
from penstock.jobs.bandwidth.cap_file import Cap, CapFile
from penstock.jobs.bandwidth.folder import SlotFolder, prepared
from penstock.jobs.bandwidth.holder import SETTLE, Sleep, SlotHolder
from penstock.jobs.bandwidth.slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from penstock.jobs.bandwidth.holder import Operation

READ = 2.0
"""Seconds between two readings of the open cap file: no metadata operation."""
ENDING = 5.0
"""Seconds that giving the slots back may take; then they are left to be taken over."""
TOLD = 30.0
"""Seconds without a share after which the element's log says so."""


class Share:
    """`with Share(...) as share:`; then `share.first(wait)` before the first byte, `share.hand_to` when there
    are workers, and `share()` several times a second (`host.pacing.Allowances`). `cap`: the configured one;
    `limit`: the element's own ceiling, in bytes a second. `say` is called for a line of the element's log."""

    def __init__(
        self, folder: Path, cap: Cap, limit: int | None, what: str, run: str, say: Callable[[str], None]
    ) -> None:
        """`what` the element does, for people: `copy imagenet, shard 3`."""
        self._folder, self._configured, self._limit, self._say = folder, cap, limit, say
        who = json.dumps(asdict(processes.this_process(run, what)), sort_keys=True).encode()
        self._holder = SlotHolder(who, clock, most=self._most, dead=_dead)
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._write: Callable[[Allowance], None] | None = None
        self._written: Allowance | None = None
        self._read = clock()
        self._failed = ""
        self._told = ""
        self._without: float | None = clock()
        """Since when there is no share; None: there is one."""
        self._waits = False
        """The element's log says that it waits."""
        self._thread = threading.Thread(target=self._run, name="bandwidth", daemon=True)

    def __enter__(self) -> Self:
        """Raises PreflightError for a folder that cannot be used."""
        slots = prepared(self._folder)
        try:
            self._file = CapFile(self._folder)
            self._file.look()
        except OSError as error:
            raise self._error(error.strerror or str(error)) from None
        self._slots = SlotFolder(slots, self._file.look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(ENDING)
        if not self._thread.is_alive():
            self._file.close()

    def first(self, wait: Callable[[float], object]) -> None:
        """Return when the element has a share. `wait` is called again and again, and may raise."""
        while self().rate <= 0:
            wait(0.2)

    def __call__(self) -> Allowance:
        """What the element may do now (bytes and requests a second, and until when). Says in the element's
        log what changed. Raises FailedError where the thread has ended: the folder could not be used at
        all."""
        if self._failed or not self._thread.is_alive():
            raise self._error(self._failed or "the thread that holds the share has ended")
        wrong, known = self._file.wrong, self._file.known
        if wrong != self._told:
            self._told = wrong
            now = (
                "the bandwidth cap is as it was"
                if known
                else "nothing is read before the bandwidth cap is known"
            )
            self._say(f"warning: {now}: {wrong}" if wrong else "the cap is right again")
        self._tell()
        return self._now()

    def _tell(self) -> None:
        """Say when the element has had no share for TOLD seconds, and when it has one then."""
        slots, until = self._holder.usable()
        now, where = clock(), printable(str(self._folder))
        if slots and now <= until:
            if self._waits:
                self._say(f"has a share of the bandwidth below {where} now")
            self._without, self._waits = None, False
            return
        if self._without is None:
            self._without = now
        if not self._waits and now - self._without >= TOLD:
            self._waits = True
            why = f": {printable(self._holder.trouble)}" if self._holder.trouble else ""
            self._say(f"waits for a share of the bandwidth below {where}{why}")

    def hand_to(self, write: Callable[[Allowance], None] | None) -> None:
        """See `host.pacing.Allowances`."""
        with self._writing:
            self._write, self._written = write, None
        self._hand_on()

    def _hand_on(self) -> None:
        # The lock is held for a store to memory: neither thread waits for a folder by it.
        with self._writing:
            now = self._now()
            if self._write is not None and now != self._written:
                self._written = now
                self._write(now)

    def _now(self) -> Allowance:
        used, until = self._holder.usable()
        if not self._file.known:
            return Allowance(0.0, 0.0, until, 0.0)
        cap, fraction = self.cap, len(used) / SLOTS
        rate = math.inf if cap.rate is None else cap.rate
        requests = math.inf if cap.requests is None else cap.requests
        return Allowance(_times(rate, fraction), _times(requests, fraction), until, rate)

    @property
    def cap(self) -> Cap:
        """The lower one of what is configured and what the cap file says: of all elements together."""
        return self._configured.lower(self._file.cap)

    def _most(self) -> int:
        rate = self.cap.rate
        if self._limit is None or rate is None:
            return SLOTS
        return max(1, min(SLOTS, -(-self._limit * SLOTS // rate)))

    def _error(self, why: str) -> FailedError:
        return FailedError(
            "the bandwidth folder cannot be used",
            where=printable(str(self._folder)),
            why=why,
            hint="each account that uses the link must be able to write there, from each node: look at its "
            "file system and its modes",
        )

    # The thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        steps = self._holder.steps()
        try:
            self._drive(steps)
        except OSError as error:
            self._failed = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001  the element must hear of it, and others have the share
            self._failed = f"{type(error).__name__}: {error}"
        steps.close()
        self._give_back()

    def _give_back(self) -> None:
        end = self._holder.end()
        with contextlib.suppress(OSError, StopIteration):
            operation = next(end)
            self._hand_on()
            if self._write is not None:
                # There are workers yet: only where this thread failed.
                threading.Event().wait(SETTLE)
            while True:
                operation = end.send(self._slots.carry_out(operation))

    def _drive(self, steps: Generator[Operation, object, None]) -> None:
        """Until the end is asked for. Raises OSError."""
        operation = next(steps)
        while not self._stop.is_set():
            self._hand_on()
            if isinstance(operation, Sleep):
                self._rest(operation.seconds)
                operation = steps.send(None)
                continue
            self._read_cap()
            try:
                answer = self._slots.carry_out(operation)
            except OSError as error:
                operation = steps.throw(error)
            else:
                operation = steps.send(answer)

    def _rest(self, seconds: float) -> None:
        """Wait, and read the cap meanwhile."""
        end = clock() + seconds
        while (left := end - (now := clock())) > 0 and not self._stop.wait(
            min(left, max(0.0, self._read + READ - now))
        ):
            self._read_cap()

    def _read_cap(self) -> None:
        """Where READ seconds have passed."""
        if (now := clock()) - self._read >= READ:
            self._read = now
            with contextlib.suppress(OSError):
                self._file.read()
            self._hand_on()


def _times(whole: float, fraction: float) -> float:
    return whole * fraction if fraction else 0.0


def _dead(content: bytes) -> bool:
    """Whether the process that a beat's content names has certainly ended: one of this machine."""
    seen = processes.parse(content)
    return seen is not None and processes.lives(seen) is False
