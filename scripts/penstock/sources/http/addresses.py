"""The addresses of a server's name: new connections go round all of them, past those that are dead.

Large stores stand behind several addresses, each good for part of their speed. The name is looked up
again every FRESH seconds; while that fails the addresses known are used on. An address that could not be
connected to comes last for REST seconds: it is tried only when all others failed too.

Every new connection of `http.connect` gets its socket here. Touches the system's resolver and the network.
"""

from __future__ import annotations

import functools
import random
import socket
import time
from threading import Lock
from typing import TYPE_CHECKING

from penstock.host import waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    HostAddress = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]

FRESH = 30.0
"""Seconds after which a name is looked up again."""
REST = 30.0
"""Seconds for which an address that failed comes last."""
LEAST = 5.0
"""Seconds that each of several addresses is waited for at least, if the timeout has as many."""


def look_up(host: str, port: int) -> Sequence[HostAddress]:
    """Every address of a name, as the system's resolver orders them. Raises OSError."""
    found = waits.aside(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


class Addresses:
    """The addresses of one name and port; shared by all threads of a process."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        resolve: Callable[[str, int], Sequence[HostAddress]] = look_up,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._port, self._resolve, self._clock = host, port, resolve, clock
        self._lock = Lock()
        self._places: Sequence[HostAddress] = ()
        self._looked = 0.0
        self._dead: dict[HostAddress, float] = {}
        # Processes begin at different places; spreading needs no secret randomness.
        self._turn = random.randrange(1 << 16)  # noqa: S311

    def connect(self, timeout: float) -> tuple[socket.socket, HostAddress]:
        """A connected socket with `timeout` set, and the address it leads to. Raises OSError, the last
        address's, when none answers."""
        order = self._order()
        each = timeout if len(order) == 1 else min(timeout, max(timeout / len(order), LEAST))
        refusal = OSError("the name has no address")
        for place in order:
            opened = socket.socket(place[0], socket.SOCK_STREAM)
            try:
                opened.settimeout(each)
                opened.connect(place[1])
                opened.settimeout(timeout)
            except OSError as error:
                opened.close()
                self.failed(place)
                refusal = error
            except BaseException:
                opened.close()
                raise
            else:
                return opened, place
        raise refusal

    def _order(self) -> list[HostAddress]:
        """All addresses: the next one in turn first, the dead ones last."""
        now = self._clock()
        with self._lock:
            stale = not self._places or now - self._looked >= FRESH
            if stale:
                self._looked = now  # the others go on with what is known meanwhile
        if stale:
            try:
                places = self._resolve(self._host, self._port)
            except OSError:
                if not self._places:
                    raise
                places = self._places
            self._places = places
        with self._lock:
            self._turn += 1
            places, first = self._places, self._turn % len(self._places) if self._places else 0
            order = [*places[first:], *places[:first]]
            return sorted(order, key=lambda place: self._dead.get(place, 0.0) > now)

    def failed(self, place: HostAddress) -> None:
        """Leave this address out for a while: it could not be connected to, or did not go on."""
        with self._lock:
            now = self._clock()
            self._dead = {known: until for known, until in self._dead.items() if until > now}
            self._dead[place] = now + REST


@functools.lru_cache(maxsize=64)
def addresses(host: str, port: int) -> Addresses:
    """This process's own, one for each name and port."""
    return Addresses(host, port)
