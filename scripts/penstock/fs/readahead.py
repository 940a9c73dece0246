"""Processes that list folders ahead of a walk (scouts), and the requests to them.

For `fs.tree`, which starts scouts once a tree is seen to be large, and takes what a scout lists in place of
listing the folder itself. This module starts and ends processes; the scouts (`fs.readahead_process`) read the
tree, and nothing is written.

Why not threads of the walk: a thread that waits half a millisecond for a server costs its process 25 us for
the interpreter lock, and where calls return at once, the stat of a file takes as long as all that the walk
does with it. A scout has an interpreter lock and a CPU of its own; where calls wait for a server, it uses
threads in turn. docs/decisions/0004 has the figures.
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

MAX_SCOUTS = 8
"""Scouts of a walk where calls wait for a server; elsewhere one for each spare CPU, up to this number."""
THREADS_PER_SCOUT = 8
"""Where calls wait for a server; elsewhere one."""
REQUESTS_PER_SCOUT = 16
"""The most folders that one scout has to list at a time."""


class Scouts:
    """The scouts of one walk: `has_room`, then `request`, for each folder; `close` at the end.

    `root` is the descriptor of the walk's top folder; paths are relative to it. `waits`: calls were seen to
    wait for a server (`fs.adaptive_threads`). Where no more processes can be started there are fewer scouts,
    or none; a scout that ends early is no error."""

    def __init__(self, root: int, *, waits: bool) -> None:
        number = MAX_SCOUTS if waits else min(MAX_SCOUTS, spare_cpus())
        threads = THREADS_PER_SCOUT if waits else 1
        self._scouts: list[Scout] = []
        for _ in range(number):
            try:
                self._scouts.append(Scout(*start("penstock.fs.readahead_process", root, options=(threads,))))
            except OSError:
                # This account may start no more processes: the scouts so far have to do.
                break

    @property
    def any_alive(self) -> bool:
        return not all(scout.gone for scout in self._scouts)

    def has_room(self, path: str) -> bool:
        """Whether that folder may be requested now: `request` does not block then. Each scout has at most
        REQUESTS_PER_SCOUT requests at a time, of paths shorter than PATH_MAX: a request that did not fit the
        socket would block this process, while its scout blocks on answers that nobody reads."""
        if len(os.fsencode(path)) >= PATH_MAX:
            return False
        for scout in self._scouts:
            if len(scout.pending) == REQUESTS_PER_SCOUT and not scout.gone and scout.has_answer():
                scout.read_answers()
        return any(len(scout.pending) < REQUESTS_PER_SCOUT for scout in self._scouts if not scout.gone)

    def request(self, path: str) -> Ticket:
        """Request the folder from the scout with the fewest requests. Only after `has_room(path)`."""
        alive = [scout for scout in self._scouts if not scout.gone]
        return min(alive, key=lambda scout: len(scout.pending)).request(path)

    def close(self) -> None:
        """End the scouts. A ticket that has no answer by then never gets one: do not wait for it."""
        for scout in self._scouts:
            scout.close()
        self._scouts.clear()


class Ticket:
    """A folder that was requested from a scout, in the place of a `Future`."""

    __slots__ = ("_scout", "answer", "done")

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self.answer: Any = None
        self.done = False

    def result(self) -> Any:
        """Wait for the answer, a tuple as `readahead_process.answer` returns it (names, kinds and stats, or
        an errno); None when the scout is gone, and the caller has to list the folder itself."""
        while not self.done:
            self._scout.read_answers()
        return self.answer

    def cancel(self) -> bool:
        """As of a `Future`, and always True: an answer that nobody takes holds nothing open."""
        return True


class Scout:
    """One process. Its answers come in the order of the requests."""

    def __init__(self, process: subprocess.Popen[bytes], channel: wire.Channel) -> None:
        self._process, self._channel = process, channel
        self.pending: deque[Ticket] = deque()
        self.gone = False

    def request(self, path: str) -> Ticket:
        ticket = Ticket(self)
        self.pending.append(ticket)
        try:
            self._channel.send(wire.LIST, path)
        except OSError:
            self._give_up()
        return ticket

    def has_answer(self) -> bool:
        """Whether an answer can be read without waiting for its first bytes."""
        poll = select.poll()
        poll.register(self._channel.connection, select.POLLIN)
        return bool(poll.poll(0))

    def read_answers(self) -> None:
        """Wait for bytes from the scout, and settle the tickets whose answers are whole."""
        frames = self._channel.receive()
        if frames is None:
            self._give_up()
            return
        for _, answer in frames:
            ticket = self.pending.popleft()
            ticket.answer, ticket.done = answer, True

    def _give_up(self) -> None:
        """The process is gone: no ticket gets an answer any more."""
        self.gone = True
        while self.pending:
            self.pending.popleft().done = True

    def close(self) -> None:
        self._channel.close()
        # A scout only reads: nothing is lost when it is killed.
        self._process.kill()
        self._process.wait()


def spare_cpus() -> int:
    """CPUs that this process may use, besides its own one."""
    return len(os.sched_getaffinity(0)) - 1
