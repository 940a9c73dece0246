"""Stagings of other runs: which of them are kept, set aside, left to who may still write, named, removed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.abandoned import FILES, intend, named, opened, stagings
from tests.support.in_process import InProcess
from tests.support.standing import begin
from tests.support.whole_way import content, go, texts

from penstock.cluster.port import State, Status
from penstock.core.errors import FailedError, LockedError
from penstock.core.row_codec import line
from penstock.core.run_steps import Noted
from penstock.dataset import dataset_lock, run_store
from penstock.dataset.documents import read_plan
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.jobs import run_cleanup
from penstock.jobs.dataset_state import holding
from penstock.look import status_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.run_steps import Event
    from penstock.dataset.context import Context


STANDING = True


@pytest.mark.parametrize("release", ["auto", "v1"])
def test_a_source_that_goes_back_and_forth_loses_nothing(
    context: Context, source: Path, release: str
) -> None:
    named(context, release)
    begin(context, upto="copy")
    before = (source / "d0/000").stat()
    os.rename(source / "d0/000", source.parent / "kept")
    (source / "d0/000").write_bytes(b"for a while")
    go(context, upto="plan")
    os.rename(source.parent / "kept", source / "d0/000")
    os.utime(source / "d0/000", ns=(before.st_atime_ns, before.st_mtime_ns))
    # A rename moves ctime, so this one file counts as another; all others are had once.
    receipt = go(context, upto="copy")
    assert (receipt["taken"], receipt["copied_rows"]) == (len(FILES) - 1, 1)
    assert go(context, after="copy")["published"]
    assert content(context.layout("data").current / "data") == content(source)
    assert stagings(context) == []


@pytest.mark.parametrize("release", ["auto", "v1"])
def test_the_same_run_met_again_takes_its_own_staging_over(
    context: Context, source: Path, release: str
) -> None:
    """A, B, A before anything was published: what B had not yet begun to take stays A's."""
    named(context, release)
    begin(context, upto="copy")
    data = context.config.datasets["data"]
    context.config = replace(context.config, datasets={"data": replace(data, exclude=("d0/",))})
    go(context, upto="plan")
    context.config = replace(context.config, datasets={"data": data})
    receipt = go(context, upto="copy")
    assert (receipt["taken"], receipt["copied_rows"]) == (len(FILES), 0)
    go(context, after="copy")
    assert content(context.layout("data").current / "data") == content(source)
    assert stagings(context) == []


def test_list_leaves_the_staging_of_a_run_that_is_newer_than_the_release(
    context: Context, source: Path
) -> None:
    """A is published, B staged; for a moment the source shows A again."""
    data = context.config.datasets["data"]
    part = replace(context.config, datasets={"data": replace(data, exclude=("d0/",))})
    whole, context.config = context.config, part
    begin(context)
    context.config = whole
    go(context, upto="copy")
    before = stagings(context)
    context.config = part
    assert go(context, upto="list")["published"]
    assert stagings(context) == before
    assert [text for text in texts(context, "note") if "it may be newer than release" in text]
    context.config = whole
    assert go(context, upto="copy")["copied_rows"] == 0
    # One that is older goes: publish died before it removed it.
    go(context, after="copy")
    layout = context.layout("data")
    old = layout.run("0" * 16)
    shutil.copytree(run_store.open_run(layout).folder.folder, old.folder)
    told = json.loads(old.run_file.read_bytes())
    old.run_file.write_text(json.dumps({**told, "run": "0" * 16, "release": "old"}))
    (layout.staging("old") / "data").mkdir(parents=True)
    assert go(context, upto="list")["published"]
    assert stagings(context) == []


def test_a_staging_whose_journals_are_of_a_newer_version_is_left(context: Context, source: Path) -> None:
    begin(context, upto="copy")
    _, folder = opened(context)
    for shard in read_plan(folder).shards:
        for path in folder.journals(shard.index).iterdir():
            head, _, rest = path.read_bytes().partition(b"\n")
            path.write_bytes(line({**json.loads(head[9:]), "journal": 99}).encode() + rest)
    (source / "new").write_bytes(b"new")
    assert go(context, upto="plan")["taken"] == 0


