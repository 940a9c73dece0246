"""The README's commands in the order in which they stand, from the wheel, on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.docs import page
from tests.support.commands import ROOT
from tests.support.wheel import TIMEOUT

if TYPE_CHECKING:
    from tests.cluster.machine import Machine
    from tests.support.wheel import Installation

pytestmark = [pytest.mark.slurm, TIMEOUT]
README = (ROOT / "README.md").read_text()
INSTEAD = {"pipx install ./penstock-1.0.0-py3-none-any.whl && pipx ensurepath": "penstock --version"}
"""The wheel is installed by pip here (tests.support.wheel); tests/workflow/test_wheels.py takes pipx."""
UNTIL_THE_JOB_HAS_ENDED = 'until [ -z "$(squeue -h)" ]; do sleep 0.5; done\npenstock status\n'


def test_every_command_works_in_its_order(slurm: Machine, installation: Installation) -> None:
    session = page.blocks(README)
    install, first, job, later, submitted = session
    assert "penstock init" in first.commands
    submitted.commands += UNTIL_THE_JOB_HAS_ENDED
    printed = page.run(
        session, "readme", path=f"{installation.bin}:{slurm.env['PATH']}", instead=INSTEAD,
        env={"SLURM_CONF": str(slurm.conf)}, folder=str(slurm.folder),
    )  # fmt: skip
    shown = dict(zip((install.line, first.line, job.line, later.line, submitted.line), printed, strict=True))
    assert shown[install.line].startswith("penstock 1.0.0\n")
    assert "cluster   slurm" in shown[first.line]
    assert shown[later.line].count("PASSED") == 2
    assert "well\n" in shown[submitted.line]
