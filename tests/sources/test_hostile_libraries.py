"""Servers that cut, lie, stall, redirect and change, met through fsspec's libraries: what is made of each is
what penstock's own readers make of it."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import content, entry_of, listing, read
from tests.sources.conftest import dataset
from tests.support.azurite import KEY
from tests.support.hostile import Hostile
from tests.support.hostile_azure import HostileAzure
from tests.support.hostile_gcs import HostileGcs

from penstock.config.settings import SourceConfig
from penstock.core.model import Claim, Entry, Listed
from penstock.errors import (
    FailedError,
    ObjectError,
    OverloadedError,
    PenstockError,
    SourceChangedError,
    TransientError,
)
from penstock.sources.generic import object_library
from penstock.sources.generic.adlfs_objects import AdlfsObjects
from penstock.sources.generic.library_source import LibrarySource
from penstock.sources.generic.object_library import Answer
from penstock.sources.objects.pages import Objects
from penstock.sources.port import REQUEST
from penstock.sources.registry import open_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.sources.port import Source

DATA = content("x", 100_000)
WHOLE, PART = (0, len(DATA)), (1000, 50_000)
SLOW = ("drip", "silent")
FAULTS: dict[str, type[PenstockError]] = {
    **dict.fromkeys(
        ("shortlen", "nolen", "badchunk", "cut", "reset", "slowdown", "error500", *SLOW), TransientError
    ),
    **dict.fromkeys(("gzip", "denied", "errhtml200", "rangeignored", "wrongrange"), ObjectError),
    **dict.fromkeys(("changed", "404"), SourceChangedError),
}
"""What a mode is to a reader: an error of this class or of one below it."""


def s3fs(server: Hostile, prefix: str = "") -> Source:
    options = {"reader": "fsspec", "endpoint_url": server.endpoint, "anon": True}
    return open_source(SourceConfig(f"s3://{server.bucket}/{prefix}", storage_options=options), dataset("s3"))


def adlfs(server: Hostile, folder: Path) -> Source:
    secrets = folder / "secrets"
    secrets.write_text(
        f"connection_string=AccountName=bucket;AccountKey={KEY};BlobEndpoint={server.endpoint}\n"
    )
    secrets.chmod(0o600)
    options = {"reader": "fsspec", "account_name": "bucket", "credentials_file": str(secrets)}
    return open_source(SourceConfig(f"az://{server.bucket}/p", storage_options=options), dataset("az"))


def gcsfs(server: HostileGcs, prefix: str = "") -> Source:
    options = {"reader": "fsspec", "endpoint_url": server.endpoint, "token": "anon", "project": "p"}
    return open_source(SourceConfig(f"gs://{server.bucket}/{prefix}", storage_options=options), dataset("gs"))


# ---- reading


@pytest.mark.parametrize("span", [WHOLE, PART])
@pytest.mark.parametrize("mode", [*FAULTS, "long", "412", "redirect", "redirectother"])
def test_answers_through_adlfs(
    mode: str, span: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_library, "LONGEST", 3.0 if mode in SLOW else 30.0)
    with Hostile({"p/x": DATA, "p/y": DATA}, {"p/x": mode}) as server:
        source = adlfs(server, tmp_path)
        x, y = (Entry(key, key, len(DATA), server.etag(f"p/{key}"), 0) for key in "xy")
        reader = source.reader()
        with pytest.raises(PenstockError) as caught:
            read(reader, x, *span)
        assert isinstance(caught.value, FAULTS.get(mode, PenstockError)), caught.value
        assert read(reader, y, *span) == DATA[span[0] : span[0] + span[1]]
        reader.close()


def test_answers_through_gcsfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """All modes at once: gcsfs would try a request again for half a minute before it gives up."""
    monkeypatch.setattr(object_library, "LONGEST", 8.0)
    modes = [*FAULTS, "long", "expired"]
    with HostileGcs(
        {f"p/{mode}": DATA for mode in (*modes, "y")}, {f"p/{mode}": mode for mode in modes}
    ) as server:
        source = gcsfs(server, "p/")
        found = {key: entry_of(item) for key, item in listing(source).items()}

        def failure(mode: str, span: tuple[int, int]) -> PenstockError | None:
            try:
                assert read(source.reader(), found[mode], *span) == DATA[span[0] : span[0] + span[1]]
            except PenstockError as error:
                return error
            return None

        with ThreadPoolExecutor(2 * len(modes)) as threads:
            asked = [
                (mode, span, threads.submit(failure, mode, span)) for mode in modes for span in (WHOLE, PART)
            ]
            for mode, span, answer in asked:
                error = answer.result()
                if span == WHOLE and mode in ("rangeignored", "wrongrange"):
                    assert error is None  # without Range there is none to get wrong
                else:
                    assert isinstance(error, FAULTS.get(mode, PenstockError)), (mode, span, error)
        assert read(source.reader(), found["y"]) == DATA


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, OverloadedError),
        (429, OverloadedError),
        (500, TransientError),
        (401, FailedError),
        (416, SourceChangedError),
        (400, ObjectError),
    ],
)
def test_what_gcsfs_gives_up_by(status: int, kind: type[PenstockError]) -> None:
    from gcsfs.retry import HttpError

    from penstock.sources.generic.gcsfs_objects import GcsfsObjects

    told = GcsfsObjects().failure(HttpError({"code": status, "message": "no"}), "gs://b/x")
    assert type(told) is kind


# ---- listing

KEYS = {f"p/{number:03d}": b"x" * number for number in range(40)}


KINDS: dict[str, type[Hostile]] = {
    "s3fs": Hostile,
    "gcsfs": HostileGcs,
    "adlfs": HostileAzure,
    "penstock's azure": HostileAzure,
}


def opened(name: str, server: Hostile, folder: Path) -> Source:
    """What `p/` of this server is read by."""
    if isinstance(server, HostileGcs):
        return gcsfs(server, "p/")
    if name == "adlfs":
        return adlfs(server, folder)
    if isinstance(server, HostileAzure):
        options = {"anon": True, "endpoint_url": server.endpoint}
        config = SourceConfig(f"az://{server.bucket}/p", storage_options=options)
        return open_source(config, dataset(config.url))
    return s3fs(server, "p/")


@pytest.mark.parametrize("mode", ["slowdown*2", "cut*2", "truncated*2", "honest"])
@pytest.mark.parametrize("name", KINDS)
def test_listings_that_come_in_the_end(name: str, mode: str, tmp_path: Path) -> None:
    with KINDS[name](KEYS | {"p/": b"", "q": b""}, listing=mode, page=7) as server:
        found = listing(opened(name, server, tmp_path))
        assert {f"p/{key}": item.size for key, item in found.items()} == {k: len(v) for k, v in KEYS.items()}


# Only a page of S3 promises another one by more than its token.
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("s3fs", "tokenless"),
        *itertools.product(KINDS, ("repeated", "duplicate", "outside", "unsorted", "html")),
    ],
)
def test_listings_that_cannot_be_trusted(name: str, mode: str, tmp_path: Path) -> None:
    with KINDS[name](KEYS, listing=mode, page=7) as server:
        source = opened(name, server, tmp_path)
        if (name, mode) == ("adlfs", "unsorted"):
            assert len(listing(source)) == len(KEYS)  # any order is expected there, and sorted
            return
        with pytest.raises(FailedError):
            listing(source)


def test_json_that_is_no_listing_is_not_an_empty_one() -> None:
    with HostileGcs({}) as server:
        source = gcsfs(server)
        assert listing(source) == {}
        server.kind = ""
        with pytest.raises(FailedError, match="no listing"):
            listing(source)
        server.bucket = "another"
        with pytest.raises(FailedError, match="cannot be listed"):
            source.list_one("x")


# ---- what no library is needed for


class Library:
    """One object whose answers state these versions, one after another."""

    in_order, least = True, 1

    def __init__(self, *versions: str | None) -> None:
        self.versions = list(versions)

    def defaults(self) -> Mapping[str, object]:
        return {}

    def page(self, fs: Any, bucket: str, prefix: str, token: str, limit: int) -> Objects:
        return Objects([Listed("x", 3 * REQUEST, "", 0)], "")

    def fetch(self, fs: Any, bucket: str, name: str, entry: Entry, offset: int, length: int) -> Answer:
        stated = f"bytes {offset}-{offset + length - 1}/{entry.size}".encode()
        claims = [Claim("crc32c", "full", "00000000")]
        size = length or entry.size
        return Answer(bytes(length), 206, size, {b"content-range": stated}, self.versions.pop(0), claims)

    def failure(self, error: BaseException, where: str) -> PenstockError | None:
        return None


@pytest.mark.parametrize(
    ("versions", "whole"),
    [
        (("1", "of its description", "1", "1"), True),
        (("1", "of its description", "1", "2"), False),
        ((None, None, None, None), False),
    ],
)
def test_an_object_without_a_token_is_of_one_version(versions: tuple[str | None, ...], whole: bool) -> None:
    """It is read by several requests, none of which can be on a condition."""
    source = LibrarySource(SourceConfig("memory://b/"), Library(*versions))
    entry = entry_of(listing(source)["x"])
    if whole:
        assert read(source.reader(), entry) == bytes(3 * REQUEST)
        return
    with pytest.raises(SourceChangedError, match="two versions"):
        read(source.reader(), entry)


def test_signatures_of_shared_access_are_not_shown() -> None:
    error = OSError("cannot connect to https://a/c/x?sv=2021&sig=c2VjcmV0%3D&se=2030")
    told = AdlfsObjects().failure(error, "az://c/x")
    assert told is not None
    assert "c2VjcmV0" not in str(told)
    assert "se=2030" in str(told)
