"""The source contract over every kind of source."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pytest
from tests.contracts.source_contract import (
    SourceContract,
    Store,
    composite,
    content,
    drain,
    entry_of,
    listing,
    sums,
)
from tests.sources.conftest import (
    AdlfsStore,
    AzuriteStore,
    DemoStore,
    FolderStore,
    GcsfsStore,
    GcsStore,
    MemoryStore,
    S3fsStore,
    VersityStore,
    WebStore,
)
from tests.support.versity import ACCESS

from penstock.core.errors import PenstockError, PreflightError
from penstock.sources.s3_credentials import Keys, S3Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.azurite import Azurite
    from tests.support.fake_gcs import FakeGcs
    from tests.support.s3server import S3Server
    from tests.support.versity import Versity

MIB = 1 << 20


class TestFolder(SourceContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        root = tmp_path / "root"
        root.mkdir()
        return FolderStore(root)


class TestFileUrl(SourceContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        root = tmp_path / "root %41"
        root.mkdir()
        return FolderStore(root, f"file://{root}/")


class TestDemoServer(SourceContract):
    @pytest.fixture
    def store(self, demo: S3Server) -> DemoStore:
        _empty(demo.root)
        return DemoStore(demo.root, demo)


class TestDemoServerByTls(SourceContract):
    @pytest.fixture
    def store(self, demo_tls: S3Server) -> DemoStore:
        _empty(demo_tls.root)
        return DemoStore(demo_tls.root, demo_tls)


class TestVersity(SourceContract):
    """A real server, with the proofs that only one can give."""

    @pytest.fixture
    def store(self, versity: Versity) -> VersityStore:
        return VersityStore(versity, f"b{uuid.uuid4().hex}")

    @pytest.mark.parametrize("algorithm", ["CRC32C", "CRC64NVME", "CRC32", "SHA256", "SHA1"])
    def test_full_checksums_are_stated(self, store: VersityStore, algorithm: str) -> None:
        data = content("x", 70_000)
        store.put("x", data, ChecksumAlgorithm=algorithm)
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["x"])
        body = reader.open(entry, 0, entry.size)
        stated = {checksum.algorithm: checksum for checksum in body.checksums}
        assert drain(body) == data
        assert stated[algorithm.lower()].kind == "full"
        assert stated[algorithm.lower()].value == sums(data)[algorithm.lower()]
        assert stated["md5"].value == sums(data)["md5"]
        reader.close()

    @pytest.mark.parametrize("algorithm", ["CRC32C", "SHA256"])
    def test_composites_come_with_the_size_of_their_parts(self, store: VersityStore, algorithm: str) -> None:
        data = content("x", 11 * MIB + 5)
        store.put_parts("x", [data[: 5 * MIB], data[5 * MIB : 10 * MIB], data[10 * MIB :]], algorithm)
        source = store.source()
        reader = source.reader()
        entry = entry_of(listing(source)["x"])
        body = reader.open(entry, 0, entry.size)
        assert drain(body) == data
        for checksums in (body.checksums, source.checksum(entry)):
            assert {checksum.kind for checksum in checksums} == {"composite"}
            assert {checksum.algorithm for checksum in checksums} == {algorithm.lower(), "md5"}
            for checksum in checksums:
                assert (checksum.parts, checksum.part_bytes) == (3, 5 * MIB)
                assert checksum.value == composite(checksum.algorithm, data, 5 * MIB)
        reader.close()

    def test_what_may_not_be_read_is_never_gone(self, store: VersityStore) -> None:
        store.put("x", b"some")
        source = store.source()
        assert source.list_one("x") is not None
        source.renew(S3Credentials(Keys(ACCESS, "another secret"), "us-east-1", store.server.endpoint))
        with pytest.raises(PenstockError, match="refuses the credentials"):
            source.list_one("x")
        source.renew(S3Credentials(None, "us-east-1", store.server.endpoint))
        with pytest.raises(PenstockError, match="status 403"):
            source.list_one("x")

    def test_parts_of_mixed_sizes_are_not_taken_for_alike(self, store: VersityStore) -> None:
        data = content("x", 19 * MIB)
        store.put_parts("x", [data[: 7 * MIB], data[7 * MIB : 12 * MIB], data[12 * MIB :]], "CRC32C")
        source = store.source()
        entry = entry_of(listing(source)["x"])
        assert {checksum.part_bytes for checksum in source.checksum(entry)} == {0}


class TestWeb(SourceContract):
    """A real web server, by its folder pages."""

    @pytest.fixture
    def store(self, web_store: WebStore) -> WebStore:
        return web_store


class TestAzurite(SourceContract):
    """A real server of Azure Blob."""

    @pytest.fixture
    def store(self, azure_store: AzuriteStore) -> AzuriteStore:
        return azure_store


class FsspecStoreContract(SourceContract):
    """Of a store through fsspec."""

    def test_nothing_is_listed_of_nothing(self, store: Store) -> None:
        """The libraries tell no empty prefix from a bucket that there is not."""
        with pytest.raises(PreflightError, match="cannot be listed"):
            listing(store.source())


class TestS3fs(FsspecStoreContract):
    """S3 through s3fs."""

    @pytest.fixture
    def store(self, versity: Versity, tmp_path: Path) -> S3fsStore:
        return S3fsStore(versity, f"b{uuid.uuid4().hex}", tmp_path)


class TestAdlfs(FsspecStoreContract):
    """Azure through adlfs."""

    @pytest.fixture
    def store(self, azurite: Azurite, tmp_path: Path) -> Iterator[AdlfsStore]:
        store = AdlfsStore(azurite, tmp_path, f"c{uuid.uuid4().hex}")
        yield store
        store.close()


class TestGcs(SourceContract):
    """Google's JSON API."""

    @pytest.fixture
    def store(self, fake_gcs: FakeGcs) -> GcsStore:
        return GcsStore(fake_gcs, f"b{uuid.uuid4().hex}")


class TestGcsfs(FsspecStoreContract):
    """Google's storage through fsspec's library."""

    @pytest.fixture
    def store(self, fake_gcs: FakeGcs) -> GcsfsStore:
        return GcsfsStore(fake_gcs, f"b{uuid.uuid4().hex}")


class TestMemory(SourceContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def _empty(root: Path) -> None:
    for item in root.iterdir():
        if item.is_dir():
            shutil.rmtree(item)
        else:
            item.unlink()
