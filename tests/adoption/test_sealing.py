"""A tree that rsync made becomes a release: one rename, what is right stays the very file that it was, what
is wrong or missing is fetched, nothing is deleted."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.adoption.test_comparing import flip
from tests.support.published import content
from tests.support.staging_runs import events_of, tree
from tests.target.conftest import need, need_cold_reads

from penstock.config.settings import PermissionsConfig, VerifyConfig
from penstock.core.errors import FailedError, FindingsError, PreflightError
from penstock.core.layout import ADOPTED, RunLayout
from penstock.core.model import LATEST
from penstock.dataset import documents, run_store, seals
from penstock.keep import audit_step, repair_step
from penstock.run import (
    adopt_seal,
    adopt_step,
    adopted_tree,
    copy_step,
    list_step,
    permissions_step,
    plan_step,
    publish_step,
    verify_step,
)
from penstock.run.adopt_step import Request
from penstock.tables import run_tables
from penstock.tables.manifest import read_manifest
from penstock.target import adopted_files
from penstock.target.adopted_files import AdoptedFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.adoption.conftest import Place

    from penstock.core.model import Record
    from penstock.core.step_results import AdoptionResult, SealingResult


def compare(place: Place, *, read_source: bool = True) -> AdoptionResult:
    request = Request(place.copy, read_source=read_source, seal=True)
    return adopt_step.run(place.context, "data", request)


def seal(place: Place, *, leave_extra: bool = False, read_source: bool = True) -> SealingResult:
    result = compare(place, read_source=read_source)
    adopt_seal.refuse(result, leave_extra=leave_extra)
    adopt_seal.mark(place.context, "data", result)
    return adopt_seal.go_on(place.context, "data")


def inodes(folder: Path) -> dict[str, int]:
    return {
        str((Path(above) / name).relative_to(folder)): (Path(above) / name).lstat().st_ino
        for above, _, files in os.walk(folder)
        for name in files
    }


def durable_files(folder: Path) -> None:
    """Else some kernels keep what was just written in memory, and the comparison reads it from there."""
    for path in inodes(folder):
        fd = os.open(folder / path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def records(result: SealingResult) -> dict[str, Record]:
    manifest = Path(result["path"]).parent / "manifest.parquet"
    return {one.path: one for batch in read_manifest(manifest) for one in batch}


def as_source(place: Place, result: SealingResult) -> None:
    """The release holds what the source holds, and an audit finds nothing."""
    data = Path(result["path"])
    assert set(inodes(data)) == set(inodes(place.source))
    for name in inodes(data):
        assert (data / name).read_bytes() == (place.source / name).read_bytes(), name
    assert audit_step.run(place.context, "data")["status"] == "PASSED"


def test_a_right_tree_becomes_a_release_without_a_copy(place: Place) -> None:
    need_cold_reads(place.copy)
    durable_files(place.copy)
    before = inodes(place.copy)
    top = place.copy.stat().st_ino
    result = seal(place)
    assert inodes(Path(result["path"])) == before
    assert Path(result["path"]).stat().st_ino == top
    assert not place.copy.exists()
    assert not Path(adopt_seal.aside_of(str(place.copy))).exists()
    assert (result["fetched"], result["aside"]) == (0, [])
    as_source(place, result)
    found = records(result)
    # The comparison read it past the caches, and nothing after it did.
    assert {one.storage_grade for one in found.values()} == {"cold"}
    assert {one.source_grade for path, one in found.items() if path != "big/giant"} == {"full"}
    assert all(one.source_proof.startswith("xxh3_128:full:") for path, one in found.items() if path[0] == "d")
    assert seals.load(place.context.layout("data"), result["release"]).seal.evidence.read_after is None
    assert stat.S_IMODE((Path(result["path"]) / "d0/f00").stat().st_mode) == 0o440


def test_what_is_wrong_is_fetched_and_the_old_files_are_kept(place: Place) -> None:
    copy, aside = place.copy, Path(adopt_seal.aside_of(str(place.copy)))
    flip(copy / "d0/f00", 7)
    flip(copy / "big/giant", 3_000_000)
    (copy / "d1/f01").write_bytes(b"short")
    (copy / "d2/f02").unlink()
    (copy / "d0/f03").unlink()
    (copy / "d0/f03").mkdir()
    (copy / "d0/f03/mine").write_bytes(b"mine")
    (copy / "more").write_bytes(b"more")
    (copy / "more.d/deep").mkdir(parents=True)
    (copy / "more.d/deep/one").write_bytes(b"one")
    (copy / "d2/link").symlink_to("nowhere")
    (copy / "nothing").mkdir()
    before = inodes(copy)
    wrong = {"d0/f00", "big/giant", "d1/f01"}
    extra = {"d0/f03/mine", "more", "more.d/deep/one", "d2/link"}
    compared = compare(place)
    with pytest.raises(FindingsError, match="3 extra, 1 link") as caught:
        adopt_seal.refuse(compared, leave_extra=False)
    assert "--leave-extra" in caught.value.hint
    assert inodes(copy) == before
    result = seal(place, leave_extra=True)
    as_source(place, result)
    after = inodes(Path(result["path"]))
    right = before.keys() - wrong - extra
    assert {name: after[name] for name in right} == {name: before[name] for name in right}
    assert inodes(aside) == {name: before[name] for name in wrong | extra}
    assert (aside / "nothing").is_dir()
    assert (aside / "d1/f01").read_bytes() == b"short"
    # Four files, and the giant.
    assert result["fetched"] == 5
    undo = Path(result["undo"])
    assert json.loads((undo / "tree.json").read_text())["moved"] == str(copy)
    moved = {json.loads(line)["path"] for line in (undo / "aside.jsonl").read_text().splitlines()}
    assert moved >= wrong | {"more", "d2/link"}
    told = [json.loads(line) for file in undo.glob("0*.jsonl") for line in file.read_text().splitlines()]
    assert {one["path"] for one in told} == right
    assert {one["mode"] for one in told} == {0o644}


def _nothing(_: Place) -> None:
    """The very file that differed stands."""


def _touch(place: Place) -> None:
    os.utime(place.copy / "d0/f00")
    os.utime(place.copy / "big/giant")


def _elsewhere(place: Place) -> None:
    place.copy = place.copy.rename(place.copy.with_name("renamed"))


def _source_grows(place: Place) -> None:
    (place.source / "late").write_bytes(b"late")


def _away_and_back(place: Place) -> None:
    """One comparison sees another size, and a folder in the file's place."""
    wrong, giant, aside = place.copy / "d0/f00", place.copy / "big/giant", place.copy.parent / "aside"
    before = wrong.read_bytes()
    wrong.write_bytes(b"short")
    giant.rename(aside)
    giant.mkdir()
    adopt_step.run(place.context, "data", Request(place.copy))
    giant.rmdir()
    aside.rename(giant)
    wrong.write_bytes(before)


