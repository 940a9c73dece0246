"""Processes that list folders ahead of a walk (scouts), and the requests to them.

Why not threads of the walk: a thread that waits half a millisecond for a server costs its process 25 us for
the interpreter lock. Where calls return at once, a file's stat takes as long as the walk's other work on it.
A scout has its own interpreter lock and CPU; where calls wait for a server, it uses threads in turn.
docs/decisions/0004 has the figures.
"""

from __future__ import annotations

import os
import select
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.fs.safe_open import PATH_MAX
from penstock.host import wire
from penstock.host.command import start_helper

if TYPE_CHECKING:
    import subprocess

MAX_SCOUTS = 8  # of a walk where calls wait for a server; elsewhere one for each spare CPU, up to this number
THREADS_PER_SCOUT = 8  # where calls wait for a server; elsewhere one
REQUESTS_PER_SCOUT = 16  # folders that a scout has to list at a time, at most


class Scouts:
    """The scouts of a walk: `has_room`, then `request`, for each folder; `close` at the end. `root` is the
    descriptor of the walk's top folder; paths are relative to it. `waits`: calls wait for a server
    (`fs.tree`). Where processes cannot be started, scouts are fewer, or none; a scout that ends
    early is no error."""

    def __init__(self, root: int, *, waits: bool) -> None:
        number = MAX_SCOUTS if waits else min(MAX_SCOUTS, spare_cpus())
        threads = THREADS_PER_SCOUT if waits else 1
        self._scouts: list[Scout] = []
        for _ in range(number):
            try:
                self._scouts.append(
                    Scout(*start_helper("penstock.fs.readahead_process", root, options=(threads,)))
                )
            except OSError:
                # This account may start no more processes: the scouts so far must do.
                break

    @property
    def any_alive(self) -> bool:
        return not all(scout.gone for scout in self._scouts)

    def has_room(self, path: str) -> bool:
        """Return whether that folder may be requested now, so that `request` does not block. Each scout has
        at most REQUESTS_PER_SCOUT requests, of paths shorter than PATH_MAX. A request that did not fit the
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
        """End the scouts. A ticket without an answer never gets one: do not wait for it."""
        for scout in self._scouts:
            scout.close()
        self._scouts.clear()


class Ticket:
    """A folder requested from a scout, in place of a `Future`."""

    __slots__ = ("_scout", "answer", "done")

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self.answer: Any = None
        self.done = False

    def result(self) -> Any:
        """Wait for the answer, a tuple of `readahead_process.answer`; None when the scout is gone: the caller
        lists the folder itself."""
        while not self.done:
            self._scout.read_answers()
        return self.answer

    def cancel(self) -> bool:
        """As of a `Future`, and always True: an unused answer holds nothing open."""
        return True


class Scout:
    """A scout process. Its answers come in the order of the requests."""

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
        """Return whether an answer can be read without waiting for its first bytes."""
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
        """Settle all tickets without an answer, since the process is gone."""
        self.gone = True
        while self.pending:
            self.pending.popleft().done = True

    def close(self) -> None:
        self._channel.close()
        # A scout only reads: a kill loses nothing.
        self._process.kill()
        self._process.wait()


def spare_cpus() -> int:
    """Count the CPUs that this process may use, besides its own."""
    return len(os.sched_getaffinity(0)) - 1
