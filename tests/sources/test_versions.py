"""Versioned buckets, on a real S3 server: what is pinned by its version is no event when it changes."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.contracts.source_contract import entry_of, listing, read
from tests.sources.conftest import VersityStore, dataset
from tests.support.go_servers import UnavailableError
from tests.support.versity import ACCESS, SECRET, Versity
from tests.support.whole_way import content, go, staging

from penstock.config.settings import SourceConfig
from penstock.core.errors import FailedError, PreflightError, TransientError
from penstock.sources import s3 as s3_listing
from penstock.sources.port import Continued, open_source
from penstock.sources.s3_credentials import Keys, S3Credentials
from penstock.sources.s3_listing import VERSIONS, PageText, understand
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.sources.port import Source


@pytest.fixture(scope="module")
def server() -> Iterator[Versity]:
    folder = Path(tempfile.mkdtemp(prefix="versions-", dir="/var/tmp"))
    (folder / "root").mkdir()
    (folder / "older").mkdir()
    server = Versity(folder / "root", versions=folder / "older")
    try:
        server.start()
    except UnavailableError as error:
        pytest.skip(f"no real S3 server: {error}")
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def store(server: Versity) -> VersityStore:
    return VersityStore(server, f"b{uuid.uuid4().hex}")


def versioned(store: VersityStore, status: str = "Enabled") -> VersityStore:
    store.client.put_bucket_versioning(Bucket=store.bucket, VersioningConfiguration={"Status": status})
    return store


def pinned(store: VersityStore) -> Source:
    config = SourceConfig(
        f"s3://{store.bucket}/pre fix", storage_options={"endpoint_url": store.server.endpoint}
    )
    credentials = S3Credentials(Keys(ACCESS, SECRET), "us-east-1", store.server.endpoint)
    return open_source(config, dataset(config.url, changed="pinned"), credentials=credentials)


def test_newest_versions_are_listed_and_stay_readable(store: VersityStore) -> None:
    versioned(store)
    for key, data in (("a", b"old"), ("a", b"older than the next"), ("b/ü %41", b"b"), ("gone", b"x")):
        store.put(key, data)
    store.remove("gone")
    source = pinned(store)
    source.check()
    found = listing(source)
    assert {key: item.size for key, item in found.items()} == {"a": 19, "b/ü %41": 1}
    assert all(item.version not in ("", "null") for item in found.values())
    plain = listing(store.source())
    assert {k: i._replace(version="") for k, i in found.items()} == plain
    store.put("a", b"new")
    store.remove("b/ü %41")
    reader = source.reader()
    assert read(reader, entry_of(found["a"])) == b"older than the next"
    assert read(reader, entry_of(found["a"]), 6, 4) == b"than"
    assert read(reader, entry_of(found["b/ü %41"])) == b"b"
    reader.close()
    again = listing(source)
    assert list(again) == ["a"]
    assert again["a"].version != found["a"].version


def test_pages_of_versions_follow_one_another(store: VersityStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_listing, "PAGE", 3)
    versioned(store)
    keys = [f"{folder}{n}" for folder in ("", "a-", "a/") for n in range(4)]
    for _ in range(2):
        for key in keys:
            store.put(key, key.encode())
    store.remove("a/1")
    assert list(listing(pinned(store))) == sorted(key for key in keys if key != "a/1")


def test_a_listing_of_versions_can_begin_and_end_at_any_key(
    store: VersityStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_listing, "PAGE", 3)
    versioned(store)
    for key in ("a", "a-/0", "a-/1", "b ü", "c", "c+", "d"):
        store.put(key, b"old")
        store.put(key, key.encode())
    source = pinned(store)
    assert isinstance(source, Continued)
    found = list(listing(source).values())
    for begin in range(len(found)):
        for end in (begin + 1, begin + 3, None):
            after = found[begin - 1].key.encode() if begin else b""
            upto = None if end is None or end > len(found) else found[end - 1].key.encode()
            some = [one for batch in source.list_between(after, upto) for one in batch]
            assert some == found[begin : None if upto is None else end]


@pytest.mark.parametrize("status", ["", "Suspended"])
def test_a_bucket_that_is_not_versioned_is_refused(store: VersityStore, status: str) -> None:
    if status:
        versioned(versioned(store), status)
    store.put("x", b"1")
    with pytest.raises(PreflightError, match="not versioned") as caught:
        pinned(store).check()
    assert "changed: follow" in caught.value.hint


def test_what_was_there_before_versioning_keeps_its_place(store: VersityStore) -> None:
    store.put("x", b"1")
    versioned(store)
    found = listing(pinned(store))
    store.put("x", b"22")
    reader = pinned(store).reader()
    assert read(reader, entry_of(found["x"])) == b"1"
    reader.close()


PAGE = (
    "<ListVersionsResult><IsTruncated>{truncated}</IsTruncated>{more}<Version><Key>{key}</Key>"
    "<VersionId>{version}</VersionId><IsLatest>true</IsLatest><ETag>e</ETag><Size>1</Size></Version>"
    "</ListVersionsResult>"
)


def page(key: str = "x", version: str = "v", truncated: str = "false", more: str = "") -> str:
    return PAGE.format(key=key, version=version, truncated=truncated, more=more)


@pytest.mark.parametrize("enabled", [None, False])
def test_no_version_of_its_own_is_refused_where_versioning_is_not_known(
    store: VersityStore, enabled: bool | None
) -> None:
    source: Any = pinned(store)
    bucket = replace(source.bucket, prefix="")
    text = PageText(page(version="null"), "", form=VERSIONS)
    with pytest.raises(PreflightError, match="no version of its own"):
        list(s3_listing.listed(bucket, iter([text]), versioned=enabled))
    assert list(s3_listing.listed(bucket, iter([text]), versioned=True))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", "no listing of versions"),
        (page()[:-30], "middle of a page"),
        (page(truncated="true"), "cut off"),
    ],
)
def test_what_is_no_page_of_versions_is_told(text: str, says: str) -> None:
    with pytest.raises((FailedError, TransientError), match=says):
        understand(text, "s3://b/", VERSIONS)


def test_a_release_of_pinned_versions_is_of_one_moment(
    store: VersityStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versioned(store)
    before = {f"d{n % 3}/{n}": b"%d" % n * (n + 1) for n in range(20)} | {"giant": bytes(range(256)) * 500}
    for key, data in before.items():
        store.put(key, data)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    options = {"endpoint_url": store.server.endpoint, "region": "us-east-1"}
    url = f"s3://{store.bucket}/pre fix/"
    with staging(tmp_path, url, changed="pinned", sources=(SourceConfig(url, "", options),)) as context:
        go(context, upto="plan")
        for key in ("d0/0", "d1/4", "giant"):
            store.put(key, b"changed meanwhile")
        store.remove("d2/5")
        go(context, after="plan")
        release = context.layout("data").current.resolve()
        assert content(release / "data") == {k.encode(): d for k, d in before.items()}
        records = [r for some in read_manifest(release / "manifest.parquet") for r in some]
        assert all(record.version for record in records)
        second = go(context)
        found = content(context.layout("data").current.resolve() / "data")
        assert found[b"giant"] == b"changed meanwhile"
        assert b"d2/5" not in found
        assert second["release"] != release.name