def _other_cut(place: Place) -> None:
    plan = replace(place.context.config.plan, part_bytes=2 << 20)
    place.context.config = replace(place.context.config, plan=plan)


def _killed(place: Place) -> None:
    """What a comparison leaves that is killed before its end."""
    for name in ("result.json", "differences.jsonl"):
        (path,) = place.copy.parent.glob(f"state/penstock/*/data/.penstock/adoptions/*/{name}")
        path.unlink()


@pytest.mark.parametrize(
    "between",
    [_nothing, _touch, _elsewhere, _source_grows, _away_and_back, _other_cut, _killed],
    ids=lambda one: one.__name__.strip("_"),
)
def test_what_was_seen_to_differ_is_never_sealed_by_its_size(
    place: Place, between: Callable[[Place], None]
) -> None:
    """The first comparison reads the source, those after it do not."""
    wrong = {"d0/f00", "big/giant"}
    flip(place.copy / "d0/f00", 7)
    flip(place.copy / "big/giant", 3_000_000)
    first = adopt_step.run(place.context, "data", Request(place.copy, read_source=True))
    assert first["status"] == "DIFFERS"
    between(place)
    for _ in range(2):
        again = compare(place, read_source=False)
        assert (again["status"], again["counts"]["content"]["files"]) == ("DIFFERS", 2)
    before = inodes(place.copy)
    result = seal(place, read_source=False)
    as_source(place, result)
    after = inodes(Path(result["path"]))
    assert {name for name in before if after[name] != before[name]} == wrong
    assert set(inodes(Path(adopt_seal.aside_of(str(place.copy))))) == wrong


def test_a_file_that_differed_and_was_corrected_is_compared_by_its_bytes(place: Place) -> None:
    flip(place.copy / "d0/f00", 7)
    adopt_step.run(place.context, "data", Request(place.copy, read_source=True))
    flip(place.copy / "d0/f00", 7)
    result = compare(place, read_source=False)
    assert (result["status"], {one["how"] for one in result["same"]}) == ("SAME", {"source"})


