"""`verify.linked`: what was read lately is carried over, and what that proves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import flip, writable
from tests.support.staging_runs import tree
from tests.support.whole_way import SMALL, content, go, records, texts

from penstock.core.errors import FindingsError
from penstock.core.findings import AuditSelection, SoonFirst
from penstock.core.seal import SealedReadDelay
from penstock.dataset import gate, release_records, seals
from penstock.fs import capabilities, small_files
from penstock.jobs import audits_and_adoptions
from penstock.jobs.audits_and_adoptions import takes
from penstock.keep import audit_step, removals
from penstock.keep.audit_step import AuditRequest
from penstock.run import report_step
from penstock.target import notices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.model import Record
    from penstock.core.seal import Seal
    from penstock.dataset.context import Context

DAY = 86_400.0
FILES = {f"d{n % 4}/{n:03}": bytes([n]) * (100 + n) for n in range(100)}
ROTTEN = "d1/017"
DUE = 16.0
"""Days after which `ROTTEN` is read again, not half a day before: its path decides. Most files are due
later."""
PLAN = replace(SMALL, shard_files=200)


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets this host's clock so many days ahead; the file system's stays."""
    right = time.time

    def ahead(by: float) -> None:
        monkeypatch.setattr(time, "time", lambda: right() + by * DAY)

    return ahead


def asked(context: Context, **verify: Any) -> None:
    """The section `verify` of all runs from now on."""
    context.config = replace(context.config, verify=replace(context.config.verify, **verify))


def in_three_shards(context: Context) -> None:
    """All releases from now on."""
    context.config = replace(context.config, plan=SMALL)


def following(context: Context, source: Path, number: int) -> Seal:
    """The seal of the next release, which has one file more."""
    tree(source, {f"new/{number}": b"new %d" % number})
    go(context)
    return current(context)


def current(context: Context) -> Seal:
    layout = context.layout("data")
    return seals.load(layout, os.readlink(layout.current).rpartition("/")[2]).seal


def carried(context: Context) -> dict[str, Record]:
    return {path: record for path, record in records(context).items() if record.carried}


def data(context: Context) -> Path:
    return context.layout("data").current.resolve() / "data"


@pytest.fixture
def released(context: Context) -> Context:
    """The first release stands."""
    go(context)
    return context


def test_a_file_that_was_read_lately_is_carried_over_and_counted_as_that(
    released: Context, source: Path
) -> None:
    in_three_shards(released)
    before = records(released)
    seal = following(released, source, 1)
    after = carried(released)
    assert seal.carried is not None
    assert len(after) == seal.carried.files == 100
    assert seal.evidence.storage["carried"].files == 100
    assert seal.evidence.methods["carried"].files == 100
    assert sum(amount.files for amount in seal.evidence.storage.values()) == 101
    assert small_files.read_json(released.layout("data").current / "release.json")["carried"]["files"] == 100
    kept = ("digest", "storage_grade", "method", "verified_host", "attempt", "read_at", "mtime_ns", "inode")
    for path, record in after.items():
        assert [getattr(record, name) for name in kept] == [getattr(before[path], name) for name in kept]
        assert record.ctime_ns > before[path].ctime_ns
    assert seal.carried.oldest_read == seal.evidence.oldest_read
    told = report_step.run(released, "data")
    day = seal.carried.oldest_read[:10]
    assert told["carried"] == f"carried 100 files, the oldest reading of {day}"
    steps = {step["step"]: (step["files"], step["bytes"]) for step in told["steps"] if "bytes" in step}
    assert steps["copy"] == steps["verify"] == (1, 5)
    assert not audit_step.run(released, "data")["counts"]


def test_all_reads_each_file_and_the_seal_says_nothing_of_carried_ones(
    context: Context, source: Path
) -> None:
    in_three_shards(context)
    asked(context, linked=None)
    go(context)
    seal = following(context, source, 1)
    assert seal.carried is None
    # Linked files were written for the release before.
    assert seal.evidence.read_after is not None
    assert seal.evidence.read_after.soon == 1
    assert sum(record.shared for record in records(context).values()) == 100
    assert small_files.read_json(context.layout("data").current / "release.json").get("carried") is None
    assert not carried(context)


def test_files_fall_due_one_by_one_in_the_second_half_of_the_time(
    released: Context, source: Path, days: Callable[[float], None]
) -> None:
    left = set(FILES)
    for number, (day, fewest, most) in enumerate([(14, 100, 100), (20, 50, 80), (31, 0, 0)]):
        days(day)
        tree(source, {f"new/{number}": b"new"})
        go(released)
        old = {path for path, record in records(released).items() if record.carried and path in left}
        assert fewest <= len(old) <= most
        assert old <= left
        left = old


