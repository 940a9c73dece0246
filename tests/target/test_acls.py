"""ACLs and modes by path: set in as few calls as there can be, read again, handed down, never forced."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.contracts.storage_contract import make_writer
from tests.support.forked import NOBODY, forked
from tests.target.conftest import need, need_root

from penstock.config.access_rules import AccessRules
from penstock.config.settings import ModeRule, PermissionsConfig
from penstock.core import posix_acl
from penstock.core.errors import ConfigError, FailedError, PreflightError
from penstock.core.layout import DatasetLayout
from penstock.fs import owners
from penstock.fs.path_walk import walk
from penstock.target import dataset_folders, modes
from penstock.target.file_replacement import Mender

if TYPE_CHECKING:
    from pathlib import Path

POLICY = PermissionsConfig(
    file_mode=0o640, dir_mode=0o2750, acl=("group:4242:r-X", "group:4241:r-X", "user:4243:rw-")
)
FILE = "user:4243:rw-,group:4241:r--,group:4242:r--"
FOLDER = "user:4243:rw-,group:4241:r-x,group:4242:r-x"


@pytest.fixture
def staging(folder: Path) -> Path:
    made = folder / "staging"
    (made / "data/bin/sub").mkdir(parents=True)
    for name in ("file", "bin/tool", "bin/sub/run.sh", "bin/sub/notes"):
        (made / "data" / name).write_text(name)
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that change modes, groups and ACLs, by their names."""
    made: list[str] = []

    def noted(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **options: object) -> object:
            made.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("setxattr", "chmod", "chown", "fchmod", "fchown"):
        noted(name)
    return made


def acl(path: Path, name: str = owners.ACCESS) -> str:
    return posix_acl.in_words(owners.read_acl(path, name))


def test_s14_every_file_and_folder_has_the_acl(staging: Path) -> None:
    counts = modes.set_permissions(staging, POLICY, None)
    data = staging / "data"
    assert (counts["changed_files"], counts["changed_folders"]) == (4, 3)
    assert counts["acl"] == ("group:4242:r-X", "group:4241:r-X", "user:4243:rw-")
    for found in walk(data):
        path = data / found.path
        assert acl(path) == (FILE if found.kind == "file" else FOLDER), found
        # The mask, rw- and rwx, is what the mode's group bits show.
        assert found.mode == (0o660 if found.kind == "file" else 0o2770), found
    for path in (data, data / "bin", data / "bin/sub"):
        assert acl(path, owners.DEFAULT) == FOLDER
        assert stat.S_IMODE(path.stat().st_mode) == 0o2770
    again = modes.set_permissions(staging, POLICY, None)
    assert (again["changed_files"], again["changed_folders"]) == (0, 0)


@pytest.mark.parametrize("last", ["chmod", "setfacl"])
def test_s14_both_orders_end_the_same(staging: Path, last: str) -> None:
    """A chmod after an ACL sets the mask: whatever was done last, the release is as the policy says."""
    data, entry = staging / "data", "group:4242:r-x,group:4241:r-x,user:4243:rwx"
    for path in (data, data / "bin", data / "file", data / "bin/tool"):
        if last == "setfacl":
            path.chmod(0o700)
        subprocess.run([need("setfacl"), "-m", entry, path], check=True)
        if last == "chmod":
            path.chmod(0o700)
    modes.set_permissions(staging, POLICY, None)
    assert {acl(data / "file"), acl(data / "bin/tool")} == {FILE}
    assert {acl(data), acl(data / "bin")} == {FOLDER}
    assert stat.S_IMODE((data / "file").stat().st_mode) == 0o660