def test_repair_and_the_next_run_work_on_it_as_on_any_release(place: Place) -> None:
    result = seal(place)
    first = inodes(Path(result["path"]))
    damaged = Path(result["path"]) / "d1/f01"
    os.chmod(damaged.parent, 0o750)
    os.chmod(damaged, 0o640)
    flip(damaged, 5)
    os.chmod(damaged, 0o440)
    os.chmod(damaged.parent, 0o2550)
    assert audit_step.run(place.context, "data")["counts"] == {"changed": 1}
    assert repair_step.run(place.context, "data")["status"] == "REPAIRED"
    (place.source / "d0/f00").write_bytes(b"new")
    listed = list_step.run(place.context, "data")
    assert not listed["published"]
    for step in (plan_step.run, copy_step.run, permissions_step.run, verify_step.run):
        step(place.context, "data")
    published = publish_step.run(place.context, "data")
    second = inodes(Path(published["path"]))
    # The repair made the second of them anew; giants are never linked.
    assert {name for name in first if second[name] != first[name]} == {"d0/f00", "d1/f01", "big/giant"}


def test_a_file_that_is_touched_after_it_was_compared_is_not_taken_on_trust(place: Place) -> None:
    """Other bytes under the old time: the closing look is at the inode's change time."""
    compared = compare(place)
    adopt_seal.refuse(compared, leave_extra=False)
    adopt_seal.mark(place.context, "data", compared)
    flip(place.copy / "d0/f00", 3)
    late = place.copy / "d1/f01"
    late.write_bytes(late.read_bytes()[:-1] + b"?")
    before = inodes(place.copy)
    result = adopt_seal.go_on(place.context, "data")
    as_source(place, result)
    after = inodes(Path(result["path"]))
    assert {name for name in before if after[name] != before[name]} == {"d0/f00", "d1/f01"}
    aside = Path(adopt_seal.aside_of(str(place.copy)))
    assert (aside / "d1/f01").read_bytes()[-1:] == b"?"


def test_a_file_that_is_open_for_writing_is_copied_instead(place: Place) -> None:
    with (place.copy / "d0/f00").open("r+b"):
        before = inodes(place.copy)
        result = seal(place)
    after = inodes(Path(result["path"]))
    assert {name for name in before if after[name] != before[name]} == {"d0/f00"}
    as_source(place, result)
    texts = [getattr(event, "text", "") for event in events_of(place.context)]
    told = 'copied on the target, and moved aside unchanged: 1 file, such as "d0/f00": it is open for'
    assert any(text.startswith(told) for text in texts)
    assert result["fetched"] == 0


def test_a_file_with_further_names_is_copied_instead(place: Place) -> None:
    other = place.copy.parent / "other-name"
    os.link(place.copy / "d0/f00", other)
    mode = stat.S_IMODE(other.stat().st_mode)
    result = seal(place)
    as_source(place, result)
    assert (Path(result["path"]) / "d0/f00").stat().st_ino != other.stat().st_ino
    assert stat.S_IMODE(other.stat().st_mode) == mode
    assert other.stat().st_nlink == 2  # its other name is aside
    assert result["fetched"] == 0


