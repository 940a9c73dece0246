"""Options of jobs whose effect is SLURM's own: mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster.fixtures import need_slurm
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
    """On a cluster that sends mail by a program of the test."""
    program = letters.with_name("mailprog")
    program.write_text(f'#!/bin/sh\ncat >/dev/null\necho "$*" >> {letters}\n')
    program.chmod(0o755)
    settings = Settings(extra={"MailProg": str(program)})
    need_slurm(settings)
    machine = Machine.new(settings)
    try:
        machine.up()
        machine.guard()
        with Place(machine) as made:
            yield made
    finally:
        machine.down()


def test_mail_is_of_the_submitted_controller_alone(place: Place, letters: Path) -> None:
    place.fill("a", 20)
    place.configure(["a"], cluster={"mail": "alice@example.org"})
    job = place.ends(place.penstock("run", "--submit", "--parsable", "a")).strip()

    def ended() -> bool:
        return letters.exists() and "Ended" in letters.read_text()

    wait_for(ended, "the letter about its end", seconds=240, every=0.5)
    place.published("a")
    (letter,) = letters.read_text().splitlines()
    assert letter.endswith("alice@example.org")
    assert f"Job_id={job}" in letter or f"Array_job_id={job}" in letter or f"_job_id={job}_" in letter
