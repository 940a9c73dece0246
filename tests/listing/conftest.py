"""A bucket of a real S3 server, and inventories of it."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import ODD
from tests.support.go_servers import UnavailableError
from tests.support.inventories import row
from tests.support.staging_runs import context_for
from tests.support.versity import ACCESS, SECRET, Versity

from penstock.config.settings import SourceConfig
from penstock.listing.collection import open_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.inventories import Made, Row

    from penstock.core.model import Listed
    from penstock.dataset.context import Context

PREFIX = "pre fix/"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's AWS or proxy settings reaches a test."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.fixture(scope="session")
def versity() -> Iterator[Versity]:
    folder = Path(tempfile.mkdtemp(prefix="versity-", dir="/var/tmp"))
    (folder / "root").mkdir()
    server = Versity(folder / "root", log=folder / "log")
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no real S3 server: {error}")
    yield server
    server.stop()
    shutil.rmtree(folder)


class Bucket:
    """A bucket with odd keys below a prefix, and others beside it."""

    def __init__(self, server: Versity, tmp_path: Path) -> None:
        import botocore.session

        self.name = f"b-{uuid.uuid4().hex[:12]}"
        self._tmp_path, self._log = tmp_path, server.log
        self._secrets = tmp_path / "secrets"
        self._secrets.touch(mode=0o600)
        self._secrets.write_text(f"[default]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n")
        self._options = {"endpoint_url": server.endpoint, "credentials_file": str(self._secrets)}
        self.client: Any = botocore.session.Session().create_client(
            "s3",
            "us-east-1",
            endpoint_url=server.endpoint,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
        )
        self.client.create_bucket(Bucket=self.name)
        for key in ("other/x", "pre", *(PREFIX + odd for odd in ODD)):
            self.put(key, key.encode())

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def asked(self) -> list[str]:
        """The requests for this bucket so far: a line each, as S3's access logs have it."""
        assert self._log is not None
        return [line for line in self._log.read_text().splitlines() if self.name in line]

    def deliver(self, made: Made) -> str:
        """Store an inventory in this bucket; the URL of its manifest."""
        for name, content in made.files.items():
            self.put(f"inv/{name}", content)
        # Amazon S3 states keys in the destination bucket.
        made.state(files=[dict(one, key=f"inv/{one['key']}") for one in made.stated()])
        for name, content in made.files.items():
            self.put(f"inv/{name}", content)
        return f"s3://{self.name}/inv/{made.manifest}"

    def context(self, **source: Any) -> Context:
        """With this bucket's prefix as the dataset's source. `source`: more of its configuration."""
        config = SourceConfig(f"s3://{self.name}/{PREFIX}", storage_options=self._options, **source)
        context = context_for(self._tmp_path, config.url)
        dataset = replace(context.dataset("data"), sources=(config,))
        return replace(context, config=replace(context.config, datasets={"data": dataset}))

    def listed(self) -> list[Listed]:
        """What the bucket itself lists."""
        (source,) = open_sources(self.context().dataset("data"))
        return [one for batch in source.list() for one in batch]

    def rows(self) -> list[Row]:
        """Of an inventory of the whole bucket: what the prefix holds, and two keys beside it."""
        beside = [dict(row(self.name, "", self.listed()[0]), Key=key) for key in ("other/x", "pre")]
        return [*(row(self.name, PREFIX, one) for one in self.listed()), *beside]


@pytest.fixture
def bucket(versity: Versity, tmp_path: Path) -> Bucket:
    return Bucket(versity, tmp_path)
