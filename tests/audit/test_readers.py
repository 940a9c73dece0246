"""Another account than the one that stages: it reads what is published, and is refused the rest in words."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.test_gate import configured
from tests.support.forked import forked
from tests.support.published import data_of, flip, published
from tests.support.staging_runs import tree

from penstock.cli.main import main
from penstock.config.settings import PermissionsConfig
from penstock.core.run_steps import typed
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER, MEMBER, STRANGER = 2001, 2002, 2003
"""Accounts; the member is in the owner's group."""


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """A folder that other accounts reach, with a place for the state of each."""
    if os.geteuid() != 0:
        pytest.skip("only root can be other accounts")
    folder = Path(tempfile.mkdtemp(prefix="penstock-readers-"))
    folder.chmod(0o755)
    for uid in (OWNER, MEMBER, STRANGER):
        (folder / f"home-{uid}").mkdir(mode=0o700)
        os.chown(folder / f"home-{uid}", uid, uid)
    (folder / "own").mkdir()
    os.chown(folder / "own", OWNER, OWNER)
    try:
        yield folder
    finally:
        tree_removal.remove_tree(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    with made() as folder:
        yield folder


def staged(place: Path, mode: int, dir_mode: int) -> tuple[str, Path]:
    """Published by OWNER with these modes; the configuration and the data folder."""
    source = tree(place / "source", {f"d/{i}": b"x" * 3000 for i in range(6)})

    def work() -> tuple[str, str]:
        permissions = PermissionsConfig(file_mode=mode, dir_mode=dir_mode)
        with published(place / "own", source, permissions=permissions) as context:
            return configured(context, place / "own"), str(data_of(context))

    config, data = forked(work, uid=OWNER)
    return config, Path(data)


def said(uid: int, place: Path, *words: str) -> tuple[int, str]:
    """Exit status and what the command says, as that account."""

    def work() -> tuple[int, str]:
        os.environ["XDG_STATE_HOME"] = str(place / f"home-{uid}")
        os.chdir(place)
        text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = main([*words, "--progress", "lines"])
        text.seek(0)
        return code, text.read()

    answer: Any = forked(work, uid=uid, groups=(OWNER,) if uid == MEMBER else ())
    assert "Traceback" not in answer[1]
    assert "this is a bug" not in answer[1]
    return answer[0], answer[1]


def test_readers_see_and_audit_what_is_published(place: Path) -> None:
    config, data = staged(place, 0o444, 0o555)
    for uid in (MEMBER, STRANGER):
        code, text = said(uid, place, "status", "data", "--config", config)
        assert (code, f"current       {data.parent.name}" in text) == (0, True)
        assert "another account, uid 2001, stages this dataset" in text
        assert said(uid, place, "path", "--config", config) == (0, f"{data}\n")
        assert said(uid, place, "gate", "--config", config)[0] == 0
    code, text = said(MEMBER, place, "audit", "--config", config)
    assert (code, "STATUS      PASSED" in text) == (0, True)
    assert "not at the gate" in text
    flip(data / "d/3")
    code, text = said(MEMBER, place, "audit", "--config", config)
    assert (code, "d/3" in text) == (4, True)
    assert "tell the account that stages the dataset" in text
    # What a reader finds does not close the gate; what the owner finds closes it for readers, too.
    assert said(STRANGER, place, "gate", "--config", config)[0] == 0
    assert said(OWNER, place, "audit", "--config", config)[0] == 4
    code, text = said(STRANGER, place, "gate", "--config", config)
    assert (code, "1 changed" in text) == (4, True)


def test_a_reader_that_may_not_list_the_root_sees_the_datasets_that_it_names(place: Path) -> None:
    config, data = staged(place, 0o444, 0o555)
    root = data.parents[3]
    root.chmod(0o711)
    for command in ("status", "releases", "show", "du"):
        code, text = said(MEMBER, place, command, "data", "--config", config)
        assert (code, data.parent.name in text) == (0, True), text
    code, text = said(MEMBER, place, "releases", "--config", config)
    assert (code, "this account may not list the target" in text) == (3, True)
    root.chmod(0o700)
    for command in ("releases", "show", "du"):
        code, text = said(MEMBER, place, command, "data", "--config", config)
        assert (code in (0, 3), "Permission denied" in text) == (True, True), text


def test_a_dry_run_promises_nothing_to_those_who_may_not_run(place: Path) -> None:
    config, _ = staged(place, 0o444, 0o555)
    code, text = said(MEMBER, place, "run", "--dry-run", "--config", config)
    assert (code, "Would         nothing: another account stages" in text) == (0, True)


def test_a_current_that_leads_nowhere_is_not_called_published(place: Path) -> None:
    config, data = staged(place, 0o444, 0o555)
    current = data.parents[2] / "current"
    current.unlink()
    current.symlink_to("releases/nowhere")
    code, text = said(MEMBER, place, "status", "--config", config)
    assert (code, "`current` names nowhere, which is not there" in text) == (4, True)


@pytest.fixture(scope="module")
def unchanged() -> Iterator[tuple[Path, str]]:
    """A place and the configuration of what is published there, for commands that are refused."""
    with made() as folder:
        yield folder, staged(folder, 0o440, 0o550)[0]


@pytest.mark.parametrize("command", ["cancel", "repair", "report", "plan", "publish", "list", "run"])
def test_what_only_its_owner_may_do_is_refused_in_words(unchanged: tuple[Path, str], command: str) -> None:
    place, config = unchanged
    words = (*typed(command).split(), "--config", config, "data")
    code, text = said(MEMBER, place, *words)
    assert code == 3, text
    assert "uid 200" in text or "cannot be written" in text


def test_who_may_not_read_the_release_is_told_so(place: Path) -> None:
    config, data = staged(place, 0o440, 0o550)
    for command in ("gate", "path", "audit"):
        code, text = said(STRANGER, place, command, "--config", config)
        assert code == 3, text
        assert "cannot be read by this account" in text
    code, text = said(STRANGER, place, "status", "data", "--config", config)
    assert (code, "unreadable: the release cannot be read by this account" in text) == (0, True)
    assert said(MEMBER, place, "gate", "--config", config)[0] == 0
    # A root that nobody else may enter.
    shutil.copy(config, place / "penstock.yaml")
    data.parents[3].chmod(0o700)
    for command in ("gate", "path", "audit", "status", "repair", "cancel"):
        code, text = said(STRANGER, place, command, "--config", str(place / "penstock.yaml"))
        assert code == 3, (command, text)
