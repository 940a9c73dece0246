"""Processes that list folders ahead of a walk (scouts). They only read.

From some thousand files on, scouts list the folders to come while the walk handles the folders before.
Threads would not do: one that waits half a millisecond for a server costs its process 25 us for the
interpreter lock, and where calls return at once, the stat of a file takes as long as all that the walk does
with it. Processes share no interpreter lock and use further CPUs. docs/decisions/0004 has the figures.
"""

from __future__ import annotations

import os
import select
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.fs.safe_open import PATH_MAX
from penstock.host import wire
from penstock.host.helper_process import start

if TYPE_CHECKING:
    import subprocess

MOST = 8
"""Scouts, where calls wait for a server; elsewhere one for each CPU but this process's, up to this number."""
THREADS = 8
"""Threads of each scout, where calls wait for a server; elsewhere one."""
ROOM = 16
"""The most folders that one scout has to list at a time."""


def spare_cpus() -> int:
    """CPUs that this process may use, besides its own one."""
    return len(os.sched_getaffinity(0)) - 1


class Ticket:
    """A folder that was requested from a scout, and the answer once it is there."""

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
        """Always True: an answer that nobody takes any more holds no resource."""
        return True


class Scout:
    """One process. Its answers come in the order of the requests."""

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
        """Whether an answer waits to be read."""
        poll = select.poll()
        poll.register(self._channel.connection, select.POLLIN)
        return bool(poll.poll(0))

    def hear(self) -> None:
        """Wait for at least one answer, and read those that are there."""
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
        # A scout only reads: nothing is lost when it is killed.
        self._process.kill()
        self._process.wait()


class Scouts:
    """The scouts of one walk. `root` is the descriptor of its top folder; `waits`: calls wait for a
    server."""

    def __init__(self, root: int, *, waits: bool) -> None:
        number = min(MOST, MOST if waits else spare_cpus())
        threads = THREADS if waits else 1
        self._scouts: list[Scout] = []
        for _ in range(number):
            try:
                self._scouts.append(Scout(*start("penstock.fs.readahead_process", root, options=(threads,))))
            except OSError:
                # This account may start no more processes: the scouts so far have to do.
                break

    @property
    def able(self) -> bool:
        """Whether any scout is alive."""
        return not all(one.gone for one in self._scouts)

    def takes(self, path: str) -> bool:
        """Whether that folder may be requested now. Each scout has at most ROOM requests at a time, of paths
        shorter than PATH_MAX: a request that did not fit the socket would block this process, while its scout
        blocks on answers that nobody reads."""
        if len(os.fsencode(path)) >= PATH_MAX:
            return False
        for one in self._scouts:
            if len(one.asked) == ROOM and not one.gone and one.answered():
                one.hear()
        return any(len(one.asked) < ROOM for one in self._scouts if not one.gone)

    def ask(self, path: str) -> Ticket:
        """Request the folder from the scout with the fewest requests. To be called only where `takes` is
        True."""
        able = [one for one in self._scouts if not one.gone]
        return min(able, key=lambda one: len(one.asked)).ask(path)

    def close(self) -> None:
        for one in self._scouts:
            one.close()
        self._scouts.clear()
