"""What elements of a run used and waited for: measured by themselves, summed over attempts, joined with the
controller's book and SLURM's accounting, and written beside the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.support.in_process import InProcess
from tests.support.staging_runs import tree
from tests.support.whole_way import FILES, go, staging

from penstock.cluster.port import Accounted
from penstock.config.settings import EngineConfig
from penstock.core.documents import element_receipt, typed_json
from penstock.core.documents.element_usage import EarlierUsage, ElementUsage
from penstock.core.element_columns import COLUMNS, TIME
from penstock.core.errors import TransientError
from penstock.dataset import receipts, run_store
from penstock.dataset.context import Stop
from penstock.dataset.element_progress import Reporter, usage_of
from penstock.dataset.submission_log import ArrayBook
from penstock.host import job_environment
from penstock.host.job_environment import JobEnvironment
from penstock.jobs.arrays import element_accounts
from penstock.jobs.elements.element import run_element
from penstock.run import report_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.core.element_columns import ElementRow
    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context
    from penstock.jobs.arrays.element_accounts import ElementAccounts


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


def used(folder: RunLayout, step: str, index: int) -> ElementUsage:
    receipt = receipts.element(folder, step, index)
    assert receipt is not None
    assert receipt.usage is not None
    return receipt.usage


def accounts_of(context: Context) -> ElementAccounts:
    run = run_store.open_run(context.layout("data"))
    found = [
        receipts.element(run.folder, step, index) for step in ("copy", "verify") for index in run.indices
    ]
    return element_accounts.gather(context, run, [one for one in found if one is not None])


def row(context: Context, step: str = "copy", element: int = 0) -> ElementRow:
    found = accounts_of(context)
    return next(one for one in found.rows if (one.step, one.element) == (step, element))


def test_a_local_run_has_a_row_for_each_element_and_step(context: Context, tmp_path: Path) -> None:
    go(context)
    folder = run_store.open_run(context.layout("data")).folder
    page = tmp_path / "report.html"
    result = report_step.run(context, "data", html=page)
    table = pq.read_table(tmp_path / "elements.parquet")
    assert table.schema.names == [column.name for column in COLUMNS]
    for column in COLUMNS:
        told = table.schema.field(column.name).metadata
        assert told[b"means"].decode() == column.means
        assert told.get(b"unit", b"").decode() == column.unit
    rows = table.to_pylist()
    shards = run_store.open_run(context.layout("data")).plan.shards
    assert len(shards) > 1
    assert [(one["step"], one["element"]) for one in rows] == [
        (step, shard.index) for step in ("copy", "verify") for shard in shards
    ]
    for one in rows:
        usage = used(folder, one["step"], one["element"])
        assert one["done"] is True
        assert one["queue_wait"] >= 0
        assert one["queue_wait_by"] == "controller"
        assert one["seconds"] == pytest.approx(usage.seconds, abs=0.001)
        assert one["core_hours"] == pytest.approx(usage.cpus * usage.seconds / 3600, abs=1e-5)
        assert one["cpu_efficiency"] == pytest.approx(
            usage.cpu_seconds / (usage.cpus * usage.seconds), abs=0.001
        )
        assert one["memory_peak"] > 10 << 20
        assert one["processes"] == 2  # this process, which does the elements, and one worker
        assert (one["node_hours"], one["whole_node"], one["array"]) == (None, False, None)
        assert one["started"] <= one["ended"]
        assert one["submitted"] is not None
        assert one["slurm_seconds"] is None
    usage = result["usage"]
    assert [(line.step, line.elements) for line in usage.steps] == [
        ("copy", len(shards)),
        ("verify", len(shards)),
        ("", 2 * len(shards)),
    ]
    assert usage.steps[0].node_hours is None
    assert usage.sources == {
        "queue_wait": {"controller": len(rows)},
        "hours": {"element": len(rows)},
    }
    assert not usage.notes
    assert usage.file == str(tmp_path / "elements.parquet")
    assert all(one["queue_wait"] >= 0 and one["memory_peak"] for one in result["elements"])
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
def test_attempts_are_summed_also_of_one_that_was_stopped_and_one_that_was_killed(
    context: Context,
) -> None:
    """A killed element leaves what it had written into its progress file."""
    context.config = replace(context.config, engine=EngineConfig(workers=1, limit=100_000))
    folder = planned(context)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "element",
        "--run",
        str(folder.folder),
        "--step",
        "copy",
        "0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while usage_of(folder.progress("copy", 0)) is None:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed = usage_of(folder.progress("copy", 0))
    assert killed is not None
    assert killed.cpu_seconds > 0.05  # of the whole process, its start included
    assert killed.began < time.time()

    stop = Stop()
    stop.set(15)
    assert run_element(folder.folder, "copy", 0, "auto", stop) == 143
    stopped = usage_of(folder.progress("copy", 0))
    assert stopped is not None
    assert stopped.earlier.attempts == 1
    assert stopped.earlier.seconds == pytest.approx(killed.seconds, abs=0.002)

    assert run_element(folder.folder, "copy", 0, "auto", Stop()) == 0
    last = used(folder, "copy", 0)
    assert last.earlier.attempts == 2
    assert last.earlier.seconds == pytest.approx(killed.seconds + stopped.seconds, abs=0.003)
    assert last.earlier.cpu_seconds == pytest.approx(killed.cpu_seconds + stopped.cpu_seconds, abs=0.003)
    assert last.earlier.memory_peak >= killed.memory_peak
    assert usage_of(folder.progress("copy", 0)) is not None
    found = row(context)
    assert found.attempts == 3
    assert found.seconds == pytest.approx(last.earlier.seconds + last.seconds, abs=0.003)


def test_an_element_without_a_receipt_counts_up_to_its_last_sign_of_life(context: Context) -> None:
    folder = planned(context)
    stop = Stop()
    stop.set(15)
    assert run_element(folder.folder, "copy", 0, "auto", stop) == 143
    accounts = accounts_of(context)
    (only,) = accounts.rows
    assert (only.done, only.files, only.attempts) == (False, None, 1)
    assert only.cpu_seconds is not None
    assert accounts.notes == ["1 element without a receipt: figures up to the last sign of life"]
    assert report_step.run(context, "data")["usage"].steps[0].elements == 1


def test_the_totals_of_an_earlier_attempt_stand_until_the_next_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    usage = ElementUsage(seconds=1.0, earlier=EarlierUsage(attempts=1))
    first = Reporter(path, every=0.0, usage=lambda: usage)
    first(3, 30, 1)
    Reporter(path, usage=lambda: usage).begin()
    told = json.loads(path.read_text())
    assert (told["files"], told["bytes"], told["failed"]) == (3, 30, 1)
    assert usage_of(path) == usage
    path.write_text('{"files": 1, "usage": {"seconds": "x"}}')
    assert usage_of(path) is None
    assert usage_of(tmp_path / "missing") is None


def slurm_run(context: Context, **usage: Any) -> RunLayout:
    """A planned run of which element 0 of copy left a receipt, in array 77."""
    folder = planned(context)
    cluster = Booked()
    context.cluster = cluster
    shard = run_store.open_run(context.layout("data")).plan.shards[0]
    began = time.time() - 500
    told = ElementUsage(
        attempt="77_0_1-aa",
        array="77",
        restarts=1,
        host="n1",
        began=began,
        seconds=100.0,
        cpu_seconds=240.0,
        cpus=6,
        node_cpus=8,
        memory_peak=5 << 20,
        processes=7,
        earlier=EarlierUsage(
            attempts=1,
            seconds=50.0,
            cpu_seconds=60.0,
            granted_seconds=300.0,
            memory_peak=6 << 20,
            array_attempts=1,
            array_seconds=50.0,
        ),
    )._replace(**usage)
    receipts.write_element(
        folder,
        element_receipt.ElementReceipt(
            step="copy", index=0, shard=shard.digest, usage=told, host="n1", job="77_0_1-aa", restarts=1
        ),
    )
    book = ArrayBook(folder.arrays)
    book.intend("a-name", "copy", "slurm", [0, 1], "lab", whole_nodes=True)
    book.submitted("a-name", "77")
    return folder


def at(folder: RunLayout) -> float:
    (one,) = ArrayBook(folder.arrays).all()
    return one.at


def test_an_element_on_a_whole_node_that_slurm_requeued(context: Context) -> None:
    """The wait is what is left of the time since the submission when its first run is taken away."""
    folder = slurm_run(context)
    submitted = at(folder)
    found = row(context)
    # Began before the submission by this test's clock: a wait is never less than 0.
    assert (found.queue_wait, found.queue_wait_by) == (0.0, "element")
    ArrayBook(folder.arrays).ended("a-name", {0: submitted + 80.0})
    found = row(context)
    assert found.queue_wait == pytest.approx(30.0, abs=0.001)
    assert (found.queue_wait_by, found.starts_missing) == ("controller", 0)
    assert (found.seconds, found.attempts, found.whole_node) == (150.0, 2, True)
    assert found.node_hours == pytest.approx(150 / 3600, abs=1e-6)
    assert found.core_hours == pytest.approx((600 + 300) / 3600, abs=1e-6)
    assert found.cpu_efficiency == pytest.approx(300 / 900, abs=1e-4)
    assert found.memory_peak == 6 << 20


def test_what_slurmdbd_says_goes_beside_it(context: Context) -> None:
    folder = slurm_run(context)
    submitted = at(folder)
    assert isinstance(context.cluster, Booked)
    context.cluster.books["77"] = [
        Accounted(0, 3, submitted, submitted + 90, submitted + 190, 41.0, 200.0, 1600.0, 310.0, 7 << 20),
        Accounted(1, 1, submitted, submitted + 90, 0.0, 90.0, 5.0),
    ]
    found = row(context)
    assert (found.queue_wait, found.queue_wait_by, found.hours_by) == (41.0, "slurmdbd", "slurmdbd")
    assert (found.seconds, found.slurm_starts) == (200.0, 3)
    assert found.core_hours == pytest.approx((900 + 50 * 6) / 3600, abs=1e-6)
    assert found.cpu_efficiency == pytest.approx(300 / 900, abs=1e-4)  # the element's own figures
    assert (found.slurm_cpu_seconds, found.slurm_granted_seconds) == (310.0, 1600.0)
    assert found.slurm_memory_peak == 7 << 20
    assert found.started == submitted + 90


def test_accounting_that_does_not_answer_is_said_and_changes_nothing_else(context: Context) -> None:
    slurm_run(context)
    assert isinstance(context.cluster, Booked)
    context.cluster.away = True
    accounts = accounts_of(context)
    assert accounts.rows[0].seconds == 150.0
    (note,) = accounts.notes
    assert note.startswith("SLURM's accounting was not asked: slurmdbd does not answer")


def test_a_start_that_left_nothing_is_counted_as_missing(context: Context) -> None:
    slurm_run(context, restarts=3)
    accounts = accounts_of(context)
    assert accounts.rows[0].starts_missing == 2
    assert any(note.startswith("2 starts left no figures") for note in accounts.notes)


def test_a_shard_that_another_element_took_has_that_element_s_account(context: Context) -> None:
    """Elements of verify choose their shards: SLURM's accounting knows the element's number alone."""
    folder = slurm_run(context)
    shard = run_store.open_run(context.layout("data")).plan.shards[1]
    usage = ElementUsage(array="78", seconds=10.0, cpus=2, began=time.time())
    receipts.write_element(
        folder, element_receipt.ElementReceipt(step="verify", index=1, shard=shard.digest, usage=usage)
    )
    book = ArrayBook(folder.arrays)
    book.intend("b-name", "verify", "slurm", [0, 1], "lab", whole_nodes=False)
    book.submitted("b-name", "78")
    claims = folder.folder / "claims" / "verify" / "b-name"
    claims.mkdir(parents=True)
    (claims / "element-00000").write_text("1")
    (claims / "element-00001").write_text("0")
    assert isinstance(context.cluster, Booked)
    context.cluster.books["78"] = [Accounted(0, waited=5.0), Accounted(1, waited=6.0)]
    found = row(context, "verify", 1)
    assert (found.queue_wait, found.whole_node, found.node_hours) == (5.0, False, None)


def test_arrays_of_another_cluster_are_not_asked_for(context: Context) -> None:
    folder = slurm_run(context)
    book = ArrayBook(folder.arrays)
    book.intend("c-name", "copy", "slurm", [0], "elsewhere")
    book.submitted("c-name", "77")
    assert isinstance(context.cluster, Booked)
    context.cluster.books["77"] = [Accounted(0, waited=5.0)]
    found = accounts_of(context)
    assert found.rows[0].slurm_starts == 1


def test_what_became_of_elements_and_nodes_is_a_line_each(context: Context) -> None:
    folder = slurm_run(context)
    book = ArrayBook(folder.arrays)
    for number, limit in enumerate((60, 120, 240)):
        book.intend(f"t{number}", "verify", "slurm", [0], "lab", time=limit)
        book.submitted(f"t{number}", str(90 + number))
    book.intend("never", "verify", "slurm", [1], "lab")
    book.intend("again", "copy", "slurm", [1], "lab")
    book.submitted("again", "99")
    book.exclude("n3", "copy", "elements 0 (signal 9) and 1 (signal 9) failed there")
    notes = accounts_of(context).notes
    assert "copy: submitted again: element 1 (in 2 arrays)" in notes
    assert (
        "verify: submitted again: element 0 (in 3 arrays, its time limit from 1 min 00 s to 4 min 00 s)"
        in notes
    )
    assert "node n3 was excluded (copy: elements 0 (signal 9) and 1 (signal 9) failed there)" in notes


def test_what_an_attempt_notes_of_its_job(context: Context) -> None:
    folder = planned(context)
    job_environment.enter(JobEnvironment(job="13", array="12", element=0, restarts=1, cpus=3, node="n7"))
    assert run_element(folder.folder, "copy", 0, "auto", Stop()) == 0
    usage = used(folder, "copy", 0)
    assert (usage.array, usage.restarts, usage.cpus, usage.host) == ("12", 1, 3, "n7")
    assert usage.node_cpus == os.cpu_count()
    assert (usage.job_memory_peak, usage.job_memory_file) == (0, "")
    assert typed_json.read(ElementUsage, json.loads(json.dumps(typed_json.plain(usage)))) == usage


def test_every_time_is_a_timestamp() -> None:
    assert {one.name for one in COLUMNS if one.kind == TIME} == {"submitted", "started", "ended"}
