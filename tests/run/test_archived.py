"""Objects that must be restored before they can be read: refused by plan, or left out on wish."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.conftest import AzuriteStore
from tests.support.azurite import Azurite
from tests.support.go_servers import UnavailableError
from tests.support.hostile import Hostile
from tests.support.whole_way import content, go, staging, texts

from penstock.config.settings import SourceConfig
from penstock.core.errors import PreflightError
from penstock.sources.port import open_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

OBJECTS = {"p/a": b"1" * 10, "p/b": b"2" * 2000, "p/c": b"3" * 3000, "p/d": b"4" * 4000, "p/e": b"5"}
CLASSES = {"p/b": "GLACIER", "p/c": "DEEP_ARCHIVE", "p/d": "GLACIER", "p/e": "GLACIER_IR"}


@pytest.fixture
def server() -> Iterator[Hostile]:
    with Hostile(OBJECTS, page=2) as running:
        running.classes = dict(CLASSES)
        yield running


def source(server: Hostile, url: str = "s3://bucket/p/", **more: Any) -> dict[str, Any]:
    options = {"endpoint_url": server.endpoint, "anon": True}
    return {"sources": (SourceConfig(url, "", options, **more),)}


def skip(context: Context, archived: str) -> None:
    dataset = context.dataset("data")
    (one,) = dataset.sources
    dataset = replace(dataset, sources=(replace(one, archived=archived),))
    context.config = replace(context.config, datasets={"data": dataset})


def gets(server: Hostile) -> int:
    return sum(asked.method == "GET" and bool(asked.key) for asked in server.asked)


def test_s2_plan_refuses_archived_objects_by_class_before_a_byte(tmp_path: Path, server: Hostile) -> None:
    with staging(tmp_path, "", **source(server)) as context:
        with pytest.raises(PreflightError, match="archived and cannot be read") as caught:
            go(context, upto="plan")
        text = str(caught.value)
        for part in (
            "1 object, 2.93 KiB, DEEP_ARCHIVE; 2 objects, 5.86 KiB, GLACIER", "b: GLACIER, 1.95 KiB",
            "c: DEEP", "`archived: skip`",
        ):  # fmt: skip
            assert part in text
        assert "e: GLACIER" not in text, "GLACIER_IR is read at once"
        assert gets(server) == 0
        assert not context.layout("data").current.exists()


def test_s2_objects_that_are_restored_meanwhile_are_staged_by_the_same_command(
    tmp_path: Path, server: Hostile
) -> None:
    with staging(tmp_path, "", **source(server)) as context:
        with pytest.raises(PreflightError):
            go(context, upto="plan")
        server.restored = {"p/b": "done", "p/c": "going on", "p/d": "done"}
        with pytest.raises(PreflightError, match=r"1 object, 2\.93 KiB, DEEP_ARCHIVE:") as caught:
            go(context, upto="plan")
        assert "b: GLACIER" not in str(caught.value)
        server.restored["p/c"] = "done"
        go(context)
        assert content(context.layout("data").current / "data") == {
            key[2:].encode(): data for key, data in OBJECTS.items()
        }


def test_s2_on_wish_archived_objects_are_left_out_counted_and_told(tmp_path: Path, server: Hostile) -> None:
    with staging(tmp_path, "", **source(server, archived="skip")) as context:
        receipt = go(context, upto="list")
        assert receipt["ignored"] == {"archived (DEEP_ARCHIVE)": 1, "archived (GLACIER)": 2}
        assert "left out: 2 objects, archived (GLACIER)" in texts(context)
        go(context, after="list")
        current = context.layout("data").current
        assert content(current / "data") == {b"a": OBJECTS["p/a"], b"e": OBJECTS["p/e"]}
        assert json.loads((current / "release.json").read_text())["ignored"] == receipt["ignored"]


def test_s2_an_archived_object_that_is_left_out_may_stand_in_a_checksum_file(
    tmp_path: Path, server: Hostile
) -> None:
    lines = "".join(f"{hashlib.md5(OBJECTS[f'p/{name}']).hexdigest()}  {name}\n" for name in "abcd")
    server.objects["p/md5sums"] = lines.encode()
    with staging(tmp_path, "", **source(server, archived="skip"), checksums=("md5sums",)) as context:
        assert go(context, upto="list")["ignored"] == {"archived (DEEP_ARCHIVE)": 1, "archived (GLACIER)": 2}


def test_s2_what_is_excluded_is_neither_refused_nor_counted_as_archived(
    tmp_path: Path, server: Hostile
) -> None:
    with staging(tmp_path, "", exclude=("b", "c", "d"), **source(server)) as context:
        assert go(context, upto="list")["ignored"] == {"filtered": 3}
        go(context, after="list")


def test_s2_what_a_release_holds_already_may_be_archived(tmp_path: Path, server: Hostile) -> None:
    """Nothing of it is read: lifecycle rules that archive what was staged stop no later run."""
    server.classes = {}
    with staging(tmp_path, "", **source(server)) as context:
        first = go(context)
        server.classes = dict(CLASSES)
        assert go(context, upto="list")["published"], "the same content is the same run"
        server.objects["p/new"] = b"new"
        second = go(context)
        assert second["release"] != first["release"]
        assert len(content(context.layout("data").current / "data")) == len(OBJECTS) + 1
        server.objects["p/b"] = b"changed"
        with pytest.raises(PreflightError, match="1 object, 7 B, GLACIER"):
            go(context, upto="plan")


def test_s2_one_archived_object_as_a_source_is_refused(tmp_path: Path, server: Hostile) -> None:
    with (
        staging(tmp_path, "", **source(server, "s3://bucket/p/b")) as context,
        pytest.raises(PreflightError, match=r"1 object, 1\.95 KiB, GLACIER"),
    ):
        go(context, upto="plan")


@pytest.mark.parametrize(
    ("headers", "archived"),
    [
        ({b"x-amz-storage-class": b"GLACIER"}, "GLACIER"),
        ({b"x-amz-storage-class": b"GLACIER", b"x-amz-restore": b'ongoing-request="true"'}, "GLACIER"),
        (
            {
                b"x-amz-storage-class": b"GLACIER",
                b"x-amz-restore": b'ongoing-request="false", expiry-date="x"',
            },
            "",
        ),
        ({b"x-amz-storage-class": b"GLACIER_IR"}, ""),
        ({b"x-amz-storage-class": b"INTELLIGENT_TIERING"}, ""),
        (
            {b"x-amz-storage-class": b"INTELLIGENT_TIERING", b"x-amz-archive-status": b"ARCHIVE_ACCESS"},
            "ARCHIVE_ACCESS",
        ),
        ({}, ""),
    ],
)
def test_s2_what_a_head_says_of_an_archive(
    server: Hostile, headers: dict[bytes, bytes], archived: str
) -> None:
    from penstock.sources.s3 import S3Source

    dataset = source(server)["sources"][0]
    opened = S3Source(dataset)
    client = opened.client()
    assert client.described(headers).archived == archived
    client.close()


def test_s2_azures_archive_tier_is_refused_and_left_out_on_wish(tmp_path: Path) -> None:
    azurite = Azurite()
    try:
        azurite.start()
    except UnavailableError as error:
        pytest.skip(f"no real Azure Blob server: {error}")
    try:
        store = AzuriteStore(azurite, tmp_path, f"c{uuid.uuid4().hex}")
        store.put("a", b"1")
        store.put("b", b"22")
        store.put("one", b"333")
        for name in ("b", "one"):
            store.container.get_blob_client(f"pre fix/{name}").set_standard_blob_tier("Archive")
        (tmp_path / "staged").mkdir()
        config = SourceConfig(f"{store.url}/", storage_options=store.options)
        with staging(tmp_path / "staged", "", sources=(config,)) as context:
            with pytest.raises(PreflightError, match="2 objects, 5 B, Archive"):
                go(context, upto="plan")
            skip(context, "skip")
            go(context)
            assert content(context.layout("data").current / "data") == {b"a": b"1"}
        single = SourceConfig(f"{store.url}/one", storage_options=store.options)
        opened = open_source(single, replace(context.dataset("data"), sources=(single,)))
        assert [one.archived for batch in opened.list() for one in batch] == ["Archive"]
        store.close()
    finally:
        azurite.stop()
