"""Arguments in, exit status and one clear message out."""

from __future__ import annotations

import argparse
import errno
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.commands import ROOT, parsers
from tests.support.commands import penstock as command

import penstock
from penstock.cli import (
    argument_parser,
    command_table,
    error_report,
    main,
)
from penstock.cli.session import Session, _refuse_unwritable
from penstock.core import errors

SHOWN = [c for c in command_table.COMMANDS if c.of_people]
"""What people call."""


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0
    out = capsys.readouterr().out
    groups = [line.strip(":") for line in out.partition("options:")[0].splitlines() if line.endswith(":")]
    assert groups == [*command_table.GROUPS]
    listed = {one.word for one in command_table.COMMANDS if one.group in command_table.GROUPS}
    for one in command_table.COMMANDS:
        assert (f"\n    {one.word} " in out) == (one.word in listed)
    assert "exit status: 0 done" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"penstock {penstock.__version__}"
    assert os.path.dirname(penstock.__file__) in second
    assert sys.executable in second


@pytest.mark.parametrize("one", command_table.COMMANDS, ids=lambda c: c.name)
def test_every_command_has_help_and_code(
    one: command_table.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([*one.typed.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert one.summary[1:] in " ".join(out.split())
    assert callable(one.load().run)


PAGE = (ROOT / "docs/commands.md").read_text(encoding="utf-8")


def test_the_page_has_each_command_in_the_order_of_the_table() -> None:
    told = re.findall(r"^\| `penstock ([a-z -]+)` \|", PAGE, re.MULTILINE)
    groups = (*command_table.GROUPS, command_table.STEP, command_table.HIDDEN)
    assert told == [one.typed for group in groups for one in SHOWN if one.group == group]


def test_every_argument_has_help() -> None:
    for words, one in parsers(argument_parser.build()).items():
        for action in one._actions:
            if not isinstance(action, argparse._SubParsersAction):
                assert action.help, f"{words} {action.dest}"


def test_the_page_has_the_exit_statuses() -> None:
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, errors.PenstockError)]
    for code in {0, 129, 130, 143} | {k.exit_code for k in kinds}:
        assert f"| {code} |" in PAGE
        assert str(code) in argument_parser.EXIT_STATUS


@pytest.mark.parametrize(
    "words",
    [["run", "--nonsense"], ["--progress", "loud", "run"], ["element"],
     ["run", "--cores", "many"], ["run", "--cores", "0"], ["run", "--cores", "-1"],
     ["run", "--cores=-1"], ["path", "a", "b"], ["--conf", "x", "run"]],
)  # fmt: skip
def test_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(words) == 2
    assert " --help` has all options" in capsys.readouterr().err


REQUIRED = {
    "rollback": ("d",),
    "adopt": ("d", "folder"),
    "remove": ("d", "r"),
}
"""Arguments that a command cannot do without."""


WITHOUT_CONFIGURATION = ("init", "completion")
"""Commands that read none."""


@pytest.mark.parametrize("one", [c.typed for c in SHOWN if c.name not in WITHOUT_CONFIGURATION])
def test_a_bad_configuration_is_told_by_every_command(one: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("target: {root: x}\ndatasets: {d: {sorce: x}}\n")
    done = command(*one.split(), *REQUIRED.get(one, ()), cwd=tmp_path)
    assert done.returncode == 2, done
    assert "datasets.d.sorce (line 2): unknown key; did you mean `source`?" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml"]


@pytest.mark.parametrize("place", ["before", "after"])
def test_global_options_stand_anywhere(place: str, tmp_path: Path) -> None:
    words = ["--config", "other.yaml"]
    done = command(
        *(words if place == "before" else []), "status", *(words if place == "after" else []), cwd=tmp_path
    )
    assert done.returncode == 2
    assert "other.yaml" in done.stderr


def test_unknown_datasets_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("target: {root: x}\ndatasets: {a: {source: x}, b: {source: x}}\n")
    done = command("status", "a", "c", cwd=tmp_path)
    assert done.returncode == 2
    assert '"c"' in done.stderr
    assert "a, b" in done.stderr
    assert command("path", cwd=tmp_path).returncode == 2


def test_a_closed_output_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "--help"], stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b""


def test_a_full_output_is_told() -> None:
    with open("/dev/full", "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "--help"], stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_nothing_is_read_from_the_terminal_that_a_step_was_started_on(tmp_path: Path) -> None:
    """A helper of the source reads what it is given: not the person's terminal, but nothing, at once."""
    (tmp_path / "config").write_text(
        "[profile team]\ncredential_process = sh -c 'read line || echo none >&2; exit 1'\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        f"target: {{root: {tmp_path / 'target'}}}\n"
        "datasets: {data: {source: 's3://b/', storage_options: {profile: team}}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "--config", str(config), "step", "list", "data"],
        input="typed\n",
        env=os.environ | {"AWS_CONFIG_FILE": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert 'the profile "team"' in done.stderr
    assert "its credential_process: none" in done.stderr
    code = "from penstock.cli import output; output.without_input(); print(repr(input()))"
    asked = subprocess.run(
        [sys.executable, "-c", code], input="typed\n", capture_output=True, text=True, check=False
    )
    assert "EOFError" in asked.stderr


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_an_output_that_was_closed_before_is_told(tmp_path: Path, closed: str) -> None:
    """U11: `penstock path >&-` was "a bug in penstock"."""
    (tmp_path / "target").mkdir()
    (tmp_path / "config.yaml").write_text("target: {root: target}\ndatasets: {d: {source: source}}\n")
    words = ["bash", "-c", f'exec "$@" {closed}', "bash", sys.executable, "-m", "penstock", "status"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    if "2>" not in closed:
        assert done.stderr == "penstock: standard output cannot be written: Bad file descriptor\n"


def test_a_file_system_that_does_not_answer_is_no_bug() -> None:
    told = error_report.failure(OSError(errno.ESTALE, "stale", "/target/x"), _session("status"))
    assert told.code == 1
    assert "the file system did not answer" in told.text
    assert "/target/x" in told.text
    assert "bug" not in told.text


def test_the_example_names_the_command_that_serves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U16: its server runs only under `make run`, its target is made there."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    for place in error_report.EXAMPLE:
        assert f" {place.removeprefix('/')}" in text
    (tmp_path / "config.yaml").write_text(text)
    assert main.main(["--config", str(tmp_path / "config.yaml"), "preflight"]) == 3
    assert "`make run`" in capsys.readouterr().err
    refused = errors.TransientError("cannot connect", where="s3://installed/ at http://127.0.0.1:9178")
    assert "`make run`" in error_report.failure(refused, _session("status")).text
    other = errors.TransientError("cannot connect", where="s3://b/ at http://127.0.0.1:9000")
    assert "make run" not in error_report.failure(other, _session("status")).text


@pytest.mark.parametrize(
    ("error", "code"),
    [(errors.PreflightError("x"), 3), (errors.LockedError("x", why="y"), 7), (errors.NoSpaceError("x"), 6)],
)
def test_errors_end_with_their_status(
    error: errors.PenstockError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main._report(error, _session("status")) == code
    assert capsys.readouterr().err == f"penstock: {error}\n"


def test_a_name_out_of_a_source_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    main._report(errors.ObjectError("refused", where="a\x1b[2J\udcff\u202e"), _session("status"))
    assert capsys.readouterr().err == "penstock: refused [a\\x1b[2J\\xff\\u202e]\n"


def _session(name: str, *words: str) -> Session:
    return Session(argument_parser.build().parse_args([*words, name]))


def test_a_full_disk_anywhere_is_exit_6(capsys: pytest.CaptureFixture[str]) -> None:
    assert main._report(OSError(28, "No space left on device", "/x/receipt"), _session("status")) == 6
    assert "/x/receipt" in capsys.readouterr().err


def test_an_unexpected_error_is_one_line_and_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a" / "b.log"
    with _session("status", "--log", str(log)) as session:
        session.start()
        assert main._report(KeyError("odd\nthing"), session) == 1
    told = capsys.readouterr().err
    assert "this is a bug in penstock; the traceback is in" in told
    assert str(log) in told
    assert "Traceback" not in told
    assert len(told.splitlines()) == 2
    assert "KeyError" in log.read_text()


def test_after_a_signal_the_status_is_the_signals(capsys: pytest.CaptureFixture[str]) -> None:
    session = _session("status")
    session.stop.set(15)
    assert main._report(errors.FailedError("a child was ended"), session) == 143
    assert main._report(ValueError("half"), session) == 143


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--version"], {"yaml", "pyarrow", "fsspec", "rich", "jsonschema", "penstock.config.loader"}),
        (
            ["element", "--run", "/nonexistent", "--step", "copy", "--array", "a", "0"],
            {"yaml", "fsspec", "rich", "jsonschema"},
        ),
    ],
)
def test_start_up_is_light(words: list[str], absent: set[str]) -> None:
    code = (
        "import sys, json; from penstock.cli.main import main; main(sys.argv[1:]);"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.rpartition("[")[2].rstrip("]").replace('"', "").split(", "))
    assert not absent & loaded


@pytest.mark.parametrize("what", ["log", "receipt"])
def test_what_cannot_be_written_is_refused_once_and_at_once(tmp_path: Path, what: str) -> None:
    (tmp_path / "config.yaml").write_text("x")
    done = command("status", f"--{what}", str(tmp_path / "config.yaml" / "x"), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"penstock: the {what} cannot be written [{tmp_path}/config.yaml/x]: ")
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("receipt", ["/", "/proc/x.json", "/proc/no/x.json"])
def test_a_receipt_that_nobody_can_write_is_a_wrong_command_line(receipt: str) -> None:
    with pytest.raises(errors.ConfigError, match="the receipt cannot be written"):
        _refuse_unwritable(Path(receipt))


def test_a_receipt_may_be_new_old_or_a_device(tmp_path: Path) -> None:
    for receipt in (tmp_path / "new/x.json", tmp_path, Path(os.devnull)):
        _refuse_unwritable(receipt / "y" if receipt == tmp_path else receipt)
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


def test_an_error_of_one_dataset_of_several_names_it(tmp_path: Path) -> None:
    """In a run each step is a command for one dataset; whose error it is must be told."""
    config = tmp_path / "my.yaml"
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    text = f"target: {{root: {tmp_path / 'target'}, keep_free: 8000PiB}}\ndatasets:\n"
    config.write_text(
        text + f"  one: {{source: {tmp_path / 'there'}}}\n  two: {{source: {tmp_path / 'there'}}}\n"
    )
    done = command("--config", config, "preflight", "two", cwd=tmp_path)
    assert done.returncode == 6
    assert "two: the target has no room" in done.stderr
