"""Files to write and programs to run that a configuration names, and options that name a file."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import parsers, penstock

from penstock.cli import argument_parser, flags
from penstock.config import loader
from penstock.config.annotations import RUNS, WRITES, Key, keys_of
from penstock.config.settings import Config
from penstock.config.source_kinds import KINDS
from penstock.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VALUES = {
    "cluster.python": "/opt/penstock/bin/python",
    "cluster.pyslurm_python": "/opt/pyslurm/bin/python",
    "notify.command": ["/bin/notice"],
    "metrics": "penstock.prom",
}
"""Every key that names a file to write or a program to run, with a value."""
READ = {
    "target.root", "target.state_root", "target.sign_with", "target.signers", "bandwidth.folder",
    "datasets.describe", "datasets.source", "datasets.sources.url", "datasets.sources.into",
    "datasets.list_from", "datasets.sources.list_from", "datasets.inventory", "datasets.sources.inventory",
}  # fmt: skip
"""Keys that name what is read, and folders in which penstock makes files of its own alone."""
NAMES_A_FILE = re.compile(r"\b(file|path|folder|program|command|interpreter)s?\b(?!-)")
NO_FILES = {"datasets.checksums", "datasets.permissions.modes", "cluster.slurm_api"}
READ_OPTIONS = {"--config", "--site", "--group"}
OF_A_PROBE = {"--answer"}
"""In a folder that the probe made for its job."""


def keys(kind: type, where: str = "") -> Iterator[tuple[str, Key]]:
    for name, key in keys_of(kind).items():
        yield where + name, key
        for inner in (key, key.each):
            if inner is not None and inner.below is not None:
                yield from keys(inner.below, f"{where}{name}.")


def test_each_key_that_names_a_file_or_a_program_is_marked_or_read() -> None:
    """A new key of that sort fails here until it is marked."""
    marked = {name for name, key in keys(Config) if key.touches}
    assert marked == set(VALUES)
    assert {name for name, key in keys(Config) if key.touches == WRITES} == {"metrics"}
    assert all(key.touches == RUNS for name, key in keys(Config) if name in marked - {"metrics"})
    named = {name for name, key in keys(Config) if NAMES_A_FILE.search(key.expect)} - marked
    assert named - READ - {name for name in named if "storage_options" in name} == NO_FILES
    for kind in filter(None, (row.options for row in KINDS)):
        files = {name for name, key in keys_of(kind).items() if NAMES_A_FILE.search(key.expect)}
        assert files - {"addressing_style"} <= {"ca_bundle", "credentials_file"}


def test_each_option_that_names_a_file_looks_at_it_first() -> None:
    written = set()
    for child in parsers(argument_parser.build()).values():
        for action in child._actions:
            if action.metavar == "FILE" and not set(action.option_strings) & (READ_OPTIONS | OF_A_PROBE):
                assert isinstance(action.type, partial), action.option_strings
                assert action.type.func is flags._written
                written |= {*action.option_strings}
    assert written == {"--receipt", "--log", "--html", "--out", "--csv", "--fio"}


def configuration(folder: Path, **more: Any) -> Path:
    import yaml

    text: dict[str, Any] = {"target": {"root": str(folder / "root")}, "datasets": {"d": {"source": "/s"}}}
    for name, value in more.items():
        section, _, key = name.rpartition(".")
        (text.setdefault(section, {}) if section else text)[key] = value
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump(text))
    return file


@pytest.mark.parametrize("key", VALUES)
def test_a_configuration_that_others_may_write_names_nothing_that_is_run_or_written(
    tmp_path: Path, key: str
) -> None:
    file = configuration(tmp_path, **{key: VALUES[key]})
    loader.refuse(loader.load(file), file)
    file.chmod(0o664)
    with pytest.raises(ConfigError, match=f"^{key} is refused: others than this ") as refused:
        loader.refuse(loader.load(file), file)
    assert refused.value.where == str(file)
    assert refused.value.why == f"{file} belongs to uid {file.stat().st_uid}, with mode 0664"
    done = penstock("--config", str(file), "run", cwd=tmp_path)
    assert (done.returncode, f"{key} is refused" in done.stderr) == (2, True), done
    assert not (tmp_path / "penstock.prom").exists()
    assert not (tmp_path / "root").exists()


def test_what_stages_nothing_goes_on_without_such_a_program(tmp_path: Path) -> None:
    file = configuration(tmp_path, **{"cluster.python": "/opt/x", "cluster.pyslurm_python": "/opt/y"})
    file.chmod(0o664)
    config = loader.bounded(loader.load(file), file, staging=False)
    assert (config.cluster.python, config.cluster.pyslurm_python) == (None, None)
    assert penstock("--config", str(file), "status", cwd=tmp_path).returncode == 0
    with pytest.raises(ConfigError, match=r"^cluster\.python is refused"):
        loader.bounded(loader.load(file), file, staging=True)


def test_the_interpreter_that_runs_now_may_be_named(tmp_path: Path) -> None:
    file = configuration(tmp_path, **{"cluster.python": sys.executable})
    file.chmod(0o664)
    loader.refuse(loader.load(file), file)


@pytest.mark.parametrize(
    "words",
    [
        ("metrics", "--out"), ("report", "d", "--html"), ("rehearse", "d", "--sweep", "2", "--csv"),
        ("rehearse", "d", "--fio"), ("status", "--receipt"), ("status", "--log"),
    ],
)  # fmt: skip
def test_an_option_never_replaces_another_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    file, mine = configuration(tmp_path), tmp_path / "bashrc"
    mine.write_text("export PATH=/usr/bin\n")
    done = penstock("--config", str(file), *words, str(mine), cwd=tmp_path)
    assert done.returncode == 2
    assert f'argument {words[-1]}: "{mine}": it is there, and is not ' in done.stderr
    assert "name another file, or move that one away" in done.stderr
    assert mine.read_text() == "export PATH=/usr/bin\n"


def test_a_run_leaves_another_file_in_the_place_of_its_metrics(tmp_path: Path) -> None:
    file, mine = configuration(tmp_path, metrics="bashrc"), tmp_path / "bashrc"
    mine.write_text("export PATH=/usr/bin\n")
    done = penstock("--config", str(file), "run", cwd=tmp_path)
    assert done.returncode == 2
    assert f"[{mine}]: it is there, and is not a file of penstock's metrics" in done.stderr
    assert mine.read_text() == "export PATH=/usr/bin\n"


def test_a_log_that_is_a_fifo_without_a_reader_is_not_waited_for(tmp_path: Path) -> None:
    import os

    file = configuration(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    done = penstock("--config", str(file), "status", "--log", "fifo", cwd=tmp_path)
    assert (
        done.returncode,
        "the log cannot be written [fifo]: no process reads this FIFO" in done.stderr,
    ) == (2, True)
