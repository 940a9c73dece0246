"""The how-to pages: commands that need SLURM, on a real cluster. tests/docs/test_how_to.py has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cluster.processes import wait_for
from tests.docs import page
from tests.docs.test_how_to import SLURM, ran, scene

if TYPE_CHECKING:
    from tests.cluster.machine import Machine

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
PAGES = ("first-set-up", "nightly-audits", "training-job", "offline", "without-slurm")
"""In this order: the first one publishes what the others read."""


def test_the_pages_commands_on_a_cluster(slurm: Machine) -> None:
    with scene(str(slurm.folder), on_slurm=True) as at:
        how = {"path": f"{page.BIN}:{slurm.env['PATH']}", "folder": str(slurm.folder)}
        ran(at, (SLURM,), {"SLURM_CONF": str(slurm.conf)}, PAGES, **how)
        wait_for(lambda: not slurm.run("squeue", "-h").stdout, "the jobs that the pages submit")
        ended = slurm.run("squeue", "-h", "--states=all", "-o", "%T %j").stdout
        assert {line.split()[0] for line in ended.splitlines()} == {"COMPLETED"}, ended
