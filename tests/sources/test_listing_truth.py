"""Nothing of a source vanishes from its listing, and nothing in it ends the program: each is named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.conftest import dataset
from tests.support.hostile import Hostile
from tests.support.keyed import KeyedFileSystem
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import SourceConfig
from penstock.core.errors import FailedError, ObjectError, PreflightError
from penstock.core.model import LATEST
from penstock.run import list_step as listing_step
from penstock.sources import listing_order, stated_checksums
from penstock.sources.port import open_source
from penstock.sources.s3 import S3Source
from penstock.sources.s3_credentials import S3Credentials
from penstock.tables.run_tables import read_listing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def keyed() -> Iterator[dict[str, bytes]]:
    KeyedFileSystem.objects.clear()
    yield KeyedFileSystem.objects
    KeyedFileSystem.objects.clear()


def store(url: str = "keyed://bucket/p", **over: Any) -> Any:
    return open_source(SourceConfig(url), dataset(url), **over)


def test_keys_with_an_empty_segment_are_refused_by_name(keyed: dict[str, bytes]) -> None:
    keys = {"p/a": b"1", "p/dir//b": b"22", "p/dir/c": b"3", "p//x": b"4", "p/e/": b"", "p/e/f": b"5"}
    keyed |= {f"bucket/{key}": data for key, data in keys.items()} | {"bucket/p/g/": b""}
    with pytest.raises(PreflightError, match="2 item") as caught:
        listing(store())
    assert '"dir//b": has an empty segment' in str(caught.value)
    assert '"/x": has an empty segment' in str(caught.value)


def test_an_object_that_is_named_as_a_folder_is_refused(keyed: dict[str, bytes]) -> None:
    keyed |= {"bucket/p/a": b"1", "bucket/p/dir/": b"data", "bucket/p/dir/x": b"2"}
    with pytest.raises(PreflightError, match='"dir/": names a folder but holds 4 bytes'):
        listing(store())
    assert list(listing(store(keep=lambda key: key != "dir/"))) == ["a", "dir/x"]


def test_markers_of_folders_are_no_objects_and_are_counted(keyed: dict[str, bytes]) -> None:
    keyed |= {
        "bucket/p/": b"",
        "bucket/p/a": b"1",
        "bucket/p/e/": b"",
        "bucket/p/e/f": b"22",
        "bucket/p/g/": b"",
    }
    source = store()
    found = listing(source)
    assert list(found) == ["a", "e/f"]
    assert source.ignored == {"markers": 3}
    assert read(source.reader(), entry_of(found["e/f"])) == b"22"


def test_a_time_that_no_row_can_hold_becomes_the_nearest_one(tmp_path: Path) -> None:
    """Year 2400; the token, which tells versions apart, stays exact."""
    source = tree(tmp_path / "source", {"late": b"1", "now": b"2"})
    later = 13_569_465_600
    os.utime(tmp_path / "source" / "late", (later, later))
    assert os.stat(tmp_path / "source" / "late").st_mtime == later, "tests need a file system that takes it"
    context = context_for(tmp_path, source)
    run = listing_step.run(context, "data")["run"]
    rows = {e.path: e for some in read_listing(context.layout("data").run(run).listing) for e in some}
    assert rows["late"].modified_ns == LATEST
    assert f"-{later}000000000-" in rows["late"].token
    assert rows["now"].modified_ns < LATEST
    assert listing_step.run(context, "data")["run"] == run


def s3(server: Hostile) -> S3Source:
    config = SourceConfig(f"s3://{server.bucket}/", storage_options={"endpoint_url": server.endpoint})
    return S3Source(config, S3Credentials(None, "us-east-1", server.endpoint))


@pytest.mark.parametrize(("size", "error"), [(1 << 63, PreflightError), (10**19, PreflightError)])
def test_a_size_that_no_file_has_is_refused_by_name(
    tmp_path: Path, size: int, error: type[Exception]
) -> None:
    with Hostile({"fine": b"1"}) as server:
        server.sizes = {"fine": size}
        options = {"endpoint_url": server.endpoint, "anon": True}
        made = context_for(tmp_path, "s3://bucket/", sources=(SourceConfig("s3://bucket/", "", options),))
        with pytest.raises(error, match="fine") as caught:
            listing_step.run(made, "data")
        assert str(size) in str(caught.value)


def test_sizes_that_no_number_holds_together_are_refused(tmp_path: Path) -> None:
    largest = (1 << 63) - 1
    with Hostile({"a": b"1", "b": b"1"}) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        context = context_for(tmp_path, "s3://bucket/", sources=(SourceConfig("s3://bucket/", "", options),))
        server.sizes = {"a": largest - 1, "b": 1}
        assert listing_step.run(context, "data")["bytes"] == largest
        server.sizes = {"a": largest, "b": 1}
        with pytest.raises(PreflightError, match="more than a dataset can") as caught:
            listing_step.run(context, "data")
        assert f"2 files have {largest + 1:,} bytes together" in str(caught.value)


def test_a_listing_without_an_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_order, "EMPTY", 50)
    with Hostile({"a": b"1"}, listing="endless") as server:
        with pytest.raises(FailedError, match="does not end"):
            listing(s3(server))
        assert len(server.asked) < 80


def test_a_redirect_to_another_port_is_not_followed() -> None:
    """It would be signed anew, and the server there get the session's token."""
    with Hostile({"x": b"1"}) as other, Hostile({"x": b"1"}, {"x": f"redirectport:{other.port}"}) as server:
        source = s3(server)
        entry = entry_of(listing(source)["x"])
        reader = source.reader()
        with pytest.raises(FailedError, match=f"somewhere else.*127.0.0.1:{other.port}"):
            read(reader, entry)
        reader.close()
        assert not other.asked


