"""Times that a tool wrote into the metadata of objects: on wish they become those of the files."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.conftest import AzuriteStore
from tests.support.azurite import Azurite
from tests.support.go_servers import UnavailableError
from tests.support.hostile import Hostile
from tests.support.whole_way import go, staging, texts

from penstock.config.settings import SourceConfig
from penstock.sources.http_values import stated_in_metadata
from penstock.sources.s3 import S3Source

if TYPE_CHECKING:
    from pathlib import Path

STORES = 1_714_979_289_123_000_000
"""2024-05-06T07:08:09.123Z, which the server states in its listings."""
MTIMES = {"p/rclone": "1600000000.123456789", "p/s3fs": "1500000000", "p/odd": "yesterday"}
OBJECTS = dict.fromkeys([*MTIMES, "p/none"], b"content")


def source(server: Hostile, times: str, url: str = "s3://bucket/p/") -> dict[str, Any]:
    options = {"endpoint_url": server.endpoint, "anon": True}
    return {"sources": (SourceConfig(url, "", options, times=times),)}


@pytest.mark.parametrize("times", ["store", "metadata"])
def test_files_get_the_times_of_metadata_on_wish_and_what_lacks_them_is_counted(
    tmp_path: Path, times: str
) -> None:
    with Hostile(OBJECTS, page=3) as server, staging(tmp_path, "", **source(server, times)) as context:
        server.mtimes = dict(MTIMES)
        go(context)
        data = context.layout("data").current / "data"
        found = {path.name: path.stat().st_mtime_ns for path in data.iterdir()}
        heads = sum(asked.method == "HEAD" and bool(asked.key) for asked in server.asked)
        said = [text for text in texts(context) if "metadata" in text]
    if times == "store":
        assert (set(found.values()), heads, said) == ({STORES}, 0, [])
        return
    stated = {"rclone": 1_600_000_000_123_456_789, "s3fs": 1_500_000_000 * 10**9}
    assert found == {**stated, "odd": STORES, "none": STORES}
    assert heads == len(OBJECTS)
    assert said == [
        "2 objects of s3://bucket/p/ without a time in their metadata: their files get the store's time"
    ]


@pytest.mark.parametrize("url", ["s3://bucket/p/", "s3://bucket/p/rclone"])
def test_one_object_is_listed_with_the_time_of_its_metadata_too(url: str) -> None:
    with Hostile(OBJECTS) as server:
        server.mtimes = dict(MTIMES)
        opened = S3Source(source(server, "metadata", url)["sources"][0])
        found = {one.key: one for batch in opened.list() for one in batch}
        assert opened.list_one("rclone") == found["rclone"]
    assert found["rclone"].modified_ns == 1_600_000_000_123_456_789


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        (b"1600000000", 1_600_000_000 * 10**9),
        (b"1600000000.5", 1_600_000_000_500_000_000),
        (b"1600000000.1234567891", 1_600_000_000_123_456_789),
        (b"-1.5", -1_500_000_000),
        (b"2020-09-13T12:26:40.000000001Z", 1_600_000_000_000_000_001),
        (b"yesterday", 0),
        (b"", 0),
        (b"1e9", 0),
    ],
)
def test_a_time_in_metadata_is_read_as_tools_write_it(text: bytes, nanoseconds: int) -> None:
    assert stated_in_metadata(text) == nanoseconds


def test_azures_metadata_states_times_too(tmp_path: Path) -> None:
    azurite = Azurite()
    try:
        azurite.start()
    except UnavailableError as error:
        pytest.skip(f"no real Azure Blob server: {error}")
    try:
        store = AzuriteStore(azurite, tmp_path, f"c{uuid.uuid4().hex}")
        store.put("a", b"1", metadata={"mtime": "2020-09-13T12:26:40.000000001Z"})
        (tmp_path / "staged").mkdir()
        config = SourceConfig(f"{store.url}/", storage_options=store.options, times="metadata")
        with staging(tmp_path / "staged", "", sources=(config,)) as context:
            go(context)
            found = (context.layout("data").current / "data/a").stat().st_mtime_ns
        store.close()
    finally:
        azurite.stop()
    assert found == 1_600_000_000_000_000_001
