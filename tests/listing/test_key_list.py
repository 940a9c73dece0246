"""Lists of keys as listings: of a folder, and of a bucket of a real S3 server."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import SourceConfig
from penstock.core.errors import PreflightError
from penstock.core.model import Listed, SourceChecksum
from penstock.doctor import preflight_step
from penstock.listing.collection import open_sources
from penstock.listing.listers import stated
from penstock.listing.outside_lists import joined
from penstock.run import list_step
from penstock.tables import stated_lists
from penstock.tables.run_tables import read_listing
from penstock.tables.stated_lists import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.listing.conftest import Bucket

    from penstock.dataset.context import Context

FILES = {
    "a b": b"1",
    "line\nfeed": b"22",
    os.fsdecode(b"\xff\xfe/\xe9"): b"333",
    "d/%41": b"",
    "d/+": b"4",
    "z": b"5",
}


def folder_context(tmp_path: Path, listed: Path, **changes: Any) -> Context:
    """A folder with FILES and one more, of which the list names what is staged."""
    source = tmp_path / "source"
    if not source.exists():
        tree(source, {**FILES, "unlisted": b"6"})
    context = context_for(tmp_path, source, **changes)
    config = SourceConfig(str(source), list_from=str(listed))
    dataset = replace(context.dataset("data"), sources=(config,))
    return replace(context, config=replace(context.config, datasets={"data": dataset}))


def rows(context: Context) -> list[Listed]:
    """What the context's one source lists."""
    dataset = context.dataset("data")
    (source,) = open_sources(dataset)
    scratch = context.layout("data").root / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    lister = stated(context, dataset, dataset.sources[0], source, scratch)
    assert lister is not None
    return [one for batch in lister.list() for one in batch]


def refusal(context: Context) -> str:
    with pytest.raises(PreflightError) as caught:
        list_step.run(context, "data")
    assert not context.layout("data").root.exists()
    return str(caught.value)


def in_csv(path: Path, columns: Sequence[str], values: Sequence[Sequence[object]]) -> Path:
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(values)
    return path


def plain(path: Path, keys: Sequence[str], end: bytes, *, compressed: bool = False) -> Path:
    content = b"".join(os.fsencode(key) + end for key in keys)
    path.write_bytes(gzip.compress(content) if compressed else content)
    return path


@pytest.mark.parametrize("name", ["keys", "keys.nul", "keys.gz", "keys.csv", "keys.parquet", "table"])
def test_what_a_list_names_is_listed_as_the_folder_itself_lists_it(tmp_path: Path, name: str) -> None:
    keys = [key for key in reversed(FILES) if name != "keys" or "\n" not in key]
    path = tmp_path / name
    if name == "keys.csv":
        in_csv(path, ["name of it", "Key"], [[1, key] for key in keys])
    elif name in ("keys.parquet", "table"):
        pq.write_table(pa.table({"key": [os.fsencode(key) for key in keys]}), path)
    else:
        plain(path, keys, b"\n" if name == "keys" else b"\0", compressed=name == "keys.gz")
    context = folder_context(tmp_path, path)
    receipt = list_step.run(context, "data")
    layout = context.layout("data")
    found = [one for batch in read_listing(layout.run(receipt["run"]).listing) for one in batch]
    by_itself = context_for(tmp_path / "other", tmp_path / "source", exclude=("unlisted",))
    (source,) = open_sources(by_itself.dataset("data"))
    listed = {one.key: one for batch in source.list() for one in batch if one.key in keys}
    assert [(one.key, one.size, one.token) for one in found] == [
        (key, listed[key].size, listed[key].token) for key in sorted(keys, key=os.fsencode)
    ]


def test_a_list_of_everything_makes_the_same_run_as_the_folders_own_listing(tmp_path: Path) -> None:
    path = plain(tmp_path / "keys", [*FILES, "unlisted"], b"\0")
    receipt = list_step.run(folder_context(tmp_path, path), "data")
    itself = list_step.run(context_for(tmp_path, tmp_path / "source"), "data")
    assert (itself["run"], itself["listing_digest"]) == (receipt["run"], receipt["listing_digest"])


def test_list_and_preflight_name_the_list(tmp_path: Path) -> None:
    path = plain(tmp_path / "keys", ["z"], b"\n")
    context = folder_context(tmp_path, path)
    list_step.run(context, "data")
    told = [event.data["text"] for event in events_of(context) if event.kind == "note"]
    assert any(f"listed by the keys of {path}" in text for text in told)
    results = preflight_step.run(context, "data")["results"]
    assert any(str(path) in one.found for one in results if one.about == "listing")


