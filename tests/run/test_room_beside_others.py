"""S17: what plans, repairs and rehearsals below one root state that they will still write, and count of each
other."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.support.forked import NOBODY, forked
from tests.support.images import file_system
from tests.support.published import content, data_of, flip, publish
from tests.support.staging_runs import context_for, events_of, tree
from tests.support.whole_way import go
from tests.target.conftest import need_root

from penstock.cluster.registry import LocalCluster
from penstock.config.settings import EngineConfig
from penstock.core.dataset_documents import UNDER_WAY, StillToWrite, UnderWay
from penstock.core.element_documents import ShardClaim
from penstock.core.errors import InterruptedRunError, LockedError, NoSpaceError
from penstock.core.layout import DatasetLayout, RunLayout
from penstock.core.run_documents import PlanInfo, ShardInfo
from penstock.core.run_steps import ElementChanged, Started
from penstock.dataset import receipts, run_store, staging_notice
from penstock.dataset.context import Stop
from penstock.dataset.staging_notice import LONGEST, living_below
from penstock.fs import capabilities
from penstock.jobs import array_orders, share_rule
from penstock.jobs.dataset_state import holding
from penstock.jobs.element import Attempt, Paces
from penstock.jobs.forecast import lowered
from penstock.jobs.shard_claims import Claim
from penstock.keep import audit_step, repair_step, retention_steps
from penstock.run import copy_step, list_step, plan_step
from penstock.target import tree_removal
from penstock.target.room_watch import RoomWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.dataset.staging_notice import StagingNotice

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


def stated(root: Path) -> list[StagingNotice]:
    """What lives below the root and will write something."""
    living = living_below(DatasetLayout(root, "none"))
    return [notice for notice in living if notice.writes.files]


def said(context: Context, kind: str = "note") -> str:
    return "\n".join(str(event.data["text"]) for event in events_of(context) if event.kind == kind)


def theirs(root: Path, name: str = "theirs", **writes: int) -> Path:
    """The notice of a run on another host; its path."""
    path = DatasetLayout(root, name).under_way
    path.parent.mkdir(exist_ok=True)
    still = StillToWrite(EACH, 2, uid=os.geteuid(), gid=os.getegid())._replace(**writes)
    notice = UnderWay("copy", "2026-01-01T00:00:00Z", "node17", writes=still)
    path.write_text(json.dumps(UNDER_WAY.to_json(notice)))
    return path


def aged(path: Path, seconds: float) -> None:
    """Last touched so long ago."""
    touched = path.stat().st_mtime - seconds
    os.utime(path, (touched, touched))


def test_s17_two_runs_onto_a_file_system_that_takes_one(root: Path, tmp_path: Path) -> None:
    first, second = (dataset(root, tmp_path, name) for name in ("first", "second"))
    plan_step.run(first, "first")
    (own,) = stated(root)
    assert (own.dataset, own.uid, own.writes.files) == ("first", os.geteuid(), 2)
    assert own.writes.bytes == EACH + 4096
    assert own.path.stat().st_mode & 0o7777 == 0o644
    with pytest.raises(NoSpaceError) as caught:
        plan_step.run(second, "second")
    assert caught.value.exit_code == 6
    text = str(caught.value)
    assert f"dataset first (root (uid {os.geteuid()}))" in text
    assert f"{EACH + 4096:,} bytes" in text
    assert "of it for other runs" in text
    assert os.listdir(second.layout("second").releases) == []
    assert [notice.dataset for notice in stated(root)] == ["first"]
    array_orders.cancel(first, "first")
    assert stated(root) == []
    assert plan_step.run(second, "second")["files"] == 2


def test_s17_a_plan_that_fits_says_whom_it_counted(root: Path, tmp_path: Path) -> None:
    context = dataset(root, tmp_path, "data")
    theirs(root, bytes=MIB)
    plan_step.run(context, "data")
    assert "counted, as other runs below this root still write it: dataset theirs" in said(context)
    assert "(1,048,576 bytes) and 2 files, step copy on node17" in said(context)


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


def test_s17_a_run_that_was_killed_is_counted_until_it_gave_no_sign_of_life(
    root: Path, tmp_path: Path
) -> None:
    first, second = (dataset(root, tmp_path, name) for name in ("first", "second"))
    with at_work(first, "first"):
        pass
    with pytest.raises(NoSpaceError, match="dataset first"):
        plan_step.run(second, "second")
    aged(first.layout("first").under_way, capabilities.BOUND + 10)
    plan_step.run(second, "second")
    assert [notice.dataset for notice in stated(root)] == ["second"]


def test_s17_of_plans_at_one_moment_no_two_pass(root: Path, tmp_path: Path) -> None:
    """Each stated what it will write before it counts."""
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
    assert sorted(ends.values()) in ([0, 6, 6], [6, 6, 6])
    assert [ends[notice.dataset] for notice in stated(root)] == [0] * [*ends.values()].count(0)


@pytest.mark.parametrize(("seconds", "counted"), [(60, True), (-60, True), (400, False), (-400, False)])
def test_s17_a_notice_counts_while_it_is_touched_whatever_this_hosts_clock_says(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, counted: bool
) -> None:
    """By the file system's clock, and a minute late as NFS may show it. One from the future is not counted:
    it would count for ever."""
    context = dataset(root, tmp_path, "data")
    aged(theirs(root), seconds)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    if counted:
        with pytest.raises(NoSpaceError, match="dataset theirs"):
            plan_step.run(context, "data")
    else:
        assert plan_step.run(context, "data")["files"] == 2


def test_s17_what_accounts_outside_target_owners_state_is_said_and_refuses_nothing(
    root: Path, tmp_path: Path
) -> None:
    need_root()
    context = dataset(root, tmp_path, "data")

    def as_other() -> None:
        theirs(root, "forged", bytes=10**18)
        theirs(root, "stranger")
        theirs(root, "of-root", uid=0)

    forked(as_other, uid=NOBODY)
    theirs(root, "impossible", bytes=1 << 60)
    assert {notice.writes.uid for notice in stated(root) if notice.dataset == "of-root"} == {NOBODY}
    assert plan_step.run(context, "data")["files"] == 2
    for name in ("forged", "stranger", "of-root", "impossible"):
        assert f"dataset {name} (" in said(context)
    assert "not counted, as `target.owners` does not name the account" in said(context)
    assert "1,000,000,000,000,000,000 bytes" in said(context)
    array_orders.cancel(context, "data")
    again = dataset(root, tmp_path, "again")
    again.config = replace(again.config, target=replace(again.config.target, owners=("root", str(NOBODY))))
    with pytest.raises(NoSpaceError, match=r"dataset stranger \(.*uid 65534"):
        plan_step.run(again, "again")


def test_s17_what_was_only_submitted_is_not_counted_whatever_its_time(root: Path, tmp_path: Path) -> None:
    """Any account sets its file's time as it likes, and a submitted controller writes nothing yet."""
    context = dataset(root, tmp_path, "data")
    path = theirs(root)
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"step": staging_notice.SUBMITTED}))
    os.utime(path, (2**60, 2**60))
    assert plan_step.run(context, "data")["files"] == 2
    path.write_text(json.dumps(value))
    os.utime(path, (2**60, 2**60))
    notice = staging_notice.find(DatasetLayout(root, "theirs"))
    assert str(notice).endswith(f"last sign of life at {2**60}")