def test_a_file_of_another_account_is_copied_instead(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(place.copy / "d0/f00", 2001, 2001)
    before = inodes(place.copy)
    result = seal(place)
    as_source(place, result)
    after = inodes(Path(result["path"]))
    assert {name for name in before if after[name] != before[name]} == {"d0/f00"}
    aside = Path(adopt_seal.aside_of(str(place.copy))) / "d0/f00"
    assert aside.stat().st_uid == 2001
    assert result["fetched"] == 0


def test_a_giant_of_another_account_and_names_of_one_file_are_copied_instead(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    need_cold_reads(place.copy)
    os.chown(place.copy / "big/giant", 2001, 2001)
    (place.copy / "d1/f01").unlink()
    (place.source / "d1/f01").write_bytes((place.source / "d0/f00").read_bytes())
    seen = (place.source / "d1/f01").stat()
    os.link(place.copy / "d0/f00", place.copy / "d1/f01")
    os.utime(place.source / "d0/f00", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    os.utime(place.copy / "d0/f00", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    before = inodes(place.copy)
    result = seal(place)
    as_source(place, result)
    assert result["fetched"] == 0
    after = inodes(Path(result["path"]))
    assert {name for name in before if after[name] != before[name]} == {"big/giant", "d0/f00", "d1/f01"}
    assert after["d0/f00"] != after["d1/f01"]
    aside = inodes(Path(adopt_seal.aside_of(str(place.copy))))
    assert aside == {name: before[name] for name in ("big/giant", "d0/f00", "d1/f01")}
    # Verify read them back: nobody else had.
    found = records(result)
    assert {found[name].storage_grade for name in ("big/giant", "d0/f00", "d1/f01")} == {"cold"}


def test_a_copy_that_a_kill_left_without_a_line_is_fetched(place: Place) -> None:
    other = place.copy.parent / "other-name"
    os.link(place.copy / "d0/f00", other)
    seen = other.stat()
    compared = compare(place)
    adopt_seal.refuse(compared, leave_extra=False)
    adopt_seal.mark(place.context, "data", compared)
    list_step.run(place.context, "data")
    plan_step.run(place.context, "data")
    run = run_store.open_run(place.context.layout("data"))
    mark = documents.read_adopted_tree(run.folder)
    assert mark is not None
    adopted_files.move_tree(place.copy, run.data, mark.inode)
    with AdoptedFiles(
        run.data,
        Path(mark.aside),
        file_mode=0o440,
        gid=None,
        keep_mtime=True,
        fsync=True,
        spend=place.context.spend,
    ) as adopted:
        assert adopted.own("d0/f00", inode=0, size=seen.st_size) == 0, "it is another file"
        assert adopted.own("d0/f00", inode=seen.st_ino, size=seen.st_size) != 0
    result = adopt_seal.go_on(place.context, "data")
    as_source(place, result)
    aside = Path(mark.aside) / "d0"
    assert sorted(os.listdir(aside)) == ["f00", "f00.1"]
    assert (aside / "f00").stat().st_ino == seen.st_ino


def test_folders_of_another_account_keep_a_tree_from_becoming_a_release(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    os.chown(place.copy / "d0", 2001, 2001)
    with pytest.raises(PreflightError, match="1 folders of the tree are other accounts'"):
        adopt_seal.refuse(compare(place), leave_extra=False)


def test_a_tree_on_another_file_system_is_refused_before_it_is_read(place: Place, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is the file system of the tests")
    place.copy = tree(other / f"penstock-adopt-{os.getpid()}", {"a": b"a"})
    try:
        with pytest.raises(PreflightError, match="by a rename") as caught:
            compare(place)
        assert "not on one file system" in caught.value.why
    finally:
        (place.copy / "a").unlink()
        place.copy.rmdir()
    assert not list(other.glob(".penstock-adopt-*"))


def test_a_dataset_of_which_a_release_stands_takes_no_tree_of_the_same_content(place: Place) -> None:
    result = seal(place)
    subprocess.run([need("rsync"), "-a", f"{place.source}/", f"{place.copy}/"], check=True, timeout=60)
    compared = compare(place)
    adopt_seal.refuse(compared, leave_extra=False)
    with pytest.raises(PreflightError, match="holds already what the source holds"):
        adopt_seal.mark(place.context, "data", compared)
    assert Path(result["path"]).is_dir()
    assert place.copy.is_dir()


def test_a_source_that_changed_since_the_comparison_is_refused_before_the_tree_moves(place: Place) -> None:
    compared = compare(place)
    (place.source / "late").write_bytes(b"late")
    with pytest.raises(FailedError, match="the source changed since"):
        adopt_seal.mark(place.context, "data", compared)
    assert place.copy.is_dir()
    assert as_source(place, seal(place)) is None


def test_what_verify_records_of_adopted_files_is_what_the_comparison_saw(place: Place) -> None:
    compared = compare(place)
    adopt_seal.mark(place.context, "data", compared)
    context = place.context
    plan_step.run(context, "data")
    copy_step.run(context, "data")
    run = run_store.open_run(context.layout("data"))
    ledger = run.folder.survey(0)
    known = run_tables.ShardSurvey(ledger, run.shards[0].rows)
    rows = known.rows([row for row in range(run.shards[0].rows) if known.state(row)])
    assert len(rows) == 39
    run_tables.put(ledger, iter([[one._replace(method="dropped", verified_host="there") for one in rows]]))
    permissions_step.run(context, "data")
    # One of them is touched after it was taken over: that one is read.
    touched = run.data / "d2/f02"
    os.utime(touched, ns=(touched.stat().st_atime_ns, touched.stat().st_mtime_ns))
    verify_step.run(context, "data")
    published = publish_step.run(context, "data")
    found = records({"path": published["path"]})  # type: ignore[typeddict-item]
    assert {path for path, one in found.items() if one.method != "dropped"} == {"d2/f02"}
    # Of the others nobody knows when they were written: none of them counts as read back soon.
    assert {path for path, one in found.items() if not one.shared} == {"d2/f02"}
    assert found["d0/f00"].verified_host == "there"
    assert found["d2/f02"].verified_host != "there"


def test_further_digests_are_made_by_reading_the_tree_again(place: Place) -> None:
    config = place.context.config
    place.context.config = replace(config, verify=VerifyConfig(digests=("xxh3_128", "sha256")))
    result = seal(place)
    assert all("sha256:" in one.digests for one in records(result).values() if not one.parts)


def test_sizes_alone_are_said_by_the_seal_and_refused_where_a_proof_is_required(place: Place) -> None:
    compared = compare(place, read_source=False)
    told = adopt_seal.intended(place.context, "data", compared)
    assert "34 files are taken by their size alone: the release says so (grade `size`)" in told
    result = seal(place, read_source=False)
    assert {one.source_grade for one in records(result).values()} == {"size"}


def test_a_tree_goes_back_where_its_plan_is_lost(place: Place) -> None:
    before = inodes(place.copy)
    compared = compare(place)
    run = adopt_seal.mark(place.context, "data", compared)
    plan_step.run(place.context, "data")
    adopted_tree.settle(place.context, run_store.open_run(place.context.layout("data")))
    assert not place.copy.exists()
    run.folder.plan.write_bytes(b"{")
    result = adopt_seal.go_on(place.context, "data")
    assert inodes(Path(result["path"])) == before
    texts = [getattr(event, "text", "") for event in events_of(place.context)]
    assert any("the adopted tree goes back" in text for text in texts)
    as_source(place, result)


def test_what_is_left_of_a_tree_whose_source_changed_is_never_removed(place: Place) -> None:
    compared = compare(place)
    adopt_seal.mark(place.context, "data", compared)
    plan_step.run(place.context, "data")
    copy_step.run(place.context, "data")
    old = (place.source / "d0/f00").read_bytes()
    (place.source / "d0/f00").write_bytes(content(77, 4000))
    result = adopt_seal.go_on(place.context, "data")
    as_source(place, result)
    (left,) = place.context.layout("data").releases.glob(".*.staging")
    assert (left / "data/d0/f00").read_bytes() == old
    texts = [getattr(event, "text", "") for event in events_of(place.context)]
    assert any("it holds what is left of a tree that was adopted" in text for text in texts)


def test_group_modes_and_times_are_those_of_the_configuration(place: Place) -> None:
    policy = PermissionsConfig(file_mode=0o640, dir_mode=0o2750)
    config = place.context.config
    dataset = replace(config.datasets["data"], permissions=policy)
    place.context.config = replace(config, datasets={"data": dataset})
    os.utime(place.copy / "d0/f00", (1, 1))
    result = seal(place)
    data = Path(result["path"])
    assert stat.S_IMODE((data / "d0/f00").stat().st_mode) == 0o640
    assert stat.S_IMODE((data / "d0").stat().st_mode) == 0o2750
    assert (data / "d0/f00").stat().st_mtime_ns == (place.source / "d0/f00").stat().st_mtime_ns


def test_the_mark_of_a_run_that_adopts_stays_when_its_plan_is_dropped(place: Place) -> None:
    compared = compare(place)
    run = adopt_seal.mark(place.context, "data", compared)
    run_store.drop_derived(run.folder)
    assert (run.folder.folder / ADOPTED).exists()
    known: Any = documents.read_adopted_tree(RunLayout(run.folder.folder))
    assert known.tree == str(place.copy)


def test_what_was_compared_before_the_dataset_was_there_is_not_read_again(place: Place) -> None:
    adopt_step.run(place.context, "data", Request(place.copy, read_source=True))
    assert not place.context.layout("data").folder.exists()
    result = compare(place)
    assert result["earlier"] == 39
    assert result["all_differences"].startswith(str(place.context.layout("data").adoptions))


@pytest.mark.parametrize("mtime", ["keep", "now"])
def test_times_that_no_row_can_hold_are_adopted_as_the_nearest_ones(place: Place, mtime: str) -> None:
    """Of the years 2400 and 1960: ext4 and XFS hold both, a row the former as the end of its range."""
    for top in (place.source, place.copy):
        for name, seconds in (
            ("empty", 13_569_465_600),
            ("a/below", 13_569_465_600),
            ("a-between", -3 * 10**8),
        ):
            os.utime(top / name, (seconds, seconds))
    assert (place.copy / "empty").stat().st_mtime_ns > LATEST, "tests need a file system that takes it"
    config = place.context.config
    dataset = replace(config.datasets["data"], permissions=PermissionsConfig(mtime=mtime))
    place.context.config = replace(config, datasets={"data": dataset})
    before = inodes(place.copy)
    result = seal(place)
    assert inodes(Path(result["path"])) == before
    found = records(result)
    assert found["empty"].mtime_ns == found["a/below"].mtime_ns == LATEST
    assert found["a-between"].mtime_ns == -3 * 10**17
    as_source(place, result)