def test_dues_are_judged_when_verify_reads_not_when_plan_planned(
    released: Context, source: Path, days: Callable[[float], None]
) -> None:
    rot(data(released) / ROTTEN, released)
    tree(source, {"new/1": b"new 1"})
    go(released, upto="permissions")
    days(100)
    go(released, after="permissions")
    assert not carried(released)
    assert content(data(released)) == content(source)


def test_a_file_that_is_overdue_at_the_seal_goes_back_to_verify(
    released: Context, source: Path, days: Callable[[float], None]
) -> None:
    rot(data(released) / ROTTEN, released)
    tree(source, {"new/1": b"new 1"})
    go(released, upto="verify")
    days(100)
    go(released, after="verify")
    assert not carried(released)
    assert content(data(released)) == content(source)


def test_where_verify_has_another_clock_than_publish_it_goes_back_once_and_its_date_is_stated(
    released: Context, source: Path
) -> None:
    tree(source, {"new/1": b"new 1"})
    go(released, upto="verify")
    late = time.time() + 100 * DAY
    released.clock = lambda: late
    go(released, after="verify")
    (text,) = [text for text in texts(released) if "verified again" in text]
    assert "it was last read longer ago than `verify.linked`" in text
    assert len(carried(released)) == 100
    assert current(released).evidence.oldest_read < current(released).sealed


def test_the_date_of_a_reading_is_when_the_bytes_were_read(
    context: Context, days: Callable[[float], None]
) -> None:
    days(-100)
    before = time.time()
    go(context, upto="verify")
    days(0)
    go(context, after="verify")
    layout = context.layout("data")
    seal = current(context)
    since = release_records.read_since(None, seal)
    assert since is not None
    assert abs(since.timestamp() - before) < DAY
    assert gate.passed(layout, within=101 * DAY).release == seal.release
    with pytest.raises(FindingsError, match="not audited lately enough"):
        gate.passed(layout, within=30 * DAY)