@pytest.mark.parametrize(
    "what",
    [
        "huge",
        "truncated",
        "words",
        "newer",
        "negative",
        "nested",
        "link",
        "fifo",
        "folder",
        "closed",
        "alias",
    ],
)
def test_s17_what_is_no_notice_is_passed_over_and_waited_for_by_nobody(
    root: Path, tmp_path: Path, what: str
) -> None:
    context = dataset(root, tmp_path, "data")
    path = theirs(root)
    text, value = path.read_text(), json.loads(path.read_text())
    path.unlink()
    if what == "huge":
        path.write_text(text)
        os.truncate(path, 16 * MIB)
    elif what in ("link", "alias"):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / path.name).write_text(text)
        if what == "link":
            path.symlink_to(elsewhere / path.name)
        else:
            path.parent.rmdir()
            path.parent.symlink_to(elsewhere)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        changed = {"words": {"bytes": "many"}, "newer": {"format": 99}, "negative": {"bytes": -EACH}}
        text = "[" * 3000 if what == "nested" else json.dumps(value | changed.get(what, {}))
        path.write_text(text[:100] if what == "truncated" else text)
    if what == "closed":
        os.chown(path, NOBODY, -1)
        path.chmod(0)
    assert len(text) < LONGEST
    assert plan_step.run(context, "data")["files"] == 2
    assert stated(root)[0].dataset == "data"


