"""What penstock's own readers and fsspec's libraries say of one bucket: each is the other's oracle."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import content, drain, entry_of, listing, read, sums
from tests.sources.conftest import (
    AdlfsStore,
    AzuriteStore,
    GcsfsStore,
    GcsStore,
    S3fsStore,
    VersityStore,
    dataset,
)

from penstock.sources.port import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.sources.port import Source

MIB = 1 << 20
NAMES = "ab-./ü#%?&=+ ~'\"*é0"
"""What random keys are made of."""


@pytest.fixture
def s3(versity: Any, tmp_path: Path) -> tuple[VersityStore, Source, Source]:
    store = S3fsStore(versity, f"b{uuid.uuid4().hex}", tmp_path)
    return store, VersityStore.source(store), store.source()


@pytest.fixture
def azure(azurite: Any, tmp_path: Path) -> Iterator[tuple[AzuriteStore, Source, Source]]:
    store = AdlfsStore(azurite, tmp_path, f"c{uuid.uuid4().hex}")
    own = AzuriteStore.source(store)
    yield store, own, store.source()
    store.close()


@pytest.fixture
def gcs(fake_gcs: Any) -> tuple[GcsStore, Source, Source]:
    store = GcsfsStore(fake_gcs, f"b{uuid.uuid4().hex}")
    return store, open_source(GcsStore.config(store), dataset("gs")), store.source()


def random_keys(count: int, seed: int, names: str) -> dict[str, int]:
    """Keys that every one of these servers can hold, with a size for each."""
    chance = random.Random(seed)
    found: dict[str, int] = {}
    while len(found) < count:
        key = "".join(chance.choice(names) for _ in range(chance.randint(1, 12))).strip("/ .")
        # versitygw keeps objects as files: no empty or dotted segment, no name that is another's folder.
        parts = key.split("/")
        if not all(part.strip(". ") and part == part.strip(" ") for part in parts):
            continue
        above = {"/".join(parts[:n]) for n in range(1, len(parts))}
        if above & found.keys() or any(one.startswith(f"{key}/") for one in found):
            continue
        found[key] = chance.choice((0, 1, 100, 5000, 70_000))
    return found


@pytest.mark.parametrize("store", ["s3", "azure", "gcs"])
def test_a_random_bucket_is_the_same_by_both_ways(store: str, request: pytest.FixtureRequest) -> None:
    stored, own, library = request.getfixturevalue(store)
    names = (
        NAMES.replace("?", "").replace("#", "") if store == "azure" else NAMES
    )  # adlfs parses them as a URL's
    keys = random_keys(60, random.SystemRandom().randrange(1 << 30), names)
    for key, size in keys.items():
        stored.put(key, content(key, size))
    by_own = [item for batch in own.list() for item in batch]
    by_library = [item for batch in library.list() for item in batch]
    assert {item.key: item.size for item in by_own} == keys
    # Keys, sizes, version tokens and times, in one order.
    assert [item[:4] for item in by_library] == [item[:4] for item in by_own]
    readers = own.reader(), library.reader()
    for item in by_own:
        entry = entry_of(item)
        data = {read(reader, entry) for reader in readers}
        assert data == {content(item.key, item.size)}, item.key
        if item.size > 100:
            assert {read(reader, entry, 7, 50) for reader in readers} == {content(item.key, 57)[7:]}
        assert library.list_one(item.key) == item[:4] + own.list_one(item.key)[4:]
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("store", ["azure", "gcs"])
@pytest.mark.parametrize("size", [70_000, 9 * MIB])
def test_both_ways_state_the_same_checksums(store: str, size: int, request: pytest.FixtureRequest) -> None:
    stored, own, library = request.getfixturevalue(store)
    stored.put("x", content("x", size))
    entry = entry_of(listing(own)["x"])
    said = []
    for source in (own, library):
        reader = source.reader()
        body = reader.open(entry, 0, size)
        told = {(checksum.algorithm, checksum.kind, checksum.value) for checksum in body.checksums}
        assert drain(body) == content("x", size)
        assert told <= {
            (checksum.algorithm, checksum.kind, checksum.value) for checksum in source.checksum(entry)
        }
        reader.close()
        said.append(told)
    assert said[0] == said[1]
    if store != "azure":  # Azure computes none of its own
        assert ("crc32c", "full", sums(content("x", size))["crc32c"]) in said[0]