def test_keys_that_begin_with_the_source_are_relative_to_it(tmp_path: Path) -> None:
    path = plain(tmp_path / "keys", [f"{tmp_path}/source/a b", f"file://{tmp_path}/source/z"], b"\n")
    assert [one.key for one in rows(folder_context(tmp_path, path))] == ["a b", "z"]


def test_what_the_filter_leaves_out_is_asked_of_nobody(tmp_path: Path) -> None:
    path = plain(tmp_path / "keys", ["a b", "missing.log"], b"\n")
    receipt = list_step.run(folder_context(tmp_path, path, exclude=("*.log",)), "data")
    assert (receipt["files"], receipt["ignored"]["filtered"]) == (1, 1)


def test_what_is_not_at_the_source_is_named(tmp_path: Path) -> None:
    text = refusal(folder_context(tmp_path, plain(tmp_path / "keys", ["a b", "gone", "../up"], b"\n")))
    assert "2 keys of the list cannot be staged" in text
    assert '"gone" is not at the source' in text
    assert '"../up"' in text


def test_a_size_or_version_that_the_source_contradicts_is_named(tmp_path: Path) -> None:
    path = in_csv(tmp_path / "keys.csv", ["key", "size", "etag"], [["a b", 7, ""], ["z", "", "abc"]])
    text = refusal(folder_context(tmp_path, path))
    assert '"a b" has 1 bytes at the source, and 7 in the list' in text
    assert "and abc in the list" in text


def test_a_key_that_is_named_twice_is_merged_unless_it_is_contradicted(tmp_path: Path) -> None:
    path = in_csv(tmp_path / "keys.csv", ["key", "size"], [["z", ""], ["a b", 1], ["z", 1], ["z", 1]])
    receipt = list_step.run(folder_context(tmp_path, path), "data")
    assert (receipt["files"], receipt["ignored"]["named twice"]) == (2, 2)
    other = tmp_path / "other"
    other.mkdir()
    path = in_csv(other / "keys.csv", ["key", "size"], [["z", 2], ["z", 1]])
    assert '"z" is listed twice, and differs: 2 bytes; 1 bytes' in refusal(folder_context(other, path))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Listed("k", -1, "", 0), Listed("k", 5, "t", 7), Listed("k", 5, "t", 7)),
        (Listed("k", 5, "", 0, "v"), Listed("k", 5, "t", 0), Listed("k", 5, "t", 0, "v")),
        (Listed("k", 5, "", 0), Listed("k", 6, "", 0), None),
        (Listed("k", 5, "t", 0), Listed("k", 5, "u", 0), None),
        (Listed("k", 5, "t", 1), Listed("k", 5, "t", 2), None),
        (Listed("k", 5, "t", 1, "v"), Listed("k", 5, "t", 1, "w"), None),
    ],
)
def test_two_rows_of_one_key_are_joined(one: Listed, other: Listed, both: Listed | None) -> None:
    assert joined(one, other) == joined(other, one) == both


def numbers_for_times() -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table({"key": ["x"], "mtime": [1706662923]}), written)
    return written.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("keys.csv", b"name,size\nx,1\n", "no column `key`; its columns are name, size"),
        ("keys.csv", b"key,path\nx,1\n", 'two columns state the key: "key" and "path"'),
        ("keys.csv", b"key,size\nx,-1\n", '"x" has the size "-1"'),
        ("keys.csv", b"key,size\nx\n", "line 2 has 1 values, the header 2"),
        ("keys.csv", b'key,size\n"x,1\n', "unexpected end of data"),
        ("keys.csv", b"key,checksum\nx,md5:12\n", '"x" has the checksum "md5:12"'),
        ("keys.csv", b"key,modified\nx,yesterday\n", '"x" has the time "yesterday"'),
        ("keys.csv", b"key,modified\nx,1706662923\n", '"x" has the time "1706662923"'),
        ("keys.parquet", numbers_for_times(), "its times are numbers (int64)"),
        ("keys.csv.gz", gzip.compress(b"key\nx\n" * 9000)[:-20], "end-of-stream"),
        ("keys.parquet", b"PAR1PAR1", "a list of keys cannot be read"),
        ("keys", b"x" * 70_000, "this is no such list"),
        ("keys", b"", "the list of keys is empty"),
        ("keys", b"\n\n", "the list of keys is empty"),
    ],
)
def test_what_is_no_list_is_refused_with_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert told in refusal(folder_context(tmp_path, tmp_path / name))


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    assert "there is no list of keys" in refusal(folder_context(tmp_path, tmp_path / "nowhere"))


