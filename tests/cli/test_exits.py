"""What of Snakemake's is worth showing below `penstock run`."""

from __future__ import annotations

import logging
import re
import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import ROOT

from penstock.workflow import controller
from penstock.workflow.controller import STATUSES, Left, is_news

if TYPE_CHECKING:
    from pathlib import Path

STEP = (
    'RuleException:\nCalledProcessError in file "/x/workflow/rules/copy.smk", line 16:\n'
    "Command 'set -euo pipefail;  /v/bin/python -m penstock --config c.yaml step copy d' {}."
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STEP.format("returned non-zero exit status 3"), False),
        (STEP.format("returned non-zero exit status 143"), False),
        (STEP.format("returned non-zero exit status 137"), True),
        (STEP.format("returned non-zero exit status 127"), True),
        (STEP.format("died with <Signals.SIGKILL: 9>"), True),
        (STEP.replace("-m penstock", "-m other").format("returned non-zero exit status 3"), True),
        ('RuleException in rule all in file "/x/Snakefile", line 7:\nNo such thing', True),
        ("Exiting because a job execution failed. Look above for error messages", False),
        ("WorkflowError:\nAt least one job did not complete successfully.", False),
        ("WorkflowError:\nno dataset is named 'other'", True),
    ],
)
def test_is_news(text: str, *, expected: bool) -> None:
    assert is_news(logging.makeLogRecord({"msg": text})) is expected


def test_the_statuses_are_those_of_the_table() -> None:
    told = re.findall(r"^\| (\d+) \| ", (ROOT / "docs/commands.md").read_text(), re.MULTILINE)
    assert set(map(int, told)) - {0} == STATUSES


def test_a_step_below_run_names_the_signal_that_the_run_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(controller.EXITS, raising=False)
    assert controller.signal_sent(signal.SIGINT) == signal.SIGINT
    monkeypatch.setenv(controller.EXITS, str(tmp_path))
    assert controller.signal_sent(signal.SIGINT) == signal.SIGINT
    controller.pass_on_signal(tmp_path, signal.SIGHUP)
    assert controller.signal_sent(signal.SIGINT) == signal.SIGHUP
    assert controller.signal_sent(signal.SIGTERM) == signal.SIGTERM, "its own"


@pytest.mark.parametrize(
    ("left", "how"),
    [
        (Left("copy", 1), "FAILED"),
        (Left("copy", 1, cancelled=True), "cancelled"),
        (Left("copy", 143), "stopped"),
        (Left("copy", 129, cancelled=True), "stopped"),
    ],
)
def test_how_a_step_ended(left: Left, how: str) -> None:
    assert left.how == how
