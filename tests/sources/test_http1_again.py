"""The second and later answers of a kept connection: received head and body in one piece where they are as
the last one was, and else as ever. Whatever comes ends as it would have ended as the first answer."""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.canned import END, GET, OK, RESET, TAKEN, Canned

from penstock.config.settings import Reach
from penstock.core.errors import FailedError, TransientError
from penstock.sources.http_connection import SHAPES, Connection
from penstock.sources.http_endpoint import Endpoint, endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.s3server import S3Server

ROOM = 64 << 10
READ = (
    b"etag",
    b"content-length",
    b"content-encoding",
    b"connection",
    b"retry-after",
    b"x-amz-checksum-crc32",
)


def answer(body: bytes, *lines: bytes, etag: bytes = b'"a"', length: int | None = None) -> bytes:
    stated = len(body) if length is None else length
    fields = [b"Date: today", b"ETag: " + etag, b"Content-Length: %d" % stated, *lines]
    return OK + b"\r\n".join(fields) + b"\r\n\r\n" + body


FIRST = answer(b"first body")
HEAD, BODY = FIRST[:-10], FIRST[-10:]


def received(connection: Connection, room: memoryview | None) -> tuple[Any, ...]:
    """One answer as a reader of objects takes it: all that it says, or the error."""
    try:
        status = connection.request(GET, room=room)
        said = {name: connection.headers[name] for name in READ if name in connection.headers}
        length = connection.length
        body = connection.take() if room is not None else None
        whole = bytes(body) if body is not None else connection.read_all(1 << 20)
    except TransientError as error:
        assert connection._socket is None
        return type(error), error.what, error.why
    return status, said, length, whole


