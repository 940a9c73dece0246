"""By what a tree is compared with its source: a checksum that is stated, the source's bytes, or nothing but
the size."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.adoption.conftest import FILES, GIANTS
from tests.adoption.test_comparing import compared, flip, found, same
from tests.support.s3server import S3Server
from tests.support.staging_runs import context_for, tree

from penstock.config.settings import PlanConfig, SourceConfig
from penstock.run import adopt_step
from penstock.run.adopt_step import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from tests.adoption.conftest import Place

    from penstock.core.step_results import AdoptionResult


def from_s3(
    tmp_path: Path, server: S3Server, copy: Path, *, plan: PlanConfig = GIANTS, read_source: bool = False
) -> AdoptionResult:
    options = {"endpoint_url": server.endpoint, "anon": True}
    context = context_for(
        tmp_path, server.url(), sources=(SourceConfig(server.url(), "", options),), plan=plan
    )
    try:
        return adopt_step.run(context, "data", Request(copy, read_source=read_source))
    finally:
        context.cluster.close()  # type: ignore[attr-defined]


def test_what_a_store_states_is_compared_without_reading_an_object(
    tmp_path: Path, copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = tree(tmp_path / "source", FILES)
    copy = copied(source)
    flip(copy / "d0/f00", 7)
    with S3Server(source, options=("--checksums",)) as server:
        result = from_s3(tmp_path, server, copy, plan=PlanConfig())
        got = {one.key for one in server.requests() if one.method == "GET"}
    assert found(result) == {("content", "d0/f00")}
    (one,) = adopt_step.differences(result)
    assert one.how == "checksum"
    assert {how for how, _ in same(result)} == {"checksum"}
    assert result["status"] == "DIFFERS"
    assert not got & FILES.keys()


def test_checksum_files_beside_the_data_prove_the_tree(place: Place) -> None:
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in FILES.items())
    for root in (place.source, place.copy):
        (root / "SHA256SUMS").write_text(sums)
    context, old = place.context, place.context.config.datasets["data"]
    dataset = replace(old, checksums=("SHA256SUMS",), exclude=("SHA256SUMS",))
    context.config = replace(context.config, datasets={"data": dataset})
    flip(place.copy / "big/giant", 4_000_000)
    flip(place.copy / "d1/f01", 4)
    result = compared(place)
    assert found(result) == {("content", "big/giant"), ("content", "d1/f01"), ("excluded", "SHA256SUMS")}
    assert same(result) == {("checksum", "full"): 32}


def test_a_giant_is_read_in_parts_and_compared_as_a_whole(
    tmp_path: Path, copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = tree(tmp_path / "source", {"giant": FILES["big/giant"], "small": b"small"})
    copy = copied(source)
    with S3Server(source, options=("--checksums",)) as server:
        good = from_s3(tmp_path, server, copy, read_source=True)
        flip(copy / "giant", 2_500_000)
        bad = from_s3(tmp_path, server, copy, read_source=True)
    assert good["status"] == "SAME"
    assert sum(good["methods"].values()) == 7
    assert found(bad) == {("content", "giant")}
    # The parts that were not touched are known by the file they stand in, which was.
    assert bad["earlier"] == 1


def test_an_unreadable_file_is_told_and_the_rest_is_compared(place: Place) -> None:
    import os

    from tests.support.forked import forked

    if os.geteuid() != 0:
        return
    (place.copy / "d0/f00").chmod(0)
    (place.copy / "d1").chmod(0)
    for path in (place.copy.parent, *place.copy.parent.parents):
        if path.stat().st_uid == 0 and str(path).startswith("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)

    def work() -> tuple[str, list[tuple[str, str]]]:
        os.environ["XDG_STATE_HOME"] = f"/tmp/penstock-adopt-{os.getpid()}"
        result = compared(place, read_source=True)
        told = sorted(found(result))
        import shutil

        shutil.rmtree(os.environ["XDG_STATE_HOME"])
        return result["status"], told

    status, told = forked(work, uid=2005)
    assert status == "DIFFERS"
    assert ("unread", "d0/f00") in told
    assert ("unread", "d1/") in told
    assert {path for kind, path in told if kind == "unread"} >= {f"d1/f{i:02d}" for i in range(1, 30, 3)}
    assert {kind for kind, _ in told} == {"unread"}
