"""What killed commands leave in a dataset's folders is gone after the next command (K13)."""

from __future__ import annotations

import os
import signal
import time
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.support.accounts import give
from tests.support.forked import NOBODY
from tests.support.kill_points import killed_at
from tests.support.whole_way import go

from penstock.core.layout import PROBE
from penstock.target import adopted_files

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
    from penstock.target import dataset_folders

    for path in paths:
        os.utime(path, (0, time.time() - DAY))
    monkeypatch.setattr(dataset_folders, "LEFT_AFTER", -1.0)


@pytest.mark.parametrize("command", ["gc", "run", "rollback"])
def test_the_next_command_removes_the_probe_of_a_killed_one(releases: Releases, command: str) -> None:
    """K13."""
    releases.begin_with("ab")
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
    releases.begin_with("ab")
    (releases.layout.releases / PROBE).write_text("no folder")
    assert releases.command("gc", "data").returncode == 0


def test_a_link_that_was_to_become_current_goes_at_once(releases: Releases) -> None:
    """K13."""
    releases.begin_with("ab")
    left = releases.layout.folder / ".current.0123456789abcdef"
    left.symlink_to("releases/none")
    assert releases.command("gc", "data").returncode == 0
    assert not os.path.lexists(left)
    releases.check()


def test_old_trials_of_adopt_and_answers_of_nodes_go_too(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K13; not what holds something, nor another account's."""
    releases.stage("a")
    trials = [releases.layout.releases / f".penstock-adopt-{digit * 16}" for digit in "0f"]
    for trial in trials:
        trial.mkdir()
    (trials[1] / "file").touch()
    answers = [releases.layout.root / f".penstock-probe-{job}" for job in ("17", "18_4", "19", "mine")]
    for answer in answers:
        answer.touch()
    give(answers[2], NOBODY, NOBODY)
    left = [*trials, *answers]
    releases.again()
    assert all(map(os.path.lexists, left))
    aged(left, monkeypatch)
    releases.again()
    assert [path for path in left if os.path.lexists(path)] == [trials[1], answers[2], answers[3]]


def test_the_next_adoption_removes_old_trials_beside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K13."""
    for name in ("above/tree", "releases", "above/.penstock-adopt-0123456789abcdef"):
        (tmp_path / name).mkdir(parents=True)

    def tried() -> list[str]:
        adopted_files.try_move(tmp_path / "above/tree", tmp_path / "releases", tmp_path / "above/aside")
        return sorted(os.listdir(tmp_path / "above"))

    assert tried() == [".penstock-adopt-0123456789abcdef", "tree"]
    aged([], monkeypatch)
    assert tried() == ["tree"]


def hidden(releases: Releases) -> set[str]:
    """What commands may leave, below the dataset's folder and at the root."""
    found = set()
    for above, folders, names in os.walk(releases.layout.root):
        found |= {
            os.path.relpath(os.path.join(above, name), releases.layout.root)
            for name in (*folders, *names)
            if name.startswith((".penstock-", ".try-", ".current.")) or name.endswith(".tmp")
        }
    return found


@pytest.mark.parametrize(
    ("step", "name"), [(("step", "plan"), PROBE), (("preflight",), ".try-")], ids=["plan", "preflight"]
)
def test_a_step_that_is_killed_amid_its_trial_leaves_nothing_to_the_next(
    releases: Releases, monkeypatch: pytest.MonkeyPatch, step: tuple[str, ...], name: str
) -> None:
    """K13: killed by signal 9 right before each change until its trial is there. The probe goes at once, what
    may be of a living command after an hour."""
    releases.holds("a")
    go(releases.context, upto="list")
    words = ("--config", str(releases.config), *step, "data")
    for number in count(1):
        done = killed_at(number, releases.layout.root, *words)
        assert done.returncode == -signal.SIGKILL, done.stderr
        if any(name in left for left in hidden(releases)):
            break
    answer = releases.command(*words[2:])
    assert answer.returncode == 0, answer.stderr
    assert not [left for left in hidden(releases) if PROBE in left]
    aged([], monkeypatch)
    go(releases.context)
    assert not hidden(releases)
