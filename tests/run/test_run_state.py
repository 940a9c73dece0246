"""What `penstock status` says of the last run: what it does, what it waits for, how it ended."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import PATIENCE, penstock, started, until
from tests.support.scripted_cluster import ScriptedCluster
from tests.support.staging_runs import tree
from tests.support.standing import begin
from tests.support.whole_way import FILES, go, staging

from penstock.cli import step_runner
from penstock.cli.commands.stagings import render_status
from penstock.cluster.port import ArraySpec, State
from penstock.core import human
from penstock.core.dataset_documents import LastEnd
from penstock.core.errors import CancelledError, FailedError, InterruptedRunError, LockedError, NoSpaceError
from penstock.core.layout import DatasetLayout
from penstock.dataset import (
    gate,
    holder,
    run_store,
    staging_notice,
)
from penstock.dataset.context import Stop
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs import dataset_state
from penstock.jobs.array_runner import element_command
from penstock.jobs.dataset_state import holding
from penstock.look import status_report
from penstock.run import report_step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.run_steps import Event
    from penstock.core.step_results import StatusResult
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run


STANDING = True


@pytest.fixture
def context(tmp_path: Path, source: Path) -> Iterator[Context]:
    with staging(tmp_path, source) as made:
        yield made


@pytest.mark.parametrize(
    ("judged", "work", "noticed", "state"),
    [
        ("held", "copying", "copying", "held"),
        ("damaged", "failed", "", "damaged"),
        ("published", "failed", "waiting", "failed"),
        ("nothing published", "copying", "", "copying"),
        ("published", "", "verifying", "verifying"),
        ("nothing published", "unknown", "waiting", "waiting"),
        ("published", "unknown", "", "unknown"),
        ("published", "", "", "published"),
        ("nothing published", "", "", "nothing published"),
    ],
)
def test_the_state_of_a_dataset(judged: str, work: str, noticed: str, state: str) -> None:
    """The first table of `jobs.dataset_state`, row by row."""
    assert dataset_state.composed(judged, work, noticed) == state


def test_a_submitted_controller_waits_until_a_command_ended_since(context: Context) -> None:
    """By its notice, where SLURM is not asked; what SLURM says goes before it."""
    begin(context)
    layout = context.layout("data")

    def state(submitted: str | None = None) -> str:
        judgement = gate.judged(layout, context.config.target.owners)
        return dataset_state.read(context, judgement, submitted).state

    ends(context, FailedError("it broke"), "list")
    big: Any = SimpleNamespace(name=lambda: "big")
    staging_notice.submitted(layout, "4711", big)
    os.utime(layout.ended, (1e9, 1e9))
    assert (state(), state(""), state("4711")) == ("waiting", "failed", "waiting")
    later = layout.under_way.stat().st_mtime + 1
    os.utime(layout.ended, (later, later))
    assert state() == "failed"


def run_of(context: Context) -> Run:
    return run_store.open_run(context.layout("data"))


def status(context: Context) -> StatusResult:
    return status_report.run(context, "data")


def line(context: Context) -> str:
    """The text's first line about the dataset."""
    return render_status([status(context)])[1].text.strip()


def ends(context: Context, error: Exception, step: str = "copy") -> None:
    """The step ends by this error, as the command line calls it: the first event of it raises."""

    def raises(event: Event) -> None:
        if event.step == step:
            raise error

    before, context.sink = context.sink, raises
    try:
        with pytest.raises(type(error)):
            step_runner.run_step(step, context, "data")
    finally:
        context.sink = before


def test_from_nothing_to_published(context: Context) -> None:
    assert line(context) == "state         nothing published"
    go(context, upto="list")
    assert status(context)["work"]["step"] == "plan"
    go(context, upto="verify")
    assert status(context)["work"]["step"] == "publish"
    go(context)
    assert (status(context)["state"], "work" in status(context)) == ("published", False)
    size = human.size(sum(map(len, FILES.values())))
    assert f"  size          {size}" in [one.text for one in render_status([status(context)])]


