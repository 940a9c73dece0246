"""A submitted controller tries again where the source changed, or another run holds the dataset."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import wait_for
from tests.support import commands

from penstock.workflow.controller import Left
from penstock.workflow.controller_job import BUSY, next_try

if TYPE_CHECKING:
    import subprocess
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.workflow.conftest import Place

CHANGED, HELD, OVERTAKEN = Left("copy", 5), Left("list", 7), Left("publish", 7, overtaken=True)


@pytest.mark.parametrize(
    ("left", "changes", "wait"),
    [
        ([], 0, None),
        *(([Left("copy", status)], 0, None) for status in (1, 2, 3, 4, 6, 130, 143)),
        ([CHANGED, Left("copy", 6)], 0, None),
        ([HELD, Left("copy", 1)], 0, None),
        ([OVERTAKEN], 0, None),
        ([CHANGED, OVERTAKEN], 0, None),
        ([CHANGED], 0, 15),
        ([CHANGED, CHANGED], 1, 60),
        ([CHANGED, HELD], 2, 240),
        ([CHANGED], 3, 960),
        ([CHANGED], 4, 3840),
        ([CHANGED], 5, None),
        ([HELD], 0, BUSY),
        ([HELD, HELD], 5, BUSY),
    ],
)  # fmt: skip
def test_which_end_is_followed_by_a_further_try(left: list[Left], changes: int, wait: float | None) -> None:
    assert next_try(left, changes) == wait


def started(place: Place, folder: Path, **env: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """`penstock run`, whose output goes to the file `said` of the folder."""
    (folder / "said").touch()
    words = (sys.executable, "-m", "penstock", "--config", str(place.folder / "config.yaml"), "run")
    return commands.started("sh", "-c", 'exec "$@" > said 2>&1', "sh", *words, cwd=folder, env=env)


def slow(place: Place) -> None:
    """A copy of some seconds."""
    (place.source / "large.bin").write_bytes(os.urandom(600_000))
    place.config["target"]["root"] = str(place.target)
    place.config["datasets"]["d"]["source"] = str(place.source)
    place.config["engine"] = {"limit": "100KiB/s"}
    place.write()


def test_a_source_that_changes_while_it_is_copied_is_listed_anew(place: Place) -> None:
    slow(place)
    with started(place, place.folder, PENSTOCK_SUBMITTED="1") as process:

        def listed() -> bool:
            assert process.poll() is None, (place.folder / "said").read_text()
            return any(place.folder.glob("results/.workflow/list/*.json"))

        wait_for(listed, "the listing", seconds=120, every=0.01)
        (place.source / "large.bin").write_bytes(b"another")
        assert process.wait(200) == 0, (place.folder / "said").read_text()
    said = (place.folder / "said").read_text()
    assert "d: the source changed while it was copied; it is listed anew in 15 s (time 1 of 5)" in said
    assert (place.published() / "large.bin").read_bytes() == b"another"


def test_what_another_run_holds_is_waited_for(place: Place) -> None:
    slow(place)
    first, second, third = (place.folder / name for name in ("first", "second", "third"))
    for folder in (first, second, third):
        folder.mkdir()
    with started(place, first) as holder:
        wait_for(lambda: any(place.target.glob("d/.penstock/runs/*/plan.json")), "the plan", seconds=120)
        with (
            started(place, second, PENSTOCK_SUBMITTED="1") as waits,
            started(place, third, PENSTOCK_SUBMITTED="1") as stopped,
        ):
            for folder, process in ((second, waits), (third, stopped)):

                def busy(folder: Path = folder, process: subprocess.Popen[str] = process) -> bool:
                    assert process.poll() is None, (folder / "said").read_text()
                    return "again in 30 s" in (folder / "said").read_text()

                wait_for(busy, "the answer to the second run", seconds=120)
            stopped.send_signal(signal.SIGTERM)
            assert stopped.wait(60) == 143, (third / "said").read_text()
            assert "stopped by SIGTERM" in (third / "said").read_text()
            assert holder.wait(200) == 0, (first / "said").read_text()
            assert waits.wait(200) == 0, (second / "said").read_text()


def test_what_was_cancelled_is_not_tried_again(place: Place) -> None:
    slow(place)
    with started(place, place.folder, PENSTOCK_SUBMITTED="1") as process:
        wait_for(
            lambda: any(place.folder.glob("results/.workflow/list/*.json")),
            "the listing",
            seconds=120,
            every=0.01,
        )
        (place.source / "large.bin").write_bytes(b"another")
        wait_for(lambda: "listed anew" in (place.folder / "said").read_text(), "the first end", seconds=200)
        assert place.penstock("cancel", "d").returncode == 0
        assert process.wait(60) == 5
    assert "cancelled by" in (place.folder / "said").read_text()
