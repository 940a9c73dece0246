"""The HTTP client against h11, on random answers and on broken ones, cut into random pieces.

What both take, both take alike: status, body, and a connection that is kept only where h11 keeps it too.
What h11 takes and penstock does not is refused by one of STRICTER. What penstock takes and h11 does not:

| h11 refuses | taken by penstock, because |
|---|---|
| characters in a field's name or value, or in the status line's text | the field is passed over |
| a first field that is indented | it counts as the status line's text |
| the same Transfer-Encoding twice | it says the same thing |
| Transfer-Encoding: identity | servers of before RFC 7230 send it: there is no coding |
| a length that is no number, of an answer in chunks, or of HEAD, 204, 304 | no body is read by it |
| a space before a chunk's extension | RFC 9112, 7.1.1, allows it |
| a trailer line that is no field | trailers are passed over |
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.config.settings import Reach
from penstock.core.errors import TransientError
from penstock.sources.http_connection import Connection
from penstock.sources.http_endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT = 1 << 16


class Answer(NamedTuple):
    """What a client made of the bytes that came."""

    status: int
    body: bytes
    kept: bool
    """The connection may carry another request."""
    bodyless: bool = False


class Pieces:
    """A socket on which these pieces come, and then its end."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def recv_into(self, buffer: memoryview, count: int = 0, flags: int = 0) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces[0]
        taken = min(len(piece), count or len(buffer))
        buffer[:taken] = piece[:taken]
        self._pieces[0] = piece[taken:]
        if not self._pieces[0]:
            del self._pieces[0]
        return taken

    def sendall(self, data: bytes) -> None:
        pass

    def expect(self, count: int) -> None:
        pass

    def close(self) -> None:
        self._pieces = []


def ours(pieces: Sequence[bytes], *, head: bool) -> Answer | str:
    """The answer, or why it was refused."""
    connection = Connection(Endpoint("127.0.0.1", 1, tls=False, reach=Reach(1)))
    connection._socket = Pieces(pieces)  # type: ignore[assignment]
    connection._keep = True
    connection._sent = True  # a fresh connection is not made anew
    try:
        status = connection._exchange(b"", head, None)
        body = connection.read_all(LIMIT)
    except TransientError as error:
        return str(error)
    except Exception as error:
        if type(error).__name__ == "_StaleError":
            return "nothing came"
        raise
    return Answer(status, body, connection._socket is not None, head or status in (204, 304))


def theirs(pieces: Sequence[bytes], *, head: bool) -> Answer | str:
    client = h11.Connection(h11.CLIENT)
    request = h11.Request(method="HEAD" if head else "GET", target="/", headers=[("Host", "h")])
    client.send(request)
    client.send(h11.EndOfMessage())
    waiting = [*filter(None, pieces), b""]
    status, body = 0, bytearray()
    try:
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                if not waiting:
                    return "nothing more comes"
                client.receive_data(waiting.pop(0))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif isinstance(event, h11.ConnectionClosed):
                return "closed"
    except h11.RemoteProtocolError as error:
        return str(error)
    done = client.our_state is h11.DONE and client.their_state is h11.DONE
    # Bytes after the body can be seen for certain where they came with it.
    return Answer(status, bytes(body), done and not (len(pieces) == 1 and client.trailing_data[0]))


