"""S11: a budget of metadata operations a second that all engines of all runs below a root share."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
import traceback
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.accounts import give
from tests.support.commands import until
from tests.support.engine_runs import make_tree, shard_run
from tests.support.published import damage, data_of, flip, published, writable
from tests.support.staging_runs import context_for, tree
from tests.support.whole_way import go

from penstock.cluster.local import LocalCluster
from penstock.core.documents import promise as documents
from penstock.core.documents.promise import Promise, of_repair
from penstock.core.layout import DatasetLayout
from penstock.dataset import holder as holders
from penstock.dataset import run_store
from penstock.engine.copy_shard import copy_shard
from penstock.jobs.arrays.array_runner import element_command
from penstock.jobs.ownership import ops_share, promises
from penstock.jobs.ownership.ops_share import EVERY, SEEN, OpsShare, holders_of
from penstock.keep.audit import audit_step
from penstock.keep.repair import repair_step
from penstock.target import cross_account_files, modes, tree_removal
from penstock.target.file_replacement import Mender
from penstock.target.links import Abandoned
from penstock.target.staging_writer import StagingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.dataset.context import Context

OPS = 600
FILES = 2000
REPAIRED = 700
OF_A_FILE = 3
"""Create, utimes and rename."""
SECONDS = 5.0


def promised(root: Path, name: str, **changes: object) -> DatasetLayout:
    """A run of this process, with one element at work."""
    layout = DatasetLayout(root, name)
    one = Promise(name, name, os.geteuid(), os.getegid(), 0, 0, str(layout.lock), at_once=1, ops=OPS)
    one = one._replace(by=asdict(holders.this_process(name, "copy")))
    cross_account_files.make_folder_as_above(layout.promises)
    value = documents.PROMISE.to_json(one._replace(**changes))  # type: ignore[arg-type]
    assert cross_account_files.post(layout.promises, f"1.{name}", value)
    return layout


class Engines:
    """Processes, each with an engine of its own that copies FILES small files."""

    def __init__(self, tmp_path: Path, root: Path, number: int, ops: int = OPS) -> None:
        self.root, self.ops = root, ops
        source = make_tree(tmp_path / "source", {f"{n:05d}": 10 for n in range(FILES)})
        self.shards = [shard_run(tmp_path / f"run-{n}", source) for n in range(number)]
        ready, self._go = os.pipe(), os.pipe()
        self.pids = [self._start(n, ready[1]) for n in range(number)]
        for _ in self.pids:
            assert os.read(ready[0], 1)
        os.write(self._go[1], b"go!!")
        for fd in (*ready, *self._go):
            os.close(fd)

    def _start(self, number: int, ready: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            layout = promised(self.root, f"run{number}", ops=self.ops)
            os.write(ready, b"1")
            os.read(self._go[0], 1)
            share = OpsShare(layout, f"run{number}", self.ops, 1)
            task = self.shards[number].task(engine={"workers": 1, "streams": 4})
            copy_shard(task, lambda *_: None, lambda: None, share)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(1)

    def done(self) -> list[int]:
        """Files that have their names, of each engine."""
        return [sum(not name.startswith(".") for name in os.listdir(one.data)) for one in self.shards]

    def rates(self) -> list[float]:
        """Operations a second of each engine, over SECONDS."""
        before, began = self.done(), time.monotonic()
        threading.Event().wait(SECONDS)
        after, ended = self.done(), time.monotonic()
        assert max(after) < FILES
        return [OF_A_FILE * (b - a) / (ended - began) for a, b in zip(before, after, strict=True)]

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    (tmp_path / "root").mkdir()
    made = Engines(tmp_path, tmp_path / "root", 4)
    yield made
    for pid in made.pids:
        made.kill(pid)


def test_s11_four_engines_share_the_budget_and_three_take_over_a_dead_ones_part(engines: Engines) -> None:
    until = time.monotonic() + 60
    while min(engines.done()) < 20:
        assert time.monotonic() < until
        threading.Event().wait(0.05)
    rates = engines.rates()
    assert sum(rates) == pytest.approx(OPS, rel=0.1)
    assert rates == pytest.approx([OPS / 4] * 4, rel=0.2)
    engines.kill(engines.pids.pop())
    threading.Event().wait(EVERY + 0.5)
    rates = engines.rates()
    assert rates[3] == 0
    assert sum(rates) == pytest.approx(OPS, rel=0.1)
    assert rates[:3] == pytest.approx([OPS / 3] * 3, rel=0.2)


def test_s11_a_run_that_begins_beside_another_never_passes_the_budget(tmp_path: Path) -> None:
    """In no second from its first operation on: it begins when the other has read its part."""
    ops, root = 300, tmp_path / "root"
    root.mkdir()
    engines = Engines(tmp_path, root, 1, ops)
    context = context_for(tmp_path / "late", tmp_path / "source")
    context.ops = ops
    shard = shard_run(tmp_path / "late", tmp_path / "source")

    def late() -> None:
        layout = promised(root, "late", ops=ops, at_once=0)
        began = time.monotonic()
        ops_share.begin(context, layout, "late", 1)
        assert SEEN <= time.monotonic() - began < SEEN + 2
        share = OpsShare(layout, "late", ops, 1)
        task = shard.task(engine={"workers": 1, "streams": 4})
        copy_shard(task, lambda *_: None, lambda: None, share)

    until(lambda: engines.done()[0] > 20, "the first copy's files")
    engines.shards.append(shard)
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            late()
        finally:
            os._exit(1)
    try:
        samples = [(time.monotonic(), engines.done())]
        while samples[-1][0] - samples[0][0] < SEEN + 7:
            threading.Event().wait(1.0)
            samples.append((time.monotonic(), engines.done()))
        rates = [
            OF_A_FILE * (sum(new) - sum(old)) / (ended - began)
            for (began, old), (ended, new) in itertools.pairwise(samples)
        ]
        assert max(rates) <= 1.1 * ops, rates
        (began, old), (ended, new) = samples[-4], samples[-1]
        each = [OF_A_FILE * (b - a) / (ended - began) for a, b in zip(old, new, strict=True)]
        assert each == pytest.approx([ops / 2] * 2, rel=0.2)
    finally:
        for one in (pid, *engines.pids):
            engines.kill(one)


def test_s11_a_step_waits_where_its_part_is_new_to_others(tmp_path: Path) -> None:
    """Once, and only beside runs that have parts."""
    waited: list[float] = []
    alone = promised(tmp_path, "own")
    share = OpsShare(alone, "own", OPS, 1, wait=waited.append)
    assert (share(), waited) == (OPS, [])
    now = 0.0
    promised(tmp_path, "other", at_once=2)
    share = OpsShare(alone, "own", OPS, 1, wait=waited.append, clock=lambda: now)
    assert (share(), waited) == (OPS / 3, [SEEN])
    now += EVERY
    assert (share(), waited) == (OPS / 3, [SEEN])
    context = context_for(tmp_path, tmp_path)
    context.ops = OPS
    context.stop.wait = waited.append  # type: ignore[method-assign]
    ops_share.begin(context, alone, "own", 1)
    assert waited == [SEEN]
    ops_share.begin(context, alone, "own", 2)
    assert waited == [SEEN, SEEN]
    assert promises.own_of(promises.read_all(alone), alone, "own").promise.at_once == 2  # type: ignore[union-attr]


@contextlib.contextmanager
def repairing(context: Context) -> Iterator[None]:
    """A process that repairs the dataset, of which every file is missing; its elements end with it."""
    with writable(data_of(context)):
        for path in data_of(context).iterdir():
            path.unlink()
    assert audit_step.run(context, "data")["counts"] == {"missing": REPAIRED}
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            context.cluster = LocalCluster(context.config.cluster)
            repair_step.run(context, "data")
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.thorough
def test_s11_a_repair_has_a_part_beside_a_copy(tmp_path: Path) -> None:
    """Of elements that fetch, by what the promises say; the copy takes all again when the repair is dead."""
    ops = 180
    source = tree(tmp_path / "repaired", {f"{n:04d}": b"%d" % n for n in range(REPAIRED)})
    with published(tmp_path, source) as context:
        root, layout = context.config.target.root, context.layout("data")
        context.ops = ops
        release = os.readlink(layout.current).rpartition("/")[2]
        fetched = layout.repair_staging(release) / "data"
        with repairing(context):
            until(lambda: fetched.is_dir() and len(os.listdir(fetched)) > 5, "the repair's first files")
            engines = Engines(tmp_path, root, 1, ops)
            try:
                until(lambda: engines.done()[0] > 20, "the copy's first files")
                threading.Event().wait(EVERY)
                parts = {one.promise.run: one.promise.at_once for one in promises.read_all(layout)}
                assert parts == {"run0": 1, of_repair(release): 1}
                before, began = len(os.listdir(fetched)), time.monotonic()
                (copy,) = engines.rates()
                after, ended = len(os.listdir(fetched)), time.monotonic()
                assert after < REPAIRED
                repair = OF_A_FILE * (after - before) / (ended - began)
                assert copy == pytest.approx(ops / 2, rel=0.15)
                assert repair == pytest.approx(ops / 2, rel=0.15)
            except BaseException:
                engines.kill(engines.pids[0])
                raise
        try:
            threading.Event().wait(EVERY + 0.5)
            assert engines.rates() == pytest.approx([ops], rel=0.15)
        finally:
            engines.kill(engines.pids[0])


def test_s11_a_repairs_last_steps_are_within_the_budget(tmp_path: Path) -> None:
    """Files are put in their places, modes are set, and the staging is removed by the repair's own part,
    which is withdrawn at its end."""
    spent: list[int] = []
    source = tree(tmp_path / "source", {"a/one": b"1", "a/two": b"2"})
    with published(tmp_path, source) as context:
        layout, data = context.layout("data"), data_of(context)
        context.ops = OPS
        flip(data / "a/one")
        damage(data / "a/two", os.unlink)
        assert audit_step.run(context, "data")["counts"] == {"changed": 1, "missing": 1}
        parts = set()

        def look(_: object) -> None:
            for one in promises.read_all(layout):
                parts.add((one.promise.repairs, one.promise.at_once, one.promise.ops))

        context.sink = look
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
        assert parts == {(os.readlink(layout.current).rpartition("/")[2], 1, OPS)}
        assert promises.read_all(layout) == []
        assert (data / "a/one").read_bytes() == b"1"
        with Mender(data, file_mode=0o440, dir_mode=0o550, gid=None, spend=spent.append) as mender:
            mender.check("a/one")
            new = tree(tmp_path, {"new": b"1"}) / "new"
            mender.replace("a/one", 5, new)
            mender.set_mode("a/two")
            assert mender.make("b")
        assert spent == [2, 4, 1, 3]


def test_s11_the_share_by_what_the_promises_say(tmp_path: Path) -> None:
    """Read again after five seconds: of living runs alone, and by the account's smallest budget."""
    now = 0.0
    layout = promised(tmp_path, "own", at_once=2)
    share = OpsShare(layout, "own", OPS, 7, clock=lambda: now)
    assert share() == OPS / 2
    promised(tmp_path, "other", at_once=4)
    assert share() == OPS / 2
    now += EVERY
    assert share() == OPS / 6
    dead = asdict(replace(holders.this_process("", ""), pid=2**22 - 1, start="1"))
    promised(tmp_path, "dead", at_once=90, by=dead)
    promised(tmp_path, "between-steps", at_once=0, ops=1)
    promised(tmp_path, "without", at_once=2, ops=0)
    promised(tmp_path, "smaller", at_once=2, ops=100)
    now += EVERY
    assert share() == 100 / 10
    strangers = ((4242, {"at_once": 1000}), (4243, {"ops": 1}))
    for number, (uid, what) in enumerate(strangers):
        # One promise of another account took all but a thousandth, or all but one operation (K9).
        promised(tmp_path, f"stranger-{number}", uid=uid, **what)
        give(layout.promises / f"1.stranger-{number}", uid, uid)
        promised(tmp_path, f"again-{number}", uid=uid, at_once=500)
        give(layout.promises / f"1.again-{number}", uid, uid)
        now += EVERY
        assert share() == 100 / (2 + number) / 10
    told = holders_of(layout)
    assert any(one.startswith("uid 4242: 1,000 elements at once, dataset stranger-0 on ") for one in told)
    assert all(" since " in one for one in told)
    assert OpsShare(DatasetLayout(tmp_path / "else", "x"), "x", OPS, 3)() == OPS / 3


