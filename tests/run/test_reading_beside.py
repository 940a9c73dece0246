"""Workers of copy read back what was copied: which shards, when, and what the later steps are left with."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import until
from tests.support.staging_runs import tree
from tests.support.standing import begin
from tests.support.whole_way import content, go, staging

from penstock.config.settings import EngineConfig, JobOptions, PlanConfig
from penstock.core.element_documents import SHARD_CLAIM, ElementOutcome, ShardClaim
from penstock.core.errors import InterruptedRunError
from penstock.core.layout import DATA
from penstock.dataset import documents, receipts, run_store
from penstock.dataset.context import Stop
from penstock.dataset.documents import read_plan
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.fs import small_files
from penstock.host import kernel_facts, waits
from penstock.host.kernel_facts import JobEnvironment, host_name
from penstock.jobs import element, reading_beside, shard_claims
from penstock.jobs.element import Limits
from penstock.jobs.reading_beside import CopiedShards
from penstock.jobs.worker import run_worker
from penstock.tables import run_tables as shard_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from penstock.core.element_documents import ElementReceipt
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run
    from penstock.engine.tasks import Outcome
    from penstock.jobs.element import Attempt

FILES = {f"d{number % 3}/{number:02d}": bytes([number]) * (1000 + number) for number in range(24)}
SHARDS = 6
STANDING = True


@pytest.fixture
def context(tmp_path: Path, source: Path) -> Iterator[Context]:
    with staging(tmp_path, source, plan=PlanConfig(shard_files=len(FILES) // SHARDS)) as made:
        yield made


@pytest.fixture
def run(context: Context) -> Run:
    """Planned, in SHARDS shards."""
    begin(context, upto="plan")
    made = run_store.open_run(context.layout("data"))
    assert len(read_plan(made.folder).shards) == SHARDS
    return made


def work(run: Run, *, workers: int = 1, reads_back: bool = True, stop: Stop | None = None) -> int:
    """One worker of an array of copy."""
    name = "penstock-data-r-copy-1"
    ArrayBook(run.folder.arrays).intend(name, "copy", "local", run.indices, workers=workers, call="call")
    return run_worker(
        run.folder.folder, "copy", 0, name, stop or Stop(), retries=2, limits=Limits(), reads_back=reads_back
    )


def read_back(run: Run) -> list[int]:
    """The shards with verify's receipt, in the order in which they were read back."""
    made = [receipts.element(run.folder, "verify", index) for index in run.indices]
    return [receipt.index for receipt in sorted((r for r in made if r), key=lambda r: r.ended)]


def as_if(folder: RunLayout, index: int, **changes: object) -> None:
    """Change what the copy's receipt of a shard says."""
    path = folder.receipt("copy", index)
    small_files.write_json(path, {**small_files.read_json(path), **changes})


def shards(run: Run, *, alone: bool = False, retries: int = 2) -> CopiedShards:
    small_files.make_dirs(run.folder.claims("verify"))
    worker = ShardClaim(array="a", number=0, call="call", host=host_name())
    return CopiedShards(run, worker, 0, retries=retries, alone=alone)


def taken(run: Run, **options: bool) -> list[int]:
    """All shards that a worker may read back now, in its order."""
    copied, indices = shards(run, **options), list[int]()
    while (claim := copied.next()) is not None:
        indices.append(claim.index)
    return indices


def test_one_worker_copies_and_reads_back_all_shards(context: Context, run: Run) -> None:
    assert work(run) == 0
    assert sorted(read_back(run)) == list(range(SHARDS))
    assert shard_claims.standing(run.folder, "verify") == dict.fromkeys(range(SHARDS), 1)
    verify = go(context, after="plan", upto="verify")
    assert [line.step for line in ArrayBook(run.folder.arrays).all()] == ["copy"], "nothing was left to do"
    assert verify["files"] == len(FILES)
    published = go(context, after="verify")
    assert published["published"]
    assert content(context.layout("data").current / DATA) == {
        os.fsencode(name): body for name, body in FILES.items()
    }


