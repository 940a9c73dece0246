"""What is mistyped is answered with what was meant; what no person calls is never named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock

from penstock.cli import argument_parser
from penstock.cli.command_table import COMMANDS
from penstock.cli.main import main
from penstock.config.loader import load
from penstock.core.errors import ConfigError
from penstock.core.human import did_you_mean, nearest, slips
from penstock.workflow.workflow_values import chosen, parse

if TYPE_CHECKING:
    from pathlib import Path

UNCALLED = [one.name for one in COMMANDS if not one.of_people]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "run --dry-rnu",
            "penstock run: there is no option --dry-rnu\n  did you mean --dry-run (list the source and ",
        ),
        ("audit --sampel=1%", "penstock audit: there is no option --sampel\n  did you mean --sample ("),
        ("step copy --reciept x", "did you mean --receipt (write the result as JSON, durably)?"),
        ("--confg x run", "penstock: there is no option --confg\n  did you mean --config ("),
        (
            "run --force",
            "mean --new-release (stage what a release holds already as a new one) or --copy-unchanged (",
        ),
        ("remove --all", "the following arguments are required: DATASET\n"),
        ("run --xyzzy", "there is no option --xyzzy\n  `penstock run --help` has all options"),
        ("--xyzzy run", "there is no option --xyzzy\n  `penstock --help` has all options"),
    ],
)
def test_options(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("penstock")
    assert "usage:" not in err
    assert said in err
    assert not any(name in err for name in UNCALLED)


@pytest.mark.parametrize("words", ["", "run", "step copy", "--backend local run"])
def test_help_is_a_word_as_well(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    general = words.split()[:2] if words.startswith("--") else []
    assert main([*general, "help", *words.split()[len(general) :]]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", UNCALLED)
def test_what_penstock_itself_calls_is_never_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    near = (name[:-1], f"step {name[:-1]}", f"{name}s")
    for words in (*near, "--help", "step --help", "--xyzzy run", "nosuch"):
        main(words.split())
        said = capsys.readouterr()
        shown = said.out + said.err.replace(f"there is no command {words}", "")
        assert f" {name} " not in shown
        assert f"mean {name}" not in shown


@pytest.mark.parametrize("words", [("status", "imagnet"), ("show", "imagnet"), ("run", "imagnet")])
def test_datasets(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "penstock.yaml").write_text(
        f"target: {{root: {tmp_path}}}\ndatasets: {{imagenet: {{source: /x}}, scans: {{source: /y}}}}\n"
    )
    done = penstock(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert 'no dataset is named "imagnet"; did you mean imagenet?' in done.stderr
    assert "imagenet, scans" in done.stderr
    done = penstock(words[0], "xyzzy", cwd=tmp_path)
    assert 'no dataset is named "xyzzy" [' in done.stderr
    with pytest.raises(ConfigError, match=r"there are imagenet, scans; did you mean imagenet\?"):
        chosen(parse(["dataset=imagnet"]), load(tmp_path / "penstock.yaml"))


def test_nothing_is_meant_where_nothing_is_like_it() -> None:
    assert nearest("xyzzy", ["run", "status"]) == ""
    assert did_you_mean(["xyzzy"], ["run"]) == ""
    assert did_you_mean(["statsu", "stauts", "rnu"], ["run", "status"]) == "; did you mean status, run?"


@pytest.mark.parametrize(
    ("word", "slipped"),
    [("run", 0), ("rnu", 1), ("rn", 1), ("runn", 1), ("ran", 1), ("nur", 2), ("", 3), ("xyz", 3)],
)
def test_slips_are_counted_by_letter(word: str, slipped: int) -> None:
    assert slips(word, "run") == slips("run", word) == slipped


def test_a_word_that_begins_but_one_is_that_one() -> None:
    assert nearest("hist", ["history", "list"]) == "history"
    assert nearest("re", ["releases", "report"]) == ""


@pytest.mark.parametrize("word", argument_parser.SYNONYMS)
def test_another_program_s_word_is_answered_with_a_command_that_there_is(word: str) -> None:
    meant = argument_parser.SYNONYMS[word]
    step = word if word in ("copy", "list", "verify") else ""
    answer = f"there is no command {word}; did you mean {meant}{f' or step {step}' if step else ''}?"
    assert argument_parser.unknown([word]) == answer
    assert meant in [
        *(command.word for command in COMMANDS if command.of_people),
        *argument_parser.WITHOUT_COMMAND,
    ]
    assert not any(command.word == word and command.group != "step" for command in COMMANDS)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("resume", "run"), ("restart", "run"), ("verify", "audit or step verify"), ("ls", "releases"),
        ("removee", "remove"), ("rmove", "remove"), ("gcc", "gc"),
        ("rem", ""), ("move", ""), ("remake", ""), ("gd", ""), ("pc", ""),
    ],
)  # fmt: skip
def test_what_removes_is_named_only_where_it_was_meant(word: str, meant: str) -> None:
    answer = argument_parser.unknown([word]) or ""
    assert answer.partition("; did you mean ")[2] == (f"{meant}?" if meant else "")


@pytest.mark.parametrize(
    "words", ["statsu a", "--config my.yaml statsu a", "statsu --config my.yaml", "-- statsu"]
)
def test_a_word_that_is_no_command_does_nothing(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert capsys.readouterr().err == "penstock: there is no command statsu; did you mean status?\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["status", "stop"], ["--config", "stop", "status"], []])
def test_the_same_word_elsewhere_is_none(words: list[str]) -> None:
    assert argument_parser.unknown(words) is None


def test_global_options_that_take_a_value_are_those_of_the_parser() -> None:
    actions = [
        action
        for action in argument_parser.build()._actions
        if action.option_strings and action.nargs is None
    ]
    assert {action.option_strings[0] for action in actions} == set(argument_parser.VALUED)
