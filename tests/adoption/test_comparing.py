"""A tree that rsync made, compared with its source: each difference is named for what it is, and nothing of
the tree is touched."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.in_process import InProcess
from tests.support.published import content
from tests.support.staging_runs import events_of
from tests.target.conftest import need_cold_reads

from penstock.cli.commands import comparisons
from penstock.cluster.port import State
from penstock.core.errors import FindingsError, PreflightError
from penstock.core.findings import FINDING_MARKS as OF_AUDITS
from penstock.core.findings import KINDS, MARKS
from penstock.core.run_steps import ElementChanged, Ended
from penstock.fs import capabilities, libc
from penstock.fs.capabilities import facts
from penstock.fs.kinds import MountProof
from penstock.run import adopt_step
from penstock.run.adopt_step import Request

if TYPE_CHECKING:
    from tests.adoption.conftest import Place

    from penstock.core.run_steps import Event
    from penstock.core.step_results import AdoptionResult


def compared(place: Place, **asked: bool) -> AdoptionResult:
    return adopt_step.run(place.context, "data", Request(place.copy, **asked))


def found(result: AdoptionResult) -> set[tuple[str, str]]:
    return {(one.kind, one.path) for one in adopt_step.differences(result)}


def flip(path: Path, at: int) -> None:
    """Change one byte; the modification time stays, as where a disk rots."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def picture(tree: Path) -> list[tuple[str, int, int, int, int]]:
    """Name, inode, mode, mtime and ctime of all that lies there."""
    seen = []
    for folder, folders, files in os.walk(tree):
        for path in sorted(Path(folder) / name for name in [*folders, *files]):
            one = path.lstat()
            seen.append((str(path), one.st_ino, one.st_mode, one.st_mtime_ns, one.st_ctime_ns))
    return sorted(seen)


def same(result: AdoptionResult) -> dict[tuple[str, str], int]:
    return {(one["how"], one["grade"]): one["files"] for one in result["same"]}


def test_a_good_copy_is_the_same_and_nothing_of_it_changes(place: Place) -> None:
    before = picture(place.copy)
    result = compared(place, read_source=True)
    assert (result["status"], found(result)) == ("SAME", set())
    assert sum(one["files"] for one in result["same"]) == result["files"] == 34
    assert picture(place.copy) == before
    assert not place.context.layout("data").folder.exists()
    adopt_step.judge(result)


@pytest.mark.parametrize(("key", "used"), [("unshared", False), ("always", True)])
def test_jobs_beside_it_are_not_harmed_by_direct_reads(
    place: Place, monkeypatch: pytest.MonkeyPatch, key: str, *, used: bool
) -> None:
    """As on BeeGFS, whose mounts say that a direct read harms others of the same file."""
    need_cold_reads(place.copy)
    harmed = MountProof(direct_harms=True)
    monkeypatch.setattr(capabilities, "facts", lambda path: replace(facts(path), proof=harmed))
    fd = os.open(place.copy, os.O_RDONLY | os.O_DIRECTORY)
    libc.syncfs(fd)
    os.close(fd)
    config = place.context.config
    config = replace(config, verify=replace(config.verify, direct=key))
    context = replace(place.context, config=config, cluster=InProcess())
    result = adopt_step.run(context, "data", Request(place.copy, read_source=True))
    assert (result["status"], "direct" in result["methods"]) == ("SAME", used)


def test_what_only_sizes_were_compared_of_is_never_called_the_same(place: Place) -> None:
    flip(place.copy / "d0/f00", 7)
    result = compared(place)
    assert same(result) == {("size", "size"): 34}
    assert (result["status"], found(result)) == ("PARTLY", set())
    text = comparisons.comparison(result)
    assert "by size alone: nothing is known of their bytes" in text
    assert "PARTLY (34 files by size alone)" in text


def test_each_difference_is_named_for_what_it_is(place: Place) -> None:
    copy = place.copy
    flip(copy / "d0/f00", 7)
    flip(copy / "big/giant", 3_000_000)
    (copy / "d1/f01").write_bytes(b"short")
    (copy / "d2/f02").unlink()
    (copy / "d0/f03").unlink()
    (copy / "d0/f03").symlink_to("f06")
    (copy / "d1/f04").unlink()
    (copy / "d1/f04").mkdir()
    (copy / "more").write_bytes(b"more")
    (copy / "d2/link").symlink_to("nowhere")
    os.mkfifo(copy / "pipe")
    (copy / "nothing").mkdir()
    before = picture(copy)
    result = compared(place, read_source=True)
    assert found(result) == {
        ("content", "d0/f00"),
        ("content", "big/giant"),
        ("size", "d1/f01"),
        ("missing", "d2/f02"),
        ("replaced", "d0/f03"),
        ("replaced", "d1/f04"),
        ("extra", "more"),
        ("link", "d2/link"),
        ("special", "pipe"),
        ("folder", "nothing/"),
    }
    assert result["status"] == "DIFFERS"
    assert same(result) == {("source", "full"): 28}
    assert result["counts"]["content"] == {"files": 2, "bytes": 5000 + (5 << 20) + 7}
    with pytest.raises(FindingsError, match="1 missing, 1 size, 2 content, 2 replaced, 1 extra") as caught:
        adopt_step.judge(result)
    assert caught.value.exit_code == 4
    assert picture(copy) == before
    paths = [one.path for one in adopt_step.differences(result)]
    assert paths == sorted(paths)


