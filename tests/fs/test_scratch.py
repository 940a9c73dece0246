"""Folders in TMPDIR: what a killed process left goes, what a living one holds stays."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import kill_session, penstock, started, until

from penstock.fs import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDS = """
import signal
from penstock.fs import scratch
with scratch.folder() as folder:
    (folder / "listing").write_text("x")
    signal.pause()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield place
    tempfile.tempdir = None


def left_by_kill(place: Path) -> str:
    """The name of what a process left that was killed."""
    before = {*os.listdir(place)}
    with started(sys.executable, "-c", HOLDS, cwd=place.parent) as process:
        until(lambda: any(place.glob("penstock-list-*/listing")), "the folder")
        kill_session(process.pid)
    (name,) = {*os.listdir(place)} - before
    return name


def test_what_a_killed_process_left_goes_with_the_next_one(temporary: Path) -> None:
    left_by_kill(temporary)
    with scratch.folder() as folder:
        assert os.listdir(temporary) == [folder.name]
    assert os.listdir(temporary) == []


def test_what_a_living_process_holds_stays(temporary: Path) -> None:
    for name in ("penstock-list-elsewhere-12345678", "snakemake-of-a-person"):
        (temporary / name).mkdir()
    with scratch.folder() as folder:
        scratch.sweep()
        with scratch.folder() as second:
            assert folder.is_dir()
            assert folder != second
    assert sorted(os.listdir(temporary)) == ["penstock-list-elsewhere-12345678", "snakemake-of-a-person"]


def test_gc_removes_it(temporary: Path, tmp_path: Path) -> None:
    left_by_kill(temporary)
    file = tmp_path / "my.yaml"
    file.write_text(f"target: {{root: {tmp_path}}}\ndatasets: {{d: {{source: {tmp_path}}}}}\n")
    penstock("--as-root", "--config", str(file), "gc", "--dry-run", cwd=tmp_path)
    assert len(os.listdir(temporary)) == 1
    penstock("--as-root", "--config", str(file), "gc", cwd=tmp_path)
    assert os.listdir(temporary) == []
