"""Command by command, as the owner, a member of its group, a stranger, and root with and without
`--as-root`: each is done or refused as docs/site.md says, by exit status and in words."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import forked
from tests.support.published import published
from tests.support.ssh_keys import key
from tests.support.staging_runs import tree

from penstock.cli import command_table
from penstock.cli.main import main
from penstock.config.settings import PermissionsConfig
from penstock.dataset import rights
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")
OWNER, MEMBER, STRANGER, ROOT = 2001, 2002, 2003, 0
WHO = {"member": MEMBER, "stranger": STRANGER, "root": ROOT, "root, --as-root": ROOT}
REFUSED = "it belongs to uid 2001"
AS_ROOT = "root (uid 0) is refused"
CLOSED = "cannot be read by this account"
NAME = "data"

# For each command: what a member, a stranger, root, and root with --as-root get: exit status and words of
# what is said. The release is for its group, in which the member is.
OF_OWNER = [(3, REFUSED), (3, REFUSED), (3, AS_ROOT), (3, REFUSED)]
READ = [(0, ""), (0, ""), (0, ""), (0, "")]
READ_DATA = [(0, ""), (3, CLOSED), (0, ""), (0, "")]
NO_HISTORY = "it is readable for the dataset's owner alone"
READ_HISTORY = [(0, NO_HISTORY), (0, NO_HISTORY), (0, "publish"), (0, "publish")]
READ_STATE = [(3, REFUSED)] * 4
NONE_READ = "0 files (0 B) read"
NO_FOLDER = "the selftest cannot make a folder there"
NO_CAP = "may not set the bandwidth cap"
TREE, RELEASE = "TREE", "RELEASE"
"""Stand for a tree of the owner's, beside the root, and for the release."""
TABLE: dict[str, tuple[list[str], list[tuple[int, str]]]] = {
    "status": ([NAME], READ),
    "releases": ([NAME], READ),
    "path": ([NAME], READ_DATA),
    "gate": ([NAME], READ_DATA),
    "audit": (
        [NAME],
        [(0, "not at the gate"), (3, CLOSED), (0, "not at the gate"), (0, "")],
    ),
    "audit --overrule": ([NAME, "--overrule", "why"], OF_OWNER),
    "list": ([NAME], OF_OWNER),
    "copy": ([NAME], OF_OWNER),
    "verify": ([NAME], OF_OWNER),
    "permissions": ([NAME], OF_OWNER),
    "publish": ([NAME], OF_OWNER),
    "repair": ([NAME], OF_OWNER),
    "cancel": ([NAME], OF_OWNER),
    "rollback": ([NAME], OF_OWNER),
    "gc": ([NAME], OF_OWNER),
    "gc --dry-run": ([NAME, "--dry-run"], READ_STATE),
    "remove": ([NAME, RELEASE], OF_OWNER),
    "remove --dry-run": ([NAME, RELEASE, "--dry-run"], READ_STATE),
    "report": ([NAME], READ_STATE),
    "limit --nodes": ([NAME, "--nodes", "2"], OF_OWNER),
    "sign": ([NAME], OF_OWNER),
    "plan": ([NAME], OF_OWNER),
    "explain": ([NAME], READ_DATA),
    "rehearse": ([NAME], OF_OWNER),
    "metrics": ([NAME], READ),
    "run": ([NAME], OF_OWNER),
    "run --dry-run": ([NAME, "--dry-run"], READ),
    "run --submit": ([NAME, "--submit", "--backend", "slurm"], OF_OWNER),
    "path --job": ([NAME, "--job"], READ_DATA),
    "after": ([NAME], READ_DATA),
    "gc --unpin": ([NAME, "--unpin", "no-such-pin"], OF_OWNER),
    # Others than the owner compare names, sizes and times, and change nothing.
    "gate --mend": (
        [NAME, "--mend"],
        [
            (0, "0 files (0 B) read"),
            (3, CLOSED),
            (3, AS_ROOT),
            (0, "0 files (0 B)"),
        ],
    ),
    "adopt": ([NAME, TREE], [(0, "kept in")] * 4),
    "adopt --seal": ([NAME, TREE, "--seal"], OF_OWNER),
    "describe": ([NAME], READ_DATA),
    "diff": ([NAME], READ_DATA),
    "show": (
        [NAME],
        [(0, "PASSED"), (0, "unreadable: the release cannot be read by this account"), *[(0, "PASSED")] * 2],
    ),
    "history": ([NAME], READ_HISTORY),
    "du": (
        [NAME],
        [
            (0, "not counted: 2 names"),
            (0, "not counted: 4 names"),
            (0, ""),
            (0, ""),
        ],
    ),
    "limit": ([], READ),
    "limit RATE": (["1GB/s"], [(3, NO_CAP), (3, NO_CAP), (0, ""), (0, "")]),
    "preflight": ([NAME], READ_STATE),
}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A dataset of OWNER, in a root of its own, for its group; homes of all."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-who-"))
    folder.chmod(0o755)
    for uid in (OWNER, MEMBER, STRANGER, ROOT):
        (folder / f"home-{uid}").mkdir(mode=0o700)
        os.chown(folder / f"home-{uid}", uid, uid)
    (folder / "own").mkdir()
    os.chown(folder / "own", OWNER, OWNER)
    source = tree(folder / "source", {f"d/{i}": b"x" * 3000 for i in range(4)})

    def work() -> None:
        permissions = PermissionsConfig(file_mode=0o440, dir_mode=0o550)
        with published(folder / "own", source, permissions=permissions) as _:
            pass

    forked(work, uid=OWNER)
    target = {"root": str(folder / "own/target"), "keep_free": 0, "owners": [OWNER]}
    made = key(folder / "key")
    (folder / "signers").write_text(made.line())
    signs = {"sign_with": str(made.public), "signers": str(folder / "signers")}
    link = {"folder": str(folder / "link")}
    (folder / "link").mkdir()
    told = {"target": target, "datasets": {NAME: {"source": str(source)}}}
    for name, more in (
        ("my", {}),
        ("sign", {"target": {**target, **signs}}),
        ("limit", {"bandwidth": link}),
    ):
        (folder / f"{name}.yaml").write_text(json.dumps({**told, **more}))
    tree(folder / "own/tree", {f"d/{i}": b"x" * 3000 for i in range(4)})
    for path in (folder / "own/tree", *(folder / "own/tree").rglob("*")):
        os.chown(path, OWNER, OWNER)
    code, _ = said(folder, OWNER, "audit", NAME)
    assert code == 0
    yield folder
    tree_removal.remove_tree(folder)


