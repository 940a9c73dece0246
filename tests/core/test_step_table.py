"""The table of steps against the modules that do the work, and against the style sheet."""

from __future__ import annotations

import importlib.util
import re
from importlib import resources

import pytest

from penstock.core import run_steps
from penstock.jobs.element import WORK


@pytest.mark.parametrize("step", run_steps.TABLE, ids=lambda step: step.name)
def test_every_step_has_its_module_and_colour(step: run_steps.Step) -> None:
    rooms = ("run", "doctor", "keep")
    found = [importlib.util.find_spec(f"penstock.{room}.{step.name}_step") for room in rooms]
    assert sum(spec is not None for spec in found) == 1
    style = (resources.files("penstock.look.views") / "templates/report.css").read_text()
    assert re.search(rf"^\.{step.colour} |\}} \.{step.colour} ", style, re.MULTILINE)
    assert run_steps.colour(step.name) == step.colour


def test_the_steps_of_a_run_are_in_its_order() -> None:
    assert run_steps.OF_RUN == (
        "preflight", "list", "plan", "copy", "permissions", "verify", "publish", "report",
    )  # fmt: skip
    assert run_steps.OF_RUN[2:] == run_steps.AFTER_LIST
    assert run_steps.RUN_IN_ELEMENTS == ("copy", "verify")
    assert tuple(WORK) == run_steps.IN_ELEMENTS
    assert set(run_steps.WITH_RECEIPT) < run_steps.CHANGES_AFTER_LIST
