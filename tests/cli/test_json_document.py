"""`--json`: every command that answers something has it; with it, standard output is JSON alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock

from penstock.cli import argument_parser
from penstock.cli.command_table import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

# they write a file or a script, or print another program's format
ELSEWHERE = {"init", "completion", "metrics", "describe"}


def test_each_command_that_answers_has_it() -> None:
    parser = argument_parser.build()
    without = {
        command.name
        for command in COMMANDS
        if command.of_people
        and "--json" not in argument_parser.options(argument_parser.of_command(parser, command))
    }
    assert without == ELSEWHERE


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("1")
    (tmp_path / "target").mkdir()
    (tmp_path / "penstock.yaml").write_text(
        f"target: {{root: {tmp_path}/target}}\ndatasets: {{d: {{source: {tmp_path}/source}}}}\n"
    )
    return tmp_path


def answer(place: Path, *words: str, status: int = 0) -> dict[str, object]:
    done = penstock(*words, "--json", cwd=place)
    assert done.returncode == status, done.stderr
    assert done.stdout.count("\n") == 1
    document: dict[str, object] = json.loads(done.stdout)
    assert document["format"] == 1
    return document


def test_the_answer_is_one_document(place: Path) -> None:
    assert answer(place, "status")["state"] == "nothing published"
    assert answer(place, "run", "--dry-run")["datasets"]
    staged = answer(place, "run")
    assert (staged["exit"], list(staged["datasets"])) == (0, ["d"])
    first = answer(place, "status")
    assert first["state"] == "published"
    assert answer(place, "report")["status"] == "PASSED"
    assert answer(place, "cancel") == {"datasets": {"d": []}, "format": 1}
    assert answer(place, "after", "d")["option"] == ""
    assert answer(place, "step", "list")["files"] == 1
    assert answer(place, "audit")["release"] == first["current"]
    (place / "source/a").write_text("12")
    answer(place, "run")
    assert answer(place, "rollback")["release"] == first["current"]


def test_an_error_prints_nothing_there(place: Path) -> None:
    done = penstock("repair", "--json", cwd=place)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("penstock: ")
