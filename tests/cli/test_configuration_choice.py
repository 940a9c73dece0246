"""Which configuration counts, and what hints say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock

from penstock.cli import argument_parser
from penstock.cli.session import Session
from penstock.config import command_options

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, *names: str) -> None:
    """A configuration of each name, whose only dataset is called as the file."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    (source / "file").touch()
    for name in names:
        dataset = name.partition(".")[0]
        (folder / name).write_text(
            f"target: {{root: {folder}/target}}\ndatasets: {{{dataset}: {{source: {source}}}}}\n"
        )


@pytest.mark.parametrize(
    ("option", "variable", "files", "counts"),
    [
        ("given.yaml", "named.yaml", ("given", "named", "penstock", "config"), "given"),
        ("", "named.yaml", ("named", "penstock", "config"), "named"),
        ("", "", ("penstock", "config"), "penstock"),
        ("", "", ("config",), "config"),
    ],
)
def test_the_first_that_there_is_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    variable: str,
    files: tuple[str, ...],
    counts: str,
) -> None:
    written(tmp_path, *(f"{name}.yaml" for name in files))
    monkeypatch.setenv(command_options.VARIABLE, variable)
    words = ["--config", option] if option else []
    done = penstock(*words, "run", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"\n{counts}\n" in done.stdout


def test_where_there_is_none_the_places_and_the_way_out_are_named(tmp_path: Path) -> None:
    for words in (("status",), ("run",), ("path", "a"), ("gc", "--dry-run"), ("limit",)):
        done = penstock(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert f"there is no configuration file [{tmp_path}]" in done.stderr
        for place in ("--config", "PENSTOCK_CONFIG", "penstock.yaml", "config.yaml", "`penstock init`"):
            assert place in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_that_the_environment_names_and_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "config.yaml")
    monkeypatch.setenv(command_options.VARIABLE, "nowhere.yaml")
    done = penstock("status", cwd=tmp_path)
    assert done.returncode == 2
    assert "[nowhere.yaml]: the environment variable PENSTOCK_CONFIG names it" in done.stderr


def test_a_file_that_the_option_names_and_that_is_not_there(tmp_path: Path) -> None:
    done = penstock("--config", "nowhere.yaml", "status", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no configuration file [nowhere.yaml]" in done.stderr
    assert "`penstock --config nowhere.yaml init`" in done.stderr


def test_a_link_that_leads_nowhere_is_reported(tmp_path: Path) -> None:
    written(tmp_path, "config.yaml")
    (tmp_path / "penstock.yaml").symlink_to("gone.yaml")
    done = penstock("status", cwd=tmp_path)
    assert done.returncode == 2
    assert "[penstock.yaml]" in done.stderr


def test_no_file_is_needed_where_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    assert penstock("releases", "--root", "target", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ([], "penstock"),
        (["--config", "my.yaml"], "penstock --config my.yaml"),
        (["--config", "config.yaml"], "penstock --config config.yaml"),
        (["--config", "penstock.yaml"], "penstock"),
        (["--config", "{folder}/penstock.yaml"], "penstock"),
        (["--config", "{folder}/my.yaml"], "penstock --config {folder}/my.yaml"),
    ],
)
def test_hints_give_the_option_only_where_it_changes_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], program: str
) -> None:
    """A step of a run gets the absolute path of what counts anyway."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "penstock.yaml", "config.yaml", "my.yaml")
    given = [word.format(folder=tmp_path) for word in words]
    session = Session(argument_parser.build().parse_args([*given, "status"]))
    assert session.program == program.format(folder=tmp_path)


def test_a_run_by_the_file_that_counts_stages_and_names_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Snakemake and its steps."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_bytes(b"1")
    (tmp_path / "elsewhere.yaml").write_text(
        f"target: {{root: {tmp_path}/target, keep_free: 0}}\n"
        f"datasets: {{d: {{source: {tmp_path}/source}}, lost: {{source: {tmp_path}/nowhere}}}}\n"
    )
    monkeypatch.setenv(command_options.VARIABLE, "elsewhere.yaml")
    done = penstock("run", "d", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = penstock("path", "d", cwd=tmp_path)
    assert done.stdout.startswith(f"{tmp_path}/target/d/releases/")
    done = penstock("run", "lost", cwd=tmp_path)
    assert done.returncode == 3
    assert "--config" not in done.stderr + done.stdout