def test_s12_an_inherited_acl_costs_no_further_call(folder: Path, calls: list[str]) -> None:
    """What is written below a staging's `data` inherits its default ACL, with the mask that its mode says: no
    file needs a call that costs BeeGFS a round, and folders need their final mode alone."""
    layout = DatasetLayout(folder, "set")
    dataset_folders.prepare(layout)
    policy = PermissionsConfig(file_mode=0o440, dir_mode=0o2550, acl=("group:4242:r-X", "group:4241:r-X"))
    rules = modes.access_rules(policy)
    data = dataset_folders.open_staging(layout, "r", 0o2550, None, rules)
    with make_writer(data, rules=rules) as writer:
        for path in ("a/b/small", "a/large", "top"):
            writer.put(path, memoryview(b"x" * 100), 10**18)
    calls.clear()
    counts = modes.set_permissions(data.parent, policy, None)
    # The access ACL of `data`, which sets its mode, too; and the modes of the two folders below.
    assert sorted(calls) == ["chmod", "chmod", "setxattr"]
    assert counts["changed_files"] == 0
    for path in ("a/b/small", "a/large", "top"):
        assert acl(data / path) == "group:4241:r--,group:4242:r--"
        assert stat.S_IMODE((data / path).stat().st_mode) == 0o440
    for path in (".", "a", "a/b"):
        assert acl(data / path) == acl(data / path, owners.DEFAULT) == "group:4241:r-x,group:4242:r-x"
    calls.clear()
    modes.set_permissions(data.parent, policy, None)
    assert calls == []


def test_a_file_gets_its_acl_where_its_folder_does_not_hand_it_down(folder: Path) -> None:
    """`data` has no default ACL, as on a file system that gives none to what is made."""
    rules = modes.access_rules(POLICY)
    with make_writer(folder, file_mode=0o640, rules=rules) as writer:
        for number in range(3):
            writer.put(f"d/{number}", memoryview(b"x"), 10**18)
        writer.begin_multipart("parts", ".p.0", 2)
        assert writer.finish_multipart("parts", ".p.0", 2, 10**18)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 4
    for path in files:
        assert (acl(path), stat.S_IMODE(path.stat().st_mode)) == (FILE, 0o660)


