"""File systems that are full, of blocks or of inodes: there is a way to make room, and jobs start."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.retention.conftest import Releases
from tests.retention.test_gc import ruled
from tests.support.images import file_system
from tests.support.whole_way import staging

from penstock.core.errors import NoSpaceError
from penstock.core.findings import WHOLE
from penstock.dataset import gate, pins, reserve
from penstock.fs import small_files
from penstock.keep import audit_step, retention_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.layout import DatasetLayout

RULES = {"dataset": ", retention: {last: 1, named: false}", "more": "gc: {grace: 1ms}\n"}


def fill(point: Path, what: str) -> None:
    """Leave no block, or no inode."""
    if what == "inodes":
        with contextlib.suppress(OSError):
            for number in range(1 << 20):
                os.close(os.open(point / f"full-{number}", os.O_CREAT | os.O_WRONLY))
        return
    with open(point / "full", "ab") as file:
        for size in (1 << 24, 1 << 20, 1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
    with contextlib.suppress(OSError):
        os.sync()
        (point / "last").write_bytes(bytes(1 << 20))


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Releases, Path]]:
    """Releases A and B, of which gc may remove A, on a file system of its own kind."""
    kind, size = request.param
    source = tmp_path / "source"
    source.mkdir()
    with file_system(tmp_path, kind, size=size) as point, staging(point, source) as context:
        releases = Releases(context, tmp_path)
        releases.stage(*"AB")
        releases.configure(**RULES)
        yield releases, point


def pinned(releases: Releases) -> str:
    layout = releases.layout
    return pins.pinned(layout, lambda: gate.passed(layout))[0].release


def reserved(layout: DatasetLayout) -> tuple[int, int]:
    return len(os.listdir(layout.reserve)), len(os.listdir(layout.dataset_reserve))


EXT4, XFS = ("ext4", 64 << 20), ("xfs", 320 << 20)


@pytest.mark.parametrize(
    ("place", "what"),
    [(EXT4, "blocks"), (EXT4, "inodes"), (XFS, "blocks")],
    indirect=["place"],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_on_a_full_file_system_jobs_start_and_gc_makes_room(place: tuple[Releases, Path], what: str) -> None:
    releases, point = place
    context, layout = releases.context, releases.layout
    whole = reserved(layout)
    assert whole == (reserve.OF_REMOVALS[0], reserve.OF_DATASET[0])
    fill(point, what)
    with pytest.raises(OSError, match=r"No space left|File exists"):
        (point / "more").write_bytes(bytes(1 << 20))
    done = releases.command("path", "data", "--job")
    assert done.returncode == 0, done.stderr
    assert "not pinned" not in done.stderr
    assert pinned(releases) == releases.names["B"]
    assert len(os.listdir(layout.pins)) >= 1
    assert audit_step.run(context, "data", audit_step.AuditRequest(choice=WHOLE))["status"] == "PASSED"
    for letter in "AB":
        assert (
            retention_steps.rollback(context, "data", releases.names[letter])["release"]
            == releases.names[letter]
        )
    done = releases.command("gc")
    assert done.returncode == 0, done.stderr
    assert releases.there() == "B"
    assert releases.told()[-1] == "remove A"
    assert reserved(layout)[0] == whole[0]
    for path in point.glob("full*"):
        path.unlink()
    releases.stage("C")
    releases.check()
    assert reserved(layout) == whole


@pytest.mark.parametrize("place", [EXT4], indirect=True, ids=["ext4"])
def test_without_its_reserve_a_job_starts_unpinned_and_gc_says_what_to_do(
    place: tuple[Releases, Path],
) -> None:
    releases, point = place
    layout = releases.layout
    for folder in (layout.reserve, layout.dataset_reserve):
        shutil.rmtree(folder)
    fill(point, "blocks")
    done = releases.command("path", "data", "--job")
    assert (done.returncode, done.stdout) == (0, f"{layout.release(releases.names['B'])}/data\n")
    assert "warning: data: the release is not pinned" in done.stderr
    done = releases.command("gc")
    assert done.returncode == 6
    assert "remove some files of your own there by hand" in done.stderr
    run = releases.command("preflight", "data")
    assert run.returncode == 6
    assert "gc` removes it" in run.stderr
    os.truncate(point / "full", os.stat(point / "full").st_size - (1 << 20))
    done = releases.command("gc")
    assert done.returncode == 0, done.stderr
    assert releases.there() == "B"


@pytest.mark.parametrize("place", [EXT4], indirect=True, ids=["ext4"])
def test_a_removal_that_cannot_be_noted_yet_is_noted_once_there_is_room(
    place: tuple[Releases, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system runs full between the rename and the history's line, which needs a block of its own."""
    releases, point = place
    context, layout = releases.context, releases.layout
    size = layout.history.stat().st_size
    with layout.history.open("ab") as file:
        file.write(b"x" * (-size % 4096 - 1) + b"\n")
    plain = small_files.rename

    def rename(old: Path, new: Path) -> None:
        plain(old, new)
        if old == layout.release(releases.names["A"]):
            for folder in (layout.reserve, layout.dataset_reserve):
                shutil.rmtree(folder)
            fill(point, "blocks")

    monkeypatch.setattr(small_files, "rename", rename)
    ruled(releases, last=1)
    found = retention_steps.gc(context, "data", dry_run=False)
    assert [one["removed"] for one in found["releases"]] == [True, False]
    assert releases.there() == "B"
    assert b'"event": "remove"' in layout.history.read_bytes()
    assert not list(layout.releases.glob(".remov*"))


def test_an_error_that_is_not_of_space_gives_no_reserve(releases: Releases) -> None:
    releases.begin_with("A")
    before = reserved(releases.layout)

    def fails() -> None:
        raise PermissionError

    with pytest.raises(PermissionError):
        reserve.sparing(releases.context, releases.layout, "gc", fails, removal=True)
    assert reserved(releases.layout) == before
    with pytest.raises(NoSpaceError):
        reserve.sparing(releases.context, releases.layout, "gc", full, removal=True)
    assert reserved(releases.layout) == before, "made again"


def full() -> None:
    raise NoSpaceError("full")