def test_what_was_copied_since_the_last_look_is_read_back_too(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread looked before the first receipt, and the next look is far."""
    monkeypatch.setattr(reading_beside, "LOOKS", (300.0, 300.0))
    assert work(run) == 0
    assert sorted(read_back(run)) == list(range(SHARDS))


@pytest.fixture
def processes(tmp_path: Path, source: Path) -> Iterator[Context]:
    """Whose elements are processes of their own."""
    with staging(tmp_path, source, plan=PlanConfig(shard_files=len(FILES) // SHARDS), local=True) as made:
        yield made


def test_a_run_reads_back_beside_the_copy(processes: Context) -> None:
    context = processes
    go(context, upto="copy")
    run = run_store.open_run(context.layout("data"))
    assert sorted(read_back(run)) == list(range(SHARDS))
    assert go(context, after="copy")["published"]


def test_with_other_job_options_for_verify_it_does_not(processes: Context) -> None:
    context = processes
    cluster = context.config.cluster
    options = replace(cluster.options, cpus=2)
    assert isinstance(options, JobOptions)
    context.config = replace(context.config, cluster=replace(cluster, steps={"verify": options}))
    go(context, upto="copy")
    run = run_store.open_run(context.layout("data"))
    assert read_back(run) == []
    assert go(context, after="copy")["published"]
    assert sorted(read_back(run)) == list(range(SHARDS))


# Which shards, and when --------------------------------------------------------------------


def test_what_another_node_wrote_is_read_at_once(run: Run) -> None:
    work(run, reads_back=False)
    os.unlink(run.folder.receipt("copy", 5))
    for index in (1, 3):
        as_if(run.folder, index, host="node17")
    assert taken(run) == [1, 3]


def test_what_this_node_wrote_waits_for_another_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    work(run, reads_back=False)
    os.unlink(run.folder.receipt("copy", 5))
    as_if(run.folder, 2, ended=time.time() - reading_beside.OWN)
    assert taken(run) == [2]
    assert taken(run, alone=True) == [0, 1, 3, 4]


def test_on_a_cluster_a_worker_alone_reads_its_own(run: Run) -> None:
    kernel_facts.enter_job(JobEnvironment(job="7", array="6", element=0))
    try:
        assert work(run) == 0
    finally:
        kernel_facts.enter_job(JobEnvironment())
    assert sorted(read_back(run)) == list(range(SHARDS))


def test_shards_that_were_copied_earlier_come_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_beside, "LOOKS", (0.0, 0.0))
    work(run, reads_back=False)
    aside = {index: run.folder.receipt("copy", index).read_bytes() for index in (0, 1, 2, 5)}
    for index in aside:
        os.unlink(run.folder.receipt("copy", index))
    copied = shards(run, alone=True)
    first = copied.next()
    for index in (0, 1):
        run.folder.receipt("copy", index).write_bytes(aside[index])
    order = [claim.index for claim in (first, copied.next(), copied.next(), copied.next()) if claim]
    assert order == [3, 4, 0, 1]
    assert copied.next() is None


def test_what_another_one_reads_is_left_to_it(run: Run) -> None:
    work(run, reads_back=False)
    small_files.make_dirs(run.folder.claims("verify"))
    other = ShardClaim("other-1", "another-array", 7, "call", "node17")
    small_files.write_json(run.folder.claim("verify", 4, 1), SHARD_CLAIM.to_json(other))
    assert sorted(taken(run, alone=True)) == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("ended", ["it ended", "it stands still"])
def test_what_another_one_left_is_taken_when_all_is_copied(
    run: Run, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    monkeypatch.setattr(waits, "PATIENCE", 0.5)
    monkeypatch.setattr(reading_beside, "LOOKS", (0.05, 0.05))
    work(run, reads_back=False)
    small_files.make_dirs(run.folder.claims("verify"))
    other = ShardClaim("other-1", "another-array", 7, "call", "node17")
    small_files.write_json(run.folder.claim("verify", 4, 1), SHARD_CLAIM.to_json(other))
    if ended == "it ended":
        lost = ElementOutcome("other-1", 1, free=True, error="it ended")
        documents.create_outcome(run.folder, "verify", 4, lost)
    assert work(run) == 0
    assert shard_claims.standing(run.folder, "verify")[4] == 2
    assert sorted(read_back(run)) == list(range(SHARDS))


def test_linked_rows_are_read_when_all_is_copied(context: Context, source: Path, run: Run) -> None:
    """Each further link to an inode moves its ctime."""
    go(context, after="plan")
    (source / "new").write_bytes(b"n" * 500)
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    work(run, reads_back=False)
    reused = [shard.index for shard in run.plan.shards if shard.reused]
    assert reused
    os.unlink(run.folder.receipt("copy", SHARDS - 1))
    assert not set(taken(run, alone=True)) & set(reused)
    assert go(context, after="plan")["published"]
    assert sorted(read_back(run)) == list(run.indices)


GIANTS = {"a": bytes(10), "giant": bytes(range(256)) * 500, "huge": b"h" * 170_000, "z": b"z"}
SMALL = PlanConfig(shard_bytes=100_000, shard_files=10, giant_bytes=100_000, part_bytes=30_000)


@pytest.fixture
def giants(tmp_path: Path) -> Iterator[Context]:
    """Planned, in three shards: the second one holds parts of two giants."""
    with staging(tmp_path, tree(tmp_path / "giants", GIANTS), plan=SMALL) as context:
        go(context, upto="plan")
        yield context


def test_giants_are_finished_before_their_parts_are_read_back(giants: Context) -> None:
    """Else each shard of them would be read once more."""
    run = run_store.open_run(giants.layout("data"))
    assert run.plan.giants == 2
    assert work(run) == 0
    assert sorted(read_back(run)) == list(run.indices)
    before = {name: (run.data / name).stat() for name in GIANTS}
    assert {stat.S_IMODE(status.st_mode) for status in before.values()} == {0o440}
    assert go(giants, after="plan")["published"]
    data = giants.layout("data").current / DATA
    assert {name: (data / name).stat().st_ctime_ns for name in GIANTS} == {
        name: status.st_ctime_ns for name, status in before.items()
    }
    assert shard_claims.standing(run.folder, "verify") == dict.fromkeys(run.indices, 1)
    assert content(data) == {os.fsencode(name): body for name, body in GIANTS.items()}


def test_giants_that_were_finished_can_be_written_where_a_part_is_copied_again(
    giants: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an account other than root, whom modes stop."""
    run = run_store.open_run(giants.layout("data"))
    work(run)
    modes: list[int] = []
    copy = element.WORK["copy"]

    def looks(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
        modes.extend((run.data / name).stat().st_mode for name in ("giant", "huge"))
        return copy(attempt)

    monkeypatch.setitem(element.WORK, "copy", looks)  # type: ignore[arg-type]
    os.unlink(run.folder.receipt("copy", 1))
    assert go(giants, after="plan")["published"]
    assert len(modes) == 2
    assert all(mode & stat.S_IWUSR for mode in modes)
    data = giants.layout("data").current / DATA
    assert {stat.S_IMODE((data / name).stat().st_mode) for name in GIANTS} == {0o440}
    assert content(data) == {os.fsencode(name): body for name, body in GIANTS.items()}


@pytest.mark.parametrize("lacks", range(3))
def test_a_giant_is_read_back_when_all_its_parts_are_copied(giants: Context, lacks: int) -> None:
    run = run_store.open_run(giants.layout("data"))
    held = [shard_files.giants(run.folder.shard(index)) for index in run.indices]
    assert held == [{"giant"}, {"giant", "huge"}, {"huge"}]
    work(run, reads_back=False)
    os.unlink(run.folder.receipt("copy", lacks))
    assert sorted(taken(run, alone=True)) == [
        index for index in run.indices if index != lacks and not held[index] & held[lacks]
    ]


def test_where_a_giant_may_be_copied_whole_later_the_step_verify_reads_it(tmp_path: Path) -> None:
    source = tree(tmp_path / "giants", GIANTS)
    with staging(tmp_path, source, plan=SMALL, local=True, changed="follow") as context:
        go(context, upto="copy")
        run = run_store.open_run(context.layout("data"))
        assert read_back(run) == []
        assert go(context, after="copy")["published"]
        assert sorted(read_back(run)) == list(run.indices)


# What may go wrong -------------------------------------------------------------------------


def test_what_reads_back_damaged_is_copied_again_by_verify(context: Context, run: Run) -> None:
    work(run, reads_back=False)
    damaged = run.data / "d0/00"
    os.chmod(damaged, 0o600)
    damaged.write_bytes(b"?" * 1000)
    assert work(run) == 0, "its copies are done"
    assert sorted(read_back(run)) == [1, 2, 3, 4, 5]
    assert go(context, after="plan")["published"]
    assert content(context.layout("data").current / DATA)[b"d0/00"] == FILES["d0/00"]


def test_a_signal_ends_both(run: Run) -> None:
    class Signalled(Stop):
        def signalled(self) -> None:
            if threading.current_thread().name == "reading back" and not self.event.is_set():
                self.set(signal.SIGTERM)
            super().signalled()

    with pytest.raises(InterruptedRunError):
        work(run, stop=Signalled())
    assert not [thread for thread in threading.enumerate() if thread.name == "reading back"]


def test_what_another_one_left_amid_its_copy_is_copied_here(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "PATIENCE", 0.5)
    monkeypatch.setattr(reading_beside, "LOOKS", (0.05, 0.05))
    work(run, reads_back=False)
    os.unlink(run.folder.receipt("copy", 5))
    monkeypatch.setattr("penstock.jobs.worker.IDLE", 0.1)
    other = ShardClaim("other-2", "another-array", 7, "call", "node17")
    small_files.write_json(run.folder.claim("copy", 5, 2), SHARD_CLAIM.to_json(other))
    run.layout.lock.write_text("{}")  # a controller lives
    began = time.monotonic()
    assert work(run) == 0
    assert time.monotonic() - began < 60
    assert sorted(read_back(run)) == list(range(SHARDS))
    assert shard_claims.read(run.folder, "copy", 5, 3).array == "penstock-data-r-copy-1"


def test_it_ends_where_another_shard_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step fails, and need not wait for what is read back."""
    monkeypatch.setattr("penstock.jobs.worker.IDLE", 0.1)
    monkeypatch.setattr(reading_beside.CopiedShards, "next", lambda _: None)
    work(run, reads_back=False)
    os.unlink(run.folder.receipt("copy", 5))
    other = ShardClaim("other-2", "another-array", 7, "call", "node17")
    small_files.write_json(run.folder.claim("copy", 5, 2), SHARD_CLAIM.to_json(other))
    gone = ElementOutcome("other-2", 2, exit_code=1, retry=False, error="the object is gone")
    documents.create_outcome(run.folder, "copy", 5, gone)
    run.layout.lock.write_text("{}")  # a controller lives
    began = time.monotonic()
    assert work(run) == 0
    assert time.monotonic() - began < 60
    assert read_back(run) == []


def test_it_waits_for_a_copy_that_moves(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobs.worker.IDLE", 0.1)
    monkeypatch.setattr(reading_beside, "LOOKS", (0.05, 0.05))
    work(run, reads_back=False)
    receipt, aside = run.folder.receipt("copy", 5), run.folder.folder / "aside"
    os.rename(receipt, aside)
    path = run.folder.claim("copy", 5, 2)
    other = ShardClaim("other-2", "another-array", 7, "call", "node17")
    small_files.write_json(path, SHARD_CLAIM.to_json(other))
    run.layout.lock.write_text("{}")  # a controller lives
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(work(run)))
    thread.start()
    until(lambda: len(read_back(run)) == SHARDS - 1, "the others")
    os.utime(path)
    os.rename(aside, receipt)  # a receipt appears whole
    thread.join(60)
    assert codes == [0]
    assert sorted(read_back(run)) == list(range(SHARDS))


# Two shards at a time ----------------------------------------------------------------------


def test_the_next_shard_begins_while_the_last_rows_of_one_are_on_their_way(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, first = element.WORK["copy"], threading.Event()

    def waits(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
        """The first shard ends when the second one has begun."""
        if first.is_set():
            second.set()
            return copy(attempt)
        first.set()
        done = copy(attempt)
        assert second.wait(60)
        return done

    second = threading.Event()
    monkeypatch.setitem(element.WORK, "copy", waits)  # type: ignore[arg-type]
    work(run, reads_back=False)
    spans = sorted(
        (receipt.started, receipt.ended)
        for index in run.indices
        if (receipt := receipts.element(run.folder, "copy", index))
    )
    assert any(later[0] < earlier[1] for earlier, later in pairwise(spans)), spans
    at_once = [sum(began <= at < ended for began, ended in spans) for at, _ in spans]
    assert max(at_once) == 2, spans


def test_the_next_shard_waits_for_half_of_the_bytes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that begin together would end together, and nothing be copied while both wait for the disk."""
    answers: list[list[bool]] = []
    copy = element.WORK["copy"]

    def asks(attempt: Attempt) -> tuple[Outcome, ElementReceipt]:
        assert attempt.fed is not None
        size, shown = attempt.shard.bytes, list[bool]()
        for done in (0, size * 2 // 5, (size + 1) // 2):
            attempt.reporter(0, done, 0)
            shown.append(attempt.fed())
        answers.append(shown)
        return copy(attempt)

    monkeypatch.setitem(element.WORK, "copy", asks)  # type: ignore[arg-type]
    assert work(run, reads_back=False) == 0
    assert answers == [[False, False, True]] * SHARDS


def test_under_a_limit_one_shard_is_copied_at_a_time(context: Context) -> None:
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=1 << 40))
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    work(run, reads_back=False)
    spans: Mapping[int, tuple[float, float]] = {
        index: (receipt.started, receipt.ended)
        for index in run.indices
        if (receipt := receipts.element(run.folder, "copy", index))
    }
    ordered = sorted(spans.values())
    assert all(later[0] >= earlier[1] - 0.01 for earlier, later in pairwise(ordered))