SHA, SHA512 = "ab" * 32, "ab" * 64


@pytest.mark.parametrize(
    ("key", "text", "named"),
    [
        ("B2SUMS", f"{SHA512}  x\n", "b2sum"),
        ("SHA3-256SUMS", f"{SHA}  x\n", "sha3"),
        ("x.blake3", f"{SHA}\n", "blake3"),
        ("x.tar.b3sum", f"{SHA}  x.tar\n", "b3sum"),
        ("x.xxh3", f"{'ab' * 16}  x\n", "xxh3"),
        ("SHA512-256SUMS", f"{SHA}  x\n", "sha512-256"),
        ("sums.txt", f"BLAKE2b (x) = {SHA512}\n", "BLAKE2b"),
        ("sums.txt", f"SHA3-256 (x) = {SHA}\n", "SHA3-256"),
        ("sums.txt", f"SHA512/256 (x) = {SHA}\n", "SHA512/256"),
        ("sums.txt", f"RMD160 (x) = {'ab' * 20}\n", "RMD160"),
    ],
)
def test_checksum_files_of_other_kinds_are_refused_by_that_name(key: str, text: str, named: str) -> None:
    with pytest.raises(ObjectError, match="not known") as caught:
        stated_checksums.parse(text, key)
    assert named in caught.value.why


def test_a_checksum_of_another_length_than_its_kind() -> None:
    with pytest.raises(ObjectError, match="not of the kind"):
        stated_checksums.parse(f"{SHA}  x\n", "SHA512SUMS")


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        ("blake3-model.tar.sha256", "sha256"),
        ("SHA256SUMS", "sha256"),
        ("SHA-256.txt", "sha256"),
        ("sums-tigers.sha-256", "sha256"),
        ("SUMS", "sha256"),
    ],
)
def test_names_that_tell_a_known_kind(key: str, algorithm: str) -> None:
    assert stated_checksums.parse(f"{SHA}  x\n", key)["x"].algorithm == algorithm
