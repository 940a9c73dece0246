"""What people read where something is wrong, in their own words: each of these was seen otherwise (P10)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.accounts import give
from tests.support.commands import PATIENCE, penstock, started, until
from tests.support.staging_runs import tree
from tests.support.webserver import WebServer

from penstock.cli.main import main
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGER = 4321


def configured(folder: Path, datasets: str, name: str = "c.yaml") -> None:
    (folder / name).write_text(f"target: {{root: {folder}/target, keep_free: 0}}\ndatasets: {datasets}\n")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return penstock("--config", "c.yaml", *words, cwd=folder)


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """Three datasets below one root, of which the configuration c.yaml has one."""
    source = tree(tmp_path / "source", {"a": b"1"})
    configured(tmp_path, f"{{scans: {{source: {source}}}}}")
    configured(tmp_path, f"{{old: {{source: {source}}}, shared: {{source: {source}}}}}", "all.yaml")
    for step in ("list", "plan", "copy", "permissions", "verify", "publish"):
        for file in ("c.yaml", "all.yaml"):
            done = penstock("--config", file, "step", step, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    return tmp_path


# ---- sources


@pytest.mark.parametrize("url", ["nothing/", "nothing.bin"])
def test_what_was_never_listed_is_not_gone_since_it_was_listed(tmp_path: Path, url: str) -> None:
    (tmp_path / "files").mkdir()
    with WebServer(tmp_path / "files") as server:
        configured(tmp_path, f"{{d: {{source: '{server.url}{url}'}}}}")
        for words in (("preflight",), ("step", "list")):
            done = run(tmp_path, *words)
            assert done.returncode != 0
            assert "since it was listed" not in done.stderr
            assert "there is nothing at the address" in done.stderr
            assert "correct the source's URL" in done.stderr


def test_a_link_to_nothing_is_named_where_the_folder_is_listed(tmp_path: Path) -> None:
    files = tree(tmp_path / "files", {"there": b"1"})
    (files / "broken").symlink_to("nowhere")
    with WebServer(files) as server:
        configured(tmp_path, f"{{d: {{source: '{server.url}'}}}}")
        done = run(tmp_path, "step", "list")
    assert done.returncode == 5
    assert f"there is nothing at the address [{server.url}broken]: status 404" in done.stderr


@pytest.fixture
def own() -> Iterator[Path]:
    """A folder of STRANGER, who may enter it."""
    top = Path(tempfile.mkdtemp(prefix="penstock-words-"))
    give(top, STRANGER, STRANGER)
    yield top
    tree_removal.remove_tree(top)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other accounts")
def test_a_file_that_cannot_be_read_is_a_matter_of_the_file(own: Path) -> None:
    """The same command alone would fail in the same way."""
    source = tree(own / "source", {"a": b"1", "secret": b"2"})
    (source / "secret").chmod(0)
    configured(own, f"{{d: {{source: {source}}}}}")
    for step in ("list", "plan", "copy"):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "--config", "c.yaml", "step", step],
            cwd=own, env={**os.environ, "HOME": str(own)}, capture_output=True, text=True, check=False,
            timeout=PATIENCE, user=STRANGER, group=STRANGER, extra_groups=[],
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert '"secret"' in done.stderr
    assert "repair what is named above, or leave it out by `exclude`" in done.stderr


# ---- preflight


def test_the_summary_names_each_thing_that_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        f"target: {{root: {tmp_path}/target, keep_free: 0}}\n"
        f"datasets: {{d: {{source: {tmp_path}/nowhere, permissions: {{group: no-such-group}}}}}}\n"
    )
    done = run(tmp_path, "run")
    assert done.returncode == 3
    (line,) = [line for line in done.stdout.splitlines() if "FAILED" in line]
    assert 'preflight: 2 things stop the run: there is no group "no-such-group"' in line
    assert "; the source folder cannot be read)" in line
    assert ": )" not in line


# ---- which dataset


def test_the_only_dataset_of_the_configuration_is_meant_and_of_several_they_are_named(staged: Path) -> None:
    for command in ("show", "history", "diff", "rollback"):
        done = run(staged, command)
        assert "which dataset?" not in done.stderr, command
        assert "usage" not in done.stderr, command
        assert "scans" in done.stdout + done.stderr, command
        assert "shared" not in done.stdout + done.stderr, command
    done = penstock("--config", "all.yaml", "show", cwd=staged)
    assert done.returncode == 2
    assert "which dataset?\n  there are: old, shared, scans" in done.stderr
    done = penstock("--config", "all.yaml", "rollback", cwd=staged)
    assert "which dataset?\n  the configuration has: old, shared" in done.stderr


# ---- the command line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("stauts", "there is no command stauts; did you mean status?"),
        ("--config x.yaml stauts a", "there is no command stauts; did you mean status?"),
        ("verfy a", "there is no command verfy; did you mean step verify?"),
        ("step verfy", "there is no command step verfy; did you mean step verify?"),
        ("step --xyzzy verfy", "there is no command step verfy; did you mean step verify?"),
        ("-- stauts", "there is no command stauts; did you mean status?"),
        ("elements", "there is no command elements: `penstock --help` lists those that there are"),
        ("step xyzzy", "there is no command step xyzzy: `penstock step --help` lists those that there are"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest_one(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert err == f"penstock: {said}\n"
    assert not any(hidden in err for hidden in ("selftest-peer", "visit", "list-group"))


# ---- the configuration


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("[a, 1, true]", '["a", 1, true] is a list; give'),
        ("{a: [b]}", '{a: ["b"]} is a mapping; give'),
        ("7", "7 is a number; give"),
    ],
)
def test_a_wrong_value_is_shown_as_it_is_written(tmp_path: Path, value: str, said: str) -> None:
    configured(tmp_path, f"{{d: {{source: {value}}}}}")
    done = run(tmp_path, "status")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('target: {root: /x}\ndatasets:\n  d: {source: "/data}\n\n', 3, "a quote is opened here, and closed"),
        ("target: {root: /x}\ndatasets:\n  d:\n    source: '/data\n    include: x\n", 4, "a quote is opened"),
        ("target: {root: /x\ndatasets: {}\n", 1, "a { is opened here"),
        ("target:\n  root: [/x\ndatasets:\n", 2, "a [ is opened here"),
        ("target:\n  root: a: b\n", 2, "a second `: ` in one value"),
        ("target:\n  root: @x\n", 2, "write the value in quotes"),
        ("target:\n  root: /x\n keep_free: 1\n", 3, "this line does not fit the keys above it"),
        ('target:\n  root: "C:\\data"\n', 2, "a backslash in double quotes"),
    ],
)
def test_what_is_not_closed_is_named_where_it_is_opened(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    done = run(tmp_path, "status")
    assert done.returncode == 2
    assert f"[c.yaml, line {line}]" in done.stderr
    assert said in done.stderr
    assert "stream" not in done.stderr


# ---- Ctrl-C


def children_with(word: bytes, pid: int) -> bool:
    """Whether a process below has the word in its command line, and is an interpreter."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if (word in words and b"python" in words[0]) or children_with(word, int(child)):
                return True
            threads = os.listdir(f"/proc/{child}/task")
            below = [Path(f"/proc/{child}/task/{thread}/children").read_text().split() for thread in threads]
        except OSError:
            continue
        for grandchild in (one for some in below for one in some):
            try:
                words = Path(f"/proc/{grandchild}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word in words and b"python" in words[0]:
                return True
    return False


@pytest.mark.cold_start  # the signal comes while the step's interpreter starts
@pytest.mark.parametrize("again", [0, *(pytest.param(more, marks=pytest.mark.thorough) for more in (1, 2))])
def test_ctrl_c_while_a_step_starts_is_a_tidy_stop(tmp_path: Path, again: int) -> None:
    del again
    configured(tmp_path, f"{{d: {{source: {tree(tmp_path / 'source', {'a': b'1'})}}}}}")
    words = [sys.executable, "-m", "penstock", "--config", "c.yaml", "run"]
    with started(*words, cwd=tmp_path) as process:
        until(lambda: children_with(b"list-group", process.pid), "the first step to start")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, out
    for word in ("RuleException", "CalledProcessError", "Traceback", "Fatal Python error"):
        assert word not in out
    assert "stopped by SIGINT" in out
    assert "STOPPED (what was done is kept; the same command goes on)" in out
