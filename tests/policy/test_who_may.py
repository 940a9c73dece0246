"""Command by command, as the owner, a member of its group, a stranger, an auditor, and root with and without
`--as-root`: each is done or refused as docs/site.md says, by exit status and in words."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import forked
from tests.support.published import published
from tests.support.staging_runs import tree

from penstock.cli.main import main
from penstock.config.settings import PermissionsConfig
from penstock.policy import rights
from penstock.storage import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")
OWNER, MEMBER, STRANGER, AUDITOR, ROOT = 2001, 2002, 2003, 2004, 0
WHO = {"member": MEMBER, "stranger": STRANGER, "auditor": AUDITOR, "root": ROOT, "root, --as-root": ROOT}
REFUSED = "it belongs to uid 2001"
AS_ROOT = "root (uid 0) is refused"
CLOSED = "cannot be read by this account"
NAME = "data"

# For each command: what a member, a stranger, an auditor, root, and root with --as-root get: exit status and
# words of what is said. The release is for its group, in which member and auditor are.
OF_OWNER = [(3, REFUSED), (3, REFUSED), (3, REFUSED), (3, AS_ROOT), (3, REFUSED)]
NO_WRITE = "may not write in"
NEW = [(3, NO_WRITE), (3, NO_WRITE), (3, NO_WRITE), (3, AS_ROOT), (3, REFUSED)]
READ = [(0, ""), (0, ""), (0, ""), (0, ""), (0, "")]
READ_DATA = [(0, ""), (3, CLOSED), (0, ""), (0, ""), (0, "")]
TABLE: dict[str, tuple[list[str], list[tuple[int, str]]]] = {
    "status": ([NAME], READ),
    "releases": ([NAME], READ),
    "handover": ([NAME, "4321"], READ),
    "path": ([NAME], READ_DATA),
    "gate": ([NAME], READ_DATA),
    "audit": (
        [NAME],
        [(0, "not at the gate"), (3, CLOSED), (0, "at the gates that list"), (0, "not at the gate"), (0, "")],
    ),
    "audit --overrule": ([NAME, "--overrule", "why"], OF_OWNER),
    "list": ([NAME], NEW),
    "copy": ([NAME], OF_OWNER),
    "verify": ([NAME], OF_OWNER),
    "permissions": ([NAME], OF_OWNER),
    "publish": ([NAME], OF_OWNER),
    "repair": ([NAME], OF_OWNER),
    "cancel": ([NAME], OF_OWNER),
    "rollback": ([NAME], OF_OWNER),
    "preflight": ([NAME], [(3, NO_WRITE), (3, NO_WRITE), (3, NO_WRITE), (3, REFUSED), (3, REFUSED)]),
}


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A dataset of OWNER, in a root of its own, for its group; homes of all."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-who-"))
    folder.chmod(0o755)
    for uid in (OWNER, MEMBER, STRANGER, AUDITOR, ROOT):
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
    target = {"root": str(folder / "own/target"), "keep_free": 0, "owners": [OWNER], "auditors": [AUDITOR]}
    file = folder / "my.yaml"
    file.write_text(json.dumps({"target": target, "datasets": {NAME: {"source": str(source)}}}))
    code, _ = said(folder, OWNER, "audit", NAME)
    assert code == 0
    yield folder
    tree_removal.remove_tree(folder)


def said(place: Path, uid: int, *words: str, as_root: bool = False) -> tuple[int, str]:
    """Exit status and all that the command says, as that account."""

    def work() -> tuple[int, str]:
        os.environ.pop(rights.AS_ROOT, None)
        os.environ["XDG_STATE_HOME"] = str(place / f"home-{uid}")
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / f"home-{uid}")
        os.chdir(place / f"home-{uid}")
        text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        options = ["--as-root"] if as_root else []
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = main(["--config", str(place / "my.yaml"), *options, "--progress", "lines", *words])
        text.seek(0)
        return code, text.read()

    answer: Any = forked(work, uid=uid, groups=(OWNER,) if uid in (MEMBER, AUDITOR) else ())
    return answer[0], answer[1]


@pytest.mark.parametrize("command", sorted(TABLE))
def test_what_each_account_gets(place: Path, command: str) -> None:
    words, wanted = TABLE[command]
    for (who, uid), (code, told) in zip(WHO.items(), wanted, strict=True):
        seen, text = said(place, uid, command.partition(" ")[0], *words, as_root="--as-root" in who)
        assert (seen, told in text) == (code, True), f"{who}: {seen}: {text}"
        assert "Traceback" not in text, who
        assert "this is a bug" not in text, who


def test_nothing_of_it_changed_the_dataset_of_its_owner(place: Path) -> None:
    for command, (words, _) in TABLE.items():
        if command in ("status", "gate", "path", "releases"):
            assert said(place, OWNER, command, *words)[0] == 0
    dataset = place / "own/target" / NAME
    others = {path for path in dataset.rglob("*") if path.lstat().st_uid != OWNER}
    assert {path.parent.name for path in others} <= {"verdicts", "pins"}