def test_another_time_is_told_as_weak_and_is_no_difference(place: Place) -> None:
    os.utime(place.copy / "d0/f00", (1, 1))
    result = compared(place)
    assert found(result) == {("time", "d0/f00")}
    assert result["status"] == "PARTLY"
    # The bytes say more than a time.
    assert found(compared(place, read_source=True)) == set()


def test_patterns_and_places_of_the_dataset_decide_what_belongs_to_the_tree(place: Place) -> None:
    context, old = place.context, place.context.config.datasets["data"]
    source = replace(old.sources[0], into="deep/er")
    dataset = replace(old, sources=(source,), exclude=("d2/", "*.tmp"))
    context.config = replace(context.config, datasets={"data": dataset})
    (place.copy.parent / "tree/deep").mkdir(parents=True)
    shutil.move(place.copy, place.copy.parent / "tree/deep/er")
    place.copy = place.copy.parent / "tree"
    (place.copy / "deep/er/new.tmp").write_bytes(b"x")
    (place.copy / "deep/beside").write_bytes(b"x")
    result = compared(place)
    told = found(result)
    assert ("excluded", "deep/er/new.tmp") in told
    assert ("excluded", "deep/beside") in told
    assert {path for _, path in told} >= {f"deep/er/d2/f{i:02d}" for i in range(2, 30, 3)}
    assert ("folder", "deep/er/d2/") in told
    assert {kind for kind, _ in told} == {"excluded", "folder"}
    assert result["files"] == 24


def test_empty_folders_that_the_dataset_keeps_are_compared(place: Place) -> None:
    context, old = place.context, place.context.config.datasets["data"]
    dataset = replace(old, empty_folders="keep")
    context.config = replace(context.config, datasets={"data": dataset})
    for name in ("kept", "gone"):
        (place.source / name).mkdir()
    (place.copy / "kept").mkdir()
    assert found(compared(place)) == {("missing", "gone/")}


def test_links_are_no_difference_where_those_of_the_source_are_left_out(place: Place) -> None:
    context, old = place.context, place.context.config.datasets["data"]
    context.config = replace(context.config, datasets={"data": replace(old, links="skip")})
    for root in (place.source, place.copy):
        (root / "link").symlink_to("a-between")
    result = compared(place)
    assert found(result) == {("unlinked", "link")}
    assert result["status"] == "PARTLY"


def test_a_file_that_is_written_to_meanwhile_is_read_again(place: Place) -> None:
    """It was read, and is written to before the tree is walked for the last time: its times say so."""
    late, changed = place.copy / "d0/f00", []

    def sink(event: Event) -> None:
        if isinstance(event, ElementChanged) and event.state == State.DONE.value and not changed:
            changed.append(event)
            flip(late, 3)

    place.context.sink = sink
    result = compared(place, read_source=True)
    assert changed
    assert found(result) == {("content", "d0/f00")}


def test_the_source_itself_is_no_tree_to_compare(place: Place) -> None:
    place.copy = place.source / "d0"
    with pytest.raises(PreflightError, match="lie in one another"):
        compared(place)
    place.copy = place.source.parent / "nowhere"
    with pytest.raises(PreflightError, match="cannot be read"):
        compared(place)


def test_a_source_file_that_changed_since_it_was_listed_is_told(place: Place) -> None:
    """Between the listing and the reading: the element reads the listing that is there."""
    first = compared(place)
    late = place.source / "d0/f00"

    def sink(event: Event) -> None:
        if isinstance(event, Ended) and event.step == "list":
            late.write_bytes(content(1, 5000))

    place.context.sink = sink
    result = compared(place, read_source=True)
    assert found(result) == {("source", "d0/f00")}
    assert result["adoption"] == first["adoption"]
    assert result["status"] == "DIFFERS"


def test_all_differences_are_kept_and_a_table_shows_some(place: Place) -> None:
    for i in range(20):
        (place.copy / f"extra{i:02d}").write_bytes(b"x")
    result = compared(place)
    assert len(list(adopt_step.differences(result))) == 20
    text = comparisons.comparison(result, 3)
    assert text.count("\n  + ") == 3
    assert "    and 17 more\n" in text
    assert json.loads(Path(result["all_differences"]).read_text().splitlines()[0])["mark"] == "+"


def test_every_kind_has_a_title_and_a_mark_as_those_of_audits() -> None:
    assert set(KINDS) == set(comparisons.TITLES) == set(MARKS)
    assert set(MARKS.values()) <= {*OF_AUDITS.values(), "~", "?"}


def test_events_say_where_the_state_lies(place: Place) -> None:
    compared(place)
    texts = [getattr(event, "text", "") for event in events_of(place.context)]
    assert any(str(place.copy.parent / "state") in text for text in texts)
