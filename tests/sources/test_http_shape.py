"""A learned head speaks for another one exactly where both say the same to whoever reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.settings import Reach
from penstock.core.errors import TransientError
from penstock.sources.http_connection import Connection
from penstock.sources.http_endpoint import Endpoint
from penstock.sources.http_values import LENGTH, Shape, learn
from penstock.sources.s3_client import S3Client

if TYPE_CHECKING:
    from collections.abc import Sequence

SSE = b"x-amz-server-side-encryption"
READ = (
    LENGTH,
    b"etag",
    b"content-range",
    b"content-encoding",
    b"transfer-encoding",
    b"connection",
    b"x-amz-checksum-type",
    b"x-amz-checksum-crc64nvme",
    b"x-amz-checksum-crc32",
    b"x-amz-checksum-sha256",
    b"x-amz-mp-parts-count",
    SSE,
    SSE + b"-customer-algorithm",
)
"""What is read of a 200 by connection, reader or checksums of S3."""
NAMES = S3Client.NAMES


def understood(head: bytes) -> Connection | None:
    """A connection that took this head apart, as it does with the first one; None where it refused it."""
    connection = Connection(Endpoint("127.0.0.1", 1, tls=False, reach=Reach(1)))
    received = head + b"\r\n\r\n0\r\n\r\n"  # a body of no chunks for whoever says that it comes in chunks
    connection._view[: len(received)] = received
    connection._end = len(received)
    try:
        connection._understand(len(head), bodyless=False)
    except TransientError:
        return None
    return connection


def learned(head: bytes) -> Shape | None:
    """The shape that a connection learns of a head, with the same conditions."""
    seen = understood(head)
    if seen is None or seen.status != 200 or not seen._keep or seen.length < 0:
        return None
    return learn(head, NAMES)


def fit(shape: Shape, head: bytes, body: bytes = b"") -> tuple[int, dict[bytes, bytes]] | None:
    return shape.fit(memoryview(head + b"\r\n\r\n" + body))


def agrees(shape: Shape, head: bytes) -> bool:
    """Whether the head fits; where it does, it must say what it says when it is taken apart."""
    found = fit(shape, head, b"body")
    if found is None:
        return False
    start, fields = found
    seen = understood(head)
    assert seen is not None
    assert (start, int(fields[LENGTH])) == (len(head) + 4, seen.length)
    assert (seen.status, seen._keep, seen._chunked) == (200, True, False)
    for name in READ:
        assert fields.get(name) == seen.headers.get(name), name
    return True


AWS = [
    b"HTTP/1.1 200 OK",
    b"x-amz-id-2: 2iVJt1x/abc=",
    b"x-amz-request-id: 4RK0",
    b"Date: Wed, 06 May 2026 07:08:09 GMT",
    b"Last-Modified: Wed, 06 May 2026 07:08:09 GMT",
    b'ETag: "9e107d9d372bb6826bd81d3542a419d6"',
    b"x-amz-checksum-crc64nvme: AAAAAAAAAAA=",
    b"x-amz-checksum-type: FULL_OBJECT",
    b"x-amz-server-side-encryption: AES256",
    b"Accept-Ranges: bytes",
    b"Content-Type: binary/octet-stream",
    b"Content-Length: 11",
    b"Server: AmazonS3",
]


def changed(old: bytes, *new: bytes) -> bytes:
    """The head of AWS with one line made others."""
    at = next(n for n, line in enumerate(AWS) if line.startswith(old))
    return b"\r\n".join([*AWS[:at], *new, *AWS[at + 1 :]])


HEAD = b"\r\n".join(AWS)


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        changed(b"ETag", b'ETag: "other"'),
        changed(b"ETag", b'etag: "x"').replace(b"etag", b"ETag"),
        changed(b"ETag", b'ETag: "a  b"'),
        changed(b"ETag", b"ETag:unquoted"),
        changed(b"ETag", b'ETag: \t "!#$%&\'()*+,-./:;<=>?@[]^_`{|}~"'),
        changed(b"ETag", b"ETag:"),
        changed(b"Content-Length", b"Content-Length: 0"),
        changed(b"Content-Length", b"Content-Length:\t123456789012345678"),
        changed(b"Content-Length", b"Content-Length: 0007"),
        changed(b"x-amz-checksum-crc", b"x-amz-checksum-crc64nvme: /////////w8="),
        changed(b"Date", b"Date: \xff\xfe never"),
        changed(b"Content-Type", b"Content-Type:"),
    ],
)
def test_what_differs_from_object_to_object_fits(head: bytes) -> None:
    shape = learned(HEAD)
    assert shape is not None
    assert agrees(shape, head)


@pytest.mark.parametrize(
    "head",
    [
        changed(b"HTTP", b"HTTP/1.1 206 Partial Content"),
        changed(b"HTTP", b"HTTP/1.0 200 OK"),
        changed(b"HTTP", b"HTTP/1.1 200 Fine"),
        changed(b"HTTP", b"HTTP/1.1 503 Slow Down"),
        changed(b"Content-Length", b"Content-Length: -1"),
        changed(b"Content-Length", b"Content-Length: many"),
        changed(b"Content-Length", b"Content-Length:"),
        changed(b"Content-Length", b"Content-Length: 11 "),
        changed(b"Content-Length", b"Content-Length: 1234567890123456789"),
        changed(b"Content-Length", b"Content-Length: 11", b"Content-Length: 12"),
        changed(b"Content-Length"),
        changed(b"Content-Length", b"Transfer-Encoding: chunked"),
        changed(b"Server", b"Transfer-Encoding: chunked"),
        changed(b"Server", b"Connection: close"),
        changed(b"Server", b"Server: AmazonS3", b"Connection: close"),
        changed(b"Server", b"Content-Encoding: gzip"),
        changed(b"Server", b"x-amz-mp-parts-count: 3"),
        changed(b"Server", b"Server: AmazonS3", b"Server: AmazonS3"),
        changed(b"Server"),
        changed(b"Server", b"Server: a\rConnection: close"),
        changed(b"Server", b"Server: a\nConnection: close"),
        changed(b"Server", b"Server: a", b" folded"),
        changed(b"x-amz-checksum-type", b"x-amz-checksum-type: COMPOSITE"),
        changed(b"x-amz-checksum-type"),
        changed(b"x-amz-checksum-crc"),
        changed(b"x-amz-checksum-crc", b"x-amz-checksum-crc32: AAAAAA=="),
        changed(b"x-amz-server", b"x-amz-server-side-encryption: aws:kms"),
        changed(b"x-amz-server", b"x-amz-server-side-encryption-customer-algorithm: AES256"),
        changed(b"ETag"),
        changed(b"ETag", b'ETag: "a" '),
        changed(b"ETag", b'ETag: "\xe9"'),
        changed(b"ETag", b'etag: "x"'),
        changed(b"ETag", b'ETag : "x"'),
        HEAD[:-1] + b"\r",
        HEAD[: HEAD.index(b"Server")],
        b"\r\n".join([AWS[0], *reversed(AWS[1:])]),
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD,
        b" " + HEAD,
    ],
)
def test_what_says_anything_else_does_not_fit(head: bytes) -> None:
    shape = learned(HEAD)
    assert shape is not None
    assert fit(shape, head) is None


@pytest.mark.parametrize("stop", [0, 1, 20, len(HEAD) - 1, len(HEAD), len(HEAD) + 1, len(HEAD) + 3])
def test_a_head_that_is_not_all_there_does_not_fit(stop: int) -> None:
    shape = learned(HEAD)
    assert shape is not None
    assert shape.fit(memoryview((HEAD + b"\r\n\r\n")[:stop])) is None


@pytest.mark.parametrize(
    "head",
    [
        changed(b"Content-Length"),
        changed(b"Server", b"content-length: 11"),
        changed(b"Server", b'etag: "9e107d9d372bb6826bd81d3542a419d6"'),
        changed(b"Server", b"X-Amz-Checksum-Type: COMPOSITE"),
        changed(b"Server", b"no field"),
        changed(b"Server", b"Server: a", b" folded"),
        changed(b"Server", b"Server : a"),
        changed(b"Server", b"Server: a\rb"),
        changed(b"Server", b"Server: a\nb"),
    ],
)
def test_heads_that_are_not_plain_are_not_learned(head: bytes) -> None:
    assert learned(head) is None


FREE = (b"Date", b"Server", b"x-amz-id-2", b"Last-Modified", b"X-Cache")
VALUES = {
    LENGTH: st.sampled_from([b"0", b"7", b"11", b"4096", b"-1", b"x", b"1" * 18, b"1" * 19]),
    b"connection": st.sampled_from([b"keep-alive", b"Keep-Alive", b"close", b""]),
    b"transfer-encoding": st.sampled_from([b"chunked", b"identity", b"Chunked"]),
    b"content-encoding": st.sampled_from([b"gzip", b"identity", b"aws-chunked"]),
    b"x-amz-checksum-type": st.sampled_from([b"FULL_OBJECT", b"COMPOSITE", b"full_object"]),
    b"x-amz-mp-parts-count": st.sampled_from([b"1", b"3"]),
    SSE: st.sampled_from([b"AES256", b"aws:kms"]),
}
ODD = st.text(st.sampled_from('"aZ09-+/=:;,\\ \t\x00\x0b\x7f\xe9\r\n'), max_size=6).map(
    lambda text: text.encode("latin-1")
)
PLAIN = st.text(st.sampled_from('"aZ09-+/='), max_size=6).map(lambda text: text.encode("latin-1"))
CASES = st.sampled_from([bytes.lower, bytes.upper, bytes.title])
BLANKS = st.sampled_from([b"", b" ", b" ", b"\t ", b"  "])


@st.composite
def line(draw: st.DrawFn, name: bytes | None = None) -> bytes:
    if name is None:
        name = draw(st.sampled_from((*READ, *FREE)))
    value = draw(VALUES.get(name, PLAIN) | ODD if draw(st.integers(0, 9)) == 0 else VALUES.get(name, PLAIN))
    tail = draw(BLANKS) if draw(st.integers(0, 9)) == 0 else b""
    return draw(CASES)(name) + b":" + draw(BLANKS) + value + tail


@st.composite
def lines(draw: st.DrawFn) -> list[bytes]:
    """A head as servers send them, mostly; now and then a field twice, none at all, or no length."""
    names = draw(st.lists(st.sampled_from((*READ[1:], *FREE)), max_size=6, unique=draw(st.booleans())))
    if draw(st.integers(0, 9)):
        names.insert(draw(st.integers(0, len(names))), LENGTH)
    status = draw(st.sampled_from([b"HTTP/1.1 200 OK"] * 8 + [b"HTTP/1.0 200 OK", b"HTTP/1.1 206 OK"]))
    return [status, *(draw(line(name)) for name in names)]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """A head, and another one that differs from it in a few places or in all."""
    first = draw(lines())
    second = list(first)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(1, max(1, len(second) - 1)))
        how = draw(st.sampled_from(["value", "value", "value", "drop", "add", "swap", "case", "all"]))
        if how == "all":
            second = draw(lines())
        elif how == "add" or at >= len(second):
            second.insert(at, draw(line()))
        elif how == "drop":
            del second[at]
        elif how == "swap":
            second[at], second[-1] = second[-1], second[at]
        elif how == "case":
            label, _, value = second[at].partition(b":")
            second[at] = draw(CASES)(label) + b":" + value
        else:
            label = second[at].partition(b":")[0]
            name = label.lower()
            known = name if name in VALUES or name in READ or label in FREE else b"date"
            second[at] = label + b":" + draw(line(known)).partition(b":")[2]
    return first, second


@pytest.mark.parametrize("examples", [300, pytest.param(1500, marks=pytest.mark.thorough)])
def test_a_head_fits_only_where_it_says_the_same(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(pairs())
    def property_of(pair: tuple[Sequence[bytes], Sequence[bytes]]) -> None:
        first, second = (b"\r\n".join(one) for one in pair)
        shape = learned(first)
        if shape is not None:
            agrees(shape, second)

    property_of()


@pytest.mark.parametrize("examples", [100, pytest.param(500, marks=pytest.mark.thorough)])
def test_a_head_of_other_values_alone_fits(examples: int) -> None:
    """What makes the way short: without it the property above could hold for want of anything that fits."""

    @settings(max_examples=examples, deadline=None)
    @given(lines(), st.data())
    def property_of(first: list[bytes], data: st.DataObject) -> None:
        head = b"\r\n".join(first)
        shape = learned(head)
        if shape is not None:
            assert agrees(shape, b"\r\n".join([first[0], *(other(data, one) for one in first[1:])]))

    property_of()


def other(data: st.DataObject, one: bytes) -> bytes:
    """A line of a head with another value, where a learned head leaves it open."""
    label = one.partition(b":")[0]
    name = label.lower()
    if name == LENGTH:
        return label + b": " + str(data.draw(st.integers(0, 10**18 - 1))).encode()
    if name in (b"etag", b"content-range", b"content-md5") or (
        name.startswith(b"x-amz-checksum-") and name != b"x-amz-checksum-type"
    ):
        return label + b": " + data.draw(PLAIN)
    return label + b":" + data.draw(PLAIN) if name not in READ else one
