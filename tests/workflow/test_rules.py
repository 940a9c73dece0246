"""What holds for every rule, read from the rule files."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.support.commands import ROOT

import penstock
from penstock.core import run_steps

FILES = sorted((ROOT / "workflow/rules").glob("*.smk"))
RULE = re.compile(r"^(?:rule|checkpoint) (\w+):\n(?:    .*\n|\n(?=    ))+", re.MULTILINE)
RULES = [(f"{path.name}:{match[1]}", match[0]) for path in FILES for match in RULE.finditer(path.read_text())]


@pytest.mark.parametrize(("name", "text"), RULES, ids=[name for name, _ in RULES])
def test_every_rule(name: str, text: str) -> None:
    if "output:" not in text:
        assert re.findall(r"^    (\w+):", text, re.MULTILINE) == ["input"], "it only names what is wanted"
        return
    for directive in ("output:", "log:", "conda:", "shell:"):
        assert f"    {directive}\n" in text
    for directive in ("run:", "message:", "script:", "benchmark:"):
        assert f"    {directive}" not in text
    shell = text.partition("shell:")[2]
    values = re.findall(r"\{[^}]*\}", shell)
    assert values
    assert all(value.endswith(":q}") for value in values)
    outputs = text.partition("output:")[2].partition("log:")[0]
    paths = re.findall(r'"([^"]+/\{[^"]+)"', outputs)
    assert paths
    assert all(path.startswith("results/") for path in paths)


def test_every_rule_was_found() -> None:
    declared = sum(len(re.findall(r"^(?:rule|checkpoint) ", p.read_text(), re.MULTILINE)) for p in FILES)
    assert len(RULES) == declared >= 8


def test_the_rules_call_the_steps_of_the_table() -> None:
    called = re.findall(r"\{params\.penstock:q\} ((?:step )?[\w-]+)", "".join(text for _, text in RULES))
    steps = [run_steps.typed(step) for step in run_steps.AFTER_LIST]
    assert sorted(called) == sorted(["step list-group", "step list-failure", *steps, "audit"])


@pytest.mark.parametrize(
    "profile", sorted((ROOT / "profiles").glob("*/config.v8+.yaml")), ids=lambda p: p.parent.name
)
def test_every_line_of_a_profile_is_commented(profile: object) -> None:
    lines = (ROOT / str(profile)).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[a-z]", line):
            before = lines[number - 1]
            assert before.startswith("#") or "#" in line, line


def test_the_conda_file_has_the_locked_pins_and_penstock_from_a_folder_of_wheels() -> None:
    environment = yaml.safe_load((ROOT / "envs/penstock.yaml").read_text())
    *place, own = environment["dependencies"][-1]["pip"][:3]
    assert place == ["--no-index", "--find-links ${PENSTOCK_WHEELS}"]
    assert own == f"penstock=={penstock.__version__}"
    pins = environment["dependencies"][-1]["pip"][3:]
    locked = (ROOT / "envs/requirements.lock").read_text()
    wanted = re.findall(r"^([a-z0-9-]+)", (ROOT / "envs/requirements.in").read_text(), re.MULTILINE)
    assert sorted(pin.partition("==")[0] for pin in pins) == sorted(wanted)
    for pin in pins:
        assert re.search(rf"^{re.escape(pin)} ", locked, re.MULTILINE), pin


def test_the_lock_files_name_no_place() -> None:
    for path in sorted((ROOT / "envs").glob("*.lock")):
        text = path.read_text()
        assert "://" not in text
        assert not re.search(r"(?<![\w=])/(?:tmp|home|work|root)", text)
