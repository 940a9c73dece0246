"""S17: what runs below one root have promised to write."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.forked import NOBODY, forked, killed_at_line
from tests.support.images import file_system
from tests.support.published import content, data_of, flip, publish
from tests.support.staging_runs import context_for, events_of, tree
from tests.support.whole_way import go
from tests.target.conftest import need_root

from penstock.cluster.local import LocalCluster
from penstock.core.documents import promise as documents
from penstock.core.documents.promise import ASKED, RESTING, WORKING, Promise, of_repair
from penstock.core.errors import NoSpaceError
from penstock.core.events import ElementChanged, Started
from penstock.dataset import element_progress, run_store
from penstock.dataset import holder as holders
from penstock.fs.owners import account
from penstock.host.heartbeat import PATIENCE
from penstock.jobs import cancellation
from penstock.jobs.ownership import promises
from penstock.jobs.ownership.dataset_hold import holding
from penstock.jobs.ownership.promise_judgement import DOUBTFUL, LIVING, REST, VOID, judged, read
from penstock.keep.audit import audit_step
from penstock.keep.repair import repair_step
from penstock.run import list_step, plan_step
from penstock.target import cross_account_files, tree_removal
from penstock.target.cross_account_files import Posting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataset.context import Context

MIB = 1 << 20
ROOM = 32 * MIB
EACH = 20 * MIB
HALF = 10 * MIB


@pytest.fixture
def root() -> Iterator[Path]:
    """A small file system, which takes one of the datasets, and where any account may stage."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    folder.chmod(0o755)
    with file_system(folder, "tmpfs", "mode=1777", size=ROOM) as point:
        yield point
    tree_removal.remove_tree(folder)


def dataset(root: Path, tmp_path: Path, name: str) -> Context:
    """A dataset of EACH bytes, listed."""
    source = tree(tmp_path / f"source-{name}", {"small": b"1"})
    with (source / "large").open("wb") as stream:
        stream.truncate(EACH)
    context = context_for(tmp_path, source)
    target = replace(context.config.target, root=root)
    one = replace(context.config.datasets["data"], name=name)
    context.config = replace(context.config, target=target, datasets={name: one})
    list_step.run(context, name)
    return context


def posted(root: Path) -> list[Promise]:
    paths = (root / ".promises").iterdir()
    return [documents.PROMISE.from_value(json.loads(path.read_bytes()), path) for path in paths]


def warnings(context: Context) -> str:
    return "\n".join(str(event.data["text"]) for event in events_of(context) if event.kind == "warning")


def theirs(root: Path, name: str = "", **changes: object) -> str:
    """The promise of a run on another host, which cannot be seen; its name."""
    by = replace(holders.this_process("r", "copy"), host="node17", boot="another", user="alice", job="")
    promise = Promise(
        "r" * 16, "other", os.geteuid(), os.getegid(), EACH, 2, "/else/lock", by=asdict(by)
    )._replace(**changes)  # type: ignore[arg-type]
    name = name or f"{1:020d}.{promise.run}.aa"
    cross_account_files.make_folder_as_above(root / ".promises")
    assert cross_account_files.post(root / ".promises", name, documents.PROMISE.to_json(promise))
    return name


def aged(root: Path, name: str, seconds: float) -> None:
    """Last touched so long ago."""
    path = root / ".promises" / name
    seen = path.stat().st_mtime
    os.utime(path, (seen - seconds, seen - seconds))


def test_s17_two_runs_onto_a_file_system_that_takes_one(root: Path, tmp_path: Path) -> None:
    first, second = (dataset(root, tmp_path, name) for name in ("first", "second"))
    plan_step.run(first, "first")
    assert (root / ".promises").stat().st_mode & 0o7777 == 0o1777
    (own,) = posted(root)
    assert (own.state, own.dataset, own.uid, own.files) == (RESTING, "first", os.geteuid(), 2)
    assert own.bytes == EACH + 4096
    assert own.lock == str(first.layout("first").lock)
    with pytest.raises(NoSpaceError) as caught:
        plan_step.run(second, "second")
    assert caught.value.exit_code == 6
    told = str(caught.value)
    assert f"run {own.run} of dataset first" in told
    assert f"uid {os.geteuid()}" in told
    assert f"{EACH + 4096:,} bytes" in told
    assert "of it promised to other runs" in told
    assert os.listdir(second.layout("second").releases) == []
    assert [one.dataset for one in posted(root)] == ["first"]
    cancellation.run(first, "first")
    assert posted(root) == []
    assert plan_step.run(second, "second")["files"] == 2