def test_without_an_acl_in_the_policy_none_is_read(staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(owners, "read_acl", lambda *arguments, **_: asked.append(arguments))
    modes.set_permissions(staging, PermissionsConfig(), None)
    assert asked == []


def test_what_another_release_shares_gets_no_other_acl(staging: Path, folder: Path) -> None:
    modes.set_permissions(staging, PermissionsConfig(), None)
    os.link(staging / "data/file", folder / "published")
    policy = PermissionsConfig(acl=("group:4242:r-X",))
    with pytest.raises(FailedError, match="shared with another release") as caught:
        modes.set_permissions(staging, policy, None)
    assert "ACL none, 2 links" in caught.value.why
    assert acl(folder / "published") == "none"


def test_a_file_of_another_acl_is_copied_in_place_of_linked(staging: Path, folder: Path) -> None:
    policy = PermissionsConfig(acl=("group:4242:r-X",))
    modes.set_permissions(staging, policy, None)
    base, new = staging / "data", folder / "new"
    new.mkdir()
    subprocess.run([need("setfacl"), "-m", "group:4241:r", base / "bin/tool"], check=True)
    with make_writer(new, rules=modes.access_rules(policy)) as writer:
        for path, linked in (("file", True), ("bin/tool", False)):
            seen = (base / path).stat()
            assert writer.link(base, path, seen.st_size, seen.st_mtime_ns) is linked, path


def test_an_acl_that_one_may_not_set_is_told(staging: Path) -> None:
    need_root()
    with pytest.raises(FailedError, match="cannot set mode 0660, ACL user:4243:rw-") as caught:
        forked(lambda: modes.set_permissions(staging, POLICY, None), uid=NOBODY)
    assert "only the owner can set modes and ACLs" in caught.value.hint


def test_an_acl_that_is_not_kept_is_told(staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes an ACL and keeps another."""
    monkeypatch.setattr(os, "setxattr", lambda *_: None)
    with pytest.raises(FailedError, match="does not keep the permissions") as caught:
        modes.set_permissions(staging, POLICY, None)
    assert "ACL none again; set were 0660, ACL user:4243:rw-" in caught.value.why


RULES = (
    ModeRule("bin/**", file=0o550, dir=0o2755),
    ModeRule("notes", file=0o400),
    ModeRule("*.sh", file=0o750),
    ModeRule("tool/", file=0o600),
)


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("file", 0o440),
        ("bin/tool", 0o550),
        ("bin/sub/notes", 0o400),
        ("bin/sub/run.sh", 0o750),
        ("run.sh", 0o750),
        ("notes/x", 0o400),
        ("line\nend.sh", 0o750),
        ("tool", 0o440),
        ("tool/x", 0o600),
    ],
)
def test_the_last_rule_that_matches_a_path_holds(path: str, mode: int) -> None:
    assert AccessRules(RULES).file(path, 0o440).mode == mode


@pytest.mark.parametrize(
    ("path", "mode"),
    [("", 0o2550), (".", 0o2550), ("other", 0o2550), ("bin/sub", 0o2755), ("bin/sub/deep", 0o2755)],
)
def test_folders_have_the_modes_of_rules_that_name_one(path: str, mode: int) -> None:
    assert AccessRules(RULES).folder(path, 0o2550).mode == mode


def test_modes_by_path_are_set_and_kept(staging: Path) -> None:
    policy = PermissionsConfig(modes=RULES, acl=("group:4242:r-X",))
    modes.set_permissions(staging, policy, None)
    found = {one.path: oct(one.mode) for one in walk(staging / "data")}
    assert found == {
        "bin": "0o2755", "bin/sub": "0o2755", "bin/sub/notes": "0o440", "bin/sub/run.sh": "0o750",
        "bin/tool": "0o550", "file": "0o440",
    }  # fmt: skip
    # `X` is execute where the file's own mode has it.
    assert acl(staging / "data/bin/tool") == "group:4242:r-x"
    assert acl(staging / "data/bin/sub/notes") == "group:4242:r--"
    again = modes.set_permissions(staging, policy, None)
    assert (again["changed_files"], again["changed_folders"]) == (0, 0)


def test_files_are_written_with_the_mode_of_their_rule(folder: Path) -> None:
    with make_writer(folder, rules=AccessRules(RULES)) as writer:
        writer.put("bin/sub/run.sh", memoryview(b"x"), 10**18)
        pending = writer.begin("bin/tool", 2 << 20)
        writer.discard(pending)
        writer.put("file", memoryview(b"x"), 10**18)
    assert stat.S_IMODE((folder / "bin/sub/run.sh").stat().st_mode) == 0o750
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o440


def test_a_mender_gives_back_what_was_published(staging: Path, folder: Path) -> None:
    modes.set_permissions(staging, POLICY, None)
    data = staging / "data"
    subprocess.run([need("setfacl"), "-b", data / "file", data / "bin"], check=True)
    subprocess.run([need("setfacl"), "-k", data / "bin"], check=True)
    new = folder / "new"
    new.write_text("new")
    rules = modes.access_rules(POLICY)
    with Mender(data, file_mode=0o640, dir_mode=0o2750, gid=None, rules=rules) as mender:
        mender.set_mode("file")
        mender.set_mode("bin")
        mender.replace("bin/tool", 10**18, new)
        assert mender.make("fresh/folder")
    for path in (".", "bin", "bin/sub", "fresh", "fresh/folder"):
        assert acl(data / path) == acl(data / path, owners.DEFAULT) == FOLDER, path
        assert stat.S_IMODE((data / path).stat().st_mode) & 0o777 == 0o770, path
    assert {acl(data / "file"), acl(data / "bin/tool")} == {FILE}


def test_users_and_groups_by_name_and_number() -> None:
    rules = modes.access_rules(PermissionsConfig(acl=("user:root:r", "group:root:rX", "g:4242:r")))
    assert rules.entries == ("user:0:r--", "group:0:r-X", "group:4242:r--")
    with pytest.raises(PreflightError, match="two entries are of the same") as twice:
        modes.access_rules(PermissionsConfig(acl=("group:root:r", "group:0:r-X")))
    assert "group:0:r-X has the number 0" in twice.value.why
    for kind in ("user", "group"):
        with pytest.raises(PreflightError, match=f'no {kind} "nowhere"') as caught:
            modes.access_rules(PermissionsConfig(acl=(f"{kind}:nowhere:r",)))
        assert caught.value.where == "permissions.acl"


def test_a_pattern_that_gitignore_does_not_know() -> None:
    with pytest.raises(ConfigError, match="a pattern cannot be used"):
        modes.access_rules(PermissionsConfig(modes=(ModeRule("/", file=0o400), ModeRule("\\", file=0o400))))
