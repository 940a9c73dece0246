"""`<root>/PAUSE`: whose file counts, and that what works below the root rests and goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock, started, until
from tests.support.one_shard import do_shard
from tests.support.published import data_of, flip, published
from tests.support.scripted_cluster import DONE, FAILED, Stage
from tests.support.staging_runs import events_of, tree
from tests.support.whole_way import FILES, go, staging

from penstock.core.errors import InterruptedRunError
from penstock.core.run_steps import Warned
from penstock.dataset import run_store
from penstock.dataset.context import Stop
from penstock.fs import small_files
from penstock.fs.owners import account
from penstock.keep import audit_step, repair_step
from penstock.run import publish_step
from penstock.target import dataset_folders, notices

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cluster.port import State
    from penstock.dataset.context import Context

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other accounts: only as root")


def stands(root: Path, text: str = "servers are updated, until 18:00") -> Path:
    path = root / notices.PAUSE_NAME
    path.write_text(f"{text}\n")
    return path


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# Whose file counts -------------------------------------------------------------------------


def test_the_owners_file_counts_with_its_text(tmp_path: Path) -> None:
    stands(tmp_path, "back\nat \x1b[31m18:00")
    seen = notices.look_for_pause(tmp_path)
    assert seen.pause is not None
    assert "\x1b" not in str(seen.pause)
    assert str(seen.pause).startswith(f"{account(os.geteuid())}: back at ")


def test_an_empty_file_counts(tmp_path: Path) -> None:
    (tmp_path / notices.PAUSE_NAME).touch()
    assert "without a text" in str(notices.look_for_pause(tmp_path).pause)


@as_root
@pytest.mark.parametrize(
    ("root", "file", "counts"), [(0, 0, True), (1234, 0, True), (1234, 1234, True), (1234, 1235, False)]
)
def test_whose_file_counts(tmp_path: Path, root: int, file: int, counts: bool) -> None:
    os.chown(tmp_path, root, root)
    os.chown(stands(tmp_path), file, file)
    seen = notices.look_for_pause(tmp_path)
    assert (seen.pause is not None) == counts
    assert ("it belongs to uid 1235" in seen.ignored) != counts


def test_what_is_in_doubt_counts(tmp_path: Path) -> None:
    """The owner's file with a second name, a link, a FIFO: work rests, and the reason is said."""
    path = stands(tmp_path)
    os.link(path, tmp_path / "second")
    doubt = notices.Pause("it is no plain file with one name", account(os.geteuid()))
    assert notices.look_for_pause(tmp_path) == notices.RootPause(doubt)
    path.unlink()
    path.symlink_to("second")
    assert notices.look_for_pause(tmp_path).pause == doubt
    path.unlink()
    os.mkfifo(path)
    assert notices.look_for_pause(tmp_path).pause == doubt


def test_a_root_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert notices.look_for_pause(tmp_path / "none") == notices.RootPause()


def test_a_watch_looks_now_and_then_and_says_what_changed(tmp_path: Path) -> None:
    clock, told = Clock(), list[str]()
    watch = notices.PauseWatch(tmp_path, told.append, every=5, clock=clock)
    assert watch() is None
    path = stands(tmp_path)
    clock.now = 4.9
    assert watch() is None
    clock.now = 5.0
    assert watch() is not None
    path.unlink()
    assert watch() is not None
    clock.now = 10.0
    assert watch() is None
    assert watch.stood_at >= 0
    assert [line.partition(" ")[2].partition(",")[0] for line in told] == [
        "stands",
        "is gone: the work goes on",
    ]


@as_root
def test_a_file_that_is_not_obeyed_is_said_once(tmp_path: Path) -> None:
    clock, told = Clock(), list[str]()
    os.chown(stands(tmp_path), STRANGER, STRANGER)
    watch = notices.PauseWatch(tmp_path, told.append, every=1, clock=clock)
    for clock.now in range(1, 9):
        assert watch() is None
    assert len(told) == 1
    assert "is not obeyed: it belongs to nobody" in told[0]


