"""Elements of verify share out their array's shards: each shard once, rather on another host."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.core.documents.element_receipt import ElementReceipt
from penstock.core.layout import RunLayout
from penstock.dataset import receipts
from penstock.dataset.submission_log import ArrayBook
from penstock.host.job_environment import JobEnvironment
from penstock.jobs.arrays.shard_assignment import shard_for, taken

if TYPE_CHECKING:
    from pathlib import Path

SURROUNDINGS = JobEnvironment(array="77", array_name="penstock-data-run-verify-1234")


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    """Twelve shards, written by two hosts in turn; all but shard 5 are in the array."""
    layout = RunLayout(tmp_path)
    for shard in range(12):
        receipts.write_element(layout, ElementReceipt("copy", shard, host=f"n{shard % 2}"))
    book = ArrayBook(layout.arrays)
    book.intend("penstock-data-run-verify-1234", "verify", "slurm", [s for s in range(12) if s != 5])
    return layout


def test_each_shard_once_and_mostly_by_another_host(run: RunLayout) -> None:
    elements = [s for s in range(12) if s != 5]
    found: dict[int, int] = {}
    hosts = {element: f"n{element % 2}" for element in elements}

    def element(index: int) -> None:
        found[index] = shard_for(run, "verify", index, hosts[index], SURROUNDINGS)

    threads = [threading.Thread(target=element, args=(index,)) for index in elements]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found.values()) == elements
    # Six elements on n0 share five shards of n1: one has to read what its own host wrote.
    own = [index for index, shard in found.items() if f"n{shard % 2}" == hosts[index]]
    assert len(own) == 1


def test_an_element_elsewhere_reads_its_own_number(run: RunLayout) -> None:
    assert shard_for(run, "verify", 3, "n0", SURROUNDINGS) == 3


def test_after_a_requeue_an_element_goes_on_with_what_it_took(run: RunLayout) -> None:
    first = shard_for(run, "verify", 4, "n0", SURROUNDINGS)
    assert first != 4
    assert shard_for(run, "verify", 4, "n1", SURROUNDINGS) == first
    assert shard_for(run, "verify", first, "n0", SURROUNDINGS) != first


def test_s27_another_array_begins_anew_also_of_the_same_number_on_another_cluster(run: RunLayout) -> None:
    first = shard_for(run, "verify", 4, "n0", SURROUNDINGS)
    name = "penstock-data-run-verify-5678"
    ArrayBook(run.arrays).intend(name, "verify", "slurm", [s for s in range(12) if s != 5], "other")
    assert shard_for(run, "verify", 4, "n0", SURROUNDINGS._replace(array_name=name)) == first
    assert taken(run, name) == {first: 4}
    assert taken(run, SURROUNDINGS.array_name) == {first: 4}


def test_what_is_known_of_the_elements_is_not_read_again(run: RunLayout) -> None:
    first = shard_for(run, "verify", 4, "n0", SURROUNDINGS)
    (note,) = (run.folder / "claims").rglob("element-*")
    known = taken(run, SURROUNDINGS.array_name)
    note.write_text("11")
    assert taken(run, SURROUNDINGS.array_name, known) == known == {first: 4}


def test_an_element_looks_at_some_shards_for_one_of_another_host(tmp_path: Path) -> None:
    """Of thousands that its own host wrote it reads a few receipts, and takes the shard of its number."""
    layout = RunLayout(tmp_path)
    for shard in range(300):
        receipts.write_element(layout, ElementReceipt("copy", shard, host="n0" if shard < 299 else "n1"))
    ArrayBook(layout.arrays).intend(SURROUNDINGS.array_name, "verify", "slurm", range(300))
    assert shard_for(layout, "verify", 5, "n0", SURROUNDINGS) == 5
    assert shard_for(layout, "verify", 290, "n0", SURROUNDINGS) == 299


@pytest.mark.parametrize(
    ("step", "surroundings"),
    [
        ("copy", SURROUNDINGS),
        ("verify", JobEnvironment()),
        ("verify", SURROUNDINGS._replace(array_name="other")),
    ],
)
def test_without_an_array_it_is_the_number(run: RunLayout, step: str, surroundings: JobEnvironment) -> None:
    assert shard_for(run, step, 4, "n0", surroundings) == 4
    assert not (run.folder / "claims").exists()
