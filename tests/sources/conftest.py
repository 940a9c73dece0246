"""The stores that the sources are tried on."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.contracts.source_contract import ODD
from tests.support.azurite import ACCOUNT, KEY, Azurite
from tests.support.fake_gcs import FakeGcs
from tests.support.go_servers import UnavailableError
from tests.support.s3server import S3Server
from tests.support.versity import ACCESS, SECRET, Versity
from tests.support.webserver import WebServer

from penstock.config.settings import DatasetConfig, SourceConfig
from penstock.sources.port import open_source
from penstock.sources.s3_credentials import Keys, S3Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sources.port import Source

NO_GRPC = ("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
"""Else gcsfs asks by gRPC what kind of bucket it is, for a minute, which the tests' server does not speak."""


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's AWS, Azure or proxy settings reaches a test."""
    for name in list(os.environ):
        if (
            name.startswith(("AWS_", "AZURE_"))
            or name.lower().endswith("_proxy")
            or name == "REQUESTS_CA_BUNDLE"
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv(*NO_GRPC)


def dataset(url: str, **over: Any) -> DatasetConfig:
    return DatasetConfig("d", (SourceConfig(url),), **over)


def below(url: str, key: str) -> str:
    return f"{url}/{key}" if key else url


class FolderStore:
    """A folder; overwritten as tools do it, by a new file renamed over the old one."""

    odd = (*ODD, "new\nline", os.fsdecode(b"\xff\xfe/\xe9"), "cr\rname")

    def __init__(self, root: Path, url: str = "") -> None:
        self.root = root
        self.url = url or str(root)

    def put(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, new = tempfile.mkstemp(dir=self.root.parent)
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(new, path)

    def remove(self, key: str) -> None:
        os.unlink(self.root / key)

    def source(self, key: str = "") -> Source:
        url = f"{self.url.rstrip('/')}/{key}" if key else self.url
        return open_source(SourceConfig(url), dataset(url))


class DemoStore(FolderStore):
    """The demo server over a folder."""

    odd = (*ODD, "new\nline", "cr\rname")

    def __init__(self, root: Path, server: S3Server) -> None:
        super().__init__(root)
        self._server = server

    def source(self, key: str = "") -> Source:
        options: dict[str, Any] = {"endpoint_url": self._server.endpoint}
        if self._server.ca:
            options["ca_bundle"] = str(self._server.ca)
        config = SourceConfig(self._server.url(key), storage_options=options)
        keys = Keys("AKIDEMO", "demo-secret-demo")
        credentials = S3Credentials(keys, "us-east-1", self._server.endpoint)
        return open_source(config, dataset(config.url), credentials=credentials)


class WebStore(FolderStore):
    """A folder behind a real web server; read by its pages."""

    odd = ODD

    def __init__(self, root: Path, server: WebServer) -> None:
        super().__init__(root)
        self._url = server.url

    def source(self, key: str = "") -> Source:
        url = self._url + quote(key)
        return open_source(SourceConfig(url), dataset(url))


class VersityStore:
    """A bucket of a real S3 server, filled by the server's client."""

    odd = ODD

    def __init__(self, server: Versity, bucket: str, secrets: Path | None = None) -> None:
        self.server, self.bucket, self.secrets = server, bucket, secrets or server.folder
        self.client = server.client
        self.client.create_bucket(Bucket=bucket)

    def put(self, key: str, data: bytes, **more: Any) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"pre fix/{key}", Body=data, **more)

    def put_parts(self, key: str, parts: list[bytes], algorithm: str) -> None:
        """By an upload in these parts."""
        place = {"Bucket": self.bucket, "Key": f"pre fix/{key}"}
        upload = self.client.create_multipart_upload(**place, ChecksumAlgorithm=algorithm)["UploadId"]
        done = []
        for number, data in enumerate(parts, 1):
            answer = self.client.upload_part(
                **place, UploadId=upload, PartNumber=number, Body=data, ChecksumAlgorithm=algorithm
            )
            name = f"Checksum{algorithm}"
            done.append({"PartNumber": number, "ETag": answer["ETag"], name: answer[name]})
        self.client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": done})

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=f"pre fix/{key}")

    def source(self, key: str = "") -> Source:
        url = below(f"s3://{self.bucket}/pre fix", key)
        config = SourceConfig(url, storage_options={"endpoint_url": self.server.endpoint})
        credentials = S3Credentials(Keys(ACCESS, SECRET), "us-east-1", self.server.endpoint)
        return open_source(config, dataset(config.url), credentials=credentials)


class S3fsStore(VersityStore):
    """The same, read through s3fs."""

    def config(self) -> SourceConfig:
        path = self.secrets / "s3fs"
        _write_secrets(path, f"key={ACCESS}\nsecret={SECRET}\n")
        options = {
            "reader": "fsspec",
            "endpoint_url": self.server.endpoint,
            "credentials_file": str(path),
            "client_kwargs": {"region_name": "us-east-1"},
        }
        return SourceConfig(f"s3://{self.bucket}/pre fix", storage_options=options)

    def source(self, key: str = "") -> Source:
        config = self.config()
        return open_source(replace(config, url=below(config.url, key)), dataset("s3"))