def test_s11_what_counts_as_an_operation(tmp_path: Path) -> None:
    spent: list[int] = []
    with StagingWriter(
        tmp_path, spent.append, file_mode=0o440, dir_mode=0o755, gid=None, durability="syncfs", attempt="a",
        keep_mtime=True,
    ) as paced:  # fmt: skip
        paced.put("a/one", memoryview(b"1"), 5)
        paced.put("a/two", memoryview(b"2"), 5)
        pending = paced.begin("a/three", 1)
        pending.write_all(memoryview(b"3"))
        paced.finish(pending, 5)
        paced.remove("a/two")
        assert paced.link(tmp_path, "a/one", 1, 5) in (True, False)
        assert spent == [4, 3, 1, 2, 1, 2]
        spent.clear()
        paced.finish_part(paced.begin_part("g/iant", 2, 0, 1))
        paced.begin_multipart("g/large", ".p.shared", 2)
        pending_range = paced.begin_range("g/large", ".p.shared", 2, 0)
        assert pending_range is not None
        paced.finish_part(pending_range)
        assert paced.finish_multipart("g/large", ".p.shared", 2, 5)
        paced.drop_multipart("g/large", ".p.shared")
        assert spent == [2, 1, 1, 1, 1, 3, 1]
        spent.clear()
        # What stands there already is linked by another way, which counts no more.
        assert len(paced.link_many(tmp_path, [("a/one", 1, 5), ("a/three", 1, 5)])) == 2
        assert paced.take_over([Abandoned(tmp_path)], "a/one", 1, 5)
        assert not paced.move(Abandoned(tmp_path), "a/none", 1, 5)
        assert spent == [2, 2, 2, 1]
    assert sorted(os.listdir(tmp_path / "a")) == ["one", "three"]