def test_a_bucket_is_asked_for_what_the_list_does_not_state(bucket: Bucket, tmp_path: Path) -> None:
    listed = {one.key: one for one in bucket.listed()}
    path = plain(tmp_path / "keys", list(listed), b"\0")
    found = {one.key: one for one in rows(bucket.context(list_from=str(path)))}
    assert list(found) == sorted(listed, key=os.fsencode)
    for key, one in listed.items():
        assert found[key]._replace(modified_ns=0) == one._replace(modified_ns=0)
        assert found[key].modified_ns // 10**9 == one.modified_ns // 10**9


def test_a_bucket_is_asked_nothing_of_what_the_list_states(bucket: Bucket, tmp_path: Path) -> None:
    listed = [one._replace(modified_ns=one.modified_ns // 1000 * 1000) for one in bucket.listed()]
    sums = {
        one.key: str(SourceChecksum("md5", "full", hashlib.md5(one.key.encode()).hexdigest()))
        for one in listed
    }
    rows_of_list = [
        [one.key, one.size, f'"{one.token}"', moment(one.modified_ns), sums[one.key].replace(":full", "")]
        for one in listed
    ]
    path = in_csv(tmp_path / "keys.csv", ["key", "size", "ETag", "LastModified", "checksum"], rows_of_list)
    context = bucket.context(list_from=str(path))
    wrong = {"endpoint_url": "http://127.0.0.1:9", "anon": True}
    dataset = context.dataset("data")
    config = replace(dataset.sources[0], storage_options=wrong)
    context = replace(
        context, config=replace(context.config, datasets={"data": replace(dataset, sources=(config,))})
    )
    assert rows(context) == [one._replace(checksum=sums[one.key]) for one in listed]


def test_a_list_may_lie_in_a_bucket(bucket: Bucket) -> None:
    keys = [one.key for one in bucket.listed()][:4]
    bucket.put("lists/some", b"".join(key.encode() + b"\n" for key in keys))
    found = rows(bucket.context(list_from=f"s3://{bucket.name}/lists/some"))
    assert [one.key for one in found] == keys


def test_a_bucket_is_not_listed_where_a_list_names_its_objects(bucket: Bucket, tmp_path: Path) -> None:
    keys = [one.key for one in bucket.listed()]
    context = bucket.context(list_from=str(plain(tmp_path / "keys", keys, b"\n")))
    before = len(bucket.asked())
    receipt = list_step.run(context, "data")
    asked = bucket.asked()[before:]
    assert receipt["files"] == len(keys)
    # The first one is asked for before all others.
    assert [line for line in asked if "HeadObject" not in line] == []
    assert len(asked) == len(keys) + 1


def moment(ns: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)).isoformat()


KEYS = st.binary(min_size=1, max_size=20).filter(lambda key: b"\0" not in key).map(os.fsdecode)
COLUMNS: Mapping[str, st.SearchStrategy[Any]] = {
    "size": st.integers(0, 1 << 60),
    "token": st.text("0123456789abcdef-", min_size=1, max_size=40),
    "version": st.text("0123456789abcdef", min_size=1, max_size=40),
}


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1\n", b"PAR1\0"])
def test_a_key_that_begins_as_a_parquet_file_does_is_a_key(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list").write_bytes(content)
    assert [one.key for batch in stated_lists.read_keys(tmp_path / "list", "list") for one in batch] == [
        "PAR1"
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    listed=st.lists(
        st.builds(Listed, KEYS, *COLUMNS.values()).map(lambda r: Listed(r[0], r[1], r[2], 0, r[3])),
        min_size=1,
    ),
    compressed=st.booleans(),
)
def test_what_a_list_states_is_read_byte_for_byte(
    tmp_path: Path, listed: list[Listed], compressed: bool
) -> None:
    path = tmp_path / "list"
    bare = [Listed(one.key, UNKNOWN, "", 0) for one in listed]
    plain(path, [one.key for one in listed], b"\0", compressed=compressed)
    assert [one for batch in stated_lists.read_keys(path, "list") for one in batch] == bare
    in_csv(
        path,
        ["key", "size", "token", "version"],
        [[one.key, one.size, one.token, one.version] for one in listed],
    )
    assert [one for batch in stated_lists.read_keys(path, "list.csv") for one in batch] == listed
    columns = {"key": [os.fsencode(one.key) for one in listed], "size": [one.size for one in listed]}
    pq.write_table(pa.table(columns), path)
    sizes = [Listed(one.key, one.size, "", 0) for one in listed]
    assert [one for batch in stated_lists.read_keys(path, "list") for one in batch] == sizes