@contextmanager
def at_work(context: Context, name: str) -> Iterator[int]:
    """A process that planned the dataset and holds its lock, as copy does."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            plan_step.run(context, name)
            run = run_store.open_run(context.layout(name))
            with holding(context, name, run.id, "copy"):
                os.write(write_end, b"1")
                signal.pause()
        finally:
            os._exit(1)
    os.close(write_end)
    try:
        assert os.read(read_end, 1) == b"1"
        yield pid
    finally:
        os.close(read_end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_s17_a_run_that_was_killed_promises_nothing(root: Path, tmp_path: Path) -> None:
    first, second = (dataset(root, tmp_path, name) for name in ("first", "second"))
    with at_work(first, "first"):
        assert [one.state for one in posted(root)] == [WORKING]
        with pytest.raises(NoSpaceError, match="dataset first"):
            plan_step.run(second, "second")
    assert len(posted(root)) == 1
    plan_step.run(second, "second")
    assert [one.dataset for one in posted(root)] == ["second"]


def test_s17_of_plans_at_one_moment_no_two_pass(root: Path, tmp_path: Path) -> None:
    contexts = {name: dataset(root, tmp_path, name) for name in ("a", "b", "c")}
    gate_read, gate_write = os.pipe()
    children = {}
    for name, context in contexts.items():
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(gate_write)
                os.read(gate_read, 1)
                plan_step.run(context, name)
                status = 0
            except NoSpaceError:
                status = 6
            finally:
                os._exit(status)
        children[name] = pid
    os.close(gate_write)
    os.close(gate_read)
    ends = {name: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for name, pid in children.items()}
    assert sorted(ends.values()) == [0, 6, 6]
    assert [ends[one.dataset] for one in posted(root)] == [0]


def test_s17_a_plan_yields_to_an_older_one_that_still_counts(root: Path, tmp_path: Path) -> None:
    context = dataset(root, tmp_path, "data")
    theirs(root, state=ASKED)
    with pytest.raises(NoSpaceError, match="alice"):
        plan_step.run(context, "data")
    assert len(posted(root)) == 1


@pytest.mark.parametrize("passes", [True, False])
def test_s17_a_plan_waits_for_a_younger_one_that_still_counts(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    """Which yields, or passes: that decides."""
    monkeypatch.setattr(promises, "LOOK", 0.02)
    context = dataset(root, tmp_path, "data")
    name = theirs(root, f"{10**19}.{'r' * 16}.aa", state=ASKED)
    sink = context.sink

    def settle(event: object) -> None:
        sink(event)  # type: ignore[arg-type]
        if "waiting for" in str(getattr(event, "text", "")):
            (path,) = (root / ".promises").glob(name)
            if passes:
                value = json.loads(path.read_bytes()) | {"state": WORKING}
                cross_account_files.repost(path.parent, name, value)
            else:
                cross_account_files.withdraw(path.parent, name)

    context.sink = settle
    if passes:
        with pytest.raises(NoSpaceError, match="alice"):
            plan_step.run(context, "data")
    else:
        assert plan_step.run(context, "data")["files"] == 2


def test_s17_a_run_elsewhere_is_void_when_its_heartbeat_stands_still(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "PATIENCE", 0.3)
    monkeypatch.setattr(promises, "LOOK", 0.05)
    context = dataset(root, tmp_path, "data")
    name = theirs(root)
    with pytest.raises(NoSpaceError, match="alice"):
        plan_step.run(context, "data")
    aged(root, name, PATIENCE + 60)
    assert plan_step.run(context, "data")["files"] == 2
    assert [one.dataset for one in posted(root)] == ["data"]


def test_s17_a_run_elsewhere_whose_heartbeat_moves_is_counted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node's clock is an hour behind."""
    monkeypatch.setattr(promises, "LOOK", 0.05)
    context = dataset(root, tmp_path, "data")
    name = theirs(root)
    aged(root, name, 3600)
    ended = threading.Event()

    def beats() -> None:
        while not ended.wait(0.02):
            aged(root, name, 0.001)

    thread = threading.Thread(target=beats)
    monkeypatch.setattr(promises, "PATIENCE", 0.3)
    thread.start()
    try:
        # Each look finds it moved, so it is never void; a person ends the wait.
        context.stop.wait = lambda seconds: _counted(seconds, context)  # type: ignore[method-assign]
        with pytest.raises(_EnoughError):
            plan_step.run(context, "data")
    finally:
        ended.set()
        thread.join()
    assert [one.dataset for one in posted(root)] == ["other"]


