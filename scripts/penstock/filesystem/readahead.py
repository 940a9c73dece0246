"""Processes that list folders ahead of a walk: more than one CPU's worth of calls, and no interpreter lock.

A thread that waits half a millisecond for a server costs its process 25 us in handing the interpreter on;
where calls answer at once, looking at a file takes as long as all that is done with it afterwards. So from
some thousand files on these processes (scouts) list the folders to come, while the walk handles the folders
before. docs/decisions/0004 has the figures.
"""

from __future__ import annotations

import os
import select
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.filesystem.safe_open import PATH_MAX
from penstock.runtime import wire
from penstock.runtime.helper_process import start

if TYPE_CHECKING:
    import subprocess

MOST = 8
"""Scouts, where calls wait; else one for each CPU but this process's."""
THREADS = 8
"""Of each, where calls wait."""
ROOM = 16
"""The most folders that one scout has to list at a time."""


def spare_cpus() -> int:
    return len(os.sched_getaffinity(0)) - 1


class Ticket:
    """One folder that was asked for."""

    __slots__ = ("_scout", "answer", "settled")

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self.answer: Any = None
        self.settled = False

    def result(self) -> Any:
        """What `readahead_process.answer` gave; None when the scout is gone. Waits."""
        while not self.settled:
            self._scout.hear()
        return self.answer

    def cancel(self) -> bool:
        """Nobody asks for the result any more: an answer that comes holds nothing open."""
        return True


class Scout:
    """One process. It answers in the order in which it was asked."""

    def __init__(self, process: subprocess.Popen[bytes], channel: wire.Channel) -> None:
        self._process, self._channel = process, channel
        self.asked: deque[Ticket] = deque()
        self.gone = False

    def ask(self, path: str) -> Ticket:
        ticket = Ticket(self)
        self.asked.append(ticket)
        try:
            self._channel.send(wire.LIST, path)
        except OSError:
            self._lost()
        return ticket

    def answered(self) -> bool:
        """Whether something came that was not heard."""
        poll = select.poll()
        poll.register(self._channel.connection, select.POLLIN)
        return bool(poll.poll(0))

    def hear(self) -> None:
        """Wait for answers once."""
        frames = self._channel.receive()
        if frames is None:
            self._lost()
            return
        for _, answer in frames:
            ticket = self.asked.popleft()
            ticket.answer, ticket.settled = answer, True

    def _lost(self) -> None:
        self.gone = True
        while self.asked:
            self.asked.popleft().settled = True

    def close(self) -> None:
        self._channel.close()
        # It only reads: nothing is lost with it.
        self._process.kill()
        self._process.wait()


class Scouts:
    """Some scouts below one folder; `root` is its descriptor."""

    def __init__(self, root: int, *, waits: bool) -> None:
        number = min(MOST, MOST if waits else spare_cpus())
        threads = THREADS if waits else 1
        self._scouts: list[Scout] = []
        for _ in range(number):
            try:
                self._scouts.append(
                    Scout(*start("penstock.filesystem.readahead_process", root, options=(threads,)))
                )
            except OSError:
                # No more processes for this account: what is there must do.
                break

    @property
    def able(self) -> bool:
        """Whether any is there."""
        return not all(one.gone for one in self._scouts)

    def takes(self, path: str) -> bool:
        """Whether that folder may be asked for now. A question that fills the socket while its scout waits
        to be heard would be the last one: few at a time, and none of a path longer than the kernel's."""
        if len(os.fsencode(path)) >= PATH_MAX:
            return False
        for one in self._scouts:
            if len(one.asked) == ROOM and not one.gone and one.answered():
                one.hear()
        return any(len(one.asked) < ROOM for one in self._scouts if not one.gone)

    def ask(self, path: str) -> Ticket:
        """Of the scout with the least to do; only where `takes` said so."""
        able = [one for one in self._scouts if not one.gone]
        return min(able, key=lambda one: len(one.asked)).ask(path)

    def close(self) -> None:
        for one in self._scouts:
            one.close()
        self._scouts.clear()
