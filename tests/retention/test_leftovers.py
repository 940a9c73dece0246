"""What killed commands leave in a dataset's folders is gone after the next command (K13)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from penstock.core.layout import PROBE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.retention.conftest import Releases

TEMPORARY = ".0123456789abcdef.tmp"
TRIAL = ".try-0123456789abcdef"
DAY = 86400


def leave(releases: Releases) -> list[Path]:
    """What kills leave; not what is younger than an hour."""
    layout = releases.layout
    probes = [layout.folder / PROBE, layout.releases / PROBE]
    for probe in probes:
        (probe / "link_file" / "shut").mkdir(parents=True)
        (probe / "link_file" / "file").write_bytes(b"x")
        (probe / "link_file" / "shut").chmod(0)
    files = [layout.folder / TEMPORARY, layout.state / TEMPORARY, layout.state / TRIAL]
    for path in files:
        path.write_bytes(b"x")
        path.chmod(0)
    return [*probes, *files]


def aged(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of yesterday. A change time cannot be set: the file system's clock is a day on instead."""
    from penstock.storage import dataset_folders

    for path in paths:
        os.utime(path, (0, time.time() - DAY))
    monkeypatch.setattr(dataset_folders, "LEFT_AFTER", -1.0)


@pytest.mark.parametrize("command", ["gc", "run", "rollback"])
def test_the_next_command_removes_the_probe_of_a_killed_one(releases: Releases, command: str) -> None:
    """K13."""
    releases.stage("a", "b")
    left = leave(releases)
    words = {"gc": ["gc", "data"], "run": ["step", "list", "data"], "rollback": ["rollback", "data"]}[command]
    answer = releases.command(*words)
    assert answer.returncode == 0, answer.stderr
    assert [path for path in left if os.path.lexists(path)] == left[2:]
    assert not [name for name in os.listdir(releases.layout.releases) if name.startswith(".penstock")]


def test_old_temporary_files_go_too(releases: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    """K13; younger ones may be somebody's who needs no lock."""
    releases.stage("a")
    left = leave(releases)
    foreign = [releases.layout.folder / ".0123.tmp", releases.layout.state / ".mine"]
    for path in foreign:
        path.write_bytes(b"")
    releases.again()
    assert [path for path in left if os.path.lexists(path)] == left[2:]
    aged([*left[2:], *foreign], monkeypatch)
    releases.again()
    assert not [path for path in left if os.path.lexists(path)]
    assert all(map(os.path.lexists, foreign))


def test_a_trial_that_cannot_be_removed_stops_no_command(releases: Releases) -> None:
    """K13."""
    releases.stage("a", "b")
    (releases.layout.releases / PROBE).write_text("no folder")
    assert releases.command("gc", "data").returncode == 0
