from __future__ import annotations

import dataclasses
import errno
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.one_shard import do_shard, write_receipt
from tests.support.staging_runs import tree
from tests.support.whole_way import FILES, go, staging

from penstock.core.element_documents import ElementReceipt
from penstock.core.errors import FailedError, LockedError
from penstock.core.layout import RunLayout
from penstock.dataset import receipts, run_store
from penstock.dataset.context import Stop
from penstock.dataset.documents import read_plan
from penstock.dataset.receipts import Progress, Reporter
from penstock.engine import journal
from penstock.fs import small_files
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.host.waits import HEARTBEAT
from penstock.jobs.dataset_state import holding
from penstock.jobs.element import Element, attempt_name, host_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with staging(tmp_path, tree(tmp_path / "source", FILES)) as made:
        yield made


def planned(context: Context) -> RunLayout:
    go(context, upto="plan")
    return run_store.open_run(context.layout("data")).folder


def outcome(folder: RunLayout, step: str, index: int) -> dict[str, Any]:
    found: dict[str, Any] = small_files.read_json(folder.outcome(step, index, 1))
    return found


def test_a_whole_shard_leaves_a_receipt(context: Context) -> None:
    folder = planned(context)
    shard = read_plan(folder).shards[0]
    assert do_shard(folder, "copy", 0) == 0
    receipt = receipts.element(folder, "copy", 0)
    assert receipt is not None
    assert (receipt.shard, receipt.rows, receipt.bytes) == (shard.digest, shard.rows, shard.bytes)
    assert receipt.host == host_name()
    assert receipt.started <= receipt.ended
    assert receipt.samples[-1][1:] == (shard.rows, shard.bytes)
    assert not folder.outcome("copy", 0, 1).exists()


def test_a_receipt_of_another_run_plan_or_copy_does_not_hold(context: Context) -> None:
    folder = planned(context)
    assert [do_shard(folder, step, 0) for step in ("copy", "verify")] == [0, 0]
    run = run_store.open_run(context.layout("data"))
    checks = {step: receipts.held(run, step) for step in ("copy", "verify")}
    for step, holds in checks.items():
        made = receipts.element(folder, step, 0)
        assert made is not None
        assert holds(0)
        for changes in ({"run": "another"}, {"shard": "another"}, {"copied_by": "another"}):
            write_receipt(folder, dataclasses.replace(made, **changes))
            assert holds(0) is (step == "copy" and "copied_by" in changes)
        write_receipt(folder, made)


def test_rows_that_fail_leave_an_outcome_and_the_others_are_done(context: Context, tmp_path: Path) -> None:
    folder = planned(context)
    (tmp_path / "source" / "a" / "one").write_bytes(b"changed since")
    assert do_shard(folder, "copy", 0) == 5
    assert receipts.element(folder, "copy", 0) is None
    told = outcome(folder, "copy", 0)
    assert told["exit_code"] == 5
    assert [path for path, _ in told["failures"]] == ["a/one"]
    data = context.layout("data").staging(read_plan(folder).release) / "data"
    assert (data / "a" / "two").read_bytes() == FILES["a/two"]
    assert not (data / "a" / "one").exists()


def test_verify_before_copy_fails_without_records(context: Context) -> None:
    folder = planned(context)
    assert do_shard(folder, "verify", 0) == 1
    assert not folder.records(0).exists()
    assert receipts.element(folder, "verify", 0) is None


def test_a_stop_is_told_as_one_and_may_be_tried_again(context: Context) -> None:
    folder, stop = planned(context), Stop()
    stop.set(15)
    assert do_shard(folder, "copy", 0, stop) == 143
    assert outcome(folder, "copy", 0)["retry"] is True
    assert do_shard(folder, "copy", 0) == 0


@pytest.mark.parametrize("out_of_time", [True, False])
def test_a_stop_says_whether_its_time_ended_and_whether_it_had_finished_anything(
    context: Context, out_of_time: bool
) -> None:
    folder, stop = planned(context), Stop()
    stop.set(15)
    stop.out_of_time = out_of_time
    assert do_shard(folder, "copy", 0, stop) == 143
    told = outcome(folder, "copy", 0)
    assert told["stopped"] == ("time" if out_of_time else "signal")
    # A row may be done before the stop is seen; a journal that was only begun is no progress.
    recorded = journal.replay(folder.journals(0), read_plan(folder).shards[0].digest)
    assert told["progress"] is bool(recorded)