class Silent(InProcess):
    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        if array == "7":
            raise FailedError("the cluster does not answer as it should", why="squeue speaks in tongues")
        return super().states(array, indices)


def test_what_a_cluster_says_of_another_run_does_not_fail_publish(context: Context, source: Path) -> None:
    begin(context, upto="copy")
    _, folder = opened(context)
    (source / "new").write_bytes(b"new")
    go(context, upto="verify")
    intend(ArrayBook(folder.arrays))
    context.cluster = Silent()
    assert go(context, after="verify")["published"]
    assert [text for text in texts(context) if "stays: squeue speaks in tongues" in text]


class Running(InProcess):
    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        state = State.RUNNING if array == "7" else State.DONE
        return dict.fromkeys(indices, Status(state))


def test_a_staging_that_another_run_is_just_writing_is_left_alone(context: Context, source: Path) -> None:
    begin(context, upto="copy")
    first, folder = opened(context)
    before = content(context.layout("data").staging(first))
    (source / "new").write_bytes(b"new")
    context.cluster = Running()
    go(context, upto="list")
    book = ArrayBook(folder.arrays)
    intend(book)
    assert go(context, upto="plan", after="list")["taken"] == 0
    assert any(
        f"staging of run {folder.folder.name} is not taken over" in text for text in texts(context, "note")
    )
    go(context, after="plan")
    assert content(context.layout("data").staging(first)) == before
    (said,) = [text for text in texts(context) if "stays" in text]
    assert "array 7" in said


def test_a_staging_of_a_run_from_before_its_dataset_was_renamed_is_removed(
    context: Context, source: Path
) -> None:
    begin(context, upto="copy")
    _, folder = opened(context)
    described = json.loads(folder.run_file.read_bytes())
    folder.run_file.write_text(json.dumps({**described, "dataset": "as it was called"}))
    (source / "new").write_bytes(b"new")
    go(context)
    assert stagings(context) == []
    assert any("which did not end, was removed" in text for text in texts(context, "note"))


def test_the_lock_is_checked_right_before_a_run_removes_its_own_staging(
    context: Context, source: Path
) -> None:
    """Not before the note about it, which a terminal may hold up."""
    begin(context, upto="plan")
    name, folder = opened(context)
    folder.plan.unlink()
    sink, layout = context.sink, context.layout("data")
    run = run_store.open_run(layout)

    def slow(event: Event) -> None:
        sink(event)
        if isinstance(event, Noted) and "is removed and made anew" in event.text:
            dataset_lock.make_claim(layout, "f" * 16, dataset_lock.highest_claim(layout), "")

    context.sink = slow
    with (
        pytest.raises(LockedError, match=f"was overtaken by run {'f' * 16}"),
        holding(context, "data", run.id, "plan"),
    ):
        run_cleanup.clear_own(context, run)
    assert layout.staging(name).exists()


def test_status_names_what_was_abandoned_and_what_it_holds(context: Context, source: Path) -> None:
    begin(context, upto="copy")
    first, folder = opened(context)
    (source / "new").write_bytes(b"new")
    go(context, upto="list")
    (said,) = status_report.run(context, "data")["abandoned"]
    assert said.startswith(f".{first}.staging of run {folder.folder.name}: {len(FILES)} files, ")
    assert "last written" in said
    (context.layout("data").releases / ".stray.staging").mkdir()
    assert ".stray.staging, of no known run" in status_report.run(context, "data")["abandoned"]
    go(context, after="list")
    assert stagings(context) == [".stray.staging"]
    assert any("remove it by hand" in text for text in texts(context))


def test_a_run_of_the_same_name_that_may_write_stops_the_plan(context: Context, source: Path) -> None:
    named(context, "v1")
    begin(context, upto="copy")
    _, folder = opened(context)
    (source / "new").write_bytes(b"new")
    context.cluster = Running()
    go(context, upto="list")
    intend(ArrayBook(folder.arrays))
    with pytest.raises(LockedError, match="another run of release v1 may still write"):
        go(context, upto="plan", after="list")
    assert stagings(context) == [".v1.staging"]
