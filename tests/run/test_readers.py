"""Who will be able to read what is published, as init and preflight say it."""

from __future__ import annotations

import grp
import pwd
from typing import TYPE_CHECKING

import pytest

from penstock.config.settings import ModeRule, PermissionsConfig
from penstock.doctor import preflight_target
from penstock.doctor.preflight_target import Way
from penstock.fs import owners

if TYPE_CHECKING:
    from pathlib import Path

OPEN = PermissionsConfig(file_mode=0o444, dir_mode=0o2555)
CLOSED = PermissionsConfig(file_mode=0o400, dir_mode=0o500)
HALF = PermissionsConfig(file_mode=0o444, dir_mode=0o2550)
NAMED = PermissionsConfig(group="ml")
WITH_ACL = PermissionsConfig(acl=("group:imaging:r-X",))
HOME = "/home/ann (mode 0700)"


@pytest.mark.parametrize(
    ("policy", "others", "closed", "verdict", "found", "mend"),
    [
        (OPEN, False, HOME, "warning", "ann alone: /home/ann (mode 0700) lets nobody else in", "chmod"),
        (OPEN, False, "", "ok", "everybody who reaches the target", ""),
        (HALF, True, "", "ok", "ann and the group ml", ""),
        (WITH_ACL, False, "", "ok", "and by `permissions.acl` group:imaging:r-X", ""),
        (PermissionsConfig(), True, "", "ok", "ann and the group ml (the target's; `permissions.group`", ""),
        (PermissionsConfig(), None, "", "ok", "ann and the group ml", ""),
        (NAMED, True, "", "ok", "ann and the group ml (by `permissions.group`)", ""),
        (NAMED, False, "", "warning", "ann alone: nobody else is in the group ml", "`permissions.group`"),
        (CLOSED, True, "", "warning", "ann alone: file_mode 0400 and dir_mode 0500", "0444"),
    ],
)
def test_who_reads_is_said_with_the_key_that_changes_it(
    policy: PermissionsConfig, others: bool | None, closed: str, verdict: str, found: str, mend: str
) -> None:
    said = preflight_target.judged_readers(policy, Way("ann", "ml", others, closed))
    assert (said.about, said.verdict) == ("readers", verdict)
    assert found in said.found
    assert mend in said.mend
    assert bool(said.mend) == (verdict == "warning")


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (PermissionsConfig(), ""),
        (PermissionsConfig(file_mode=0o644), "file_mode 0644: published data can be written"),
        (PermissionsConfig(file_mode=0o640, dir_mode=0o2750), "file_mode 0640, dir_mode 2750: published"),
        (PermissionsConfig(modes=(ModeRule("bin/**", file=0o750),)), "modes bin/** 0750: published"),
    ],
)
def test_modes_by_which_a_release_can_be_written_are_one_warning(
    policy: PermissionsConfig, found: str
) -> None:
    said = preflight_target.writable(policy)
    assert [result.verdict for result in said] == (["warning"] if found else [])
    assert all(found in result.found and "0444" in result.mend for result in said)


@pytest.mark.parametrize(
    ("members", "accounts", "answer"),
    [
        (["bob"], [], True),
        (["ann"], [("ann", 7, 7), ("bob", 8, 50)], True),
        (["ann"], [("ann", 7, 50), ("bob", 8, 8)], False),
        ([], [("bob", 8, 8)], None),
    ],
)
def test_a_group_has_others_by_its_members_and_by_their_own_group(
    monkeypatch: pytest.MonkeyPatch, members: list[str], accounts: list[tuple[str, int, int]], answer: object
) -> None:
    entries = [pwd.struct_passwd((name, "x", uid, gid, "", "/", "sh")) for name, uid, gid in accounts]
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("ml", "x", gid, members)))
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    monkeypatch.setattr(owners, "user_name", lambda _: "ann")
    assert owners.others_in(50, 7) is answer


def test_a_closed_folder_above_a_target_that_is_not_there_yet_is_named(tmp_path: Path) -> None:
    said = preflight_target.of_folder(PermissionsConfig(), tmp_path / "datasets/photos", None)
    closed = said.found.partition(" alone: ")[2].removesuffix(" (mode 0700) lets nobody else in")
    assert tmp_path.is_relative_to(closed), "pytest makes its own folder 0700"