def test_a_step_at_work_says_how_much_is_done(context: Context) -> None:
    begin(context, upto="plan")
    run = run_of(context)
    with holding(context, "data", run.id, "copy"):
        progress = run.folder.progress("copy", 0)
        progress.parent.mkdir(parents=True, exist_ok=True)
        progress.write_text(json.dumps({"files": 1, "bytes": run.plan.bytes // 2, "failed": 0}))
        assert line(context) == "state         copying 50.0 %"
        made = f"  release       {run.release}, being made"
        assert made in [one.text for one in render_status([status(context)])]
        assert status(context)["work"]["percent"] == 50.0
        run.folder.progress("verify", 0).parent.mkdir(parents=True, exist_ok=True)
        run.folder.progress("verify", 0).write_text(json.dumps({"files": 1, "bytes": 20_000}))
        assert line(context) == "state         copying 50.0 %, 19.5 KiB read back"
        shown = [one.text for one in render_status([status(context)])]
        assert "  verify        0 of 2 shards done, 1 file, 19.5 of 213 KiB" in shown
        (context.config.target.root / "PAUSE").write_text("until 18:00")
        assert line(context).startswith("state         waiting: PAUSE stands at ")
        assert "until 18:00" in line(context)


@pytest.mark.parametrize(
    ("error", "said", "to_do"),
    [
        (NoSpaceError("it is full", where="/t"), "no space: copy: it is full [/t] (exit 6)", "make room"),
        (FailedError("it broke", why="so", hint="mend it"), "copy: it broke: so (exit 1)", "mend it; then `"),
        (
            OSError(28, "No space", "/t"),
            "no space: copy: no space or quota is left [/t] (exit 6)",
            "make room",
        ),
        (ValueError("odd"), "copy: unexpected ValueError: odd (exit 1)", "`penstock run data` goes on"),
        (
            FailedError("1 shard did not finish", hint='shard 0 on n: exit 1\n    "b": denied\n  mend b'),
            'copy: 1 shard did not finish; shard 0 on n: exit 1; "b": denied (exit 1)',
            "mend b; then `penstock run data` goes on",
        ),
    ],
)
def test_a_run_that_failed_says_why(context: Context, error: Exception, said: str, to_do: str) -> None:
    begin(context, upto="plan")
    ends(context, error)
    told = status(context)
    assert told["state"] == "failed"
    assert line(context).endswith(said)
    assert told["to_do"].startswith(to_do)
    assert report_step.gather(context, run_of(context))["why"] == told["why"]
    # The note stands until a further step begins, which says so itself when it is killed.
    with holding(context, "data", run_of(context).id, "copy"):
        assert staging_notice.find_end(context.layout("data")) is None
    assert "stopped: no command is at work, and copy has not ended" in line(context)


@pytest.mark.parametrize(
    ("step", "code", "hint", "advice"),
    [
        ("list", 5, "odd", "`penstock run data` lists the source anew"),
        (
            "copy",
            6,
            "odd",
            "make room (`penstock gc data` removes old releases); then `penstock run data` goes on",
        ),
        ("copy", 1, "mend b: then the same command goes on", "mend b: then `penstock run data` goes on"),
        ("copy", 1, "mend it", "mend it; then `penstock run data` goes on where it stopped"),
        ("preflight", 3, "mend it", "mend it; then `penstock run data`"),
        (
            "preflight",
            3,
            "",
            "correct what it names, or `datasets.data` of the configuration; then `penstock",
        ),
        ("copy", 2, "", "correct what it names, or `datasets.data` of the configuration; then `penstock run"),
        ("copy", 1, "", "`penstock run data` goes on where it stopped"),
    ],
)
def test_what_helps_after_an_error(step: str, code: int, hint: str, advice: str, tmp_path: Path) -> None:
    """The table of `staging_notice.to_do_after`, row by row."""
    told = staging_notice.to_do_after(DatasetLayout(tmp_path, "data"), LastEnd(step, code, "why", hint))
    assert told.startswith(advice)


def test_a_first_run_that_failed_says_so_where_nothing_was_ever_staged(context: Context) -> None:
    context.config.target.root.mkdir()
    ends(context, FailedError("the source is empty", hint="check the URL"), "list")
    told = status(context)
    assert (told["state"], told["work"]["step"]) == ("failed", "list")
    assert line(context).endswith("list: the source is empty (exit 1)")
    assert told["to_do"].startswith("check the URL; then `penstock run data`")
    go(context)
    assert status(context)["state"] == "published"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_note_of_a_first_run_makes_no_root_and_no_state_elsewhere(
    tmp_path: Path, *, elsewhere: bool
) -> None:
    layout = DatasetLayout(tmp_path / "root", "data", tmp_path / "states" if elsewhere else None)
    if elsewhere:
        layout.root.mkdir()
    staging_notice.note_end(layout, LastEnd("list", 3, "why"))
    assert [*tmp_path.rglob("*")] == ([layout.root] if elsewhere else [])
    end = staging_notice.find_end(layout)
    assert end is not None
    assert (end.step, end.exit, end.why) == ("list", 3, "why")


@pytest.mark.parametrize("more", [{}, {"state_root": "states"}])
def test_a_first_run_that_fails_before_the_root_is_made_is_kept(more: dict[str, str], tmp_path: Path) -> None:
    """By status, metrics and gate, until the dataset has a state of its own."""
    given = {"target": {"root": "data", **more}, "datasets": {"away": {"source": "away"}}}
    (tmp_path / "penstock.yaml").write_text(json.dumps(given))

    def command(*words: str) -> tuple[int, str]:
        done = penstock(*words, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    assert command("run", "away")[0] == 3
    assert not (tmp_path / "data").exists()
    code, text = command("status", "away")
    assert code == 0
    assert re.search(r"state +failed at \S+: preflight: .*\(exit 3\)", text)
    assert re.search(r"to do +.*`penstock run away`", text)
    assert 'state="failed"' in command("metrics")[1]
    code, text = command("gate", "away")
    assert code == 4
    assert re.search(r"nothing is published .*: its last run failed at \S+: preflight: ", text)
    assert "`penstock run away`" in text
    tree(tmp_path / "away", FILES)
    assert command("run", "away")[0] == 0
    assert re.search(r"state +published\n", command("status", "away")[1])
    assert command("remove", "away", "--all", "--now")[0] == 0
    assert "nothing published" in command("status", "away")[1]


def test_after_ctrl_c_the_closing_table_and_status_say_the_same(tmp_path: Path) -> None:
    tree(tmp_path / "slow", {f"{number}": bytes(1 << 20) for number in range(60)})
    given = {
        "target": {"root": "data", "state_root": "states"},
        "engine": {"limit": "1MiB/s"},
        "datasets": {"away": {"source": "away"}, "slow": {"source": "slow"}},
    }
    (tmp_path / "penstock.yaml").write_text(json.dumps(given))
    copying = tmp_path / "states/slow/.penstock/runs"
    with started(sys.executable, "-m", "penstock", "run", cwd=tmp_path) as process:
        until(lambda: [*copying.glob("*/progress/copy/*.json")], "copy to begin")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert re.search(r"! away +FAILED", out)
    assert re.search(r"! slow +stopped", out)
    assert "again:  penstock run\n" in out
    table = penstock("status", cwd=tmp_path).stdout
    assert re.search(r"! away +failed \d+ s ago(?:.*\n)+? +.*\(preflight, exit 3\)", table)
    assert re.search(r"! slow +stopped \d+ s ago .*60.0 MiB.*\n +by SIGINT \(copy, \d+ % done\)\n", table)
    assert "2 datasets: 2 need you\n" in table
    text = penstock("status", "away", "slow", cwd=tmp_path).stdout
    assert re.search(r"away\n +state +failed at .*\(exit 3\)", text)
    assert re.search(r"slow\n +state +stopped by SIGINT in copy", text)


def test_a_failed_look_for_news_is_said_beside_what_is_published(context: Context) -> None:
    begin(context)
    ends(context, FailedError("the source is away"), "list")
    told = status(context)
    assert (told["state"], told["current"]) == ("failed", told["release"])
    go(context, upto="list")
    assert status(context)["state"] == "published"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_stopped_names_the_signal(context: Context, number: signal.Signals) -> None:
    begin(context, upto="plan")
    ends(context, InterruptedRunError(number))
    told = status(context)
    assert (told["state"], told["work"]["signal"]) == ("stopped", number.name)
    assert line(context).startswith(f"state         stopped by {number.name} in copy, 0.0 % done, at ")


@pytest.mark.parametrize(
    ("mark", "said"),
    [("orphaned", "the run that started it was killed"), ("out_of_time", "the time limit of its job came")],
)
def test_a_stop_without_a_signal_of_a_person_names_none(context: Context, mark: str, said: str) -> None:
    begin(context, upto="plan")
    context.stop = Stop(**{mark: True})
    context.stop.set(signal.SIGTERM)
    ends(context, InterruptedRunError(signal.SIGTERM, context.stop.why))
    context.stop = Stop()
    told = status(context)
    assert (told["state"], told["work"]["why"], "signal" in told["work"]) == ("stopped", said, False)
    assert re.fullmatch(rf"state         stopped at \S+: {said}", line(context))


def test_what_was_cancelled_did_not_fail(context: Context) -> None:
    begin(context, upto="plan")
    ends(context, CancelledError("copy was cancelled", where="data", why="by x on y"))
    assert status(context)["state"] == "stopped"
    assert line(context).endswith(": copy was cancelled [data]: by x on y")


def test_that_another_command_holds_the_dataset_is_no_end_of_the_run(context: Context) -> None:
    begin(context, upto="plan")
    ends(context, LockedError("somebody holds it"))
    assert staging_notice.find_end(context.layout("data")) is None
    with holding(context, "data", run_of(context).id, "copy"):
        ends(context, FailedError("a second command of the same step"), "list")
        assert staging_notice.find_end(context.layout("data")) is None


def test_a_killed_holder_of_the_lock_is_not_at_work(context: Context) -> None:
    """kill -9: the lock stays, and the process that it names is gone, or another's number now."""
    begin(context, upto="plan")
    layout = context.layout("data")
    me = replace(holder.this_process(run_of(context).id, "copy"), start="1")
    layout.lock.write_bytes(me.to_json())
    told = status(context)
    assert (told["state"], "lock" in told) == ("stopped", False)
    claim = next(layout.claims.iterdir())
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "controller": f"{os.getpid()}.1"}))
    assert "killed" in status(context)["why"]
    # On another host its heartbeat counts.
    layout.lock.write_bytes(replace(me, host="elsewhere").to_json())
    assert status(context)["state"] == "copying"
    os.utime(layout.lock, (1, 1))
    told = status(context)
    assert (told["state"], "no sign of life" in told["why"]) == ("unknown", True)


def test_another_command_that_holds_the_lock_is_waited_for(context: Context) -> None:
    begin(context, upto="plan")
    layout = context.layout("data")
    layout.lock.write_bytes(holder.this_process("", "gc").to_json())
    claim = next(layout.claims.iterdir())
    start = holder.start_time(os.getpid())
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "controller": f"{os.getpid()}.{start}"}))
    assert "waiting: for the dataset's lock: " in line(context)
    assert "penstock gc" in line(context)
    layout.lock.unlink()
    assert line(context) == "state         starting: copy"


