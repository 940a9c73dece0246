"""`penstock after`, by an account that reads alone: jobs that wait for data, on a cluster."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.cluster.machine import CHECKOUT
from tests.cluster.place import job_user
from tests.cluster.processes import wait_for

if TYPE_CHECKING:
    from tests.cluster.place import Place

pytestmark = [pytest.mark.slurm, pytest.mark.later_release]

READER = "nobody"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPEN = {"file_mode": "0444", "dir_mode": "0555"}


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Reader:
    """An account that stages nothing, on a login node."""

    def __init__(self, place: Place) -> None:
        if os.geteuid() != 0 or job_user() == "root":
            pytest.skip("only root starts commands of two accounts")
        self.place, entry = place, pwd.getpwnam(READER)
        self.account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        self.folder = place.folder / "reader"
        self.folder.mkdir(mode=0o755)
        os.chown(self.folder, entry.pw_uid, entry.pw_gid)

    def run(self, *words: str) -> Said:
        env = {**self.place.env, "HOME": str(self.folder)}
        done = subprocess.run(
            words, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=280, **self.account,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    def penstock(self, *words: str) -> Said:
        return self.run(sys.executable, "-m", "penstock", *words, "--root", str(self.place.target))

    def submitted(self, *options: str) -> str:
        """A training job: it prints what it is given."""
        root, program = self.place.target, f"{sys.executable} -m penstock"
        script = self.folder / "train.sh"
        script.write_text(f"#!/bin/sh\ndata=$({program} path a --job --root {root}) || exit\necho $data\n")
        said = self.run(
            "sbatch", "--parsable", "--partition=data", "--mem=300M", "--chdir=/", *options,
            f"--output={self.folder}/%j.log", str(script),
        )  # fmt: skip
        assert said.code == 0, said
        return said.out.strip()

    def state(self, job: str) -> str:
        return self.place.machine.run("squeue", "-h", "--states=all", "-j", job, "-o", "%T").stdout.strip()

    def ends(self, job: str, state: str) -> str:
        """It must end so; what it printed."""
        wait_for(lambda: self.state(job) in ("COMPLETED", "FAILED", "CANCELLED"), f"job {job}", seconds=280)
        log = self.folder / f"{job}.log"
        said = log.read_text() if log.exists() else ""
        assert self.state(job) == state, said
        return said


def opened(place: Place) -> None:
    """Let everybody read what is published."""
    file = place.work / "my.yaml"
    given = json.loads(file.read_text())
    given["datasets"]["a"]["permissions"] = OPEN
    file.write_text(json.dumps(given))


@pytest.fixture
def reader(place: Place) -> Reader:
    place.fill("a", 5)
    place.configure(["a"], cluster={"probe": False})
    opened(place)
    return Reader(place)


def submitted_while_nothing_starts(place: Place) -> str:
    place.machine.run("scontrol", "update", "PartitionName=data", "State=DOWN")
    return place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()


def test_a_job_waits_for_a_first_release_and_for_the_next_one(place: Place, reader: Reader) -> None:
    assert reader.penstock("after", "a")[:2] == (2, "--a-is-not-known\n")
    controller = submitted_while_nothing_starts(place)
    said = reader.penstock("gate", "a", "--json")
    assert (said.code, json.loads(said.out)["job"]) == (4, controller), said
    assert f"w=$(penstock after a --root {place.target}) && sbatch $w train.sh" in said.err

    said = reader.penstock("after", "a")
    option = f"--dependency=afterok:{controller} --kill-on-invalid-dep=yes"
    assert said[:2] == (0, f"{option}\n"), said
    assert f"stages it in job {controller}, which waits in SLURM: " in said.err
    assert f"data=$(penstock path a --job --root {place.target}) || exit" in said.err
    job = reader.submitted(*option.split())
    place.machine.stop_controller()
    place.machine.start_controller()
    assert reader.state(job) == "PENDING"
    place.machine.run("scontrol", "update", "PartitionName=data", "State=UP")
    assert reader.ends(job, "COMPLETED").split()[-1] == str(place.published("a"))

    said = reader.penstock("after", "a")
    assert said[:2] == (0, ""), said
    assert "ago: nothing to wait for" in said.err
    place.fill("a", 7)
    controller = submitted_while_nothing_starts(place)
    assert "a new release is under way, --new waits" in reader.penstock("after", "a").err
    said = reader.penstock("after", "a", "--new", "--and", f"afterany:{job}", "--for", "salloc")
    assert said[:2] == (0, f"--dependency=afterany:{job},afterok:{controller}\n"), said
    place.machine.run("scontrol", "update", "PartitionName=data", "State=UP")
    job = reader.submitted(said.out.strip())
    assert reader.ends(job, "COMPLETED").split()[-1] == str(place.published("a"))


@pytest.mark.parametrize("how", ["cancel", "scancel", "scancel, gc"])
def test_a_controller_that_is_cancelled_cancels_what_waits(place: Place, reader: Reader, how: str) -> None:
    controller = submitted_while_nothing_starts(place)
    job = reader.submitted(*reader.penstock("after", "a").out.split())
    if how == "cancel":
        place.ends(place.penstock("cancel", "a"))
    else:
        place.ends(place.start("scancel", controller))
    assert reader.ends(job, "CANCELLED") == ""
    place.machine.run("scontrol", "update", "PartitionName=data", "State=UP")
    if how == "scancel":
        said = reader.penstock("after", "a")
        assert said[:2] == (4, "--a-is-not-staged\n"), said
        assert f"job {controller} is not in SLURM any more: its staging did not begin" in said.err
        refused = reader.run("sbatch", *said.out.split(), "--wrap=true")
        assert refused.code != 0
    if how == "scancel, gc":
        place.ends(place.penstock("gc", "a"))
    if how != "scancel":
        assert not (place.target / "a").exists()


def test_a_controller_that_fails_cancels_what_waits_and_leaves_no_notice(
    place: Place, reader: Reader
) -> None:
    (place.source / "a").rename(place.source / "gone")
    submitted_while_nothing_starts(place)
    job = reader.submitted(*reader.penstock("after", "a").out.split())
    place.machine.run("scontrol", "update", "PartitionName=data", "State=UP")
    assert reader.ends(job, "CANCELLED") == ""
    assert not (place.target / "a/under-way.json").exists()
    said = reader.penstock("after", "a")
    assert (said.code != 0, said.out.startswith("--a-is-not-")) == (True, True), said


@pytest.mark.timeout(600)  # SLURM lets two minutes pass before a requeued job may start
def test_a_controller_whose_time_ends_is_started_again_and_the_job_waits(
    place: Place, reader: Reader
) -> None:
    place.fill("a", 60)
    steps = {"submit": {"time": "1min"}}
    place.configure(["a"], cluster={"probe": False, "steps": steps}, engine={"limit": "25KiB/s"})
    opened(place)
    controller = place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()
    wait_for((place.target / "a").exists, "the notice")
    job = reader.submitted(*reader.penstock("after", "a").out.split())
    log = place.work / f"results/logs/submit-{controller}_0.log"
    again = "its time has ended: it is started again, as the same job"
    wait_for(lambda: log.exists() and again in log.read_text(), "the end of its time", seconds=120)
    wait_for(lambda: reader.state(controller) in ("PENDING", "RUNNING"), "its requeue", seconds=60)
    assert reader.penstock("after", "a")[:2] == (
        0,
        f"--dependency=afterok:{controller} --kill-on-invalid-dep=yes\n",
    )
    assert reader.ends(job, "COMPLETED").split()[-1] == str(place.published("a"))


def test_the_page_of_training_jobs_does_what_it_says(place: Place, reader: Reader) -> None:
    """Its commands, in their order, by a reader."""
    page = (CHECKOUT / "docs/training-jobs.md").read_text(encoding="utf-8")
    blocks = [text.replace("/beegfs/datasets", str(place.target)) for text in BLOCK.findall(page)]
    assert len(blocks) == 6
    commands = [text.replace("imagenet", "a") for text in blocks]
    (reader.folder / "train.sh").write_text(commands.pop(1))
    submitted_while_nothing_starts(place)
    for text in commands[:-1]:
        said = reader.run("bash", "-ec", text)
        assert said.code == 0, said
        assert "Submitted batch job" in said.out
    assert "stages it in job" in said.err
    place.machine.run("scontrol", "update", "PartitionName=data", "State=UP")
    waited = reader.run("bash", "-ec", commands[-1])
    assert waited.code == 0, waited
    data = place.published("a")
    wait_for(lambda: not place.machine.run("squeue", "-h").stdout.strip(), "the end of all jobs", seconds=240)
    assert (reader.folder / "seen.txt").read_text().split() == sorted(path.name for path in data.iterdir())
