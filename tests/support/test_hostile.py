"""The misbehaving server misbehaves as its table says: else a fault test proves nothing."""

from __future__ import annotations

import base64
import http.client
import zlib

import pytest
from tests.support.hostile import EXTRA, LOGIN, Hostile

DATA = bytes(range(256)) * 8


def get(server: Hostile, key: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", f"/bucket/{key}", headers=named)
        answer = connection.getresponse()
        try:
            return answer.status, answer.headers, answer.read()
        except http.client.IncompleteRead as error:
            return answer.status, answer.headers, error.partial
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("mode", "status", "body"),
    [
        ("", 200, DATA),
        ("shortlen", 200, DATA[:1024]),
        ("nolen", 200, DATA[:1024]),
        ("badchunk", 200, DATA[:1024]),
        ("cut", 200, DATA[:1024]),
        ("long", 200, DATA + b"x" * EXTRA),
        ("errhtml200", 200, LOGIN),
        ("redirect", 307, b""),
        ("changed", 200, bytes(byte ^ 255 for byte in DATA)),
    ],
)
def test_bodies(mode: str, status: int, body: bytes) -> None:
    with Hostile({"k": DATA}, {"k": mode}) as server:
        assert get(server, "k")[::2] == (status, body)


@pytest.mark.parametrize(
    ("mode", "status"), [("412", 412), ("404", 404), ("expired", 403), ("slowdown", 503), ("error500", 500)]
)
def test_statuses(mode: str, status: int) -> None:
    with Hostile({"k": DATA}, {"k": mode}) as server:
        assert get(server, "k")[0] == status


def test_a_counted_mode_wears_off() -> None:
    with Hostile({"k": DATA}, {"k": "slowdown*2"}) as server:
        assert [get(server, "k")[0] for _ in range(3)] == [503, 503, 200]
        assert server.count("k") == 3


def test_flips_and_checksums() -> None:
    with Hostile({"k": DATA, "c": DATA}, {"k": "flipcrc", "c": "composite"}) as server:
        _, headers, body = get(server, "k", x_amz_checksum_mode="ENABLED")
        assert sum(a != b for a, b in zip(body, DATA, strict=True)) == 1
        stated = int.from_bytes(base64.b64decode(headers["x-amz-checksum-crc32"]), "big")
        assert stated == zlib.crc32(DATA)
        assert get(server, "c", x_amz_checksum_mode="ENABLED")[1]["x-amz-checksum-type"] == "COMPOSITE"


def test_ranges_honest_ignored_and_wrong() -> None:
    with Hostile({"a": DATA, "b": DATA, "c": DATA}, {"b": "rangeignored", "c": "wrongrange"}) as server:
        assert get(server, "a", Range="bytes=2-5")[::2] == (206, DATA[2:6])
        assert get(server, "b", Range="bytes=2-5")[::2] == (200, DATA)
        assert get(server, "c", Range="bytes=2-5")[::2] == (206, DATA[3:7])


@pytest.mark.parametrize("mode", ["drip", "silent", "reset"])
def test_leaving_ends_what_hangs(mode: str) -> None:
    with Hostile({"k": DATA}, {"k": mode}) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/bucket/k")
        try:
            connection.getresponse().read(1) if mode == "drip" else None
        finally:
            connection.close()


@pytest.mark.parametrize("listing", ["honest", "repeated", "duplicate", "outside", "unsorted", "truncated"])
def test_listings(listing: str) -> None:
    with Hostile({"p/a": b"1", "p/b": b"2", "p/c": b"3"}, listing=listing, page=2) as server:
        _, _, body = get(server, "?list-type=2&prefix=p/")
        keys = body.decode().count("<Key>")
        assert keys == {"duplicate": 2, "outside": 3}.get(listing, keys)
        assert (b"</ListBucketResult>" in body) == (listing != "truncated")
        assert (b"elsewhere" in body) == (listing == "outside")
