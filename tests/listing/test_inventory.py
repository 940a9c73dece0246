"""Listings from S3 Inventories, against what a real S3 server lists itself."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.listing.conftest import PREFIX
from tests.support import inventories
from tests.support.inventories import OPTIONAL, Made, made, row
from tests.support.staging_runs import context_for, events_of

from penstock.config.settings import SourceConfig
from penstock.core.errors import PreflightError
from penstock.core.model import Listed
from penstock.doctor import preflight_step
from penstock.listing.collection import open_sources
from penstock.listing.inventory import age
from penstock.listing.listers import stated
from penstock.run import list_step

if TYPE_CHECKING:
    from pathlib import Path

    from tests.listing.conftest import Bucket

    from penstock.dataset.context import Context

KINDS = ("CSV", "Parquet", "ORC")
VERSIONS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", *OPTIONAL)


def write(folder: Path, made: Made) -> Path:
    """An inventory as files; the path of its manifest."""
    for name, content in made.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / made.manifest


def offline(tmp_path: Path, inventory: Path | str, bucket: str = "bucket", prefix: str = "p/") -> Context:
    """A context whose source is a bucket that is never asked."""
    context = context_for(tmp_path, f"s3://{bucket}/{prefix}")
    config = SourceConfig(
        f"s3://{bucket}/{prefix}",
        inventory=str(inventory),
        storage_options={"anon": True, "region": "us-east-1"},
    )
    dataset = replace(context.dataset("data"), sources=(config,))
    return replace(context, config=replace(context.config, datasets={"data": dataset}))


def listing(context: Context, scratch: Path) -> tuple[list[Listed], dict[str, int]]:
    """What the inventory of the context's one source lists, and what it leaves out."""
    dataset = context.dataset("data")
    (source,) = open_sources(dataset)
    scratch.mkdir(exist_ok=True)
    lister = stated(context, dataset, dataset.sources[0], source, scratch)
    assert lister is not None
    return [one for batch in lister.list() for one in batch], dict(lister.ignored)


