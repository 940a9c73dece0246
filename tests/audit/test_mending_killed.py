"""`gate --mend`, killed: the same command ends it, no reader sees a part of a file, nothing is left over."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.kill_points import killed_at
from tests.support.published import content, data_of, flip, published, writable
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree

from penstock.dataset.dataset_lock import DatasetLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = {f"d{i % 5}/f{i:02d}": content(i, 20_000 + i) for i in range(40)}
LOST = ("d0/f05", "d1/f01", "d2/f32", "d3/f33", "d4/f04", "d4/f39")
ROTTEN = ("d0/f10", "d3/f18")
STEPS = (17, 50, 61, 131, 160, 185, 202, 225)
"""A change of the command itself at each step: the audit's run, its array, its findings, the repair's run,
its array, files that go to their places, the line of the history, the removal of what was fetched. What its
elements change is met by the kills at a time."""
SWEEP = (*range(1, 172, 9), *range(172, 244, 3))
"""Closest where files go to their places."""


REMAINS = re.compile(r"\.(lock|dead)\.[0-9a-f]{32}$|^\.[0-9a-f]{16}\.tmp$")


class Mended:
    """A release below `folder` and its configuration."""

    def __init__(self, folder: Path, data: Path, config: Path) -> None:
        self.folder, self.data, self.config = folder, data, config
        self.root = folder / "target"
        self.words = ("--config", str(config), "gate", "data", "--mend", "--sample", "100%")
        self.lock = "data/.penstock/lock"
        """Of the dataset: its path below the root."""
        self.before = self.shown()
        self.around: set[str] | None = None

    def shown(self) -> dict[str, tuple[bytes, int, int]]:
        found = (one for one in sorted(self.data.rglob("*")) if not one.is_dir())
        return {
            str(one.relative_to(self.data)): (one.read_bytes(), one.stat().st_mode, one.stat().st_mtime_ns)
            for one in found
        }

    def beside(self) -> set[str]:
        """The names of all that is not data; without what a killed attempt at a lock left, which a holder
        of a minute later removes, a document that was killed before it had its name, and notices, which
        are void once nobody touches them."""
        found = set()
        for above, folders, files in os.walk(self.root):
            if above == str(self.data):
                folders.clear()
                continue
            names = (
                name
                for name in (*folders, *files)
                if not REMAINS.search(name) and not name.startswith("under-way.")
            )
            found |= {os.path.relpath(os.path.join(above, name), self.root) for name in names}
        return found

    def lose(self) -> None:
        for path in LOST:
            with writable((self.data / path).parent):
                (self.data / path).unlink()
        for path in ROTTEN:
            flip(self.data / path, 15_000)

    def whole_or_gone(self) -> None:
        """Each file is as published, or as the loss left it."""
        for path, wanted in FILES.items():
            try:
                found = (self.data / path).read_bytes()
            except FileNotFoundError:
                assert path in LOST, path
                continue
            assert found == wanted or (path in ROTTEN and len(found) == len(wanted)), path

    def ends(self, at: object) -> None:
        """The same command, and what it leaves."""
        receipt = self.folder / "receipt.json"
        done = penstock(*self.words, "--receipt", str(receipt))
        assert done.returncode == 0, (at, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        status = json.loads(receipt.read_text())["status"]
        assert status in {"REPAIRED", "WHOLE"}
        assert self.shown() == self.before, at
        # The first repair makes folders that stay.
        self.around = self.around or self.beside()
        left = self.beside()
        if status == "WHOLE":
            # Killed as it gave the dataset's lock back, it had left nothing to do, for which a lock is taken.
            left.discard(self.lock)
        assert left == self.around, at

    @contextmanager
    def read_all_along(self) -> Iterator[None]:
        """A reader who opens everything again and again meanwhile."""
        over, wrong = threading.Event(), []

        def reads() -> None:
            while not over.is_set():
                try:
                    self.whole_or_gone()
                except AssertionError as error:
                    wrong.append(error)
                    return
                over.wait(0.01)

        reader = threading.Thread(target=reads)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()
        assert not wrong, wrong


@pytest.fixture
def mended(tmp_path: Path) -> Iterator[Mended]:
    source = tree(tmp_path / "source", FILES)
    with S3Server(source) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with published(tmp_path, server.url(), options=options) as context:
            config = tmp_path / "config.yaml"
            config.write_text(
                json.dumps(
                    {
                        "target": {"root": str(context.config.target.root), "keep_free": 0},
                        "datasets": {"data": {"source": server.url(), "storage_options": options}},
                    }
                )
            )
            made = Mended(tmp_path, data_of(context), config)
            made.lose()
            made.ends("without a kill")
            yield made


@pytest.mark.parametrize(
    "moments",
    [STEPS, *(pytest.param(SWEEP[part::3], marks=pytest.mark.thorough) for part in range(3))],
    ids=["steps", "sweep-0", "sweep-1", "sweep-2"],
)
def test_a_mender_that_is_killed_before_a_change_is_ended_by_the_same_command(
    mended: Mended, moments: tuple[int, ...]
) -> None:
    kills = 0
    for at in moments:
        mended.lose()
        with mended.read_all_along():
            done = killed_at(at, mended.root, *mended.words)
            if done.returncode != -signal.SIGKILL:
                assert done.returncode == 0, done.stderr
            else:
                kills += 1
            mended.ends(at)
    assert kills >= len(moments) - 1, f"the command made fewer changes than there should be moments: {kills}"
    assert penstock("--config", str(mended.config), "gate", "data").returncode == 0


def test_the_lock_of_a_mender_that_was_killed_as_it_gave_it_back_is_taken_over(mended: Mended) -> None:
    """By the next command that has something to do; one that has not is not kept up by it."""
    lock = mended.root / mended.lock
    if (child := os.fork()) == 0:
        DatasetLock(lock, "data", run="", command="repair", holder_ended=lambda *_: None).__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    mended.ends("nothing to do")
    assert lock.exists()
    mended.lose()
    mended.ends("taken over")
    assert not lock.exists()


@pytest.mark.parametrize("times", [2, pytest.param(6, marks=pytest.mark.thorough)])
def test_a_mender_that_is_killed_with_all_its_elements_at_any_time(mended: Mended, times: int) -> None:
    """As a node that is lost: the whole session goes at once, its elements too."""
    began = time.monotonic()
    mended.lose()
    mended.ends("timed")
    whole = time.monotonic() - began
    dice = random.Random(7)
    kills = tries = 0
    while kills < times:
        tries += 1
        assert tries <= 5 * times, "most runs ended before they were killed"
        mended.lose()
        with mended.read_all_along():
            began = time.monotonic()
            child = subprocess.Popen(
                (sys.executable, "-m", "penstock", *mended.words),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            try:
                child.wait(whole * (0.15 + 0.8 * dice.random()))
                whole = time.monotonic() - began  # faster than the one before: kill the next one earlier
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                kills += 1
            child.wait()
            mended.ends(tries)
    assert penstock("--config", str(mended.config), "gate", "data").returncode == 0
