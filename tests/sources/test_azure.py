"""Azure Blob: listing, pins, proofs and errors, on a real server of it."""

from __future__ import annotations

import hashlib
import http.server
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from azure.storage.blob import ContentSettings
from tests.contracts.source_contract import content, drain, entry_of, listing, read, sums
from tests.sources.conftest import AzuriteStore, dataset

from penstock.config.settings import SourceConfig
from penstock.core.errors import (
    FailedError,
    ObjectError,
    OverloadedError,
    PenstockError,
    PreflightError,
    SourceChangedError,
    TransientError,
)
from penstock.core.model import Listed
from penstock.sources.azure import AzureSource
from penstock.sources.listing_order import in_order, order
from penstock.sources.port import open_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIB = 1 << 20


# ---- listing


def test_pages_are_one_stream_in_byte_order(
    azure_store: AzuriteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AzureSource, "PAGE", 7)
    monkeypatch.setattr(AzureSource, "_flat", lambda _: True)  # which this server does not say
    keys = [f"{a}{b}{c}" for a in ("a", "a-", "b") for b in "/.0" for c in range(5)]
    for number, key in enumerate(keys):
        azure_store.put(key, b"x" * number)
    batches = [[item.key for item in batch] for batch in azure_store.source().list()]
    assert len(batches) == 7
    assert [key for batch in batches for key in batch] == sorted(keys)
    found = listing(azure_store.source())
    assert {key: item.size for key, item in found.items()} == {key: n for n, key in enumerate(keys)}
    monkeypatch.setattr(AzureSource, "_flat", lambda _: False)
    assert list(listing(azure_store.source()).items()) == list(found.items())
    assert all(item.token and item.modified_ns > 1_600_000_000 * 10**9 for item in found.values())


def test_markers_are_no_objects(azure_store: AzuriteStore) -> None:
    azure_store.put("a/x", b"1")
    azure_store.put("a", b"", metadata={"hdi_isfolder": "true"})
    azure_store.put("b", b"", metadata={"other": "true"})
    azure_store.put("", b"")
    source = azure_store.source()
    assert list(listing(source)) == ["a/x", "b"]
    assert source.ignored == {"markers": 1}


def test_other_prefixes_are_others(azure_store: AzuriteStore) -> None:
    azure_store.put("x", b"1")
    azure_store.container.upload_blob("pre fixed", b"no")
    assert list(listing(azure_store.source())) == ["x"]


def test_the_listing_of_an_account_that_does_not_say_its_order_is_sorted_on_disk() -> None:
    keys = [f"{n:03x}\udcff" for n in range(500)] + ["a/b", "a-b", "a.b"]
    random.Random(7).shuffle(keys)
    items = [Listed(key, 1, "t", 0) for key in keys]
    batches: list[Sequence[Listed]] = [items[at : at + 30] for at in range(0, len(items), 30)]
    found = [item for batch in in_order(iter(batches), run=100) for item in batch]
    assert found == sorted(items, key=order)
    source = AzureSource(SourceConfig("az://some/x/", storage_options={"anon": True, "account_name": "a"}))
    source._pages = lambda: iter(batches)  # type: ignore[method-assign]
    assert [item for batch in source.list() for item in batch] == found
    source._pages = lambda: iter([items[:1], [items[0]._replace(size=2)]])  # type: ignore[method-assign]
    with pytest.raises(FailedError, match="twice"):
        list(source.list())


# ---- reading


def test_a_blob_that_changes_while_it_is_read_is_never_spliced(azure_store: AzuriteStore) -> None:
    """The one answer is of the old bytes to its end, or it breaks."""
    old, new = content("x", 20 * MIB), content("y", 20 * MIB)
    azure_store.put("x", old)
    source = azure_store.source()
    reader = source.reader()
    entry = entry_of(listing(source)["x"])
    assert read(reader, entry, 1500, 2700) == old[1500:4200]
    body = reader.open(entry, 0, entry.size)
    begin = memoryview(bytearray(1000))
    assert body.readinto(begin) == 1000
    azure_store.put("x", new)
    try:
        rest = drain(body)
    except TransientError:
        rest = old[1000:]
        body.abandon()
    assert bytes(begin) + rest == old
    with pytest.raises(SourceChangedError):
        reader.open(entry, 0, entry.size)
    reader.close()


def test_the_stored_md5_is_a_checksum_of_the_whole(azure_store: AzuriteStore) -> None:
    data = content("x", 70_000)
    azure_store.put(
        "x", data, content_settings=ContentSettings(content_md5=bytearray(hashlib.md5(data).digest()))
    )
    source = azure_store.source()
    reader = source.reader()
    entry = entry_of(listing(source)["x"])
    body = reader.open(entry, 0, entry.size)
    assert [(c.algorithm, c.kind, c.value) for c in body.checksums] == [("md5", "full", sums(data)["md5"])]
    assert drain(body) == data
    assert list(source.checksum(entry)) == list(body.checksums)
    part = reader.open(entry, 5, 10)
    assert list(part.checksums) == []
    assert drain(part) == data[5:15]
    reader.close()