def numbered(count: int) -> list[Listed]:
    return [Listed(f"k{n:04d}", n, f"tag{n}", 1_700_000_000_123_000_000 + n * 10**6) for n in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_inventory_lists_what_the_bucket_itself_lists(bucket: Bucket, tmp_path: Path, kind: str) -> None:
    rows = bucket.rows()
    random.Random(3).shuffle(rows)
    url = bucket.deliver(made(rows, kind, bucket=bucket.name, pieces=3))
    plain = list_step.run(bucket.context(), "data")
    context = bucket.context(inventory=url)
    receipt = list_step.run(context, "data")
    assert receipt["listing_digest"] == plain["listing_digest"]
    assert receipt["run"] == plain["run"]
    told = [event.data["text"] for event in events_of(context) if event.kind == "note"]
    assert any(f"listed by the inventory {url}, begun 2026-11-20 01:00 UTC" in text for text in told)
    found, ignored = listing(context, tmp_path / "scratch")
    assert found == bucket.listed()
    assert ignored == {"outside the prefix": 2}


def test_preflight_names_the_inventory_and_its_age(bucket: Bucket) -> None:
    url = bucket.deliver(made(bucket.rows(), "Parquet", bucket=bucket.name))
    result = preflight_step.run(bucket.context(inventory=url), "data")
    (told,) = [one.found for one in result["results"] if one.about == "listing"]
    assert url in told
    assert "days ago" in told or "hours ago" in told


def test_of_several_dates_the_newest_is_taken(bucket: Bucket, tmp_path: Path) -> None:
    rows = bucket.rows()
    old = made(rows[:3], "CSV", bucket=bucket.name, date="2026-11-19T01-00Z")
    bucket.deliver(old)
    new = bucket.deliver(made(rows, "CSV", bucket=bucket.name))
    folder = new.rpartition("/2026")[0]
    for named in (folder, f"{folder}/", new.removesuffix("manifest.json")):
        assert listing(bucket.context(inventory=named), tmp_path / "scratch")[0] == bucket.listed()


@pytest.mark.parametrize("kind", KINDS)
def test_delete_markers_older_versions_and_other_buckets_are_left_out(tmp_path: Path, kind: str) -> None:
    listed = numbered(5)
    rows = [row("bucket", "p/", one, VersionId=f"v{one.key}") for one in listed]
    gone = row("bucket", "p/", listed[0], Key="p/gone", IsDeleteMarker=True, Size=None, ETag=None)
    rows += [
        gone,
        dict(rows[1], IsLatest=False, VersionId="older", ETag="another"),
        dict(rows[2], Bucket="elsewhere"),
        dict(rows[3], Key="q/k0003"),
        dict(rows[4], Key="p/", Size=0),
    ]
    manifest = write(tmp_path, made(rows, kind, bucket="bucket", columns=VERSIONS))
    found, ignored = listing(offline(tmp_path, manifest), tmp_path / "scratch")
    assert found == listed
    assert ignored == {
        "delete markers": 1, "older versions": 1, "other buckets": 1, "outside the prefix": 1,
    }  # fmt: skip


def test_with_pinned_versions_the_inventory_states_them(tmp_path: Path) -> None:
    listed = [one._replace(version=f"v-{one.key}") for one in numbered(4)]
    rows = [row("bucket", "p/", one) for one in listed]
    manifest = write(tmp_path, made(rows, "ORC", bucket="bucket", columns=VERSIONS))
    context = offline(tmp_path, manifest)
    dataset = replace(context.dataset("data"), changed="pinned")
    (source,) = open_sources(dataset)
    source.versioned = lambda: True  # type: ignore[attr-defined]
    lister = stated(context, dataset, dataset.sources[0], source, tmp_path)
    assert lister is not None
    assert [one for batch in lister.list() for one in batch] == listed


def refusal(tmp_path: Path, inventory: Path | str) -> str:
    with pytest.raises(PreflightError) as caught:
        listing(offline(tmp_path, inventory), tmp_path / "scratch")
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_file_with_another_md5_is_refused_before_it_is_used(tmp_path: Path, kind: str) -> None:
    inventory = made([row("bucket", "p/", one) for one in numbered(50)], kind, bucket="bucket")
    name = inventory.stated()[1]["key"]
    content = bytearray(inventory.files[name])
    content[len(content) // 2] ^= 1
    inventory.files[name] = bytes(content)
    text = refusal(tmp_path, write(tmp_path, inventory))
    assert "not the one that its manifest states" in text
    assert hashlib.md5(content).hexdigest() in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_data_file_is_refused_also_where_its_manifest_agrees(tmp_path: Path, kind: str) -> None:
    inventory = made([row("bucket", "p/", one) for one in numbered(5000)], kind, bucket="bucket")
    files = inventory.stated()
    content = inventory.files[files[0]["key"]][:-100]
    inventory.files[files[0]["key"]] = content
    assert "not the one that its manifest states" in refusal(tmp_path, write(tmp_path, inventory))
    files[0] |= {"size": len(content), "MD5checksum": hashlib.md5(content).hexdigest()}
    inventory.state(files=files)
    assert "a file of the inventory cannot be read" in refusal(tmp_path, write(tmp_path, inventory))


def test_a_manifest_that_its_checksum_contradicts_is_refused(tmp_path: Path) -> None:
    inventory = made([row("bucket", "p/", one) for one in numbered(3)], "CSV", bucket="bucket")
    inventory.files[inventory.manifest] += b" "
    text = refusal(tmp_path, write(tmp_path, inventory))
    assert "the inventory's manifest is damaged" in text
    inventory.files.pop(inventory.manifest.removesuffix("json") + "checksum")
    (tmp_path / inventory.manifest).with_name("manifest.checksum").unlink()
    assert len(listing(offline(tmp_path, write(tmp_path, inventory)), tmp_path / "scratch")[0]) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", ["Size", "LastModifiedDate", "ETag"])
def test_a_column_that_is_needed_and_missing_is_named(tmp_path: Path, kind: str, missing: str) -> None:
    columns = [name for name in ("Bucket", "Key", *OPTIONAL) if name != missing]
    rows = [row("bucket", "p/", one) for one in numbered(3)]
    text = refusal(tmp_path, write(tmp_path, made(rows, kind, bucket="bucket", columns=columns)))
    assert f"the inventory has no column {missing}" in text


def test_versions_without_a_word_on_the_newest_are_refused(tmp_path: Path) -> None:
    columns = [name for name in VERSIONS if name != "IsLatest"]
    rows = [row("bucket", "p/", one) for one in numbered(3)]
    text = refusal(tmp_path, write(tmp_path, made(rows, "CSV", bucket="bucket", columns=columns)))
    assert "the inventory has no column IsLatest" in text


def test_the_inventory_of_another_bucket_is_refused(tmp_path: Path) -> None:
    rows = [row("bucket", "p/", one) for one in numbered(3)]
    text = refusal(tmp_path, write(tmp_path, made(rows, "CSV", bucket="another")))
    assert "the inventory is another bucket's" in text
    assert '"another"' in text


def test_times_that_are_numbers_without_a_unit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(inventories._TYPES, "LastModifiedDate", pa.int64())
    manifest = write(
        tmp_path, made([row("bucket", "p/", one) for one in numbered(3)], "Parquet", bucket="bucket")
    )
    with pytest.raises(PreflightError, match="cannot be read") as caught:
        listing(offline(tmp_path, manifest), tmp_path / "scratch")
    assert "its times are numbers (int64)" in str(caught.value)


def test_a_key_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    rows = [row("bucket", "p/", one) for one in numbered(3)]
    from penstock.core.errors import FailedError

    again = row("bucket", "p/", numbered(3)[1]._replace(size=99))
    manifest = write(tmp_path, made([*rows, again], "Parquet", bucket="bucket"))
    with pytest.raises(FailedError, match="has a key twice, and not alike"):
        listing(offline(tmp_path, manifest), tmp_path / "scratch")


def test_a_key_that_is_listed_twice_and_alike_is_counted(tmp_path: Path) -> None:
    rows = [row("bucket", "p/", one) for one in numbered(3)]
    inventory = offline(tmp_path, write(tmp_path, made([*rows, rows[1]], "Parquet", bucket="bucket")))
    objects, ignored = listing(inventory, tmp_path / "scratch")
    assert len(objects) == 3
    assert ignored == {"named twice": 1}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"sourceBucket": "bucket"}', b'{"files": 3}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    assert "this is no manifest of an S3 Inventory" in refusal(tmp_path, tmp_path / "manifest.json")


def test_a_missing_inventory_and_a_missing_data_file_are_named(tmp_path: Path) -> None:
    assert "there is no inventory" in refusal(tmp_path, tmp_path / "nowhere")
    inventory = made([row("bucket", "p/", one) for one in numbered(3)], "CSV", bucket="bucket")
    name = inventory.stated()[0]["key"]
    del inventory.files[name]
    assert name in refusal(tmp_path, write(tmp_path, inventory))


def test_a_copy_of_an_inventory_may_have_lost_the_folders_above_it(tmp_path: Path) -> None:
    listed = numbered(9)
    inventory = made([row("bucket", "p/", one) for one in listed], "CSV", bucket="bucket", pieces=3)
    for name, content in inventory.files.items():
        (tmp_path / name.rpartition("/")[2]).write_bytes(content)
    assert listing(offline(tmp_path, tmp_path), tmp_path / "scratch")[0] == listed


def test_nothing_that_was_fetched_or_sorted_stays_behind(tmp_path: Path) -> None:
    manifest = write(
        tmp_path, made([row("bucket", "p/", one) for one in numbered(9)], "CSV", bucket="bucket")
    )
    listing(offline(tmp_path, manifest), tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []


KEYS = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=30
)
OBJECTS = st.dictionaries(
    KEYS,
    st.tuples(
        st.integers(0, 5 * 2**40), st.text("0123456789abcdef-", min_size=1), st.integers(0, 4_000_000_000_000)
    ),
    max_size=60,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects=OBJECTS, kind=st.sampled_from(KINDS), pieces=st.integers(1, 4))
def test_an_inventory_of_any_objects_lists_them_in_the_order_of_their_bytes(
    tmp_path: Path, objects: dict[str, Any], kind: str, pieces: int
) -> None:
    listed = [Listed(key, size, tag, ms * 10**6) for key, (size, tag, ms) in objects.items()]
    rows = [row("bucket", PREFIX, one) for one in listed]
    manifest = write(tmp_path, made(rows, kind, bucket="bucket", pieces=pieces))
    found, _ = listing(offline(tmp_path, manifest, prefix=PREFIX), tmp_path / "scratch")
    assert found == sorted(listed, key=lambda one: one.key.encode())


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        (0, "which does not say how old it is"),
        (1_000_000_000_000, "begun 2001-09-09 01:46 UTC, 5 hours ago"),
        (1_000_000_000_000 - 3 * 86400_000, "begun 2001-09-06 01:46 UTC, 3 days ago"),
    ],
)
def test_the_age_of_an_inventory_is_said(begun: int, told: str) -> None:
    assert age(begun, 1_000_000_000 + 5 * 3600).startswith(told)
