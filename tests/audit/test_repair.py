"""A repair fetches no more than what is damaged, from the pinned version or not at all, and no reader
ever sees half of it."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

import pytest
from tests.support.published import content, data_of, flip, publish, published
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree

from penstock.cli.commands.audits import render_repair
from penstock.config.settings import PlanConfig
from penstock.core.dataset_documents import Repair
from penstock.core.errors import FailedError, FindingsError
from penstock.dataset import release_records
from penstock.keep import audit_plan, audit_step, repair_step
from penstock.keep.repair_array import HardLinkedDamage, mender_of
from penstock.tables.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

MIB = 1 << 20
FILES = {
    "giant": content(1, 12 * MIB - 5),
    "same": content(2, 9000),
    "changed": content(3, 9000),
    "gone": content(4, 9000),
}


def test_one_damaged_part_of_a_giant_is_one_ranged_get(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", FILES)
    plan = PlanConfig(giant_bytes=4 * MIB, part_bytes=MIB)
    with (
        S3Server(source) as server,
        published(
            tmp_path,
            server.url(),
            plan=plan,
            options={"endpoint_url": server.endpoint, "anon": True},
        ) as context,
    ):
        data = data_of(context)
        flip(data / "giant", 7 * MIB + 1234)
        result = audit_step.run(context, "data")
        assert [(f.path, f.parts) for f in result["findings"]] == [("giant", (7,))]
        before = len(server.requests())
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
        asked = server.requests()[before:]
        assert [(r.method, r.key, r.range) for r in asked if r.method == "GET"] == [
            ("GET", "giant", f"bytes={7 * MIB}-{8 * MIB - 1}")
        ]
        assert (data / "giant").read_bytes() == FILES["giant"]

        # A part that no audit named, and that is bad by now, is not carried over into the new file.
        flip(data / "giant", 3 * MIB)
        audit_step.run(context, "data")
        flip(data / "giant", 9 * MIB)
        before = len(server.requests())
        assert repair_step.run(context, "data")["fetched_bytes"] == 2 * MIB
        assert sorted(r.range for r in server.requests()[before:] if r.method == "GET") == [
            f"bytes={3 * MIB}-{4 * MIB - 1}",
            f"bytes={9 * MIB}-{10 * MIB - 1}",
        ]
        assert (data / "giant").read_bytes() == FILES["giant"]

        # What is no longer the published version is not fetched, and its damage stays as it is.
        for name in ("same", "changed", "gone"):
            flip(data / name, 100)
        (source / "changed").write_bytes(b"other")
        (source / "gone").unlink()
        broken = {name: (data / name).read_bytes() for name in ("changed", "gone")}
        assert audit_step.run(context, "data")["counts"] == {"changed": 3}
        done = repair_step.run(context, "data")
        assert [path for path, _ in done["repaired"]] == ["same"]
        assert [path for path, _ in done["unrepairable"]] == ["changed", "gone"]
        assert {name: (data / name).read_bytes() for name in broken} == broken
        with pytest.raises(FindingsError) as caught:
            repair_step.judge(done)
        assert caught.value.exit_code == 4
        assert "changed" in str(caught.value)
        assert [f.path for f in audit_step.run(context, "data")["findings"]] == ["changed", "gone"]


def test_a_reader_sees_the_old_or_the_new_file_whole(staged: Context, files: dict[str, bytes]) -> None:
    data = data_of(staged)
    good = files["big/giant"]
    flip(data / "big/giant", MIB + 7)
    damaged = (data / "big/giant").read_bytes()
    allowed = {hashlib.sha256(one).digest() for one in (good, damaged)}
    assert audit_step.run(staged, "data")["counts"] == {"changed": 1}
    seen: set[bytes] = set()
    ended, began = threading.Event(), threading.Event()

    def read() -> None:
        while not ended.is_set():
            with (data / "big/giant").open("rb") as stream:
                seen.add(hashlib.sha256(stream.read()).digest())
            began.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with (data / "big/giant").open("rb") as held:
            assert began.wait(60)
            repair_step.run(staged, "data")
            assert held.read() == damaged
    finally:
        ended.set()
        reader.join()
    assert seen <= allowed
    assert (data / "big/giant").read_bytes() == good


def test_what_is_made_anew_has_the_published_mode_and_time(staged: Context) -> None:
    path = data_of(staged) / "d0/f00"
    before = path.stat()
    above = path.parent.stat()
    flip(path, 9)
    audit_step.run(staged, "data")
    repair_step.run(staged, "data")
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_mtime_ns == before.st_mtime_ns
    assert after.st_ino != before.st_ino
    assert path.parent.stat().st_mode == above.st_mode


def test_without_an_audit_there_is_nothing_to_go_by(staged: Context) -> None:
    with pytest.raises(FailedError, match="no finished audit"):
        repair_step.run(staged, "data")


def test_a_link_in_a_folders_place_is_left_and_nothing_is_written_through_it(
    staged: Context, tmp_path: Path
) -> None:
    data = data_of(staged)
    outside = tmp_path / "outside"
    (data / "deep").chmod(0o700)
    (data / "deep/er").chmod(0o700)
    os.rename(data / "deep/er", outside)
    (data / "deep/er").symlink_to(outside)
    (data / "deep").chmod(0o2550)
    (outside / "file").unlink()
    result = audit_step.run(staged, "data")
    assert {(f.kind, f.path) for f in result["findings"]} == {
        ("extra", "deep/er"),
        ("missing", "deep/er/file"),
    }
    done = repair_step.run(staged, "data")
    assert [path for path, _ in done["unrepairable"]] == ["deep/er/file"]
    assert done["left"] == ["deep/er"]
    assert not (outside / "file").exists()


def test_a_repair_restores_a_file_in_every_release_that_shares_the_damage(tmp_path: Path) -> None:
    """Unchanged files are hard links: the same bit is wrong in all of them."""
    source = tree(tmp_path / "source", {"a": b"a" * 5000, "b": b"b" * 5000, "c": b"c"})
    with published(tmp_path, source) as context:
        first = data_of(context)
        (source / "c").write_bytes(b"changed")
        publish(context)
        second = data_of(context)
        assert second != first
        assert (first / "a").samefile(second / "a")
        flip(second / "a")
        flip(second / "c")
        audit_step.run(context, "data")
        result = repair_step.run(context, "data")
        other = first.parent.name
        assert (result["status"], result["also_repaired"], result["also_in"]) == (
            "REPAIRED",
            {other: ["a"]},
            {},
        )
        assert f"1 file is the same in release {other}, and repaired there, too" in render_repair(result)
        assert (first / "a").samefile(second / "a")
        assert (second / "a").read_bytes() == b"a" * 5000
        assert (first / "c").read_bytes() == b"c"
        said = release_records.read_verdict(context.layout("data"), other)
        assert said is not None
        assert said.repair is not None
        assert (said.repair.audit, said.repair.repaired, said.repair.left) == (result["audit"], 1, 0)
        lines = [
            line for line in release_records.history_lines(context.layout("data")) if line.event == "repair"
        ]
        assert {(line.release, tuple(line.repaired)) for line in lines if isinstance(line, Repair)} == {
            (other, ("a",)),
            (second.parent.name, ("a", "c")),
        }
        assert audit_step.run(context, "data", audit_step.AuditRequest(release=other))["status"] == "PASSED"


def test_findings_of_another_release_fall_where_its_files_were_mended(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", {"a": b"a" * 5000, "b": b"b" * 5000, "c": b"c"})
    with published(tmp_path, source) as context:
        first, layout = data_of(context), context.layout("data")
        (source / "c").write_bytes(b"changed")
        publish(context)
        second = data_of(context)
        flip(first / "a")
        flip(first / "c")
        audit_step.run(context, "data", audit_step.AuditRequest(release=first.parent.name))
        assert release_records.standing_findings(release_records.read_verdict(layout, first.parent.name)) == {
            "changed": 2
        }
        audit_step.run(context, "data", audit_step.AuditRequest(release=second.parent.name))
        repair_step.run(context, "data", second.parent.name)
        assert release_records.standing_findings(release_records.read_verdict(layout, first.parent.name)) == {
            "changed": 1
        }


def test_a_repair_that_is_killed_between_two_releases_is_ended_by_the_next(tmp_path: Path) -> None:
    """The other release has the new file, the repaired one not yet."""
    source = tree(tmp_path / "source", {"a": b"a" * 5000, "c": b"c"})
    with published(tmp_path, source) as context:
        first, layout = data_of(context), context.layout("data")
        (source / "c").write_bytes(b"changed")
        publish(context)
        second = data_of(context)
        flip(second / "a")
        audit_step.run(context, "data")
        (record,) = [
            r for batch in read_manifest(second.parent / "manifest.parquet") for r in batch if r.path == "a"
        ]
        new = layout.releases / "new"
        new.write_bytes(b"a" * 5000)
        damage = HardLinkedDamage.of(context, layout, second.parent.name, [record], {})
        seal, _ = audit_plan.read_seal(layout, second.parent.name)
        with mender_of(context, layout, seal, second.parent.name) as mender, damage:
            mender.dress("a", record.mtime_ns, new)
            damage.mend("a", new)
        assert (first / "a").read_bytes() == b"a" * 5000 != (second / "a").read_bytes()
        result = repair_step.run(context, "data")
        assert (result["status"], result["also_repaired"]) == ("REPAIRED", {})
        assert (second / "a").read_bytes() == b"a" * 5000