class _EnoughError(Exception):
    pass


def _counted(seconds: float, context: Context) -> None:
    seen = getattr(context, "looks", 0)
    context.looks = seen + 1  # type: ignore[attr-defined]
    if seen > 20:
        raise _EnoughError
    threading.Event().wait(seconds)


def test_s17_promises_of_other_accounts_are_counted_where_they_can_be_true(
    root: Path, tmp_path: Path
) -> None:
    need_root()
    context = dataset(root, tmp_path, "data")
    cross_account_files.make_folder_as_above(root / ".promises")

    def as_other() -> None:
        theirs(root, "1.absurd", uid=NOBODY, bytes=1 << 60)
        theirs(root, "1.negative", uid=NOBODY, bytes=-EACH)
        theirs(root, "1.of-root", uid=0)
        cross_account_files.post(root / ".promises", "1.words", {"run": 5})
        cross_account_files.post(root / ".promises", "1.newer", {"format": 99})
        os.symlink("/etc/passwd", root / ".promises" / "1.link")

    forked(as_other, uid=NOBODY)
    assert plan_step.run(context, "data")["files"] == 2
    told = warnings(context)
    for named in (
        "1.absurd, of uid 65534: 1,152,921,504,606,846,976 bytes",
        "1.of-root, of uid 65534: it speaks for uid 0",
        "1 that are no plain files",
        "1.negative",
        "1.words",
        "1.newer",
    ):
        assert named in told
    again = dataset(root, tmp_path, "again")
    cancellation.run(context, "data")
    forked(lambda: theirs(root, "1.true", uid=NOBODY), uid=NOBODY)
    with pytest.raises(NoSpaceError, match="alice, uid 65534"):
        plan_step.run(again, "again")


def test_s17_a_promise_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    list_step.run(context, "data")
    folder = tmp_path / "target" / ".promises"
    folder.write_bytes(b"")
    assert plan_step.run(context, "data")["files"] == 1
    assert "cannot be promised to others" in warnings(context)
    assert f"mkdir -m 1777 {folder}" in warnings(context)
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    promises.SpacePromise(context, context.layout("data"), "run", "plan").ask(1, 1, 0)
    assert f"chmod 1777 {folder}, as {account(os.geteuid())} or uid 0" in warnings(context)


def test_s17_a_promise_is_lowered_by_copy_and_gone_with_publish(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a" * 5000, "b/c": b""}))
    root = context.config.target.root
    go(context, upto="plan")
    assert [(one.bytes, one.files) for one in posted(root)] == [(8192, 3)]
    assert (root / ".promises").stat().st_mode & 0o7777 == root.stat().st_mode & 0o7777
    # Another plan held it for dead.
    for path in (root / ".promises").iterdir():
        path.unlink()
    go(context, upto="copy")
    assert [(one.bytes, one.files, one.state) for one in posted(root)] == [(0, 0, RESTING)]
    go(context)
    assert posted(root) == []


def test_s17_the_next_run_of_a_dataset_promises_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context, upto="plan")
    tree(tmp_path / "source", {"b": b"b"})
    go(context, upto="plan")
    (own,) = posted(context.config.target.root)
    assert (own.run, own.files) == (run_store.open_run(context.layout("data")).id, 2)


def test_s17_a_promise_beats_with_the_lock_and_with_elements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it names a workflow only on the machine where that can be seen."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    (path,) = (context.config.target.root / ".promises").iterdir()
    kept = promises.OwnPromise(run.layout, run.id, f"{os.getpid()}.1")
    aged(context.config.target.root, path.name, 600)
    before = path.stat().st_mtime
    monkeypatch.setattr(element_progress, "HEARTBEAT", 0.0)
    element_progress.Reporter(tmp_path / "progress", every=0.0, beat=kept.beat)(1, 1, 0)
    assert path.stat().st_mtime > before + 500
    kept.begin("copy")
    (one,) = posted(context.config.target.root)
    assert (one.state, one.controller, one.by["command"]) == (WORKING, "", "copy")
    here = f"{os.getpid()}.{holders.start_time(os.getpid())}"
    promises.OwnPromise(run.layout, run.id, here).begin("copy")
    assert posted(context.config.target.root)[0].controller == here