def test_s17_what_a_run_will_write_is_lowered_by_copy_and_gone_with_publish(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a" * 5000, "b/c": b""}))
    root = context.config.target.root
    go(context, upto="plan")
    assert [(notice.writes.bytes, notice.writes.files) for notice in stated(root)] == [(8192, 3)]
    # As a stop leaves it: copy states it anew.
    staging_notice.forget(context.layout("data"))
    seen = set()

    def look(_: object) -> None:
        seen.update((notice.writes.bytes, notice.writes.files) for notice in stated(root))

    context.sink = look
    go(context, upto="copy")
    assert seen == {(5000 + 3 * 4096, 3)}
    assert stated(root) == []
    assert context.layout("data").under_way.exists()
    go(context)
    assert not context.layout("data").under_way.exists()


def test_s17_a_copy_that_goes_on_states_what_is_new_alone(tmp_path: Path) -> None:
    """A copy that ended with 6 left no notice; most of its release is linked."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a" * 50_000, "b/c": b""}))
    root = context.config.target.root
    go(context)
    tree(tmp_path / "source", {"d": b"d" * 100})
    go(context, upto="plan")
    assert [(notice.writes.bytes, notice.writes.files) for notice in stated(root)] == [(4096, 2)]
    staging_notice.forget(context.layout("data"))
    seen = set()

    def look(_: object) -> None:
        seen.update((notice.writes.bytes, notice.writes.files) for notice in stated(root))

    context.sink = look
    go(context, after="plan", upto="copy")
    assert seen == {(100 + 2 * 4096, 2)}


@pytest.mark.parametrize(("way", "new"), [("link", (5, 1)), ("reflink", (9, 1)), ("copy", (9, 101))])
def test_s17_what_a_plan_makes_on_the_target(way: str, new: tuple[int, int]) -> None:
    plan = PlanInfo(
        "r", "release", "base", files=10, bytes=1101, giants=0, unchanged=4, unchanged_bytes=100, shards=(),
        part_bytes=1, folders=2, taken=3, taken_bytes=1000, way=way,
    )  # fmt: skip
    assert plan.new_on_target == new


def test_s17_an_element_whose_objects_grew_keeps_to_the_room(tmp_path: Path) -> None:
    """It has more bytes done than its shard was planned with."""
    space = os.statvfs(tmp_path)
    room = RoomWatch(tmp_path, space.f_bavail * space.f_frsize + (1 << 30), None, reserves=True)
    reporter = receipts.Reporter(tmp_path / "progress")
    reporter(1, 1 << 50, 0)
    shard = ShardInfo(0, 1, 1, bytes=5, reused=0, digest="sha256:0")
    paces, claim = Paces(None, None), Claim(RunLayout(tmp_path), "copy", 0, 1, ShardClaim())
    attempt = Attempt(cast("Run", None), shard, claim, reporter, Stop(), paces, room)
    with pytest.raises(NoSpaceError, match="the target has no room left"):
        attempt.go_on()


def test_s17_the_next_run_of_a_dataset_states_its_own(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context, upto="plan")
    tree(tmp_path / "source", {"b": b"b"})
    go(context, upto="plan")
    (own,) = stated(context.config.target.root)
    assert own.writes.files == 2


def test_s17_elements_touch_the_notice_of_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a run whose controller died counts while its elements write."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context, upto="plan")
    path = context.layout("data").under_way
    monkeypatch.setattr(receipts, "HEARTBEAT", 0.0)
    for _ in range(2):
        aged(path, 600)
        before = path.stat().st_mtime
        reporter = receipts.Reporter(
            tmp_path / "progress", every=0.0, beat=lambda: staging_notice.touch(path)
        )
        reporter(1, 1, 0)
        assert path.stat().st_mtime > before + 500
    path.unlink()
    reporter(1, 1, 0)
    assert not path.exists()


@pytest.mark.parametrize("elements_go_on", [False, True])
def test_s17_a_stopped_run_counts_while_its_elements_go_on(
    root: Path, tmp_path: Path, elements_go_on: bool
) -> None:
    context = dataset(root, tmp_path, "data")
    plan_step.run(context, "data")
    run = run_store.open_run(context.layout("data"))
    context.cluster.kind = "slurm" if elements_go_on else "local"
    with pytest.raises(InterruptedRunError), holding(context, "data", run.id, "copy"):
        raise InterruptedRunError(signal.SIGTERM)
    assert len(stated(root)) == elements_go_on


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
    """It changes nothing then; and it fits once that run is cancelled. What it states is lowered when it has
    fetched, and gone at its end."""
    context, release = damaged(root, tmp_path)
    layout = context.layout("repaired")
    first = dataset(root, tmp_path, "first")
    plan_step.run(first, "first")
    before = (layout.release(release) / "data/a/file").read_bytes()
    with pytest.raises(NoSpaceError, match=f"too little room for the repair of release {release}") as caught:
        repair_step.run(context, "repaired")
    assert caught.value.exit_code == 6
    text = str(caught.value)
    assert f"dataset first (root (uid {os.geteuid()})): " in text
    assert f"{EACH + 4096:,} bytes" in text
    assert "it needs 10.0 MiB" in text
    assert (layout.release(release) / "data/a/file").read_bytes() == before
    assert not layout.repair_staging(release).exists()
    assert [notice.dataset for notice in stated(root)] == ["first"]
    array_orders.cancel(first, "first")
    seen = set()

    def look(_: object) -> None:
        seen.update((notice.path, notice.writes.bytes, notice.writes.files) for notice in stated(root))

    context.sink = look
    assert repair_step.run(context, "repaired")["status"] == "REPAIRED"
    assert seen == {(layout.repair_under_way, HALF, 2)}
    assert not layout.repair_under_way.exists()


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


def test_s17_a_plan_counts_what_a_repair_will_fetch(root: Path, tmp_path: Path) -> None:
    context, _ = damaged(root, tmp_path)
    second = dataset(root, tmp_path, "second")
    with repairing(context):
        (own,) = stated(root)
        assert (own.dataset, own.writes.bytes, own.writes.files) == ("repaired", HALF, 2)
        with pytest.raises(NoSpaceError, match=r"dataset repaired .*step repair"):
            plan_step.run(second, "second")
    aged(context.layout("repaired").repair_under_way, capabilities.BOUND + 10)
    plan_step.run(second, "second")
    # What was killed is continued, and counts as one that begins.
    with pytest.raises(NoSpaceError, match="dataset second"):
        repair_step.run(context, "repaired")
    array_orders.cancel(second, "second")
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


def test_s17_a_repair_leaves_what_a_run_of_its_dataset_states(tmp_path: Path) -> None:
    """A run rests between its steps while an older release is repaired."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context)
    flip(data_of(context) / "a")
    audit_step.run(context, "data")
    tree(tmp_path / "source", {"b": b"b"})
    go(context, upto="plan")
    before = context.layout("data").under_way.read_bytes()
    assert repair_step.run(context, "data")["status"] == "REPAIRED"
    assert context.layout("data").under_way.read_bytes() == before


@pytest.mark.parametrize(
    ("chunk_files", "files", "left"),
    [(0, 5, 0), (40, 10, 40), (40, 5, 20), (40, 0, 0), (4, 5, 4), (10, 1, 1), (12, 1, 2)],
)
def test_s17_chunk_files_are_lowered_with_the_files(chunk_files: int, files: int, left: int) -> None:
    """Of ten files that were stated."""
    lower = lowered(StillToWrite(100, 10, chunk_files), 50, files)
    assert lower[:3] == (50, files, left)
    assert lowered(lower, 60, 20) == lower


def test_s17_two_runs_that_no_plan_sees_end_before_keep_free_is_reached(tmp_path: Path) -> None:
    """Below two roots of one file system, which takes one of them. One at least ends with 6 and loses
    nothing; it goes on once the other is gone."""
    keep = 16 * MIB
    with file_system(tmp_path, "tmpfs", size=64 * MIB) as point:
        contexts: dict[str, Context] = {}
        for name in ("a", "b"):
            source = tree(tmp_path / f"source-{name}", {f"{n}": content(n, MIB) for n in range(40)})
            context = context_for(tmp_path, source, local=True)
            target = replace(context.config.target, root=point / name, keep_free=keep)
            engine = EngineConfig(workers=1, streams=2, limit=6 * MIB)
            context.config = replace(context.config, target=target, engine=engine)
            go(context, upto="plan")
            contexts[name] = context
        pids: dict[int, str] = {}
        for name, context in contexts.items():
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    copy_step.run(context, "data")
                    status = 0
                except NoSpaceError:
                    status = 6
                finally:
                    os._exit(status)
            pids[pid] = name
        least = 64 * MIB
        ends: dict[str, int] = {}
        while pids:
            space = os.statvfs(point)
            least = min(least, space.f_bavail * space.f_frsize)
            for pid in tuple(pids):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    ends[pids.pop(pid)] = os.waitstatus_to_exitcode(status)
            threading.Event().wait(0.05)
        assert sorted(ends.values()) in ([0, 6], [6, 6])
        assert least >= keep
        (refused, other) = sorted(ends, key=lambda name: -ends[name])
        before = sum(
            path.stat().st_size for path in contexts[refused].layout("data").releases.rglob("data/*")
        )
        tree_removal.remove_tree(point / other)
        receipt = go(contexts[refused], after="plan", upto="copy")
        assert 0 < receipt["copied_bytes"] < 40 * MIB
        assert before >= 40 * MIB - receipt["copied_bytes"]
        for context in contexts.values():
            context.cluster.close()


def older(root: Path, **fields: Any) -> Path:
    """What a run of a version before 1.0 posted."""
    path = root / ".promises" / f"{1:020d}.{'r' * 16}.aa"
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o1777)
    path.write_text(json.dumps({"run": "r" * 16, "dataset": "older", "bytes": 5, "format": 1} | fields))
    return path


