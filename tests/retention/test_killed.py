"""gc, killed right before each change that it makes; and racing with readers who pin."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.kill_points import killed_at

from penstock.config.settings import GcConfig, RetentionConfig
from penstock.keep import removals, retention_steps
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from pathlib import Path

    from tests.retention.conftest import Releases

MOMENTS = [*range(1, 18), *range(18, 200, 3)]
"""Up to the first file each change; then, where one name after another is removed, each third."""
PARTS = 5
STEPS = (7, 10, 11, 12, 13, 18, 21, 42, 50, 55, 59, 65, 70)
"""A change of each step: the mark, the release that loses its name, its run, the line of the history, the
mark that goes, the notice, the run's files and folder, the seal, the data, the release's folder, and the end
of the notice."""
MORE = "gc: {grace: 1ms}\n"
FILES = {"letter", "same"}


def whole(releases: Releases) -> None:
    """What has a release's name is whole; what has lost it has no seal beside half a tree."""
    releases.check(ended=False)
    assert releases.current() == "C"
    for name in dataset_folders.releases(releases.layout):
        folder = releases.layout.release(name)
        assert {*FILES, f"only-{releases.letter(name)}"} == set(os.listdir(folder / "data")), name
        assert {"release.json", "manifest.parquet"} <= set(os.listdir(folder)), name
    for folder in removals.left(releases.layout):
        if (folder / "release.json").exists():
            assert len(os.listdir(folder / "data")) == 3, folder


def restored(saved: Path, root: Path) -> None:
    """The target as it was, hard links and times too."""
    for above, folders, _ in os.walk(root):
        for name in folders:
            os.chmod(os.path.join(above, name), 0o700)
    shutil.rmtree(root)
    subprocess.run(["cp", "-a", saved, root], check=True)


@pytest.mark.parametrize(
    "moments",
    [STEPS, *(pytest.param(MOMENTS[part::PARTS], marks=pytest.mark.thorough) for part in range(PARTS))],
    ids=["steps", *(f"sweep-{part}" for part in range(PARTS))],
)
def test_gc_that_is_killed_before_any_of_its_changes_is_ended_by_the_same_command(
    releases: Releases, moments: list[int] | tuple[int, ...]
) -> None:
    releases.stage(*"BC")
    releases.configure(dataset=", retention: {last: 1}", more=MORE)
    root, saved = releases.layout.root, releases.folder / "saved"
    subprocess.run(["cp", "-a", root, saved], check=True)
    words = ("--config", str(releases.config), "gc", "data")
    kills = 0
    for at in moments:
        done = killed_at(at, root, *words)
        whole(releases)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            break
        kills += 1
        if kills % 4 == 0:
            # A run of the unchanged source in between finds all in order, and moves nothing.
            releases.again()
            whole(releases)
        again = releases.command("gc", "data")
        assert again.returncode == 0, again.stderr
        whole(releases)
        assert releases.there() == "C", at
        assert removals.left(releases.layout) == []
        assert not [one for one in os.listdir(releases.layout.releases) if one.startswith(".removing")]
        assert releases.told()[2:] == ["remove B"], at
        assert len([one for one in os.listdir(releases.layout.runs) if not one.startswith(".")]) == 1, at
        restored(saved, root)
    assert kills >= 4, "gc made fewer changes than there should be moments"


PINNER = """
import json, os, random, select, sys, time
from penstock.core.layout import DatasetLayout
from penstock.core.errors import PenstockError
from penstock.dataset import pins
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.dataset import gate
from penstock.target import notices
from pathlib import Path
layout = DatasetLayout(Path(sys.argv[1]), "data")
kernel_facts.enter_job(JobEnvironment(job=str(os.getpid()), proven=True, cluster="elsewhere"))
wrong, held = [], set()

def read(data):
    letter = (data / "letter").read_bytes()
    assert letter == letter[:1] * 4096
    for name in ("same", f"only-{letter[:1].decode()}"):
        (data / name).read_bytes()

print("reading", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        found, pin = pins.pinned(layout, lambda: gate.passed(layout))
    except PenstockError as error:
        wrong.append(f"not pinned: {error}")
        continue
    held.add(found.release)
    until = time.monotonic() + random.random()
    try:
        while time.monotonic() < until:
            # What gc took stays away, so the next read meets it, unless the pin ends within 5 ms.
            read(found.data)
            time.sleep(0.005)
    except (OSError, AssertionError) as error:
        wrong.append(f"{found.release} was pinned: {error!r}")
    notices.withdraw(layout.pins, pin.name)
    time.sleep(random.random() / 20)
print(json.dumps({"wrong": wrong[:5], "held": sorted(held)}))
"""

READER = """
import json, os, select, sys
folder = sys.argv[1]
wrong, seen = [], set()
print("reading", flush=True)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    release = os.readlink(f"{folder}/current")
    try:
        for name in os.listdir(f"{folder}/{release}/data"):
            open(f"{folder}/{release}/data/{name}", "rb").read()
        seen.add(release)
    except OSError as error:
        # Without a pin and without a grace: what is not current any more may go.
        if os.readlink(f"{folder}/current") == release:
            wrong.append(repr(error))
print(json.dumps({"wrong": wrong[:5], "held": sorted(seen)}))
"""


def test_gc_racing_with_pins_and_readers_touches_no_pinned_and_no_current_release(releases: Releases) -> None:
    """Without a grace, and with rules that hold nothing: pins and `current` alone keep releases."""
    releases.begin_with("A")
    config = releases.context.config
    data = replace(config.datasets["data"], retention=RetentionConfig(within=0.000001, named=False))
    releases.context.config = replace(config, datasets={"data": data}, gc=GcConfig(grace=0.000001))
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for code, where in (
            *[(PINNER, releases.layout.root)] * 3,
            (READER, releases.layout.folder),
        )
    ]
    removed = kept = 0
    try:
        for one in others:
            assert one.stdout is not None
            assert one.stdout.readline() == "reading\n"
        for letter in "BCDEFG":
            releases.stage(letter)
            for _ in range(3):
                found = retention_steps.gc(releases.context, "data", dry_run=False)
                removed += sum(row["removed"] for row in found["releases"])
                kept += sum(
                    any(why.startswith("pin ") for why in row["held_by"]) for row in found["releases"]
                )
        told = [json.loads(one.communicate("stop\n", timeout=120)[0]) for one in others]
    finally:
        for one in others:
            one.kill()
            one.wait()
    for found in told:
        assert found["wrong"] == []
    assert {name for one in told for name in one["held"]}
    assert removed >= 3
    assert kept >= 2, "no pin ever held a release: the race was none"
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "G"
    releases.check()
