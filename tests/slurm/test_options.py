"""Options of jobs whose effect is SLURM's own: resources and disk space of a node, and mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster.machine import Machine
from tests.cluster.place import Place
from tests.cluster.processes import wait_for
from tests.cluster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slurm


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """What SLURM sent as mail: a line for each letter."""
    return tmp_path / "letters"


@pytest.fixture
def place(letters: Path) -> Iterator[Place]:
    """On a cluster of which one node alone has `nvme` and temporary disk space."""
    program = letters.with_name("mailprog")
    program.write_text(f'#!/bin/sh\ncat >/dev/null\necho "$*" >> {letters}\n')
    program.chmod(0o755)
    extra = {"GresTypes": "nvme", "MailProg": str(program)}
    machine = Machine.new(Settings(extra=extra, node_extra={"n3": "Gres=nvme:2 TmpDisk=5000"}))
    try:
        machine.up()
        machine.guard()
        with Place(machine) as made:
            yield made
    finally:
        machine.down()


def test_elements_run_where_the_resource_and_the_disk_space_are(place: Place) -> None:
    place.fill("a", 60)
    for over, asked in (
        ({"gres": ["nvme:3"]}, "gres: nvme:3"),
        ({"gres": ["gpu:1"]}, "gres: gpu:1"),
        ({"tmp": "6GiB"}, "tmp: 6"),
    ):
        place.configure(["a"], cluster=over)
        said = place.ends(place.penstock("preflight", "a"), 3)
        assert f"none of n[1-4] is left by {asked}" in said, said
    place.configure(
        ["a"],
        cluster={"core_spec": "none", "cpus": 1, "max_elements": 4, "gres": ["nvme:1"], "tmp": "4GiB"},
        plan={"shard_files": 15},
        engine={"limit": "200KiB/s"},
    )
    process = place.penstock("run")
    most = 0
    while not place.over(process):
        most = max(most, len(place.running()))
    place.ends(process)
    place.published("a")
    assert most == 2, "of four that may run at once, each with one of the two"
    for step in ("copy", "verify"):
        ((array, indices),) = place.submissions("a", step)
        assert len(indices) == 4
        seen = place.machine.run("squeue", "-h", "--states=all", "-j", array, "-o", "%N").stdout.split()
        assert set(seen) == {"n3"}
        shown = place.machine.run("scontrol", "show", "job", array).stdout
        assert "MinTmpDiskNode=4G" in shown
        assert "gres:nvme:1" in shown or "gres/nvme:1" in shown


def test_mail_is_of_the_submitted_controller_alone(place: Place, letters: Path) -> None:
    place.fill("a", 20)
    place.configure(["a"], cluster={"mail": {"to": "alice@example.org", "when": ["begin", "end"]}})
    job = place.ends(place.penstock("submit", "--parsable", "a")).strip()

    def ended() -> bool:
        return letters.exists() and "Ended" in letters.read_text()

    wait_for(ended, "the letter about its end", seconds=240, every=0.5)
    place.published("a")
    began, end = letters.read_text().splitlines()
    assert "Began" in began
    for letter in (began, end):
        assert letter.endswith("alice@example.org")
        assert f"Job_id={job}" in letter or f"Array_job_id={job}" in letter or f"_job_id={job}_" in letter