ANSWERS: dict[str, Sequence[bytes]] = {
    "the same": [FIRST],
    "head, body": [HEAD, TAKEN, BODY],
    "other bytes": [answer(b"other bytes of another etag", etag=b'"b"')],
    "an odd etag": [answer(b"bytes", etag=b'W/"\xe9 \t-"')],
    "shorter": [answer(b"short")],
    "empty": [answer(b"")],
    "longer": [answer(b"longer than before" * 100)],
    "longer than the room": [answer(b"0123456789abcdef" * 8192)],
    "as long as the room": [answer(b"x" * ROOM)],
    "patience": [b"HTTP/1.1 503 Slow Down\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"],
    "gone": [b"HTTP/1.1 404 No\r\nDate: today\r\nETag: x\r\nContent-Length: 4\r\n\r\ngone"],
    "login": [OK + b"Content-Type: text/html\r\nContent-Length: 12\r\n\r\n<form></form"],
    "chunked": [OK + b"ETag: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n"],
    "chunked, with a length": [answer(b"5\r\n01234\r\n0\r\n\r\n", b"Transfer-Encoding: chunked", length=3)],
    "gzip": [answer(b"\x1f\x8bzip", b"Content-Encoding: gzip")],
    "a checksum more": [answer(b"some", b"x-amz-checksum-crc32: AAAAAA==")],
    "two lengths": [answer(b"some", b"Content-Length: 2")],
    "close": [answer(b"some", b"Connection: close"), END],
    "the last of 1.0": [FIRST.replace(b"HTTP/1.1", b"HTTP/1.0"), END],
    "no length": [OK + b"ETag: x\r\n\r\nall that comes", END],
    "no body": [b"HTTP/1.1 204 No Content\r\n\r\n"],
    "interim": [b"HTTP/1.1 100 Continue\r\n\r\n" + FIRST],
    "interim apart": [b"HTTP/1.1 100 Continue\r\n\r\n", TAKEN, FIRST],
    "half an interim": [b"HTTP/1.1 100 Con", TAKEN, b"tinue\r\n\r\n" + FIRST],
    "half a head": [HEAD[:20], TAKEN, FIRST[20:]],
    "a head but its end": [HEAD[:-1], TAKEN, FIRST[len(HEAD) - 1 :]],
    "a body that drips": [HEAD, *(one for n in range(10) for one in (TAKEN, BODY[n : n + 1]))],
    "half a body, then the rest": [FIRST[:-4], TAKEN, FIRST[-4:]],
    "the end in the head": [HEAD[:30], END],
    "the end after the head": [HEAD, END],
    "the end in the body": [FIRST[:-3], END],
    "the end in a longer head": [answer(b"x", b"X: " + b"y" * 9000)[:8500], END],
    "reset in the head": [HEAD[:30], TAKEN, RESET],
    "reset in the body": [FIRST[:-3], TAKEN, RESET],
    "no number": [FIRST.replace(b"Length: 10", b"Length: xx")],
    "not HTTP": [b"SSH-2.0-OpenSSH\r\n\r\n"],
    "a head without end": [OK + b"X: " + b"y" * (1 << 17), END],
    "a long head": [answer(b"body", b"X: " + b"y" * 30_000)],
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("ahead", [False, True], ids=["asked", "asked ahead"])
def test_a_later_answer_ends_as_a_first_one_would(name: str, ahead: bool) -> None:
    with Canned(ANSWERS[name]) as server:
        alone = server.connection()
        expected = received(alone, None)
        alone.close()
    room = memoryview(bytearray(ROOM))
    with Canned([FIRST], [FIRST], ANSWERS[name], [answer(b"the last", etag=b"z")]) as server:
        connection = server.connection()
        for _ in range(2):
            assert received(connection, room)[3] == b"first body"
        if ahead:
            connection.send(GET)
        assert received(connection, room) == expected
        # The connection is as good as new for the next request, or is a new one.
        assert received(connection, room)[3] == b"the last"
        assert len(server.requests) == 4
        connection.close()


def test_answers_alike_come_in_one_piece() -> None:
    """Else every test here would be of the long way."""
    room = memoryview(bytearray(ROOM))
    with Canned([FIRST], [answer(b"one", etag=b"1")], [answer(b"", etag=b"2")]) as server:
        connection = server.connection()
        for expected in (None, b"one", b""):
            assert connection.request(GET, room=room) == 200
            body = connection.take()
            if expected is None:
                assert body is None
                connection.read_all(100)
            else:
                assert body is not None
                assert bytes(body) == expected
                assert body.obj is room.obj
        assert server.connections == 1
        connection.close()


def test_what_follows_a_body_belongs_to_nobody() -> None:
    """An answer that nobody asked for must not be taken for the next one."""
    room = memoryview(bytearray(ROOM))
    for ahead in (False, True):
        stray = answer(b"the wrong one!", etag=b'"a"')
        with Canned([FIRST], [FIRST + stray], [answer(b"the right one")]) as server:
            connection = server.connection()
            for expected in (b"first body", b"first body", b"the right one"):
                if ahead:
                    connection.send(GET)
                assert received(connection, room)[3] == expected
            assert server.connections == 2
            connection.close()


def test_many_shapes_are_told_apart_for_ever() -> None:
    room = memoryview(bytearray(ROOM))
    answers = [answer(b"body %d" % n, b"X-%d: y" % (n % 5), etag=b"%d" % n) for n in range(4 * SHAPES)]
    with Canned(*([one] for one in answers)) as server:
        connection = server.connection()
        for n in range(len(answers)):
            _, said, _, whole = received(connection, room)
            assert (said[b"etag"], whole) == (b"%d" % n, b"body %d" % n)
        assert server.connections == 1
        connection.close()


def test_an_answer_without_room_is_read_as_ever_after_one_with_room() -> None:
    room = memoryview(bytearray(ROOM))
    with Canned(*[[FIRST]] * 4) as server:
        connection = server.connection()
        for given in (room, room, None, room):
            assert received(connection, given)[3] == b"first body"
        assert server.connections == 1
        connection.close()


def test_a_body_that_was_not_taken_is_not_left_for_the_next_answer() -> None:
    room = memoryview(bytearray(ROOM))
    for ahead in (False, True):
        with Canned([FIRST], [HEAD, b"first"], [answer(b"the right one")]) as server:
            connection = server.connection()
            received(connection, room)
            connection.request(GET, room=room)
            if ahead:
                connection.send(GET)
            assert received(connection, room)[3] == b"the right one"
            assert server.connections == 2
            connection.close()


# ---- asked ahead


def ended(connection: Connection) -> None:
    """Wait until the other side's end of the connection is known here."""
    opened = connection._socket
    assert opened is not None
    raw = opened._raw
    assert isinstance(raw, socket.socket)
    assert select.select([raw], [], [], 20.0)[0]


@pytest.mark.parametrize("fresh", [True, False], ids=["first", "kept"])
def test_a_request_that_was_sent_is_not_sent_again(fresh: bool) -> None:
    with Canned([FIRST], [answer(b"second")]) as server:
        connection = server.connection()
        if not fresh:
            received(connection, None)
        connection.send(GET)
        found = received(connection, None)
        assert found[3] == (b"first body" if fresh else b"second")
        assert len(server.requests) == (1 if fresh else 2)
        connection.close()


@pytest.mark.parametrize("room", [None, memoryview(bytearray(ROOM))], ids=["", "room"])
@pytest.mark.parametrize("end", [END, RESET])
def test_a_kept_connection_that_ended_before_the_send(end: bytes, room: memoryview | None) -> None:
    with Canned([FIRST], [FIRST, end], [answer(b"second")]) as server:
        connection = server.connection()
        received(connection, room)
        received(connection, room)
        ended(connection)
        connection.send(GET)
        assert received(connection, room)[3] == b"second"
        assert (len(server.requests), server.connections) == (3, 2)
        connection.close()


@pytest.mark.parametrize("room", [None, memoryview(bytearray(ROOM))], ids=["", "room"])
@pytest.mark.parametrize("end", [[END], [RESET]], ids=["end", "reset"])
def test_a_kept_connection_that_ends_between_send_and_request(
    end: Sequence[bytes], room: memoryview | None
) -> None:
    with Canned([FIRST], end, [answer(b"second")]) as server:
        connection = server.connection()
        received(connection, room)
        connection.send(GET)
        ended(connection)
        assert received(connection, room)[3] == b"second"
        assert (len(server.requests), server.connections) == (3, 2)
        connection.close()


def test_a_server_that_hangs_up_on_what_was_sent_is_asked_once_more() -> None:
    with Canned([FIRST], None, None, [FIRST]) as server:
        connection = server.connection()
        received(connection, None)
        connection.send(GET)
        with pytest.raises(TransientError, match="without an answer"):
            connection.request(GET)
        assert server.connections == 2
        assert received(connection, None)[3] == b"first body"
        connection.close()


def test_send_to_a_server_that_is_not_there_leaves_it_to_the_request() -> None:
    with Canned() as server:
        connection = server.connection()
    connection.send(GET)
    with pytest.raises(TransientError, match="cannot connect"):
        connection.request(GET)
    connection.send(GET)
    connection.close()


def test_send_to_a_name_that_nobody_has() -> None:
    connection = Connection(Endpoint("nobody.invalid", 80, tls=False, reach=Reach(5)))
    connection.send(GET)
    with pytest.raises(TransientError, match="cannot connect"):
        connection.request(GET)


def test_send_to_a_server_that_is_not_trusted(demo_tls: S3Server) -> None:
    connection = Connection(endpoint(demo_tls.endpoint, Reach()))
    connection.send(GET)
    with pytest.raises(FailedError, match="certificate"):
        connection.request(GET)


def test_send_drops_what_was_read_by_half() -> None:
    with Canned([answer(b"first" * 1000)], [answer(b"second")]) as server:
        connection = server.connection()
        connection.request(GET)
        connection.readinto(memoryview(bytearray(10)))
        connection.send(GET)
        assert received(connection, None)[3] == b"second"
        assert server.connections == 2
        connection.close()


def test_what_was_sent_is_forgotten_with_its_connection() -> None:
    with Canned([FIRST], [FIRST], [answer(b"second")]) as server:
        connection = server.connection()
        received(connection, None)
        connection.send(GET)
        ended(connection)  # the answer is there
        connection.abandon()
        assert received(connection, None)[3] == b"second"
        assert (len(server.requests), server.connections) == (3, 2)
        connection.close()