def test_elements_that_wait_for_slurm_give_its_reason(context: Context) -> None:
    begin(context, upto="plan")
    run = run_of(context)
    cluster = ScriptedCluster(lambda *_: State.DONE, queries_until_end=99, slot_count=0)
    context.cluster = cluster
    command = [*element_command(context, run.folder, "copy"), "--array", "a-name"]
    array = cluster.submit(ArraySpec("a-name", "copy", run.indices, command, run.folder.logs))
    book = ArrayBook(run.folder.arrays)
    book.intend("a-name", "copy", "slurm", run.indices, workers=len(run.indices), call="c")
    book.submitted("a-name", array)
    said = "state         waiting: for SLURM: array 1, JobArrayTaskLimit"
    assert line(context) == f"{said}; its controller has ended"
    with holding(context, "data", run.id, "copy"):
        assert line(context) == said
        cluster.slot_count = 1
        assert line(context) == "state         copying 0.0 %"
        cluster.silent = 1
        assert "waiting: for SLURM: it does not answer" in line(context)
    assert status(context)["why"] == "array 1 runs without its controller"


def test_a_note_has_its_room_before_the_file_system_is_full(context: Context) -> None:
    """What is written on failure fits into what lies there; what cannot be read is no note."""
    begin(context, upto="plan")
    layout = context.layout("data")
    assert layout.ended_room.stat().st_size == staging_notice.SIZE
    inode = layout.ended_room.stat().st_ino
    staging_notice.note_end(layout, LastEnd("copy", 6, "w" * 9000, "h" * 9000))
    assert (layout.ended.stat().st_ino, layout.ended.stat().st_size) == (inode, staging_notice.SIZE)
    assert not layout.ended_room.exists()
    layout.ended.write_bytes(b"[" * 5000)
    assert staging_notice.find_end(layout) is None
    layout.ended.unlink()
    os.mkfifo(layout.ended)
    assert staging_notice.find_end(layout) is None
    assert status(context)["state"] == "stopped"
