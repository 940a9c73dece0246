"""Composite checksums of objects whose parts are not alike, and etags that are no MD5s: whole, right objects
are taken, and what is wrong is still refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.engine_runs import ShardRun, read_tree, shard_run
from tests.support.hostile import Hostile
from tests.support.whole_way import go, staging

from penstock.config.settings import PlanConfig, SourceConfig, VerifyConfig
from penstock.engine import journal

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
MIXED = [8, 4, 12, 8]
"""The first and the last fit four parts of the first one's size."""
ALIKE = [8, 8, 8, 4]


def data_of(sizes: list[int], unit: int) -> bytes:
    total = sum(sizes) * unit
    return (b"".join(number.to_bytes(4, "big") for number in range(4096)) * (total // 16384 + 1))[:total]


def grades(run: ShardRun) -> list[str]:
    return [one.source_grade for one in journal.replay(run.journals, run.shard.digest).values()]


def served(server: Hostile, folder: Path, **changes: Any) -> ShardRun:
    return shard_run(folder, f"s3://{server.bucket}/", endpoint_url=server.endpoint, anon=True, **changes)


def uploaded(sizes: list[int], unit: int, mode: str = "") -> Hostile:
    server = Hostile({"x": data_of(sizes, unit)}, {"x": mode} if mode else {})
    server.uploads["x"] = [size * unit for size in sizes]
    return server


@pytest.mark.parametrize("unit", [1 << 10, 100 << 10], ids=["small", "large"])
@pytest.mark.parametrize(
    ("sizes", "mode", "grade", "asked"),
    [
        (ALIKE, "", "composite", 2),
        (MIXED, "", "composite", 6),
        (MIXED, "nosizes", "size", 4),
    ],
)
def test_an_object_of_mixed_parts(
    tmp_path: Path, sizes: list[int], mode: str, grade: str, asked: int, unit: int
) -> None:
    """All sizes are asked for only where a composite does not hold."""
    with uploaded(sizes, unit, mode) as server:
        run = served(server, tmp_path)
        outcome = run.copy(engine={"workers": 1})
        assert outcome.failures == []
        assert read_tree(run.data) == server.objects
        assert grades(run) == [grade]
        heads = sum("partNumber" in one.query for one in server.asked if one.method == "HEAD")
        # What is read again asks for the first and the last once more.
        assert heads in (asked, asked + 2)


@pytest.mark.parametrize(
    ("sizes", "unit"),
    [(MIXED, 1 << 10), (MIXED, 100 << 10), (ALIKE, 100 << 10)],
    ids=["mixed and small", "mixed and large", "alike and large"],
)
def test_wrong_bytes_contradict_the_composite_of_any_parts(
    tmp_path: Path, sizes: list[int], unit: int
) -> None:
    with uploaded(sizes, unit, "flip") as server:
        run = served(server, tmp_path)
        (failure,) = run.copy(engine={"workers": 1}).failures
        assert "contradict" in failure.why
        assert read_tree(run.data) == {}


def test_no_proof_where_one_is_required(tmp_path: Path) -> None:
    with uploaded(MIXED, 1 << 10, "nosizes") as server:
        run = served(server, tmp_path)
        (failure,) = run.copy(engine={"workers": 1}, verify=VerifyConfig(source_checksum="require")).failures
        assert "sizes of its parts are not known" in failure.why
        assert failure.exit_code == 4


def test_an_object_that_is_copied_in_parts(tmp_path: Path) -> None:
    """Its sums join at the cuts that were assumed, and its own lie elsewhere: `size`, not a contradiction."""
    with uploaded(MIXED, MIB // 4) as server:
        run = served(server, tmp_path)
        outcome = run.copy(engine={"workers": 1}, large_bytes=MIB, part_bytes=2 * MIB)
        assert outcome.failures == []
        assert read_tree(run.data) == server.objects
        assert grades(run) == ["size"]


@pytest.mark.parametrize("unit", [MIB // 4, 300 << 10], ids=["joined", "owed"])
def test_an_object_that_is_copied_in_parts_is_proven_where_that_is_required(
    tmp_path: Path, unit: int
) -> None:
    """What its parts cannot prove together is read in order, by one stream, and computed by its own cuts:
    recorded as `size` it would be refused by publish, for ever."""
    with uploaded(MIXED, unit) as server:
        run = served(server, tmp_path)
        verify = VerifyConfig(source_checksum="require")
        outcome = run.copy(engine={"workers": 1}, large_bytes=MIB, part_bytes=2 * MIB, verify=verify)
        assert outcome.failures == []
        assert read_tree(run.data) == server.objects
        assert grades(run) == ["composite"]


def test_a_giant_of_mixed_parts_is_published(tmp_path: Path) -> None:
    with uploaded(MIXED, 1 << 18) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        plan = PlanConfig(giant_bytes=4 * MIB, part_bytes=2 * MIB)
        source = SourceConfig("s3://bucket/", "", options)
        with staging(tmp_path, "s3://bucket/", sources=(source,), plan=plan) as context:
            receipt = go(context)
        assert receipt["evidence"]["source"]["size"]["files"] == 1


def looks_like_an_md5(server: Hostile) -> str:
    server.etags["x"] = hashlib.md5(b"something else", usedforsecurity=False).hexdigest()
    return server.etags["x"]


def test_an_etag_that_is_no_md5_and_looks_like_one(tmp_path: Path) -> None:
    with Hostile({"x": b"data" * 100, "y": b"more"}) as server:
        looks_like_an_md5(server)
        run = served(server, tmp_path)
        (failure,) = run.copy(engine={"workers": 1}).failures
        assert "contradict" in failure.why
        assert "verify.source_checksum: stated" in failure.why
        outcome = run.copy(engine={"workers": 1}, verify=VerifyConfig(source_checksum="stated"))
        assert outcome.failures == []
        assert read_tree(run.data) == server.objects


@pytest.mark.parametrize(
    ("policy", "mode", "grade"),
    [
        ("auto", "", "etag-md5"),
        ("stated", "", "size"),
        ("fast", "", "size"),
        ("auto", "crc", "full"),
        ("stated", "crc", "full"),
        ("fast", "crc", "full"),
    ],
)
def test_what_counts(tmp_path: Path, policy: str, mode: str, grade: str) -> None:
    data = b"data" * 100
    with Hostile({"x": data}, {"x": mode} if mode else {}) as server:
        server.etags["x"] = hashlib.md5(data, usedforsecurity=False).hexdigest()
        run = served(server, tmp_path)
        run.copy(engine={"workers": 1}, verify=VerifyConfig(source_checksum=policy))
        assert grades(run) == [grade]
