"""A comparison that was killed goes on; one that ended reads only what may have changed since."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.adoption.test_comparing import compared, flip, found
from tests.support.published import content, publish
from tests.support.staging_runs import tree
from tests.target.conftest import need

from penstock.config.loader import TESTED
from penstock.core.errors import LockedError
from penstock.dataset import staging_notice
from penstock.jobs import array_job, audits_and_adoptions
from penstock.jobs.dataset_state import lock_of
from penstock.run import adopt_step
from penstock.tables import run_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.adoption.conftest import Place

DEADLINE = 60.0


def test_what_was_not_touched_since_is_not_read_again(place: Place) -> None:
    first = compared(place, read_source=True)
    assert first["earlier"] == 0
    flip(place.copy / "d0/f00", 5)
    (place.copy / "d0/f03").unlink()
    second = compared(place, read_source=True)
    assert second["adoption"] == first["adoption"]
    assert found(second) == {("content", "d0/f00"), ("missing", "d0/f03")}
    # 31 whole files and the 6 parts of the giant.
    assert second["earlier"] == 37
    flip(place.copy / "d0/f00", 5)
    (place.copy / "d0/f03").write_bytes((place.source / "d0/f03").read_bytes())
    third = compared(place, read_source=True)
    assert (third["status"], third["earlier"]) == ("SAME", 37)


def test_reading_the_source_later_reads_what_only_sizes_were_compared_of(place: Place) -> None:
    flip(place.copy / "d0/f00", 5)
    assert found(compared(place)) == set()
    result = compared(place, read_source=True)
    assert found(result) == {("content", "d0/f00")}
    assert {one["how"] for one in result["same"]} == {"source"}


def test_a_reading_of_a_week_ago_is_not_trusted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    compared(place)
    assert compared(place)["earlier"] == 39
    monkeypatch.setattr(array_job, "STALE", 0)
    assert compared(place)["earlier"] == 0


def test_another_listing_is_another_comparison(place: Place) -> None:
    first = compared(place)
    (place.source / "late").write_bytes(b"late")
    second = compared(place)
    assert second["adoption"] != first["adoption"]
    assert found(second) == {("missing", "late")}


def test_one_comparison_of_a_dataset_is_at_work_at_a_time(place: Place) -> None:
    layout = staging_notice.state_beside(place.context.layout("data"), "this comparison")
    with lock_of(place.context, layout, "", "adopt", adopt_step.LOCK), pytest.raises(LockedError):
        compared(place)


def test_where_this_account_stages_the_dataset_the_state_lies_with_it(place: Place) -> None:
    publish(place.context)
    result = compared(place)
    layout = place.context.layout("data")
    assert result["all_differences"].startswith(str(layout.adoptions))
    assert layout.adoptions.stat().st_mode & 0o7777 == 0o700
    # Staging and auditing go on beside it.
    assert publish(place.context)["published"]


def killed(folder: Path, config: Path, copy: Path, moment: Callable[[Path], bool]) -> None:
    """Start a comparison by its command, kill it and its elements at the moment that is asked for."""
    command = [sys.executable, "-m", "penstock", "--config", str(config), "adopt", "data", str(copy)]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    with subprocess.Popen(
        [*command, "--read-source"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
        env=environment,
    ) as process:
        try:
            deadline = time.monotonic() + DEADLINE
            while not any(
                moment(path) for path in folder.glob("state/penstock/*/data/.penstock/adoptions/*")
            ):
                assert process.poll() is None, "it ended too soon"
                assert time.monotonic() < deadline
                time.sleep(0.005)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _listing(path: Path) -> bool:
    # It lasts some milliseconds: on a loaded machine it can pass unseen, and the next moment counts.
    return path.name.startswith(audits_and_adoptions.NEW) or _planned(path)


def _planned(path: Path) -> bool:
    return (path / "plan.json").exists()


def _reading(path: Path) -> bool:
    return bool(list(path.glob("survey/*/*.parquet")))


@pytest.mark.parametrize("moment", [_listing, _planned, _reading], ids=lambda one: one.__name__)
def test_a_killed_comparison_goes_on(
    place: Place, tmp_path: Path, moment: Callable[[Path], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # At 2 MiB a second the source is read for ten seconds.
    source = tree(tmp_path / "large", {f"f{i:02d}": content(i, 512 << 10) for i in range(40)})
    copy = tmp_path / "large-copy"
    subprocess.run([need("rsync"), "-a", f"{source}/", f"{copy}/"], check=True, timeout=120)
    flip(copy / "f00", 5)
    flip(copy / "f39", 5)
    config = tmp_path / "config.yaml"

    monkeypatch.setenv(TESTED, '{"engine.workers": 1}')

    def write(limit: str) -> None:
        told = {
            "target": {"root": str(tmp_path / "target"), "keep_free": "0B"},
            "datasets": {"data": {"source": str(source)}},
            "engine": {"limit": limit},
        }
        config.write_text(json.dumps(told))

    write("2MiB/s")
    killed(tmp_path, config, copy, moment)
    (before,) = [
        sum(1 for _ in path.glob("survey/*/*.parquet"))
        for path in tmp_path.glob("state/penstock/*/data/.penstock/adoptions")
    ]
    write("1GiB/s")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ["--config", str(config), "adopt", "data", str(copy), "--read-source", "--progress", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 4, done.stderr
    result = json.loads(done.stdout)
    assert found(result) == {("content", "f00"), ("content", "f39")}
    assert before == 0 or result["earlier"] > 0


def test_many_small_files_of_a_survey_are_joined(tmp_path: Path) -> None:
    from penstock.core.model import Surveyed

    for number in range(100):
        rows = [Surveyed(number % 50, "same", digest=f"{number}"), Surveyed(50 + number, "other", why="x")]
        run_tables.add(tmp_path, rows, host="here", seen_ns=number)
    assert len(list(tmp_path.iterdir())) <= run_tables.MANY
    survey = run_tables.ShardSurvey(tmp_path, 200)
    assert [one.digest for one in survey.rows([0, 49, 50])] == ["50", "99", ""]
    assert [survey.state(row) for row in (0, 149, 199)] == ["same", "other", ""]
    assert survey.rows([7])[0].verified_host == "here"


def test_the_oldest_comparisons_are_removed(place: Place) -> None:
    for number in range(audits_and_adoptions.ADOPTIONS_KEPT + 2):
        (place.source / f"late{number}").write_bytes(b"late")
        result = compared(place)
    layout = staging_notice.state_beside(place.context.layout("data"), "this comparison")
    left = {path.name for path in layout.adoptions.iterdir()}
    assert len(left) == audits_and_adoptions.ADOPTIONS_KEPT
    assert result["adoption"] in left