def damaged(root: Path, tmp_path: Path) -> tuple[Context, str]:
    """A published dataset of HALF bytes, of which an audit found one bit wrong; and its release."""
    source = tree(tmp_path / "source-repaired", {"a/file": content(1, HALF)})
    context = context_for(tmp_path, source)
    one = replace(context.config.datasets["data"], name="repaired")
    target = replace(context.config.target, root=root)
    context.config = replace(context.config, target=target, datasets={"repaired": one})
    publish(context, "repaired")
    flip(data_of(context, "repaired") / "a/file")
    assert audit_step.run(context, "repaired")["counts"] == {"changed": 1}
    return context, os.readlink(context.layout("repaired").current).rpartition("/")[2]


def test_s17_a_repair_is_refused_beside_a_run_that_takes_the_room(root: Path, tmp_path: Path) -> None:
    """It changes nothing then; and it fits once that run is cancelled. Its promise is lowered when it has
    fetched, and gone at its end."""
    context, release = damaged(root, tmp_path)
    layout = context.layout("repaired")
    first = dataset(root, tmp_path, "first")
    plan_step.run(first, "first")
    before = (layout.release(release) / "data/a/file").read_bytes()
    with pytest.raises(NoSpaceError, match=f"too little room for the repair of release {release}") as caught:
        repair_step.run(context, "repaired")
    assert caught.value.exit_code == 6
    told = str(caught.value)
    assert f"of dataset first (root, uid {os.geteuid()}): " in told
    assert f"{EACH + 4096:,} bytes" in told
    assert "it needs 10.0 MiB" in told
    assert (layout.release(release) / "data/a/file").read_bytes() == before
    assert not layout.repair_staging(release).exists()
    assert [one.dataset for one in posted(root)] == ["first"]
    cancellation.run(first, "first")
    seen = set()

    def look(_: object) -> None:
        seen.update((one.run, one.bytes, one.files, one.state) for one in posted(root))

    context.sink = look
    assert repair_step.run(context, "repaired")["status"] == "REPAIRED"
    assert seen == {(of_repair(release), HALF, 2, WORKING), (of_repair(release), 0, 0, WORKING)}
    assert posted(root) == []


