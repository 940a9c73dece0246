"""What was published and is met again: pointers that lead nowhere, kills between two steps, lost files."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.in_process import InProcess
from tests.support.published import writable
from tests.support.staging_runs import events_of, tree
from tests.support.standing import begin
from tests.support.whole_way import content, go, staging

from penstock.cluster.port import State, Status
from penstock.config.settings import PermissionsConfig
from penstock.core.errors import FailedError, FindingsError, LockedError
from penstock.dataset import gate, release_records, run_store
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.keep import audit_step
from penstock.target import dataset_folders, tree_removal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.dataset.context import Context


STANDING = True


@pytest.mark.parametrize(("pointer", "state"), [("missing", "removed"), ("dangling", "kept")])
def test_a_pointer_that_leads_nowhere_is_set_again(
    context: Context, source: Path, pointer: str, state: str
) -> None:
    layout = context.layout("data")
    release = begin(context)["release"]
    layout.current.unlink()
    if pointer == "dangling":
        layout.current.symlink_to("releases/none")
    if state == "removed":
        tree_removal.remove_tree(layout.state)
    assert not go(context, upto="list")["published"]
    assert go(context, after="list")["current"] == release
    assert content(layout.current / "data") == content(source)
    assert go(context, upto="list")["published"]


def test_a_release_that_was_deleted_is_published_again(context: Context, source: Path) -> None:
    layout = context.layout("data")
    begin(context)
    layout.current.unlink()
    tree_removal.remove_tree(layout.releases)
    assert go(context)["moved"]
    assert content(layout.current / "data") == content(source)


@pytest.mark.parametrize("stopped", [False, True], ids=["in one go", "stopped once it is revealed"])
def test_the_gate_opens_over_a_release_that_was_deleted_and_staged_again(
    context: Context, stopped: bool
) -> None:
    """`current` still names it, so nothing moves: the history must name its new seal all the same."""
    layout = context.layout("data")
    begin(context)
    first = gate.passed(layout)
    tree_removal.remove_tree(layout.releases)
    if stopped:
        go(context, upto="verify")
        named = os.readlink(layout.current)
        layout.current.unlink()
        layout.current.mkdir()
        with pytest.raises(FailedError):
            go(context, after="verify")
        assert layout.release(first.release).exists()
        layout.current.rmdir()
        layout.current.symlink_to(named)
    assert go(context)["release"] == first.release
    second = gate.passed(layout)
    assert second.release == first.release
    assert second.digest != first.digest
    assert audit_step.run(context, "data")["status"] == "PASSED"
    go(context)
    assert len(list(release_records.history_lines(layout))) == 2


def test_a_run_does_not_note_a_seal_that_was_forged_after_its_publication(context: Context) -> None:
    layout = context.layout("data")
    seal = layout.release(begin(context)["release"]) / "release.json"
    with writable(seal.parent):
        seal.chmod(0o600)
        seal.write_bytes(seal.read_bytes() + b" ")
    go(context)
    with pytest.raises(FindingsError, match="not the one that was published"):
        gate.passed(layout)
    assert len(list(release_records.history_lines(layout))) == 1


def test_a_kill_between_opening_and_renaming_is_gone_over(context: Context, source: Path) -> None:
    layout = context.layout("data")
    begin(context, upto="verify")
    info = run_store.open_run(layout).info
    staged = layout.staging(info.release)
    (staged / "release.json").write_text("{}")
    # As root no bit keeps anybody out; the mode that sealing works in can still be seen.
    staged.chmod(0o2550)
    dataset_folders.close_staging(layout, info.release)
    assert staged.stat().st_mode & 0o777 == 0o700
    staged.chmod(0o2550)
    assert go(context, after="verify")["published"]
    assert content(layout.current / "data") == content(source)


def test_a_release_without_its_seal_is_told(context: Context) -> None:
    layout = context.layout("data")
    release = layout.release(begin(context)["release"])
    release.chmod(0o700)
    os.unlink(release / "release.json")
    with pytest.raises(FindingsError, match="without a seal") as told:
        go(context)
    assert "penstock run --new-release data" in str(told.value)
    release.rename(layout.folder / "away")
    assert go(context)["published"]


def test_staging_whose_data_is_gone_is_made_anew(context: Context, source: Path) -> None:
    layout = context.layout("data")
    begin(context, upto="verify")
    info = run_store.open_run(layout).info
    tree_removal.remove_tree(layout.staging(info.release) / "data")
    assert go(context)["published"]
    assert content(layout.current / "data") == content(source)


def test_a_run_that_is_named_ends_with_7_once_another_one_listed(
    context: Context, source: Path, tmp_path: Path
) -> None:
    layout = context.layout("data")
    context.run = begin(context, upto="plan")["run"]
    with staging(tmp_path, source, exclude=("a/",)) as other:
        theirs = go(other, upto="plan")["run"]
        assert theirs != context.run
        with pytest.raises(LockedError, match=f"{context.run} of dataset data was overtaken by run {theirs}"):
            go(context, after="plan")
        assert go(other, after="plan")["run"] == theirs
    with pytest.raises(LockedError, match="overtaken"):
        go(context, after="plan")
    assert go(context)["run"] == context.run
    assert content(layout.current / "data") == content(source)


def test_an_edited_configuration_does_not_reach_into_a_run(context: Context, source: Path) -> None:
    layout = context.layout("data")
    context.run = begin(context, upto="plan")["run"]
    data = context.config.datasets["data"]
    edited = replace(data, permissions=PermissionsConfig(file_mode=0o400, dir_mode=0o500))
    context.config = replace(context.config, datasets={"data": edited})
    go(context, after="plan")
    modes = {p.stat().st_mode & 0o7777 for p in (layout.current / "data").rglob("*") if p.is_file()}
    assert modes == {data.permissions.file_mode}
    assert content(layout.current / "data") == content(source)


def damaged(folder: RunLayout, what: str) -> None:
    path = folder.plan if "plan" in what else folder.shard(1)
    if "gone" in what:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 40 if "short" in what else 0] + b"garbage")


@pytest.mark.parametrize(
    ("first", "what"),
    [
        ("list", "short plan"),
        ("list", "gone shard"),
        ("plan", "garbage plan"),
        ("plan", "short shard"),
        *(
            pytest.param(first, what, marks=pytest.mark.thorough)
            for first, what in (
                ("list", "garbage plan"),
                ("list", "short shard"),
                ("plan", "short plan"),
                ("plan", "gone shard"),
            )
        ),
    ],
)
def test_a_damaged_plan_is_made_anew(context: Context, source: Path, what: str, first: str) -> None:
    begin(context, upto="copy")
    layout = context.layout("data")
    run = run_store.open_run(layout)
    info, folder = run.info, run.folder
    damaged(folder, what)
    if first == "list":
        go(context, upto="list")
        assert sorted(os.listdir(folder.folder)) == ["listing.parquet", "run.json"]
    go(context, after="list")
    path = folder.plan if "plan" in what else folder.shard(1)
    assert any(str(path) in e.data["text"] for e in events_of(context) if e.kind == "note")
    assert os.readlink(layout.current) == f"releases/{info.release}"
    assert content(layout.current / "data") == content(source)
    if "plan" in what:
        damaged(folder, what)
    assert go(context, upto="plan")["published"]


class Running(InProcess):
    def states(self, array: str, indices: Sequence[int]) -> Mapping[int, Status]:
        return dict.fromkeys(indices, Status(State.RUNNING))


def test_a_damaged_plan_stays_while_elements_may_write_by_it(context: Context) -> None:
    begin(context, upto="plan")
    folder = run_store.open_run(context.layout("data")).folder
    book = ArrayBook(folder.arrays)
    book.intend("name", "copy", "slurm", [0], workers=1, call="c")
    book.submitted("name", "7")
    damaged(folder, "short plan")
    with pytest.raises(LockedError, match="may still run on slurm"):
        go(context, upto="list")
    assert folder.plan.exists()
    book.ended("name")
    context.cluster, before = Running(), context.cluster
    book.intend("other", "copy", "local", [0], workers=1, call="c")
    book.submitted("other", "8")
    with pytest.raises(FailedError, match="array 8 of copy has not ended"):
        go(context, upto="list")
    assert folder.shard(0).exists()
    context.cluster = before
    folder.plan.unlink()
    folder.plan.mkdir()
    with pytest.raises(FailedError, match="cannot be read"):
        go(context, upto="list")
    assert folder.shard(0).exists()


TEMPORARY = ".p.e8d1b0b400000d1e"


@pytest.mark.parametrize("when", ["before permissions", "after verify"])
def test_a_temporary_file_of_an_attempt_that_lived_on_is_swept(
    context: Context, source: Path, when: str
) -> None:
    """slurmd died, its payload did not (R13): once the folder is closed it may not even remove it."""
    layout = context.layout("data")
    steps = {"before permissions": "copy", "after verify": "verify"}
    begin(context, upto=steps[when])
    info = run_store.open_run(layout).info
    data = layout.staging(info.release) / "data"
    for place in (data, data / "deep" / "er"):
        with writable(place):
            (place / TEMPORARY).write_bytes(b"half a file")
    assert go(context, after=steps[when])["published"]
    assert content(layout.current / "data") == content(source)
    modes = {path.stat().st_mode & 0o7777 for path in (layout.current / "data").rglob("*") if path.is_dir()}
    assert len(modes) == 1
    assert not modes & {0o200, 0o020, 0o002}


def test_what_its_owner_renames_while_it_is_swept_is_no_error(tmp_path: Path) -> None:
    data = tree(tmp_path / "data", {"a/b": b""})
    ended = threading.Event()

    def late() -> None:
        while not ended.is_set():
            (data / "a" / TEMPORARY).write_bytes(b"")
            with contextlib.suppress(FileNotFoundError):
                (data / "a" / TEMPORARY).rename(data / "a" / "final")

    thread = threading.Thread(target=late)
    thread.start()
    try:
        for _ in range(300):
            tree_removal.sweep_temporaries(data)
    finally:
        ended.set()
        thread.join()
    tree_removal.sweep_temporaries(data)
    assert set(os.listdir(data / "a")) <= {"b", "final"}
