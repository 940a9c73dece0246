"""The listing of an S3 bucket against s3fs, over random buckets of a real S3 server (versitygw)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.versity import ACCESS, SECRET, UnavailableError, Versity

from penstock.config.settings import DatasetConfig, SourceConfig
from penstock.sources.port import open_source
from penstock.sources.s3_credentials import Keys, S3Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/"),
    min_size=1,
    max_size=6,
).filter(lambda name: name not in (".", "..")) | st.sampled_from(
    ["a", "a!", "a-b", "a.b", "a0", "%41", "a+b", "a b", "&amp;", "ü", "😀", "#x", "?y=1", "..."]
)
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def together(keys: list[str]) -> list[str]:
    """Those that this server can hold together, as files of which none is a folder of another."""
    kept: list[str] = []
    for key in keys:
        if not any(one == key or one.startswith(f"{key}/") or key.startswith(f"{one}/") for one in kept):
            kept.append(key)
    return kept


class Bucket:
    """One bucket, listed by penstock and by s3fs."""

    def __init__(self, server: Versity, name: str) -> None:
        import botocore.session
        import s3fs

        self.server, self.name = server, name
        given_: dict[str, Any] = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}
        self.client: Any = botocore.session.Session().create_client(
            "s3", "us-east-1", endpoint_url=server.endpoint, **given_
        )
        self.client.create_bucket(Bucket=name)
        self.s3fs = s3fs.S3FileSystem(
            key=ACCESS,
            secret=SECRET,
            endpoint_url=server.endpoint,
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def ours(self, prefix: str) -> list[tuple[str, int, str, int]]:
        config = SourceConfig(
            f"s3://{self.name}/{prefix}", storage_options={"endpoint_url": self.server.endpoint}
        )
        credentials = S3Credentials(Keys(ACCESS, SECRET), "us-east-1", self.server.endpoint)
        source = open_source(config, DatasetConfig("d", (config,)), credentials=credentials)
        listed = [one for batch in source.list() for one in batch]
        return [(one.key, one.size, one.token, one.modified_ns) for one in listed]

    def by_s3fs(self, prefix: str) -> list[tuple[str, int, str, int]]:
        found: dict[str, dict[str, Any]] = self.s3fs.find(f"{self.name}/{prefix}", detail=True)
        rows = [
            (
                path.removeprefix(f"{self.name}/{prefix}/"),
                one["size"],
                one["ETag"].strip('"'),
                round(one["LastModified"].timestamp() * 1000) * 1_000_000,
            )
            for path, one in found.items()
        ]
        return sorted(rows, key=lambda row: row[0].encode())


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    folder = Path(tempfile.mkdtemp(prefix="versity-", dir="/var/tmp"))
    server = Versity(folder)
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no real S3 server: {error}")
    made = Bucket(server, "oracle")
    yield made
    made.client.close()
    server.stop()
    shutil.rmtree(folder)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(KEYS, min_size=1, max_size=10), number=st.integers(0, 2**32))
def test_agrees_with_s3fs(bucket: Bucket, keys: list[str], number: int) -> None:
    prefix = f"root {number}"
    kept = together(keys)
    for size, key in enumerate(kept):
        bucket.client.put_object(Bucket=bucket.name, Key=f"{prefix}/{key}", Body=b"x" * size)
    try:
        listed = bucket.ours(prefix)
        assert [row[0] for row in listed] == sorted(kept, key=str.encode)
        assert listed == bucket.by_s3fs(prefix)
    finally:
        for key in kept:
            bucket.client.delete_object(Bucket=bucket.name, Key=f"{prefix}/{key}")


@pytest.mark.parametrize("shape", ["flat", "folders"])
def test_agrees_with_s3fs_over_many_pages(bucket: Bucket, shape: str) -> None:
    """4,500 objects, five pages."""
    root = bucket.server.folder / bucket.name / shape
    for number in range(4500):
        path = root / (
            f"{number * 7919 % 4500:05}" if shape == "flat" else f"{number % 37}/{number % 11}/{number}"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number % 5))
    listed = bucket.ours(shape)
    assert len(listed) == 4500
    assert listed == bucket.by_s3fs(shape)