def said(place: Path, uid: int, *words: str, as_root: bool = False) -> tuple[int, str]:
    """Exit status and all that the command says, as that account."""

    named = {
        TREE: str(place / "own/tree"),
        RELEASE: Path(os.readlink(place / "own/target/data/current")).name,
    }
    words = tuple(named.get(word, word) for word in words)
    own = place / f"{words[0]}.yaml"
    file = own if own.exists() else place / "my.yaml"

    def work() -> tuple[int, str]:
        os.environ.pop(rights.AS_ROOT, None)
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = str(place / f"home-{uid}")
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / f"home-{uid}")
        os.chdir(place / f"home-{uid}")
        text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        options = ["--as-root"] if as_root else []
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = main(
                [
                    "--config",
                    str(file),
                    *options,
                    "--progress",
                    "lines",
                    *command_table.find(words[0]).typed.split(),
                    *words[1:],
                ]
            )
        text.seek(0)
        return code, text.read()

    answer: Any = forked(work, uid=uid, groups=(OWNER,) if uid == MEMBER else ())
    return answer[0], answer[1]


@pytest.mark.parametrize("command", sorted(TABLE))
def test_what_each_account_gets(place: Path, command: str) -> None:
    words, wanted = TABLE[command]
    for (who, uid), (code, told) in zip(WHO.items(), wanted, strict=True):
        seen, text = said(place, uid, command.partition(" ")[0], *words, as_root="--as-root" in who)
        assert (seen, told in text) == (code, True), f"{who}: {seen}: {text}"
        assert "Traceback" not in text, who
        assert "this is a bug" not in text, who
        if code and command != "run":  # whose message is its step's, in another process
            _is_one_message(text)


def _is_one_message(text: str) -> None:
    """What, where or who, why, and on a line of its own what to do."""
    errors = [line for line in text.splitlines() if line.startswith("penstock: ")]
    assert len(errors) == 1, text
    assert re.match(r"penstock: ([\w-]+: )?[^\[]+(\[.+\]|\(uid 0\)|`.+`).*: .+", errors[0]), text
    assert "\n  " in text[text.index(errors[0]) :], text


OF_ITS_OWNER: dict[str, tuple[int, str]] = {
    "gc": (0, "removed 0 of 1 release"),
    "gc --dry-run": (0, "would remove 0 of 1 release"),
    "remove": (3, "a release is held, and nothing was removed"),
    "remove --dry-run": (0, "would remove 0 of 1 release"),
    "rollback": (4, "is the only release"),
    "report": (0, "done"),
    "limit --nodes": (1, "nothing is under way"),
    "path --job": (0, "releases/"),
    "gc --unpin": (3, "there is no pin"),
    "gate --mend": (0, "4 files (11.7 KiB) read"),
    "adopt": (0, "PARTLY"),
    "describe": (0, "sc:Dataset"),
    "diff": (0, "unchanged"),
    "show": (0, "PASSED"),
    "history": (0, "publish"),
    "du": (0, "state"),
    "limit": (0, "no cap"),
    "limit RATE": (3, NO_CAP),
    "run --dry-run": (0, "Dry run"),
    "status": (0, NAME),
    "explain": (0, "nothing"),
    "metrics": (0, 'penstock_dataset_readable{dataset="data"'),
}


@pytest.mark.parametrize("command", sorted(OF_ITS_OWNER))
def test_what_its_owner_gets(place: Path, command: str) -> None:
    code, told = OF_ITS_OWNER[command]
    seen, text = said(place, OWNER, command.partition(" ")[0], *TABLE[command][0])
    assert (seen, told in text) == (code, True), f"{seen}: {text}"
    assert "Traceback" not in text


def test_the_table_has_each_command() -> None:
    inner = {"element", "visit", "list-group", "list-failure", "selftest-writer", "selftest-peer", "selftest"}
    inner |= {"init", "completion"}  # which open no dataset
    assert {command.partition(" ")[0] for command in TABLE} == set(rights.NEEDS) - inner


def test_nothing_of_it_changed_the_dataset_of_its_owner(place: Path) -> None:
    for command, (words, _) in TABLE.items():
        if command in ("status", "gate", "path", "releases"):
            assert said(place, OWNER, command, *words)[0] == 0
    dataset = place / "own/target" / NAME
    others = {path for path in dataset.rglob("*") if path.lstat().st_uid != OWNER}
    assert {path.parent.name for path in others} <= {"pins"}


@pytest.mark.parametrize("uid", [MEMBER, STRANGER])
def test_a_selftest_is_for_those_who_may_write_there(place: Path, uid: int) -> None:
    code, text = said(place, uid, "selftest", str(place / "own/target"))
    assert (code, NO_FOLDER in text) == (3, True), text
    _is_one_message(text)