def test_s11_trees_are_removed_and_modes_are_set_within_the_budget(tmp_path: Path) -> None:
    spent: list[int] = []
    tree(tmp_path / "gone", {f"a/{n}": b"" for n in range(40)})
    tree_removal.remove_tree(tmp_path / "gone", spent.append)
    assert not (tmp_path / "gone").exists()
    assert sum(spent) == 41
    spent.clear()
    context = context_for(tmp_path, tree(tmp_path / "source", {f"a/{n}": b"" for n in range(5)}))
    staging = tmp_path / "staging"
    tree(staging / "data", {f"a/{n}": b"" for n in range(5)})
    policy = context.config.datasets["data"].permissions
    seen = modes.set_permissions(staging, policy, None, spent.append)
    assert sum(spent) >= seen["changed_files"] + seen["changed_folders"] == 7


def test_s11_a_dataset_is_staged_within_its_budget(tmp_path: Path) -> None:
    """150 files of three operations, at 150 a second; the element has its share from its command line."""
    source = tree(tmp_path / "source", {f"{n:03d}": b"x" for n in range(150)})
    context = context_for(tmp_path, source, local=True)
    context.config = replace(context.config, target=replace(context.config.target, ops=150))
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    words = element_command(context, run.folder, "copy")
    assert words[words.index("--ops") + 1] == "150"
    assert "--ops" not in element_command(context, run.folder, "verify")
    parts: dict[str, set[int]] = {}

    def look(event: Any) -> None:
        for one in promises.read_all(context.layout("data")):
            parts.setdefault(event.step, set()).add(one.promise.at_once)

    context.sink = look
    began = time.monotonic()
    with contextlib.closing(context.cluster):
        go(context)
    assert time.monotonic() - began >= 2.9
    assert len(os.listdir(context.layout("data").current / "data")) == 150
    assert parts["copy"] == {0, 1}
    assert parts["permissions"] == {1}
    assert parts["verify"] == {0}


def test_s11_only_beegfs_and_lustre_have_a_budget_unasked(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b""}))
    assert context.ops == 0
    for kind, ops in (("beegfs", 5000), ("lustre", 5000), ("wekafs", 0)):
        named = context_for(tmp_path, tmp_path / "source")
        named.config = replace(named.config, target=replace(named.config.target, filesystem=kind))
        assert named.ops == ops