def test_what_a_journal_records_is_progress(context: Context) -> None:
    folder = planned(context)
    before = journal.names(folder.journals(0))
    assert not journal.records_more(folder.journals(0), before)
    assert do_shard(folder, "copy", 0) == 0
    assert journal.records_more(folder.journals(0), before)
    assert not journal.records_more(folder.journals(0), journal.names(folder.journals(0)))


def test_a_full_target_is_the_exit_status_also_without_room_for_an_outcome(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = planned(context)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(small_files, "write_file", full)
    monkeypatch.setattr(journal.Journal, "append", full)
    assert do_shard(folder, "copy", 0) == 6
    assert not folder.outcome("copy", 0, 1).exists()


def test_a_shard_that_is_not_the_planned_one_is_refused(context: Context) -> None:
    folder = planned(context)
    folder.shard(0).write_bytes(folder.shard(1).read_bytes())
    assert do_shard(folder, "copy", 0) == 1
    assert "not the one that was planned" in outcome(folder, "copy", 0)["error"]
    assert do_shard(folder, "copy", 99) == 1


def test_a_folder_that_is_no_runs_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FailedError, match="cannot be read"):
        Element(RunLayout(tmp_path / "nowhere"), "copy", Stop())
    with pytest.raises(FailedError, match='no elements of "paint"'):
        Element(RunLayout(tmp_path / "nowhere"), "paint", Stop())
    assert os.listdir(tmp_path) == []


def test_the_attempts_name_tells_where_it_came_from() -> None:
    assert str(os.getpid()) in attempt_name()
    assert attempt_name() != attempt_name()
    kernel_facts.enter_job(JobEnvironment(job="13"))
    assert re.fullmatch(r"13_0_0-[0-9a-f]{8}", attempt_name())
    kernel_facts.enter_job(JobEnvironment(job="13", array="12", element=3, restarts=1))
    assert re.fullmatch(r"12_3_1-[0-9a-f]{8}", attempt_name())


def test_an_elements_start_imports_nothing_heavy() -> None:
    heavy = ["pyarrow", "rich", "fsspec", "s3fs", "botocore", "awscrt", "jsonschema", "yaml"]
    code = f"import penstock.jobs.element, sys; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_lock_is_held_for_a_step_and_then_free(context: Context) -> None:
    run = planned(context).folder.name
    with holding(context, "data", run, "copy") as lock:
        lock.assert_held()
        with pytest.raises(LockedError) as refused, holding(context, "data", run, "verify"):
            pass
        assert refused.value.exit_code == 7
        assert str(os.getpid()) in str(refused.value)
    with holding(context, "data", run, "verify"):
        pass


def test_a_reporter_keeps_few_samples_and_the_last_one(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path / "p.json", every=0.0)
    reporter(0, 0, 1)
    for count in range(5000):
        reporter.sample(float(count), count, count * 10)
    reporter.end(5000, 50_000)
    assert len(reporter.samples) <= 240
    assert reporter.samples[-1][1:] == (5000, 50_000)
    assert [s[1] for s in reporter.samples] == sorted(s[1] for s in reporter.samples)
    assert os.listdir(tmp_path) == ["p.json"]


def test_an_element_that_waits_for_its_share_shows_what_the_attempt_before_did(context: Context) -> None:
    folder = planned(context)
    beats: list[int] = []
    path = _made(folder.progress("copy", 0))
    Reporter(path, every=0.0)(3, 30, 2)
    again = Reporter(path, every=0.0, beat=lambda: beats.append(1))
    again.begin()
    again._beaten -= HEARTBEAT
    again.alive()
    assert Progress().total(folder, "copy", [0]) == (3, 30, 2)
    assert beats == [1]
    again(1, 10, 0)
    assert Progress().total(folder, "copy", [0]) == (1, 10, 0)


def test_progress_never_goes_back_and_counts_failures_of_live_elements(context: Context) -> None:
    folder, progress = planned(context), Progress()
    reporter = Reporter(_made(folder.progress("copy", 0)), every=0.0)
    reporter(3, 30, 2)
    assert progress.total(folder, "copy", [0, 1]) == (3, 30, 2)
    reporter(1, 10, 0)
    assert progress.total(folder, "copy", [0, 1]) == (3, 30, 0)
    write_receipt(folder, ElementReceipt("copy", 0, files=7, bytes=70))
    assert progress.total(folder, "copy", [0, 1]) == (7, 70, 0)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    return path