def test_s17_a_run_of_an_older_version_is_named_until_it_has_ended(root: Path, tmp_path: Path) -> None:
    context = dataset(root, tmp_path, "data")
    path = older(root)
    with pytest.raises(LockedError, match=r"older penstock is at work.*root \(uid 0\) was at work"):
        plan_step.run(context, "data")
    path.write_text("{")
    with pytest.raises(LockedError):
        plan_step.run(context, "data")
    os.chown(path, NOBODY, -1)
    assert plan_step.run(context, "data")["files"] == 2


def test_s17_gc_removes_what_dead_runs_of_older_versions_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_root()
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"a"}))
    go(context)
    own = older(context.config.target.root)
    foreign = own.with_name("foreign")
    foreign.write_text("{}")
    os.chown(foreign, NOBODY, -1)
    retention_steps.gc(context, "data", dry_run=False)
    assert own.exists(), "it may live"
    monkeypatch.setattr(share_rule, "OLDER_LIVES", -1.0)
    retention_steps.gc(context, "data", dry_run=True)
    assert own.exists()
    retention_steps.gc(context, "data", dry_run=False)
    assert list(own.parent.iterdir()) == [foreign]
    foreign.unlink()
    retention_steps.gc(context, "data", dry_run=False)
    assert not own.parent.exists()
