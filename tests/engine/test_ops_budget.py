"""S11: a budget of metadata operations a second that all engines of all runs below a root share."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until
from tests.support.engine_runs import make_tree, shard_run
from tests.support.published import damage, data_of, flip, published, writable
from tests.support.staging_runs import context_for, tree
from tests.support.whole_way import go
from tests.target.conftest import need_root

from penstock.cluster.registry import LocalCluster
from penstock.core.errors import InterruptedRunError
from penstock.core.layout import DatasetLayout
from penstock.dataset import run_store
from penstock.engine.copy_shard import copy_shard
from penstock.fs import capabilities
from penstock.jobs import share_rule
from penstock.jobs.array_runner import element_command
from penstock.jobs.share_rule import parse
from penstock.jobs.shares import held, holders_of, look
from penstock.keep import audit_step, repair_step
from penstock.target import modes, tree_removal
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


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("PAUSE", 0.2), ("QUICK", 0.1), ("BEAT", 1.0), ("VALID", 2.0), ("LIVES", 3.0)):
        monkeypatch.setattr(share_rule, name, seconds)


def died(layout: DatasetLayout) -> None:
    """The run gives no sign of life any more."""
    past = layout.under_way.stat().st_mtime - capabilities.BOUND - 10
    os.utime(layout.under_way, (past, past))


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
            layout = DatasetLayout(self.root, f"run{number}")
            with held(layout, self.ops, "copy") as share:
                os.write(ready, b"1")
                os.read(self._go[0], 1)
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
    until(lambda: min(engines.done()) >= 20, "the first files of each")
    until(lambda: [share.part for share in look(engines.root / ".operations")] == [0.25] * 4, "quarters")
    threading.Event().wait(3 * share_rule.PAUSE)
    rates = engines.rates()
    assert sum(rates) == pytest.approx(OPS, rel=0.1)
    assert rates == pytest.approx([OPS / 4] * 4, rel=0.2)
    engines.kill(engines.pids.pop())
    until(lambda: len(look(engines.root / ".operations")) == 3, "the end of the dead one")
    threading.Event().wait(share_rule.LIVES)
    rates = engines.rates()
    assert rates[3] == 0
    assert sum(rates) == pytest.approx(OPS, rel=0.1)
    assert rates[:3] == pytest.approx([OPS / 3] * 3, rel=0.2)


def test_s11_the_steps_of_a_run_and_their_elements_have_one_share(tmp_path: Path) -> None:
    """By the files of its holder while it stages, of which nothing stays."""
    seen: set[tuple[str, int]] = set()
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1", "b": b"2"}))
    context.ops = OPS
    folder = context.layout("data").operations

    def look_at(_: object) -> None:
        names = os.listdir(folder) if folder.is_dir() else []
        seen.update((holder, post.processes) for holder, post in parse(names).holders.values())

    context.sink = look_at
    go(context)
    assert len({name for name, _ in seen}) == 1
    assert {processes for _, processes in seen} == {1}, "one element at a time, and its controller rests"
    assert os.listdir(folder) == []


def test_s11_what_cannot_hold_a_share_takes_a_tenth(tmp_path: Path) -> None:
    (tmp_path / ".operations").write_text("no folder")
    with held(DatasetLayout(tmp_path, "data"), OPS, "du") as share:
        assert share() == OPS / 10
    assert holders_of(DatasetLayout(tmp_path, "data")) == []


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
    """Of elements that fetch, by files of the shares; the copy takes all again when the repair is dead."""
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
                folder = root / ".operations"
                until(lambda: [x.part for x in look(folder)] == [0.5, 0.5], "two halves")

                def in_a_second() -> int:
                    before = len(os.listdir(fetched))
                    threading.Event().wait(1.0)
                    return len(os.listdir(fetched)) - before

                # Its element is a process of its own, which looks each 5 s: this one's times are shorter.
                until(lambda: OF_A_FILE * in_a_second() < 0.6 * ops, "the element sees the copy")
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
            until(lambda: len(look(root / ".operations")) == 1, "the end of the dead one")
            threading.Event().wait(3 * share_rule.PAUSE)
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
        holders: set[str] = set()

        def look_at(_: object) -> None:
            holders.update(holders_of(layout))

        context.sink = look_at
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
        assert any("100.0%: " in words and "repair data" in words for words in holders)
        assert os.listdir(layout.operations) == []
        assert (data / "a/one").read_bytes() == b"1"
        with Mender(data, file_mode=0o440, dir_mode=0o550, gid=None, spend=spent.append) as mender:
            mender.check("a/one")
            new = tree(tmp_path, {"new": b"1"}) / "new"
            mender.replace("a/one", 5, new)
            mender.set_mode("a/two")
            assert mender.make("b")
        assert spent == [2, 4, 1, 3]


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
    began = time.monotonic()
    with contextlib.closing(context.cluster):
        go(context)
    assert time.monotonic() - began >= 2.9
    assert len(os.listdir(context.layout("data").current / "data")) == 150
    assert os.listdir(context.layout("data").operations) == []


def test_s11_only_beegfs_and_lustre_have_a_budget_unasked(tmp_path: Path) -> None:
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b""}))
    assert context.ops == 0
    for kind, ops in (("beegfs", 5000), ("lustre", 5000), ("wekafs", 0)):
        named = context_for(tmp_path, tmp_path / "source")
        named.config = replace(named.config, target=replace(named.config.target, filesystem=kind))
        assert named.ops == ops


def test_s11_the_folder_that_root_makes_is_the_owners(tmp_path: Path) -> None:
    """`du` of an administrator may be the first command below a root."""
    need_root()
    layout = DatasetLayout(tmp_path, "data")
    os.chown(tmp_path, 1234, 1235)
    with held(layout, OPS, "du") as share:
        until(lambda: share() == OPS, "the share of all")
    made = layout.operations.stat()
    assert (made.st_uid, made.st_gid, os.listdir(layout.operations)) == (1234, 1235, [])


def test_s11_what_is_interrupted_leaves_no_holder(tmp_path: Path) -> None:
    layout = DatasetLayout(tmp_path, "data")

    def stopped() -> None:
        with held(layout, OPS, "du") as share:
            until(lambda: share() > 0, "a share")
            raise InterruptedRunError(15)

    with pytest.raises(InterruptedRunError):
        stopped()
    assert os.listdir(layout.operations) == []
