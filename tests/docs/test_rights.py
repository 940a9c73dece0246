"""Each command says what it needs of the account that calls it, in the program and on the page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.commands import parsers

from penstock.cli.argument_parser import build
from penstock.cli.command_table import COMMANDS
from penstock.dataset import rights

PAGE = (Path(__file__).resolve().parents[2] / "docs/site.md").read_text()


def test_each_command_has_a_row_of_what_it_needs() -> None:
    """A command of the table without a row in `dataset/rights.py`, or a row without its command."""
    assert set(rights.NEEDS) == {command.name for command in COMMANDS}
    for needs in rights.NEEDS.values():
        assert {needs.right, *needs.options.values()} <= {
            rights.READS,
            rights.STAGES,
            rights.DECIDES,
            rights.ORDERED,
        }


def test_each_option_that_changes_what_is_needed_is_one_of_the_command() -> None:
    children = parsers(build())
    for command in COMMANDS:
        name, needs = command.typed, rights.NEEDS[command.name]
        known = {action.dest for action in children[f"penstock {name}"]._actions}
        assert set(needs.options) <= known, name


def test_the_page_names_each_command_that_people_call_at_its_right() -> None:
    rows = dict(re.findall(r"^\| (reads|stages|decides) \| .* \| ([^|]+) \|$", PAGE, re.MULTILINE))
    told = {right: set(re.findall("`([^`]+)`", cells)) for right, cells in rows.items()}
    for command in COMMANDS:
        name, needs = command.typed, rights.NEEDS[command.name]
        if "called by" not in command.summary:
            assert name in told[needs.right], f"{name} {needs.right}"
        for option, right in needs.options.items():
            assert f"{name} --{option.replace('_', '-')}" in told[right]