def _write_secrets(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


class MemoryStore:
    """fsspec's memory: the generic reader without a network."""

    odd = tuple(key for key in ODD if key != "?query=1&x=2")

    def __init__(self) -> None:
        import fsspec

        self._fs = fsspec.filesystem("memory")
        self._fs.store.clear()
        self._fs.pseudo_dirs.clear()

    def put(self, key: str, data: bytes) -> None:
        self._fs.makedirs("/root", exist_ok=True)
        self._fs.pipe_file(f"/root/{key}", data)

    def remove(self, key: str) -> None:
        self._fs.rm_file(f"/root/{key}")

    def source(self, key: str = "") -> Source:
        url = below("memory://root", key)
        return open_source(SourceConfig(url), dataset(url))


@pytest.fixture
def web_store(tmp_path: Path) -> Iterator[WebStore]:
    root = tmp_path / "root"
    root.mkdir()
    try:
        server = WebServer(root)
    except UnavailableError as error:
        pytest.skip(f"no real web server: {error}")
    with server:
        yield WebStore(root, server)


@pytest.fixture(scope="session")
def versity() -> Iterator[Versity]:
    folder = Path(tempfile.mkdtemp(prefix="versity-", dir="/var/tmp"))
    server = Versity(folder)
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no real S3 server: {error}")
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    root = tmp_path_factory.mktemp("demo") / "root"
    root.mkdir()
    keys = {"access_key": "AKIDEMO", "secret_key": "demo-secret-demo"}
    with S3Server(root, **keys, options=["--checksums", "--md5-etags"]) as server:
        yield server


@pytest.fixture(scope="session")
def demo_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    root = tmp_path_factory.mktemp("demo") / "root"
    root.mkdir()
    with S3Server(root, tls=True, access_key="AKIDEMO", secret_key="demo-secret-demo") as server:
        yield server


class AzuriteStore:
    """A container of a real Azure Blob server, filled by the SDK's plain client."""

    odd = tuple(key for key in ODD if "\\" not in key)  # the store takes a backslash for a slash

    def __init__(self, server: Azurite, folder: Path, container: str, **options: Any) -> None:
        from azure.storage.blob import BlobServiceClient

        self.server = server
        self.service = BlobServiceClient.from_connection_string(server.connection_string)
        self.container = self.service.create_container(container)
        self.url = f"az://{container}/pre fix"
        self.secrets = folder / "secrets"
        self.write_secrets(f"account_key={KEY}\n")
        self.options = {
            "account_name": ACCOUNT,
            "endpoint_url": server.endpoint,
            "credentials_file": str(self.secrets),
            **options,
        }

    def write_secrets(self, text: str) -> None:
        self.secrets.write_text(text)
        self.secrets.chmod(0o600)

    def put(self, key: str, data: bytes, **more: Any) -> None:
        self.container.upload_blob(f"pre fix/{key}", data, overwrite=True, **more)

    def remove(self, key: str) -> None:
        self.container.delete_blob(f"pre fix/{key}")

    def source(self, key: str = "", **options: Any) -> Source:
        config = SourceConfig(below(self.url, key), storage_options={**self.options, **options})
        return open_source(config, dataset(config.url))

    def close(self) -> None:
        self.service.close()


class AdlfsStore(AzuriteStore):
    """The same, read through adlfs."""

    odd = tuple(key for key in AzuriteStore.odd if "\t" not in key)  # adlfs asks for the name without the tab

    def config(self, **options: Any) -> SourceConfig:
        self.write_secrets(f"connection_string={self.server.connection_string}\n")
        how = {"reader": "fsspec", "credentials_file": str(self.secrets), **options}
        return SourceConfig(self.url, storage_options=how)

    def source(self, key: str = "", **options: Any) -> Source:
        config = self.config(**options)
        return open_source(replace(config, url=below(config.url, key)), dataset(self.url))


class GcsStore:
    """A bucket of a server that speaks Google's JSON API."""

    odd = ODD

    def __init__(self, server: FakeGcs, bucket: str) -> None:
        self.server, self.bucket = server, bucket
        server.make_bucket(bucket)

    def put(self, key: str, data: bytes) -> None:
        self.server.put(self.bucket, f"pre fix/{key}", data)

    def remove(self, key: str) -> None:
        self.server.remove(self.bucket, f"pre fix/{key}")

    def config(self, **options: Any) -> SourceConfig:
        how = {"endpoint_url": self.server.endpoint, "anon": True, **options}
        return SourceConfig(f"gs://{self.bucket}/pre fix", storage_options=how)

    def source(self, key: str = "") -> Source:
        config = self.config()
        return open_source(replace(config, url=below(config.url, key)), dataset(config.url))


class GcsfsStore(GcsStore):
    """The same, read through gcsfs."""

    def config(self, **options: Any) -> SourceConfig:
        how = {"reader": "fsspec", "endpoint_url": self.server.endpoint, "token": "anon", "project": "p"}
        return SourceConfig(f"gs://{self.bucket}/pre fix", storage_options={**how, **options})


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    server = FakeGcs()
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no server of Google's API: {error}")
    yield server
    server.stop()


@pytest.fixture
def azure_store(azurite: Azurite, tmp_path: Path) -> Iterator[AzuriteStore]:
    """An empty container of its own."""
    made = AzuriteStore(azurite, tmp_path, f"c{uuid.uuid4().hex}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    server = Azurite()
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no real Azure Blob server: {error}")
    yield server
    server.stop()