# Steps -------------------------------------------------------------------------------------


def rests(context: Context, path: Path, work: object) -> None:
    """`work` begins while PAUSE stands, is seen to rest, and ends once it is gone."""
    assert callable(work)
    said = threading.Event()

    def tell(_: str) -> None:
        said.set()

    with notices.watching(notices.PauseWatch(context.config.target.root, tell, every=0.05)):
        thread = threading.Thread(target=work)
        thread.start()
        assert said.wait(30)
        thread.join(0.3)
        assert thread.is_alive()
        path.unlink()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tree(tmp_path / "source", FILES)


def test_publish_waits(tmp_path: Path, source: Path) -> None:
    with staging(tmp_path, source) as context:
        go(context, upto="verify")
        path = stands(context.config.target.root)
        layout = context.layout("data")
        rests(context, path, lambda: publish_step.run(context, "data"))
        assert dataset_folders.current(layout)


def test_audit_and_repair_wait_and_find_and_mend_all_the_same(tmp_path: Path, source: Path) -> None:
    with published(tmp_path, source) as context:
        file = next(
            path for path in sorted(data_of(context).rglob("*")) if path.is_file() and path.stat().st_size
        )
        flip(file)
        root, results = context.config.target.root, list[object]()
        rests(context, stands(root), lambda: results.append(audit_step.run(context, "data")["status"]))
        rests(context, stands(root), lambda: results.append(repair_step.run(context, "data")["status"]))
        assert results == ["FINDINGS", "REPAIRED"]


def test_a_step_that_rests_stops_by_a_signal(tmp_path: Path) -> None:
    stands(tmp_path)
    stop = Stop()
    with (
        notices.watching(notices.PauseWatch(tmp_path, lambda _: stop.set(signal.SIGTERM))),
        pytest.raises(InterruptedRunError),
    ):
        stop.check()


def test_status_shows_the_text(tmp_path: Path, source: Path) -> None:
    config = tmp_path / "config.yaml"
    (tmp_path / "target").mkdir()
    config.write_text(
        json.dumps(
            {"target": {"root": str(tmp_path / "target")}, "datasets": {"data": {"source": str(source)}}}
        )
    )
    stands(tmp_path / "target")
    shown = penstock("--config", str(config), "status", cwd=tmp_path)
    assert shown.returncode == 0
    assert "servers are updated, until 18:00" in shown.stdout
    listed = penstock("--config", str(config), "releases", cwd=tmp_path)
    assert listed.returncode == 0
    assert "PAUSE: " in listed.stdout
    assert "servers are updated, until 18:00" in " ".join(listed.stdout.split())


# Elements and arrays -----------------------------------------------------------------------


def test_an_element_whose_time_ends_while_it_rests_says_so(tmp_path: Path, source: Path) -> None:
    with staging(tmp_path, source) as context:
        go(context, upto="plan")
        folder = run_store.open_run(context.layout("data")).folder
        path = stands(context.config.target.root)
        stop = Stop()
        ends = threading.Timer(0.5, lambda: (setattr(stop, "out_of_time", True), stop.set(signal.SIGTERM)))
        ends.start()
        assert do_shard(folder, "copy", 0, stop) == 143
        told = small_files.read_json(folder.outcome("copy", 0, 1))
        assert (told["stopped"], told["paused"]) == ("time", True)
        path.unlink()
        assert do_shard(folder, "copy", 0) == 0


def test_an_element_that_rested_until_its_time_ended_uses_no_retry(tmp_path: Path) -> None:
    box: list[Stage] = []

    def how(index: int, tries: int) -> State:
        if tries < 4:
            box[0].outcome(index, exit_code=143, stopped="time", paused=True)
            return FAILED
        box[0].receipt(index)
        return DONE

    box.append(Stage(tmp_path, how))
    box[0].retries(0)
    assert box[0].go([0])[0].state is DONE


