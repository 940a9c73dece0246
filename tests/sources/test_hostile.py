"""Servers that cut, lie, stall, redirect and change: what a reader makes of each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.contracts.source_contract import content, entry_of, listing, read
from tests.sources.conftest import dataset
from tests.support.hostile import Hostile
from tests.support.s3server import make_certificates

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    ExpiredCredentialsError,
    FailedError,
    ObjectError,
    OverloadedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Entry
from penstock.sources.port import WholeReader, open_source
from penstock.sources.s3 import S3Source
from penstock.sources.s3_credentials import Keys, S3Credentials

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.sources.port import Source

DATA = content("x", 100_000)
WHOLE, PART = (0, len(DATA)), (1000, 50_000)


def s3(server: Hostile, prefix: str = "", timeout: float = 20.0) -> S3Source:
    options = {"endpoint_url": server.endpoint}
    config = SourceConfig(f"s3://{server.bucket}/{prefix}", storage_options=options, timeout=timeout)
    return S3Source(config, S3Credentials(None, "us-east-1", server.endpoint))


def web(server: Hostile, timeout: float = 20.0) -> Source:
    config = SourceConfig(server.url("x"), timeout=timeout)
    return open_source(config, dataset(config.url))


S3_FAULTS: list[tuple[str, type[PenstockError]]] = [
    ("shortlen", TransientError),
    ("nolen", TransientError),
    ("badchunk", TransientError),
    ("cut", TransientError),
    ("reset", TransientError),
    ("long", TransientError),
    ("slowdown", OverloadedError),
    ("error500", TransientError),
    ("drip", TransientError),
    ("silent", TransientError),
    ("gzip", ObjectError),
    ("errhtml200", ObjectError),
    ("denied", ObjectError),
    ("changed", SourceChangedError),
    ("412", SourceChangedError),
    ("404", SourceChangedError),
    ("expired", ExpiredCredentialsError),
    ("redirect", FailedError),
    ("redirectother", FailedError),
]


@pytest.mark.parametrize("span", [WHOLE, PART])
@pytest.mark.parametrize(("mode", "kind"), S3_FAULTS)
def test_s3_answers(mode: str, kind: type[PenstockError], span: tuple[int, int]) -> None:
    with Hostile({"p/x": DATA, "p/y": DATA}, {"p/x": f"{mode}*20"}) as server:
        source = s3(server, "p/", timeout=1.0 if mode in ("drip", "silent") else 20.0)
        found = {key: entry_of(item) for key, item in listing(source).items()}
        reader = source.reader()
        with pytest.raises(kind) as caught:
            read(reader, found["x"], *span)
        assert type(caught.value) is kind
        # The reader is as good as new for the next object.
        if not mode.startswith("redirect"):
            assert read(reader, found["y"], *span) == DATA[span[0] : span[0] + span[1]]
        reader.close()


@pytest.mark.parametrize("mode", ["rangeignored", "wrongrange"])
def test_ranges_that_are_not_the_ones_asked_for(mode: str) -> None:
    with Hostile({"x": DATA}, {"x": mode}) as server:
        for source in (s3(server), web(server)):
            entry = entry_of(listing(source)["x"])
            reader = source.reader()
            with pytest.raises(ObjectError):
                read(reader, entry, *PART)
            reader.close()


def test_patience_says_how_long() -> None:
    with Hostile({"x": DATA}, {"x": "slowdown"}) as server:
        source = s3(server)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        with pytest.raises(TransientError) as caught:
            read(reader, entry)
        assert caught.value.after == 0.0
        reader.close()


def test_a_redirect_within_the_store_is_followed() -> None:
    with Hostile({"x": DATA}, {"x": "redirect*2"}) as server:
        source = s3(server)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        assert read(reader, entry) == DATA
        reader.close()


@pytest.mark.parametrize(
    ("scheme", "error", "what"),
    [("s3", FailedError, "somewhere else"), ("https", ObjectError, "from https to http")],
)
def test_a_redirect_from_https_to_http_is_not_followed(
    tmp_path: Path, scheme: str, error: type[PenstockError], what: str
) -> None:
    *certificate, authority = make_certificates(tmp_path)
    with Hostile({"x": DATA}, {"x": "redirect"}, certificate=(certificate[0], certificate[1])) as server:
        options = {"ca_bundle": str(authority)}
        entry = Entry("x", "x", len(DATA), "", 0, length=len(DATA))
        if scheme == "s3":
            options["endpoint_url"] = server.endpoint
            config = SourceConfig(f"s3://{server.bucket}/", storage_options=options)
            source: Source = S3Source(config, S3Credentials(None, "us-east-1", server.endpoint))
        else:
            config = SourceConfig(server.url("x"), storage_options=options)
            source = open_source(config, dataset(config.url))
        reader = source.reader()
        with pytest.raises(error, match=what):
            read(reader, entry)
        reader.close()
        assert len(server.asked) == 1


@pytest.mark.parametrize("mode", ["flip", "flipcrc", "falsecrc", "composite"])
def test_checksums_are_handed_on_as_stated(mode: str) -> None:
    import zlib

    with Hostile({"x": DATA}, {"x": mode}) as server:
        source = s3(server)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        body = reader.open(entry, 0, entry.size)
        stated = [(checksum.algorithm, checksum.kind) for checksum in body.checksums]
        assert stated == {"flip": [], "composite": [("crc32", "composite")]}.get(mode, [("crc32", "full")])
        if mode == "composite":
            assert body.checksums[0].part_bytes == 0
        if mode == "flipcrc":
            assert body.checksums[0].value == f"{zlib.crc32(DATA):08x}"
        body.abandon()
        reader.close()


WEB_FAULTS = [
    *(fault for fault in S3_FAULTS if fault[0] not in ("errhtml200", "expired", "redirect", "redirectother")),
    ("expired", ObjectError),  # the web has no credentials
    ("redirect", ObjectError),
    ("redirectother", ObjectError),
]


@pytest.mark.parametrize(("span", "small"), [(WHOLE, False), (WHOLE, True), (PART, False)])
@pytest.mark.parametrize(("mode", "kind"), WEB_FAULTS)
def test_web_answers(mode: str, kind: type[PenstockError], span: tuple[int, int], small: bool) -> None:
    """`small`: by one call, after an answer whose head was learned."""
    with Hostile({"x": DATA}) as server:
        source = web(server, timeout=1.0 if mode in ("drip", "silent") else 20.0)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        room = memoryview(bytearray(1 << 18))

        def get() -> bytes:
            if not small:
                return read(reader, entry, *span)
            assert isinstance(reader, WholeReader)
            found = reader.whole(entry, room)
            assert found is not None
            return bytes(found[0])

        assert get() == DATA[span[0] : span[0] + span[1]]
        server.modes["x"] = mode
        with pytest.raises(kind) as caught:
            get()
        assert type(caught.value) is kind
        del server.modes["x"]
        assert get() == DATA[span[0] : span[0] + span[1]]
        reader.close()


AZURE_FAULTS = [fault for fault in S3_FAULTS if fault[0] not in ("expired", "redirect", "redirectother")]


@pytest.mark.parametrize("span", [WHOLE, PART])
@pytest.mark.parametrize(
    ("mode", "kind"), [*AZURE_FAULTS, ("redirect", ObjectError), ("rangeignored", ObjectError)]
)
def test_azure_answers(mode: str, kind: type[PenstockError], span: tuple[int, int]) -> None:
    if mode == "rangeignored":
        span = PART
    with Hostile({"p/x": DATA, "p/y": DATA}, {"p/x": mode}) as server:
        options = {"anon": True, "endpoint_url": server.endpoint}
        timeout = 1.0 if mode in ("drip", "silent") else 20.0
        config = SourceConfig(f"az://{server.bucket}/p", storage_options=options, timeout=timeout)
        source = open_source(config, dataset(config.url))
        x, y = (Entry(key, key, len(DATA), server.etag(f"p/{key}"), 0) for key in "xy")
        reader = source.reader()
        with pytest.raises(kind) as caught:
            read(reader, x, *span)
        assert type(caught.value) is kind
        assert read(reader, y, *span) == DATA[span[0] : span[0] + span[1]]
        reader.close()


def test_a_login_page_is_not_taken_for_the_file() -> None:
    with Hostile({"x": DATA}, {"x": "errhtml200"}) as server:
        source = web(server)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        with pytest.raises(SourceChangedError):
            read(reader, entry)
        with pytest.raises(ObjectError):
            read(reader, entry, *PART)
        reader.close()


KEYS = {f"p/{number:03d}": b"x" * number for number in range(40)}


@pytest.mark.parametrize("mode", ["slowdown*2", "cut*2", "truncated*2", "honest"])
def test_listings_that_come_in_the_end(mode: str) -> None:
    with Hostile(KEYS | {"p/": b"", "q": b""}, listing=mode, page=7) as server:
        found = listing(s3(server, "p/"))
        assert {f"p/{key}": item.size for key, item in found.items()} == {k: len(v) for k, v in KEYS.items()}


@pytest.mark.parametrize("mode", ["repeated", "tokenless", "unlike", "outside", "unsorted", "html"])
def test_listings_that_cannot_be_trusted(mode: str) -> None:
    with Hostile(KEYS, listing=mode, page=7) as server, pytest.raises(FailedError):
        listing(s3(server, "p/"))


def test_a_key_outside_of_the_prefix_is_refused_by_name() -> None:
    """Where its place in the order is no fault: the prefix alone tells it."""
    with (
        Hostile({f"a/{number}": b"x" for number in range(3)}, listing="outside") as server,
        pytest.raises(FailedError, match=r'a key outside of the prefix .*"elsewhere-a//x"'),
    ):
        listing(s3(server, "a/"))


@pytest.mark.parametrize("page", [1, 7])
def test_an_object_that_is_listed_twice_and_alike_is_one(page: int) -> None:
    with Hostile(KEYS, listing="duplicate", page=page) as server:
        source = s3(server, "p/")
        keys = [item.key for batch in source.list() for item in batch]
        assert keys == [key.removeprefix("p/") for key in KEYS]
        assert source.ignored == {"named twice": 1}


@pytest.mark.parametrize("page", [1, 7])
def test_a_key_that_is_listed_twice_and_not_alike_is_refused_by_name(page: int) -> None:
    with (
        Hostile(KEYS, listing="unlike", page=page) as server,
        pytest.raises(FailedError, match=r'a key twice, and not alike .*: "p/000"'),
    ):
        listing(s3(server, "p/"))


def test_a_listing_that_is_left_ends_its_thread() -> None:
    import threading

    with Hostile(KEYS, page=3) as server:
        with contextlib.closing(s3(server, "p/").list()) as batches:  # type: ignore[type-var]
            next(iter(batches))
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("listing")]


@pytest.mark.parametrize(
    ("bucket", "said"), [("nothere", "no such bucket"), ("bucket", "")], ids=["missing bucket", "there"]
)
def test_check(bucket: str, said: str) -> None:
    with Hostile({"x": b"1"}) as server:
        config = SourceConfig(f"s3://{bucket}/", storage_options={"endpoint_url": server.endpoint})
        source = S3Source(config, S3Credentials(Keys("a", "b"), "us-east-1", server.endpoint))
        if not said:
            source.check()
            return
        with pytest.raises(PreflightError, match=said):
            source.check()


def test_an_unreachable_endpoint_is_told() -> None:
    with Hostile({}) as server:
        gone = server.endpoint
    config = SourceConfig("s3://bucket/", storage_options={"endpoint_url": gone})
    with pytest.raises(PreflightError, match="reached"):
        open_source(SourceConfig(f"{gone}/x"), dataset("x")).check()
    with pytest.raises(PreflightError, match="listed"):
        S3Source(config, S3Credentials(None, "us-east-1", gone)).check()