STATUS = st.sampled_from(
    [b"HTTP/1.1 200 OK"] * 8
    + [b"HTTP/1.0 200 OK", b"HTTP/1.1 206 Partial Content", b"HTTP/1.1 204 None", b"HTTP/1.1 304 X"]
    + [
        b"HTTP/1.1 404 ",
        b"HTTP/1.1 503",
        b"HTTP/1.2 200 OK",
        b"HTTP/2 200",
        b"HTTP/1.1 99 X",
        b"HTTP/1.1 2000 X",
    ]
    + [b"HTTP/1.1  200 OK", b"http/1.1 200 OK", b"HTTP/1.1 20\x00 OK", b"ICY 200 OK", b""]
)
FIELDS = st.sampled_from(
    [b"Server: x", b'ETag: "a"', b"X-Empty:", b"X: a\tb", b"x-amz-meta-a: \xc3\xa9"]
    + [b"Connection: close", b"Connection: keep-alive", b"connection: Close", b"Connection: x, close"]
    + [b"Content-Length: %d" % n for n in (0, 1, 5, 12)]
    + [b"Content-Length: +5", b"Content-Length: -5", b"Content-Length: 5, 5", b"Content-Length: 5, 6"]
    + [
        b"Content-Length: 0x5",
        b"Content-Length: 5 5",
        b"Content-Length:",
        b"Content-Length: 005",
        b"Content-Length: 5_0",
    ]
    + [b"Content-Length: \xd9\xa5", b"Content-Length : 5", b"Content-Length\t: 5", b" Content-Length: 5"]
    + [b"Transfer-Encoding: chunked"] * 3
    + [
        b"Transfer-Encoding: Chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, gzip",
    ]
    + [b"Transfer-Encoding: identity", b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked;q=1"]
    + [b"no colon", b": no name", b"X y: z", b"X: a\x00b", b"X: a\rb", b"\tfolded", b"X: \x7f"]
)
BODIES = st.binary(max_size=12)


@st.composite
def chunked(draw: st.DrawFn) -> bytes:
    out = b""
    for block in draw(st.lists(st.binary(min_size=1, max_size=20), max_size=3)):
        size = draw(
            st.sampled_from(
                [b"%x", b"%X", b"0%x", b"%x;a=b", b"%x ;a", b"%x ", b" %x", b"+%x", b"0x%x", b"%x\t", b"-%x"]
            )
            if draw(st.integers(0, 3)) == 0
            else st.just(b"%x")
        )
        out += size % len(block) + b"\r\n" + block + b"\r\n"
    last = draw(
        st.sampled_from(
            [b"0\r\n\r\n"] * 5
            + [
                b"0\r\nA: b\r\n\r\n",
                b"000\r\n\r\n",
                b"0;x\r\n\r\n",
                b"0\r\nA b\r\n\r\n",
                b"",
                b"0\r\n",
                b"0\n\n",
            ]
        )
    )
    return out + last


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """The bytes of an answer: whole and plain, or broken in one or several places."""
    interim = draw(
        st.sampled_from([b""] * 6 + [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 X\r\nLink: a\r\n\r\n"])
    )
    fields = draw(st.lists(FIELDS, max_size=4))
    body = draw(BODIES | chunked())
    if draw(st.booleans()):
        fields.append(b"Content-Length: %d" % len(body))
    stream = interim + b"\r\n".join([draw(STATUS), *fields]) + b"\r\n\r\n" + body
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(stream)))
        kind = draw(st.sampled_from(["cut", "drop", "insert", "repeat"]))
        if kind == "cut":
            stream = stream[:at]
        elif kind == "drop":
            stream = stream[:at] + stream[at + 1 :]
        elif kind == "insert":
            stream = (
                stream[:at]
                + draw(st.sampled_from([b"\r", b"\n", b"\r\n", b" ", b"\0", b":", b"0", b"\xff"]))
                + stream[at:]
            )
        else:
            stream = stream[:at] + stream[max(0, at - 5) :]
    return stream


def pieces_of(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


STRICTER = (
    "the answer is not HTTP/1.1",  # HTTP/1.2
    "the answer's Content-Length is no number",  # 5, 5
    "twice, and not alike",  # Content-Length: 5, 5 and 5; two etags
    "a line of the answer's head is no header field",  # lines that end in LF alone
    "the connection was closed within the answer's head",  # the same, where the head ends
    "the body's chunks are malformed",  # the same, within the chunks
    "the connection was closed within the body",
)


def passed(refusal: str, found: Answer, stream: bytes) -> bool:
    """Whether penstock may take what h11 refuses in these words: the table above."""
    if refusal.startswith(("illegal header line", "illegal status line", "continuation line at start")):
        return True
    if refusal == "multiple Transfer-Encoding headers":
        return True
    if refusal.startswith("Only Transfer-Encoding"):
        return found.bodyless or b": identity" in stream.lower()
    if refusal in ("bad Content-Length", "conflicting Content-Length headers"):
        return found.bodyless or b"chunked" in stream.lower()
    return refusal.startswith("illegal chunk header") and b" ;" in stream


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(stream=b"HTTP/1.1 100 Continue\n\r\nHTTP/1.1 200 OK\r\n\r\n", cuts=[], head=False)
@given(stream=streams(), cuts=st.lists(st.integers(0, 150), max_size=4), head=st.booleans())
def test_agrees_with_h11(stream: bytes, cuts: list[int], head: bool) -> None:
    pieces = pieces_of(stream, cuts)
    found, theirs_ = ours(pieces, head=head), theirs(pieces, head=head)
    if isinstance(found, str):
        assert isinstance(theirs_, str) or found.endswith(STRICTER)
    elif isinstance(theirs_, str):
        assert passed(theirs_, found, stream), (found, theirs_)
    else:
        assert (found.status, found.body) == (theirs_.status, theirs_.body)
        # h11 keeps no connection of HTTP/1.0, whatever is asked for.
        assert theirs_.kept or not found.kept or b"HTTP/1.0" in stream


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length : 3",
        b"Content-\rLength: 3",
        b"no colon",
        b": no name",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
    ],
)
def test_what_h11_found_is_refused(head: bytes) -> None:
    """Each was taken once: as a body without a length, or as chunks."""
    answer = [b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n0\r\n\r\n"]
    assert isinstance(theirs(answer, head=False), str)
    assert isinstance(ours(answer, head=False), str)


@pytest.mark.parametrize("size", [b"+3", b"-3", b" 3", b"0x3", b"0_3", b"", b"3" * 16])
def test_chunk_sizes_are_hexadecimal_digits_alone(size: bytes) -> None:
    answer = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nabc\r\n0\r\n\r\n"]
    assert isinstance(ours(answer, head=False), str)


def test_a_field_that_goes_on_in_the_next_line_is_one_field() -> None:
    answer = [b"HTTP/1.1 200 OK\r\nConnection: x,\r\n close\r\nContent-Length:\r\n\t3\r\n\r\nabc"]
    assert ours(answer, head=False) == Answer(200, b"abc", kept=False) == theirs(answer, head=False)