def test_an_encoding_is_left_as_it_is_stored(azure_store: AzuriteStore) -> None:
    data = content("x", 5000)
    azure_store.put("x", data, content_settings=ContentSettings(content_encoding="gzip"))
    source = azure_store.source()
    reader = source.reader()
    assert read(reader, entry_of(listing(source)["x"])) == data
    reader.close()


def test_what_is_gone_or_changed_is_told(azure_store: AzuriteStore) -> None:
    azure_store.put("x", b"12345")
    azure_store.put("empty", b"")
    source = azure_store.source()
    reader = source.reader()
    found = listing(source)
    entry, empty = entry_of(found["x"]), entry_of(found["empty"])
    with pytest.raises(SourceChangedError):
        reader.open(entry._replace(token="0x1"), 0, 5)
    with pytest.raises(SourceChangedError):
        reader.open(empty._replace(token="0x1"), 0, 0)
    with pytest.raises(SourceChangedError, match="size changed"):
        reader.open(entry._replace(size=7), 0, 5)
    with pytest.raises(SourceChangedError):
        reader.open(entry._replace(size=7), 5, 2)
    with pytest.raises(SourceChangedError):
        source.checksum(entry._replace(size=7))
    with pytest.raises(SourceChangedError):
        source.checksum(entry._replace(token="0x1"))
    azure_store.remove("x")
    with pytest.raises(SourceChangedError, match=r"gone|changed"):
        reader.open(entry, 0, 5)
    reader.close()


class Stubborn(http.server.BaseHTTPRequestHandler):
    """A proxy that ignores conditions, or answers what it likes: `answer` of the server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, headers, body = self.server.answer  # type: ignore[attr-defined]
        self.server.asked.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 (the library's name)

    def log_message(self, *_: object) -> None:
        """Quiet."""


GOOD = {"ETag": '"0x1"', "Content-Range": "bytes 0-4/9", "x-ms-blob-type": "BlockBlob"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind"),
    [
        (206, GOOD, b"12345", None),
        (206, {**GOOD, "ETag": '"0x2"'}, b"12345", SourceChangedError),
        (206, {**GOOD, "Content-Range": "bytes 0-4/10"}, b"12345", SourceChangedError),
        (206, {**GOOD, "Content-Range": "bytes 1-5/9"}, b"12345", ObjectError),
        (206, {**GOOD, "Content-Range": "bytes 0-4/9"}, b"1234", TransientError),
        (206, {"Content-Range": "bytes 0-4/9"}, b"12345", ObjectError),
        (200, {"ETag": '"0x1"'}, b"123456789", ObjectError),
        (503, {"x-ms-error-code": "ServerBusy", "Retry-After": "7"}, b"", OverloadedError),
        (500, {}, b"oops", TransientError),
        (409, {"x-ms-error-code": "BlobArchived"}, b"", ObjectError),
        (403, {"x-ms-error-code": "AuthorizationFailure"}, b"", FailedError),
        (412, {"x-ms-error-code": "ConditionNotMet"}, b"", SourceChangedError),
        (302, {"Location": "http://127.0.0.1:1/"}, b"", ObjectError),
    ],
)
def test_answers_of_a_stubborn_server(
    status: int, headers: dict[str, str], body: bytes, kind: type[PenstockError] | None
) -> None:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stubborn)
    server.daemon_threads = True
    server.answer, server.asked = (status, headers, body), []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/acc"
        config = SourceConfig("az://some/x", storage_options={"anon": True, "endpoint_url": url})
        reader = open_source(config, dataset(config.url)).reader()
        entry = entry_of(Listed("k", 9, "0x1", 0))
        if kind is None:
            assert read(reader, entry, 0, 5) == body
        else:
            with pytest.raises(kind) as caught:
                reader.open(entry, 0, 5)
            assert type(caught.value) is kind
            if "Retry-After" in headers:
                assert caught.value.after == 7  # type: ignore[attr-defined]
        reader.close()
        assert {asked["If-Match"] for asked in server.asked} == {'"0x1"'}
        assert len(server.asked) <= 4
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- reaching it


def test_a_refused_connection_is_told_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = {"anon": True, "endpoint_url": f"http://127.0.0.1:{port}/acc"}
    config = SourceConfig("az://some/x", storage_options=options)
    source = open_source(config, dataset(config.url))
    assert isinstance(source, AzureSource)
    began = time.monotonic()
    with pytest.raises(PreflightError) as caught:
        source.check()
    assert str(port) in str(caught.value)
    assert "onnect" in str(caught.value)
    assert time.monotonic() - began < 30