def test_nothing_is_submitted_while_it_stands(tmp_path: Path) -> None:
    box: list[Stage] = []

    def how(index: int, _: int) -> State:
        assert not path.exists()
        box[0].receipt(index)
        return DONE

    box.append(Stage(tmp_path, how))
    root = box[0].context.config.target.root
    root.mkdir(parents=True)
    path = stands(root)
    rests(box[0].context, path, lambda: box[0].go([0, 1]))
    assert box[0].has(0)
    assert box[0].has(1)


@pytest.mark.parametrize("size", [200_000, 24 << 20], ids=["small", "large"])
def test_a_copy_rests_within_a_row_or_block_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The element goes on to show that it lives; not a byte more comes."""
    monkeypatch.setenv("PENSTOCK_TEST_HEARTBEAT", "0.2")
    files = {f"f{index:03d}": os.urandom(size) for index in range((48 << 20) // size)}
    source = tree(tmp_path / "source", files)
    root = tmp_path / "target"
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "target": {"root": str(root), "keep_free": "0B"},
                "datasets": {"data": {"source": str(source)}},
                "engine": {"limit": "12MiB/s"},
            }
        )
    )
    words = ("--config", str(config), "--progress", "lines")
    for step in ("list", "plan"):
        assert penstock(*words, "step", step, cwd=tmp_path).returncode == 0
    (run,) = (root / "data/.penstock/runs").iterdir()
    file = run / "progress/copy/00000.json"

    def progress() -> tuple[int, float]:
        told = json.loads(file.read_bytes())
        return told["bytes"], told["at"]

    with started(sys.executable, "-m", "penstock", *words, "step", "copy", cwd=tmp_path) as copy:
        until(lambda: file.exists() and progress()[0] > 0, "the first bytes")
        path = stands(root)
        logs = run / "logs"
        until(
            lambda: any("stands, nothing is read" in one.read_text() for one in logs.iterdir()),
            "the element to rest",
        )
        until(lambda: _still(progress), "the bytes to rest")
        rested, at = progress()
        until(lambda: progress()[1] >= at + 2, "signs of life")
        assert progress()[0] == rested < size * len(files)
        path.unlink()
        assert copy.wait(120) == 0, copy.stdout and copy.stdout.read()
    assert json.loads((run / "receipts/copy/00000.json").read_bytes())["bytes"] == size * len(files)


def _still(progress: object) -> bool:
    assert callable(progress)
    seen, at = progress()
    until(lambda: progress()[1] > at + 0.5, "the next report")
    return bool(progress()[0] == seen)


@as_root
def test_a_strangers_file_is_said_and_stops_nobody(tmp_path: Path, source: Path) -> None:
    with staging(tmp_path, source) as context:
        go(context, upto="verify")
        root = context.config.target.root
        os.chown(stands(root), STRANGER, STRANGER)

        def tell(text: str) -> None:
            context.emit(Warned("", "pause", text))

        with notices.watching(notices.PauseWatch(root, tell)):
            publish_step.run(context, "data")
        assert any("is not obeyed" in str(one.data) for one in events_of(context))


def test_a_root_that_does_not_answer_is_waited_for_once_and_asked_again_when_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20: the process that waits for a mount that hangs goes on."""
    answered, asked = threading.Event(), 0

    def hanging(_root: Path) -> notices.RootPause:
        nonlocal asked
        asked += 1
        assert answered.wait(60)
        return notices.RootPause(notices.Pause("maintenance", "root"))

    monkeypatch.setattr(notices, "look_for_pause", hanging)
    watch = notices.PauseWatch(tmp_path, lambda _: None, every=0, within=0.05)
    began = time.monotonic()
    assert (watch(), watch(), watch()) == (None, None, None)
    assert time.monotonic() - began < 30
    assert asked == 1
    answered.set()
    until(lambda: watch() is not None, "the answer")
    assert asked == 2
