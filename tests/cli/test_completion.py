"""Completion, asked as bash, zsh and fish themselves ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import PATIENCE, penstock

from penstock.cli import argument_parser
from penstock.cli.command_table import COMMANDS
from penstock.cli.commands import completion

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN = {one.word for one in COMMANDS if one.of_people and one.group != "step"} | {"step"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two configurations, and a `penstock` on PATH."""
    (tmp_path / "penstock.yaml").write_text(
        "target: {root: /x}\ndatasets: {imagenet: {source: /a}, images: {source: /b}}\n"
    )
    (tmp_path / "my.yaml").write_text("target: {root: /x}\ndatasets: {other: {source: /a}}\n")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/penstock"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(*typed: str) -> set[str] | None:
    found = completion.candidates(argument_parser.build(), typed)
    return None if found is None else {one.word for one in found}


def test_each_command_of_people_and_no_other(folder: Path) -> None:
    assert words("") == SHOWN
    assert words("re") == {"rehearse", "releases", "remove", "repair", "report"}
    assert words("--config", "x.yaml", "ru") == {"run"}
    assert words("step", "") == {"list", "plan", "copy", "permissions", "verify", "publish"}


def test_options_choices_files_and_datasets(folder: Path) -> None:
    assert words("run", "--c") == {"--config", "--copy-unchanged", "--cores"}
    assert words("run", "--progress", "") == {"auto", "rich", "lines", "json", "off"}
    assert words("run", "--progress=r") == {"--progress=rich"}
    assert words("--config", "m") is None
    assert words("run", "--config=m") is None
    assert words("init", "") is None
    assert words("adopt", "imagenet", "") is None
    assert words("run", "") == {"imagenet", "images"}
    assert words("run", "imagenet", "i") == {"images"}
    assert words("step", "copy", "ima") == {"imagenet", "images"}
    assert words("show", "imagenet", "") == set()
    assert words("run", "--config", "my.yaml", "") == {"other"}
    assert words("run", "--config=my.yaml", "") == {"other"}
    assert words("run", "--", "--") == set()
    assert words("nonsense", "--js") == set()


def test_what_cannot_be_read_completes_nothing(folder: Path) -> None:
    for text in ("target: [", "datasets: 1", "", "- a\n"):
        (folder / "penstock.yaml").write_text(text)
        assert words("run", "") == set()
    assert words("run", "--config", "nowhere.yaml", "") == set()


def bash(line: str) -> set[str]:
    """As readline asks: the words by COMP_WORDBREAKS, the function that `complete -p` names."""
    script = r"""
eval "$(penstock completion bash)"
compopt() { echo FILES; }
COMP_LINE=$1 COMP_POINT=${#1}
COMP_WORDS=($(sed 's/=/ = /g' <<<"$1")); [[ $1 != *[\ =] ]] || COMP_WORDS+=("")
[[ $1 != *= ]] || unset 'COMP_WORDS[-1]'
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[[ $(complete -p penstock) == "complete -F _penstock penstock" ]] || exit 1
_penstock penstock
printf '%s\n' "${COMPREPLY[@]}"
"""
    return said("bash", "--norc", "-c", script, "bash", line)


def zsh(line: str) -> set[str]:
    """In a terminal of its own (zpty), by its own completion (compinit), with a TAB."""
    script = r"""
zmodload zsh/zpty zsh/zselect
zpty shell zsh -f -i
answer() {
    local all='' text
    while [[ $all != *$1* ]]; do zpty -r shell text && all+=$text; done
}
zpty -w shell 'PS1= PS2=; autoload -U compinit; compinit -u -D; source <(penstock completion zsh)'
zpty -w shell "source $2; print REA''DY"
answer READY
zpty -w -n shell "$1"$'\t'
until grep -qs '^ASKED$' found.zsh; do zselect -t 5; done
zpty -d shell
"""
    seen = r"""
zle -C list-all list-choices all
all() { _main_complete; compstate[insert]=; compstate[list]=; print ASKED >>found.zsh }
compadd() {
    local -a found
    builtin compadd -O found "$@"
    print -rl -- $found >>found.zsh
    builtin compadd "$@"
}
_files() { print FILES >>found.zsh }
bindkey '^I' list-all
"""
    Path("seen.zsh").write_text(seen)
    out = Path("found.zsh")
    out.unlink(missing_ok=True)
    said("zsh", "-f", "-c", script, "zsh", line, "./seen.zsh")
    return set(out.read_text().splitlines()) - {"", "ASKED"}


def fish(line: str) -> set[str]:
    script = "penstock completion fish | source; complete -C $argv[1]"
    lines = said("fish", "--no-config", "-c", script, line)
    return {one.partition("\t")[0] for one in lines}


def said(*command: str) -> set[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "HOME": os.getcwd(), "TERM": "dumb"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return set(done.stdout.splitlines()) - {""}


@pytest.mark.parametrize("ask", [bash, zsh, fish], ids=lambda ask: ask.__name__)
def test_the_shell_itself_completes(folder: Path, ask: Callable[[str], set[str]]) -> None:
    if shutil.which(ask.__name__) is None:
        pytest.skip(f"no {ask.__name__} here; on Debian or Ubuntu: apt-get install {ask.__name__}")
    assert ask("penstock ru") == {"run"}
    assert ask("penstock run ima") == {"imagenet", "images"}
    assert ask("penstock run --copy") == {"--copy-unchanged"}
    assert ask("penstock run --progress r") == {"rich"}
    assert ask("penstock --config my.yaml run ") == {"other"}
    assert {"my.yaml", "FILES"} & ask("penstock run --config m")


def test_bash_and_its_equals_sign(folder: Path) -> None:
    assert bash("penstock run --progress=") == {"auto", "rich", "lines", "json", "off"}
    assert bash("penstock run --progress=r") == {"rich"}


def test_the_function_is_printed(tmp_path: Path) -> None:
    for shell, script in completion.SCRIPTS.items():
        done = penstock("completion", shell, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, script)
    assert penstock("completion", "tcsh", cwd=tmp_path).returncode == 2


def test_releases_of_the_dataset_that_was_typed(folder: Path) -> None:
    assert words("rollback", "imagenet", "") == set(), "a target that is not there"
    for name in ("20261101-aa", "20261102-bb", ".hidden"):
        (folder / "t/imagenet/releases" / name).mkdir(parents=True)
    (folder / "penstock.yaml").write_text(
        f"target: {{root: {folder}/t}}\ndatasets: {{imagenet: {{source: /a}}}}\n"
    )
    for command in ("show", "rollback", "remove", "diff"):
        assert words(command, "imagenet", "") == {"20261101-aa", "20261102-bb"}
    assert words("remove", "imagenet", "20261101-aa", "2026") == {"20261102-bb"}
    assert words("rollback", "../imagenet", "") == set()
