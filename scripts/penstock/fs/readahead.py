"""Processes that list folders ahead of a walk (scouts), and the requests that they get.

The walk's own threads would not be enough. A thread that waits half a millisecond for a server costs its
process 25 us for the interpreter lock. If calls return at once, a file's stat takes as long as the walk's
other work on the file. A scout has its own interpreter lock and CPU, and also uses threads if calls wait for
a server. docs/decisions/0004 has the figures.
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

# number of a walk's scouts, at most; unless calls wait for a server, also at most the number of spare CPUs
MAX_SCOUTS = 8
# number of a scout's threads if calls wait for a server; if not, it has a single thread
THREADS_PER_SCOUT = 8
REQUESTS_PER_SCOUT = 16  # number of requested folders that a scout has not answered yet, at most


class Scouts:
    """The scouts of a walk. Call `has_room` and then `request` for each folder, and `close` at the end.
    `root` is the descriptor of the walk's top folder, to which paths are relative. `waits` says whether calls
    wait for a server (`fs.tree`). If processes cannot be started, the walk has fewer scouts, or none. A scout
    that ends early is no error."""

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
                # This account may start no more processes, so the walk uses the scouts started so far.
                break

    @property
    def any_alive(self) -> bool:
        return not all(scout.gone for scout in self._scouts)

    def has_room(self, path: str) -> bool:
        """Return whether the folder may be requested now, without blocking in `request`. Each scout has at
        most REQUESTS_PER_SCOUT requests, with paths shorter than PATH_MAX, so that they fit the socket.
        Otherwise this process would block while the scout blocks on answers that nobody reads."""
        if len(os.fsencode(path)) >= PATH_MAX:
            return False
        for scout in self._scouts:
            if len(scout.pending) == REQUESTS_PER_SCOUT and not scout.gone and scout.has_answer():
                scout.read_answers()
        return any(len(scout.pending) < REQUESTS_PER_SCOUT for scout in self._scouts if not scout.gone)

    def request(self, path: str) -> Ticket:
        """Request the folder from the scout with the fewest requests. Call `has_room(path)` first."""
        alive = [scout for scout in self._scouts if not scout.gone]
        return min(alive, key=lambda scout: len(scout.pending)).request(path)

    def close(self) -> None:
        """End the scouts. Do not wait for tickets without an answer afterwards, since they never get one."""
        for scout in self._scouts:
            scout.close()
        self._scouts.clear()


class Ticket:
    """A request for a folder to a scout, with the methods of a `Future` that the walk uses."""

    __slots__ = ("_scout", "answer", "done")

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self.answer: Any = None
        self.done = False

    def result(self) -> Any:
        """Wait for the answer, a tuple of `readahead_process.answer`. Returns None if the scout is gone, so
        that the caller must list the folder itself."""
        while not self.done:
            self._scout.read_answers()
        return self.answer

    def cancel(self) -> bool:
        """Do the same as `Future.cancel`. Always returns True, since an unused answer keeps no file open."""
        return True


class Scout:
    """A scout process. It answers requests in their order."""

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
        """Wait for bytes from the scout, and settle the tickets whose answers are complete."""
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
        # A scout only reads, so killing it loses nothing.
        self._process.kill()
        self._process.wait()


def spare_cpus() -> int:
    """Count the CPUs that this process may use, without the CPU on which it runs."""
    return len(os.sched_getaffinity(0)) - 1
