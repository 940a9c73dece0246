"""What elements of a run used and waited for: measured by themselves, joined with claims, the controller's
book and SLURM's accounting, and written beside the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.support.commands import until
from tests.support.in_process import InProcess
from tests.support.one_shard import write_receipt
from tests.support.staging_runs import tree
from tests.support.whole_way import FILES, go, staging

from penstock.cluster.port import Accounted
from penstock.config.settings import EngineConfig
from penstock.core import element_documents, typed_json
from penstock.core.element_documents import (
    COLUMNS,
    ELEMENT_USAGE,
    SHARD_CLAIM,
    TIME,
    ElementReceipt,
    ElementUsage,
    ShardClaim,
)
from penstock.core.errors import InterruptedRunError, TransientError
from penstock.dataset import documents, receipts, run_store
from penstock.dataset.context import Stop
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.host import kernel_facts, waits
from penstock.host.kernel_facts import JobEnvironment
from penstock.jobs import worker
from penstock.jobs.element import Limits
from penstock.jobs.worker import accounting, run_worker
from penstock.run import report_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.jobs.worker import ElementAccounts


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    with staging(tmp_path, tree(tmp_path / "source", FILES)) as made:
        yield made


@dataclass
class Booked(InProcess):
    """A SLURM with accounting: elements are done in this process."""

    books: dict[str, list[Accounted]] = field(default_factory=dict)
    away: bool = False
    kind = "slurm"

    def __post_init__(self) -> None:
        super().__init__()

    def name(self) -> str:
        return "lab"

    def accounting(self, array: str) -> Sequence[Accounted]:
        if self.away:
            raise TransientError("slurmdbd does not answer")
        return self.books.get(array, [])


def planned(context: Context) -> RunLayout:
    go(context, upto="plan")
    return run_store.open_run(context.layout("data")).folder


def figures(folder: RunLayout, step: str = "copy") -> list[ElementUsage]:
    found = [documents.find_whole(ELEMENT_USAGE, path) for path in folder.usage(step).glob("*.json")]
    return [usage for usage in found if usage is not None]


def accounts_of(context: Context) -> ElementAccounts:
    run = run_store.open_run(context.layout("data"))
    found = [
        receipts.element(run.folder, step, index) for step in ("copy", "verify") for index in run.indices
    ]
    return worker.gather_accounts(context, run, [one for one in found if one is not None])


def test_a_local_run_has_a_row_for_each_worker(context: Context, tmp_path: Path) -> None:
    go(context)
    run = run_store.open_run(context.layout("data"))
    page = tmp_path / "report.html"
    result = report_step.run(context, "data", html=page)
    table = pq.read_table(tmp_path / "elements.parquet")
    assert table.schema.names == [column.name for column in COLUMNS]
    for column in COLUMNS:
        told = table.schema.field(column.name).metadata
        assert told[b"means"].decode() == column.means
        assert told.get(b"unit", b"").decode() == column.unit
    rows = table.to_pylist()
    assert len(run.indices) > 1
    assert [(one["step"], one["element"], one["shards"]) for one in rows] == [
        (step, 0, len(run.indices)) for step in ("copy", "verify")
    ]
    for one in rows:
        (usage,) = figures(run.folder, one["step"])
        made = [receipts.element(run.folder, one["step"], index) for index in run.indices]
        assert one["bytes"] == sum(receipt.bytes for receipt in made if receipt)
        assert (one["restarts"], one["starts_missing"], one["queue_wait_by"]) == (0, 0, "controller")
        assert one["seconds"] == usage.seconds
        assert one["core_hours"] == pytest.approx(usage.cpus * usage.seconds / 3600, abs=1e-5)
        assert one["cpu_efficiency"] == pytest.approx(
            usage.cpu_seconds / (usage.cpus * usage.seconds), abs=0.001
        )
        assert one["memory_peak"] > 10 << 20
        assert one["processes"] >= 2  # this process, which is the worker, and one of its engine
        assert (one["node_hours"], one["whole_node"], one["array"]) == (None, False, None)
        assert one["started"] <= one["ended"]
        assert one["submitted"] is not None
        assert one["slurm_seconds"] is None
    usage = result["usage"]
    assert [(line.step, line.elements) for line in usage.steps] == [("copy", 1), ("verify", 1), ("", 2)]
    assert usage.steps[0].node_hours is None
    assert usage.sources == {"queue_wait": {"controller": 2}, "hours": {"element": 2}}
    assert not usage.notes
    assert usage.file == str(tmp_path / "elements.parquet")
    assert [queued <= began <= ended for queued, began, ended in usage.spans] == [True, True]
    text = page.read_text(encoding="utf-8")
    assert "<h2>Resources</h2>" in text
    assert "Core-hours" in text
    json.dumps(typed_json.plain(result))


def test_pages_of_other_names_have_tables_of_other_names(context: Context, tmp_path: Path) -> None:
    go(context)
    result = report_step.run(context, "data", html=tmp_path / "data.html")
    assert result["usage"].file == str(tmp_path / "data.elements.parquet")
    assert (tmp_path / "data.elements.parquet").stat().st_mode & 0o777 == 0o644
    assert not (tmp_path / "elements.parquet").exists()


@pytest.mark.cold_start
def test_a_worker_that_was_killed_counts_up_to_its_last_word(context: Context) -> None:
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=100_000))
    folder = planned(context)
    ArrayBook(folder.arrays).intend("a-name", "copy", "local", [0], workers=2, call="c")
    command = [sys.executable, "-m", "penstock", "element", "--run", str(folder.folder), "--step", "copy"]
    process = subprocess.Popen([*command, "--array", "a-name", "0"], stdout=subprocess.DEVNULL)
    until(lambda: figures(folder) or process.poll() is not None, "figures")
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    (killed,) = figures(folder)
    assert killed.cpu_seconds > 0.05  # of the whole process, its start included
    assert killed.began < time.time()
    stop = Stop()
    stop.set(15)
    with pytest.raises(InterruptedRunError):
        run_worker(folder.folder, "copy", 1, "a-name", stop, retries=0, limits=Limits())
    first, second = accounts_of(context).rows
    assert (first.element, first.seconds, first.shards) == (0, killed.seconds, 0)
    assert (second.element, second.shards) == (1, 0)
    assert report_step.run(context, "data")["usage"].steps[0].elements == 2


def slurm_run(context: Context, *starts: ElementUsage) -> RunLayout:
    """A planned run of which worker 0 of array 77 did the first shard of copy, in its last start."""
    folder = planned(context)
    context.cluster = Booked()
    first = ElementUsage(
        host="n1", began=time.time() - 600, seconds=50.0, cpu_seconds=60.0, cpus=6, node_cpus=8,
        memory_peak=6 << 20,
    )  # fmt: skip
    again = first._replace(
        restarts=1, began=first.began + 100, seconds=100.0, cpu_seconds=240.0, memory_peak=5 << 20
    )
    for usage in starts or (first, again):
        last = usage._replace(array="a-name")
        documents.write(ELEMENT_USAGE, folder.usage("copy") / f"77_0_{usage.restarts}.json", last)
    shard_is_done(context, folder, 0, last)
    book = ArrayBook(folder.arrays)
    book.intend("a-name", "copy", "slurm", [0, 1], "lab", workers=2, call="c", whole_nodes=True)
    book.submitted("a-name", "77")
    return folder


def shard_is_done(context: Context, folder: RunLayout, index: int, usage: ElementUsage) -> None:
    shard = run_store.open_run(context.layout("data")).plan.shards[index]
    content = ShardClaim(f"attempt-{index}", usage.array, usage.number, "c", "n1", usage.restarts)
    documents.write(SHARD_CLAIM, folder.claim("copy", index, 1), content)
    receipt = ElementReceipt(step="copy", index=index, shard=shard.digest, files=3, bytes=30)
    write_receipt(folder, receipt)


def at(folder: RunLayout) -> float:
    (one,) = ArrayBook(folder.arrays).all()
    return one.at


def test_an_element_on_a_whole_node_that_slurm_requeued(context: Context) -> None:
    """The wait is what is left of the time since the submission when its first run is taken away."""
    folder = slurm_run(context)
    submitted = at(folder)
    _, last = accounts_of(context).rows
    # Began before the submission by this test's clock: a wait is never less than 0.
    assert (last.queue_wait, last.queue_wait_by) == (0.0, "element")
    ArrayBook(folder.arrays).ended("a-name", {0: submitted + 80.0})
    first, last = accounts_of(context).rows
    assert (first.queue_wait, first.restarts, first.seconds, first.shards) == (None, 0, 50.0, 0)
    assert (first.starts_missing, first.array, first.node) == (None, "77", "n1")
    assert last.queue_wait == pytest.approx(30.0, abs=0.001)
    assert (last.queue_wait_by, last.starts_missing) == ("controller", 0)
    assert (last.restarts, last.seconds, last.whole_node) == (1, 100.0, True)
    assert (last.shards, last.files, last.bytes) == (1, 3, 30)
    (used,) = element_documents.by_step([first, last])
    assert used.node_hours == pytest.approx(150 / 3600, abs=2e-6)
    assert used.core_hours == pytest.approx((600 + 300) / 3600, abs=2e-6)
    assert used.cpu_efficiency == pytest.approx(300 / 900, abs=1e-4)
    assert used.memory_peak == 6 << 20


def test_what_slurmdbd_says_goes_beside_it_and_counts_once(context: Context) -> None:
    folder = slurm_run(context)
    submitted = at(folder)
    assert isinstance(context.cluster, Booked)
    context.cluster.books["77"] = [
        Accounted(0, 2, submitted, submitted + 90, submitted + 190, 41.0, 200.0, 1600.0, 310.0, 7 << 20),
    ]
    first, last = accounts_of(context).rows
    assert (first.seconds, first.hours_by, first.slurm_seconds) == (50.0, "element", None)
    assert (last.queue_wait, last.queue_wait_by, last.hours_by) == (41.0, "slurmdbd", "slurmdbd")
    assert (last.seconds, last.slurm_seconds, last.slurm_starts) == (150.0, 200.0, 2)
    assert last.core_hours == pytest.approx(150 * 6 / 3600, abs=1e-6)
    assert last.cpu_efficiency == pytest.approx(240 / 600, abs=1e-4)  # the element's own figures
    assert (last.slurm_cpu_seconds, last.slurm_granted_seconds) == (310.0, 1600.0)
    assert last.slurm_memory_peak == 7 << 20
    assert last.started == submitted + 90


def test_accounting_that_does_not_answer_is_said_and_changes_nothing_else(context: Context) -> None:
    slurm_run(context)
    assert isinstance(context.cluster, Booked)
    context.cluster.away = True
    accounts = accounts_of(context)
    assert [row.seconds for row in accounts.rows] == [50.0, 100.0]
    (note,) = accounts.notes
    assert note.startswith("SLURM's accounting was not asked: slurmdbd does not answer")


def test_starts_that_left_nothing_are_counted_as_missing(context: Context) -> None:
    """One before the start that is known, and an element that SLURM alone knows of."""
    slurm_run(context, ElementUsage(restarts=1, began=time.time(), seconds=100.0))
    assert isinstance(context.cluster, Booked)
    context.cluster.books["77"] = [Accounted(0, 2, seconds=100.0), Accounted(1, 1, 0.0, 5.0, 12.0, 0.0, 7.0)]
    accounts = accounts_of(context)
    assert [(row.element, row.starts_missing) for row in accounts.rows] == [(0, 1), (1, 1)]
    assert any(note.startswith("2 starts left no figures") for note in accounts.notes)
    unknown = accounts.rows[1]
    assert (unknown.seconds, unknown.hours_by, unknown.whole_node) == (7.0, "slurmdbd", True)
    assert (unknown.started, unknown.ended) == (5.0, 12.0)
    assert (unknown.core_hours, unknown.cpu_seconds) == (None, None)


def test_arrays_of_another_cluster_are_not_asked_for(context: Context) -> None:
    folder = slurm_run(context)
    book = ArrayBook(folder.arrays)
    book.intend("c-name", "copy", "slurm", [0], "elsewhere", workers=1, call="c")
    book.submitted("c-name", "77")
    assert isinstance(context.cluster, Booked)
    context.cluster.books["77"] = [Accounted(0, waited=5.0)]
    assert [row.slurm_starts for row in accounts_of(context).rows] == [None, 1]


def test_an_array_s_first_worker_is_element_0_of_slurm_s_accounting(context: Context) -> None:
    folder = slurm_run(context)
    book = ArrayBook(folder.arrays)
    book.intend("b-name", "copy", "slurm", [1], "lab", workers=1, call="c", base=2)
    book.submitted("b-name", "78")
    usage = ElementUsage("b-name", 2, began=time.time(), seconds=1.0)
    documents.write(ELEMENT_USAGE, folder.usage("copy") / "78_0_0.json", usage)
    shard_is_done(context, folder, 1, usage)
    assert isinstance(context.cluster, Booked)
    context.cluster.books["78"] = [Accounted(0, waited=6.0)]
    *_, row = accounts_of(context).rows
    assert (row.element, row.shards, row.queue_wait) == (2, 1, 6.0)


def test_a_node_that_was_excluded_is_a_line(context: Context) -> None:
    folder = slurm_run(context)
    book = ArrayBook(folder.arrays)
    book.exclude("n3", "copy", "elements 0 (signal 9) and 1 (signal 9) failed there")
    notes = accounts_of(context).notes
    assert "node n3 was excluded (copy: elements 0 (signal 9) and 1 (signal 9) failed there)" in notes


def test_what_a_worker_notes_of_its_job(context: Context) -> None:
    folder = planned(context)
    kernel_facts.enter_job(JobEnvironment(job="13", array="12", element=0, restarts=1, cpus=3, node="n7"))
    with accounting(folder, "copy", "a-name", 4):
        pass
    (usage,) = figures(folder)
    assert (usage.array, usage.number, usage.restarts, usage.cpus, usage.host) == ("a-name", 4, 1, 3, "n7")
    assert usage.node_cpus == os.cpu_count()
    assert (usage.job_memory_peak, usage.job_memory_file) == (0, "")


def test_figures_grow_while_a_worker_lives(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "HEARTBEAT", 0.05)
    folder = planned(context)
    with accounting(folder, "copy", "a-name", 0):
        until(lambda: figures(folder), "the first figures")
        before = figures(folder)[0].seconds
        until(lambda: figures(folder)[0].seconds > before, "more of them")
    assert len(figures(folder)) == 1


def test_figures_that_cannot_be_written_fail_nothing(context: Context) -> None:
    folder = planned(context)
    folder.usage("copy").parent.write_text("no folder")
    with accounting(folder, "copy", "a-name", 0):
        pass


def test_every_time_is_a_timestamp() -> None:
    assert {one.name for one in COLUMNS if one.kind == TIME} == {"submitted", "started", "ended"}