@pytest.mark.parametrize("wrong", ["host", "file system"])
def test_a_clock_that_is_ahead_dates_no_reading_into_the_future(
    context: Context, source: Path, days: Callable[[float], None], monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    right, touch = time.time(), capabilities.touch
    if wrong == "host":
        days(7)
    else:
        monkeypatch.setattr(capabilities, "touch", lambda folder: touch(folder) + int(7 * DAY * 1e9))
    go(context)
    assert {record.read_at for record in records(context).values()} <= set(
        range(int(right), int(right) + 300)
    )
    # Half of the duration is not over yet, also by the clock that is ahead.
    asked(context, linked=15 * DAY)
    assert following(context, source, 1).carried is not None
    asked(context, linked=7 * DAY)
    assert following(context, source, 2).carried is None


def test_a_reading_that_lies_in_the_future_counts_as_none(
    context: Context, source: Path, days: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    days(7)
    with monkeypatch.context() as ahead:
        touch = capabilities.touch
        ahead.setattr(capabilities, "touch", lambda folder: touch(folder) + int(7 * DAY * 1e9))
        go(context)
    days(0)
    with pytest.raises(FindingsError, match="not audited lately enough"):
        gate.passed(context.layout("data"), within=30 * DAY)
    assert following(context, source, 1).carried is None
    assert following(context, source, 2).carried is not None


def test_clocks_that_were_behind_cost_reading_alone(
    context: Context, source: Path, days: Callable[[float], None]
) -> None:
    days(-7)
    go(context)
    days(0)
    seal = following(context, source, 1)
    assert seal.carried is not None
    assert seal.carried.files == 100
    assert time.time() - 8 * DAY < release_records.read_since(None, seal).timestamp() < time.time() - 6 * DAY  # type: ignore[union-attr]


def rot(file: Path, context: Context) -> None:
    """Other bytes at rest, with all that a stat shows as it was but the ctime, which looks as if penstock had
    moved it."""
    flip(file)
    layout = context.layout("data")
    with release_records.moving(layout, "rotten") as moved:
        moved(file.stat().st_ctime_ns)


def test_what_rotted_unseen_keeps_its_date_until_it_is_read_and_then_all_are_read(
    released: Context, source: Path, days: Callable[[float], None]
) -> None:
    in_three_shards(released)
    last = records(released)[ROTTEN].read_at
    rot(data(released) / ROTTEN, released)
    following(released, source, 1)
    assert carried(released)[ROTTEN].read_at == last
    # Its turn comes at an age of its own, at which all are read.
    days(DUE - 0.5)
    following(released, source, 2)
    assert carried(released)[ROTTEN].read_at == last
    days(DUE)
    following(released, source, 3)
    assert not carried(released)
    assert content(data(released)) == content(source)
    assert any("read back with other bytes" in text or "cannot be linked" in text for text in texts(released))
    days(DUE + 0.001)
    assert following(released, source, 9).carried is not None


def write_over(folder: Path, spare: Path) -> set[str]:
    """Write files anew, with the bytes and the times that they have, in the ways of other tools; which."""
    ways = ("cp -p", "rm, cp -p", "rsync --inplace", "flipped and back")
    for file, way in zip(sorted(folder.glob("d1/*"))[3:], ways, strict=False):
        spare.unlink(missing_ok=True)  # as read-only as the file of before
        shutil.copy2(file, spare)
        times = spare.stat()
        os.chmod(file.parent, 0o755)
        os.chmod(file, 0o640)
        if way == "rm, cp -p":
            file.unlink()
        if way == "flipped and back":
            flip(file)
            flip(file)
        elif way == "rsync --inplace":
            with file.open("r+b") as stream:
                stream.write(spare.read_bytes())
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        else:
            subprocess.run(["cp", "-p", spare, file], check=True)
        os.chmod(file, 0o440)
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    return {f"d1/{file.name}" for file in sorted(folder.glob("d1/*"))[3:7]}


@pytest.mark.parametrize("moment", ["before the link", "after it", "before an unlink of which nothing tells"])
def test_a_file_that_was_written_with_inode_size_and_time_kept_is_known_by_its_ctime_and_read(
    released: Context, source: Path, tmp_path: Path, moment: str
) -> None:
    tree(source, {"new/1": b"new 1"})
    folder = data(released)
    if moment == "after it":
        go(released, upto="permissions")
        folder = released.layout("data").staging(staged(released)) / "data"
    written = write_over(folder, tmp_path / "spare")
    if moment == "before an unlink of which nothing tells":
        for path in written:
            os.link(folder / path, tmp_path / "name")
            os.unlink(tmp_path / "name")
    go(released, after="permissions" if moment == "after it" else "")
    assert FILES.keys() - carried(released).keys() == written
    assert content(data(released)) == content(source)


def test_damage_that_is_seen_by_the_ctime_has_all_linked_files_read(released: Context, source: Path) -> None:
    in_three_shards(released)
    flip(data(released) / ROTTEN)
    following(released, source, 1)
    assert not carried(released)
    assert any(ROTTEN in text and "cannot be linked" in text for text in texts(released))
    assert content(data(released)) == content(source)


def staged(context: Context) -> str:
    """Of the release that is being staged."""
    (name,) = [n for n in os.listdir(context.layout("data").releases) if n.endswith(".staging")]
    return name.strip(".").removesuffix(".staging")


def test_a_file_that_was_touched_is_read_and_is_no_deviation(released: Context, source: Path) -> None:
    touched = {"d0/000", "d0/004", "d1/001"}
    for path in touched:
        os.chmod(data(released) / path, 0o600)
        os.chmod(data(released) / path, 0o440)
    following(released, source, 1)
    assert FILES.keys() - carried(released).keys() == touched
    assert not texts(released)
    assert following(released, source, 2).carried.files == 101  # type: ignore[union-attr]


def test_links_that_somebody_made_by_hand_cost_reading_alone(
    released: Context, source: Path, tmp_path: Path
) -> None:
    subprocess.run(["cp", "-al", data(released) / "d1", tmp_path / "mine"], check=True)
    following(released, source, 1)
    assert {path[:2] for path in FILES.keys() - carried(released).keys()} == {"d1"}
    assert content(data(released)) == content(source)


def test_after_a_kill_and_after_removals_files_are_known_again(released: Context, source: Path) -> None:
    """Each night the run is killed after it linked, and the release before last is removed."""
    in_three_shards(released)
    layout = released.layout("data")
    for night in range(1, 3):
        tree(source, {f"killed/{night}": b"never published"})
        before = os.readlink(layout.current)
        go(released, upto="copy")
        (source / f"killed/{night}").unlink()
        following(released, source, night)
        assert len(carried(released)) == 99 + night
        assert not [name for name in os.listdir(layout.releases) if name.startswith(".")]
        release = layout.folder / before
        removed = release.with_name(f".removed-{release.name}-{night:016x}")
        release.rename(removed)
        removals.clear(released, layout, [removed])
    assert content(data(released)) == content(source)
    lines = [line for line in release_records.history_lines(layout) if line.event == "interval"]
    assert 6 <= len(lines) <= 7 * 4
    assert not any(line.event == "?" for line in release_records.history_lines(layout))


def test_an_attempt_that_died_before_its_journal_has_its_links_read(released: Context, source: Path) -> None:
    tree(source, {"new/1": b"new 1"})
    go(released, upto="plan")
    staging = released.layout("data").staging(staged(released)) / "data"
    (staging / "d1").mkdir(exist_ok=True)
    os.link(data(released) / ROTTEN, staging / ROTTEN)
    go(released, after="plan")
    assert FILES.keys() - carried(released).keys() == {ROTTEN}


def test_names_of_one_file_are_carried_over_together(context: Context, source: Path) -> None:
    go(context)
    os.rename(source / "d1/017", source / "d1/017 renamed")
    shutil.copy2(source / "d1/017 renamed", source / "d1/017")
    go(context)
    following(context, source, 1)
    following(context, source, 2)
    assert len(carried(context)) >= 100


def test_intervals_that_are_lost_cost_reading_alone(released: Context, source: Path) -> None:
    layout = released.layout("data")
    following(released, source, 1)
    kept = [raw for raw in layout.history.read_bytes().splitlines(True) if b'"interval"' not in raw]
    layout.history.write_bytes(b"".join(kept))
    # The manifest has the ctimes of before.
    following(released, source, 2)
    assert len(carried(released)) == 101
    tree(source, {"new/3": b"new 3"})
    go(released, upto="permissions")
    for path in layout.intervals.iterdir():
        path.write_bytes(b"{")
    go(released, after="permissions")
    assert not carried(released)
    assert content(data(released)) == content(source)


def test_what_an_audit_read_needs_not_be_read_again(
    context: Context, source: Path, days: Callable[[float], None]
) -> None:
    days(-40)
    go(context)
    days(0)
    first = current(context).release
    audit_step.run(context, "data", AuditRequest(choice=AuditSelection("slice", turn=0, turns=2)))
    audit_step.run(context, "data", AuditRequest(choice=AuditSelection("sample", 0.2, "seed")))
    following(context, source, 1)
    known = carried(context)
    assert 40 < len(known) < 80
    assert all(time.time() - record.read_at < DAY for record in known.values())
    assert current(context).base == first


def test_what_was_read_back_soon_is_audited_first_and_that_counts_as_a_reading(
    context: Context, source: Path, days: Callable[[float], None]
) -> None:
    days(-40)
    asked(context, linked=100 * DAY)
    go(context)
    seal = following(context, source, 1)
    days(0)
    asked(context, linked=30 * DAY)
    assert seal.evidence.read_after == SealedReadDelay(0, 0, 1)
    files = [audit_step.run(context, "data", AuditRequest(rotate=2))["files"]]
    layout = context.layout("data")
    ((audit, _),) = audits_and_adoptions.audits_of(layout, seal.release)
    assert audit.choice.soon_first == SoonFirst(1 / 101)
    read = {path for path in records(context) if takes(audit.choice, path, soon=path == "new/1")}
    assert "new/1" in read
    assert files == [len(read)]
    following(context, source, 2)
    assert carried(context).keys() == read
    request = AuditRequest(seal.release, rotate=2)
    files.append(audit_step.run(context, "data", request)["files"])
    assert sum(files) == 101
    assert gate.judged(layout, None, release=seal.release).error is None


def test_an_audit_with_findings_counts_as_no_reading(
    context: Context, source: Path, days: Callable[[float], None]
) -> None:
    days(-40)
    go(context)
    days(0)
    with writable(data(context)):
        (data(context) / "extra").touch()
    assert audit_step.run(context, "data")["counts"] == {"extra": 1}
    following(context, source, 1)
    assert not carried(context)


def test_an_audit_that_finds_other_bytes_has_all_linked_files_read(released: Context, source: Path) -> None:
    flip(data(released) / ROTTEN)
    assert audit_step.run(released, "data")["counts"] == {"changed": 1}
    following(released, source, 1)
    assert not carried(released)
    assert any("an audit found other bytes" in text for text in texts(released, "note"))
    assert content(data(released)) == content(source)


def test_files_of_a_held_release_are_read_again(released: Context, source: Path) -> None:
    layout = released.layout("data")
    (layout.root / notices.HOLD_NAME).write_text("data a storage target lost bytes\n")
    following(released, source, 1)
    assert not carried(released)
    assert any("is held: a storage target lost bytes" in text for text in texts(released, "note"))


def test_a_manifest_that_was_changed_carries_nothing(released: Context, source: Path) -> None:
    release = released.layout("data").current.resolve()
    os.chmod(release, 0o700)
    seal = json.loads((release / "release.json").read_text())
    seal["manifests"]["manifest.parquet"]["sha256"] = "sha256:00"
    os.chmod(release / "release.json", 0o600)
    (release / "release.json").write_text(json.dumps(seal))
    assert following(released, source, 1).carried is None


def test_what_was_carried_over_lacks_a_grade_that_is_asked_for_and_is_read_from_then_on(
    released: Context, source: Path
) -> None:
    following(released, source, 1)
    asked(released, minimum_grade="reread")
    with pytest.raises(FindingsError, match="files of which is known no more than `carried`"):
        go(released)
    # From the next release on all are read.
    assert following(released, source, 2).carried is None
    why = "all linked files are read back: `verify.minimum_grade` is reread"
    assert any(why in text for text in texts(released, "note"))
