"""The examples of the table of commands are right, and stand where people look for them."""

from __future__ import annotations

import shlex

import pytest

from penstock.cli import argument_parser, main
from penstock.cli.command_table import COMMANDS, Command

SHOWN = [one for one in COMMANDS if one.of_people]


def commands_in(line: str) -> list[list[str]]:
    """The words behind each `penstock` of a line for a shell."""
    found, words = [], shlex.split(line.replace("$(", " ; ").replace(")", " ; ").replace('"', ""))
    while "penstock" in words:
        words = words[words.index("penstock") + 1 :]
        end = next((index for index, word in enumerate(words) if word in (";", "&&", "||", "|", ">")), None)
        found.append(words[:end])
    return found


@pytest.mark.parametrize("one", SHOWN, ids=lambda one: one.name)
def test_each_command_has_two_that_are_parsed(one: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(one.examples) == 2
    for line in one.examples:
        (words,) = commands_in(line)
        parsed = argument_parser.build().parse_args(words)
        assert parsed.command == one.name
    assert main.main([*one.typed.split(), "--help"]) == 0
    end = capsys.readouterr().out.rstrip("\n").splitlines()[-3:]
    assert end == ["examples:", *(f"  {line}" for line in one.examples)]


def test_what_no_person_calls_has_none() -> None:
    assert not [one.name for one in COMMANDS if one.examples and not one.of_people]
