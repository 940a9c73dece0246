"""Old words are refused by status 2, with the new ones, before anything is done."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import parsers

from penstock.cli import old_words, parser
from penstock.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

ROWS = {
    "permissions": ("--config my.yaml permissions a", "--config my.yaml step permissions a"),
    "publish": ("publish --config my.yaml a", "--config my.yaml step publish a"),
    "list-group": ("list-group a b", "step list-group a b"),
    "list-failure": ("list-failure a", "step list-failure a"),
    "submit --mend": ("submit --parsable a --mend", "gate --parsable --mend --submit a"),
    "submit": ("submit a --new-release", "run --submit a --new-release"),
    "throttle": ("throttle --as-root a 2", "--as-root limit a --nodes 2"),
    "path --pin": ("path --pin a", "path a --job"),
    "unpin": ("unpin a one two", "gc a --unpin one --unpin two"),
}


def test_the_table_has_a_row_for_each() -> None:
    assert set(ROWS) == set(old_words.INSTEAD)


@pytest.mark.parametrize("old", ROWS)
def test_an_old_word_is_refused_with_the_new_one(
    old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words, new = ROWS[old]
    assert main(shlex.split(words)) == 2
    assert capsys.readouterr().err == (
        f"penstock: `penstock {old}` has another name: write `penstock {new}`\n"
    )
    bare = "penstock " + re.sub("--config my.yaml |--as-root ", "", new)
    built = parsers(parser.build())
    option = re.search("--[a-z]+", old_words.INSTEAD[old])
    longest = max((command for command in built if bare.startswith(command)), key=len)
    assert longest != "penstock"
    assert option is None or any(option[0] in action.option_strings for action in built[longest]._actions)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("old", old_words.PAGES)
def test_a_command_that_nothing_replaces_names_the_page(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*old.split(), "a"]) == 2
    assert capsys.readouterr().err == f"penstock: there is no `penstock {old}`: {old_words.PAGES[old]}\n"


def test_global_options_that_take_a_value_are_those_of_the_parser() -> None:
    actions = [action for action in parser.build()._actions if action.option_strings and action.nargs is None]
    assert {action.option_strings[0] for action in actions} == set(old_words.VALUED)


@pytest.mark.parametrize("words", [["status", "list"], ["--config", "list", "status"], ["--", "list"], []])
def test_the_same_word_elsewhere_is_none(words: list[str]) -> None:
    assert old_words.refused(words) is None
