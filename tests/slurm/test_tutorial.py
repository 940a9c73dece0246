"""docs/tutorial.md on a real cluster; the rest of the page has tests/docs/test_page.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.docs import page
from tests.docs.test_page import TUTORIAL

if TYPE_CHECKING:
    from tests.cluster.machine import Machine

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
SECTIONS = ("A folder to stage", "A configuration", "The first release", "In a job", "On SLURM")


def test_the_tutorials_jobs_print_what_it_shows(slurm: Machine) -> None:
    session = [block for block in page.blocks(TUTORIAL) if block.section in SECTIONS]
    assert {block.section for block in session} == set(SECTIONS)
    path = f"{page.BIN}:{slurm.env['PATH']}"
    env = {"SLURM_CONF": str(slurm.conf)}
    printed = page.run(session, "tutorial", path=path, env=env, folder=str(slurm.folder))
    assert page.differences(TUTORIAL, session, printed) == ""