@contextmanager
def repairing(context: Context) -> Iterator[None]:
    """A process that is about to fetch."""
    read_end, write_end = os.pipe()

    def pause(event: object) -> None:
        if isinstance(event, Started):
            os.write(write_end, b"1")
            signal.pause()

    pid = os.fork()
    if pid == 0:
        try:
            context.sink = pause
            repair_step.run(context, "repaired")
        finally:
            os._exit(1)
    os.close(write_end)
    try:
        assert os.read(read_end, 1) == b"1"
        yield
    finally:
        os.close(read_end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_s17_a_plan_counts_what_a_repair_will_fetch_until_it_is_killed(root: Path, tmp_path: Path) -> None:
    context, release = damaged(root, tmp_path)
    second = dataset(root, tmp_path, "second")
    with repairing(context):
        (own,) = posted(root)
        assert (own.run, own.repairs, own.bytes, own.files) == (of_repair(release), release, HALF, 2)
        with pytest.raises(NoSpaceError, match=f"repair of release {release} of dataset repaired"):
            plan_step.run(second, "second")
    assert len(posted(root)) == 1
    plan_step.run(second, "second")
    assert [one.dataset for one in posted(root)] == ["second"]
    # What was killed is continued, and counts as one that begins.
    with pytest.raises(NoSpaceError, match="of dataset second"):
        repair_step.run(context, "repaired")
    cancellation.run(second, "second")
    assert repair_step.run(context, "repaired")["status"] == "REPAIRED"


def test_s17_what_a_repair_fetched_before_is_not_counted_again(root: Path, tmp_path: Path) -> None:
    """A second repair goes on where there would be no room to begin."""
    context, release = damaged(root, tmp_path)
    local = context.cluster

    def stop(event: object) -> None:
        # The file lies in staging; nothing is put in its place yet.
        if isinstance(event, ElementChanged) and event.state == "done":
            os._exit(9)

    pid = os.fork()
    if pid == 0:
        try:
            context.sink = stop
            context.cluster = LocalCluster(context.config.cluster)
            repair_step.run(context, "repaired")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert (context.layout("repaired").repair_staging(release) / "data/a/file").stat().st_size == HALF
    (root / "filler").write_bytes(b"1" * (ROOM - 2 * HALF - 3 * MIB))
    context.cluster = local
    assert repair_step.run(context, "repaired")["status"] == "REPAIRED"


def test_s17_publish_leaves_a_repairs_promise_and_a_repair_a_runs(tmp_path: Path) -> None:
    """Of one dataset: a run rests between its steps while an older release is repaired."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    root = context.config.target.root
    go(context)
    flip(data_of(context) / "a")
    audit_step.run(context, "data")
    tree(tmp_path / "source", {"b": b"b"})
    go(context, upto="plan")
    (own,) = posted(root)
    assert repair_step.run(context, "data")["status"] == "REPAIRED"
    assert posted(root) == [own]
    repair = own._replace(run=of_repair("elsewhere"))
    cross_account_files.post(root / ".promises", "1.repair", documents.PROMISE.to_json(repair))
    go(context, after="plan")
    assert posted(root) == [repair]


@pytest.mark.parametrize(
    ("state", "process", "stays", "controller", "age", "verdict"),
    [
        (ASKED, True, True, None, 1e9, LIVING),
        (WORKING, True, False, None, 1e9, LIVING),
        (ASKED, False, False, None, 0, VOID),
        (WORKING, False, False, True, 0, VOID),
        (WORKING, False, True, None, PATIENCE, LIVING),
        (WORKING, False, True, None, PATIENCE + 1, DOUBTFUL),
        (WORKING, None, False, None, PATIENCE, LIVING),
        (WORKING, None, False, None, PATIENCE + 1, DOUBTFUL),
        (RESTING, False, False, True, 1e9, LIVING),
        (RESTING, True, False, False, 0, VOID),
        (RESTING, False, True, None, REST, LIVING),
        (RESTING, None, False, None, REST + 1, VOID),
    ],
)
def test_what_a_promise_is_worth(
    state: str, process: bool | None, stays: bool, controller: bool | None, age: float, verdict: str
) -> None:
    assert judged(state, process, controller, age, stays=stays) == verdict


@pytest.mark.parametrize(
    ("chunk_files", "files", "left"),
    [(0, 5, 0), (40, 10, 40), (40, 5, 20), (40, 0, 0), (4, 5, 4), (10, 1, 1), (12, 1, 2)],
)
def test_s17_chunk_files_are_lowered_with_the_files(
    tmp_path: Path, chunk_files: int, files: int, left: int
) -> None:
    """Of ten files that were promised."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    layout = context.layout("data")
    layout.root.mkdir()
    promise = promises.SpacePromise(context, layout, "r" * 16, "plan")
    promise.ask(100, 10, 5, chunk_files)
    promises.lower(layout, "r" * 16, 50, files)
    (one,) = posted(layout.root)
    assert (one.bytes, one.files, one.chunk_files) == (50, files, left)


def test_s17_what_is_left_of_a_promise_that_was_being_changed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next plan of its account, an hour later by the file system's clock: the machine's is years
    ahead here, and behind."""
    need_root()
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context, upto="plan")
    layout, folder = context.layout("data"), context.config.target.root / ".promises"
    run = run_store.open_run(layout).id

    def left() -> list[Path]:
        return sorted(folder.glob(".*"))

    line = 0
    while not left():
        line += 1
        assert killed_at_line(lambda: promises.lower(layout, run, 0, 0), ("fs/durable.py",), line)
    (young,) = left()
    old = folder / f".{'0' * 16}.tmp"
    others = [folder / ".kept", folder / f".{'1' * 16}.tmp"]
    for path in (old, *others):
        path.write_bytes(b"")
    os.chown(others[1], NOBODY, -1)
    for path in (old, *others):
        aged(context.config.target.root, path.name, REST + 60)
    for years in (10, -10):
        shifted = time.time() + years * 365 * 86400
        monkeypatch.setattr(promises.time, "time", lambda shifted=shifted: shifted)
        tree(tmp_path / "source", {f"b{years}": b"b"})
        go(context, upto="plan")
        assert left() == sorted([young, *others])
    aged(context.config.target.root, young.name, REST + 60)
    tree(tmp_path / "source", {"c": b"c"})
    go(context, upto="plan")
    assert left() == sorted(others)


def test_a_promise_that_is_just_being_written_is_passed_over() -> None:
    assert read([Posting("1.x", 5, 0.0, None)], 10) == ([], [])
