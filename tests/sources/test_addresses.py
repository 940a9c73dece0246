"""Several addresses of one name: used in turn, past those that are dead."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from tests.sources.test_http1 import GET, OK, Canned

from penstock.config.settings import Reach
from penstock.core.errors import TransientError
from penstock.sources.http_connection import Connection
from penstock.sources.http_endpoint import (
    FRESH,
    REST,
    Addresses,
    Endpoint,
    look_up,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sources.http_endpoint import HostAddress

HERE = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


class Name:
    """A resolver and a clock that the test sets; listeners on some of the addresses, one port."""

    def __init__(self, *alive: str) -> None:
        self.now, self.asked = 1000.0, 0
        self.hosts: list[str] = list(HERE)
        self.listeners = {alive[0]: socket.create_server((alive[0], 0))}
        self.port = int(self.listeners[alive[0]].getsockname()[1])
        for host in alive[1:]:
            self.listen(host)
        self.addresses = Addresses("store", self.port, resolve=self.resolve, clock=lambda: self.now)

    def listen(self, host: str) -> None:
        self.listeners[host] = socket.create_server((host, self.port))

    def resolve(self, host: str, port: int) -> list[HostAddress]:
        assert (host, port) == ("store", self.port)
        self.asked += 1
        if not self.hosts:
            raise socket.gaierror("no such name")
        return [(socket.AF_INET, (host, port)) for host in self.hosts]

    def connected(self, times: int) -> list[str]:
        """Where as many connections in a row lead to."""
        found = []
        for _ in range(times):
            opened, place = self.addresses.connect(20.0)
            assert opened.gettimeout() == 20.0
            found.append(opened.getpeername()[0])
            assert place[1][0] == found[-1]
            opened.close()
        return found


@contextlib.contextmanager
def name(*alive: str) -> Iterator[Name]:
    made = Name(*alive)
    try:
        yield made
    finally:
        for listener in made.listeners.values():
            listener.close()


def test_connections_go_round_all_addresses() -> None:
    with name(*HERE) as store:
        found = store.connected(6)
        assert sorted(found) == sorted([*HERE, *HERE])
        assert set(found[:3]) == set(HERE)
        assert store.asked == 1


def test_a_dead_address_is_left_out_for_a_while() -> None:
    with name("127.0.0.1", "127.0.0.3") as store:
        assert set(store.connected(6)) == {"127.0.0.1", "127.0.0.3"}
        store.listen("127.0.0.2")
        assert set(store.connected(6)) == {"127.0.0.1", "127.0.0.3"}
        store.now += REST + 1
        assert set(store.connected(3)) == set(HERE)


def test_when_all_are_dead_each_is_tried_again() -> None:
    with name("127.0.0.1") as store:
        store.listeners.pop("127.0.0.1").close()
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                store.addresses.connect(20.0)
        store.listen("127.0.0.2")
        assert store.connected(2) == ["127.0.0.2"] * 2


def test_names_are_looked_up_again_and_kept_while_that_fails() -> None:
    with name(*HERE) as store:
        store.hosts = ["127.0.0.1"]
        assert set(store.connected(3)) == {"127.0.0.1"}
        store.hosts = list(HERE)
        assert set(store.connected(3)) == {"127.0.0.1"}
        store.now += FRESH
        assert set(store.connected(3)) == set(HERE)
        store.hosts = []
        store.now += FRESH
        assert set(store.connected(3)) == set(HERE)
        assert store.asked == 3


def test_a_name_that_is_not_known() -> None:
    with name("127.0.0.1") as store:
        store.hosts = []
        with pytest.raises(OSError, match="no such name"):
            store.addresses.connect(20.0)
        endpoint = Endpoint("store", store.port, tls=False, reach=Reach(20))
        with pytest.raises(TransientError, match="cannot connect to store"):
            Connection(endpoint, store.addresses).request(GET)


def test_an_address_without_an_answer_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.2", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        place = full.getsockname()
        unanswered = 0
        while unanswered < 2:  # until its queue is full, so that the kernel drops what comes
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.5)
            try:
                filler.connect(place)
                unanswered = 0
            except TimeoutError:
                unanswered += 1
        live = stack.enter_context(socket.create_server(("127.0.0.1", place[1])))
        places: list[HostAddress] = [(socket.AF_INET, place), (socket.AF_INET, live.getsockname())]
        addresses = Addresses("store", place[1], resolve=lambda *_: places)
        for _ in range(4):
            opened, _ = addresses.connect(1.5)
            assert opened.getpeername() == live.getsockname()
            opened.close()


def test_requests_are_answered_past_a_dead_address() -> None:
    answers = [[OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab"] for _ in range(4)]
    with Canned(*answers) as server:
        places: list[HostAddress] = [(socket.AF_INET, (host, server.port)) for host in HERE]
        addresses = Addresses("store", server.port, resolve=lambda *_: places)
        connection = Connection(Endpoint("store", server.port, tls=False, reach=Reach(20)), addresses)
        for _ in range(4):
            assert connection.request(GET) == 200
            assert connection.read_all(10) == b"ab"
        assert server.connections == 4


def test_an_address_that_breaks_the_handshake_is_left_out() -> None:
    with name("127.0.0.1", "127.0.0.2") as store:
        store.hosts = ["127.0.0.1"]
        assert store.connected(1) == ["127.0.0.1"]
        store.listeners["127.0.0.1"].accept()[0].close()
        store.now += FRESH / 2

        def hang_up() -> None:
            store.listeners["127.0.0.1"].accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(TransientError):
            Connection(Endpoint("store", store.port, tls=True, reach=Reach(20)), store.addresses).request(GET)
        thread.join()
        store.hosts = ["127.0.0.1", "127.0.0.2"]
        store.now += FRESH / 2
        assert store.connected(4) == ["127.0.0.2"] * 4


def test_the_systems_own_answers() -> None:
    assert look_up("127.0.0.1", 80) == [(socket.AF_INET, ("127.0.0.1", 80))]
    assert (socket.AF_INET, ("127.0.0.1", 80)) in look_up("localhost", 80)
