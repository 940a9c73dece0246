"""Owners by number and by name (S19): the rows of the tables, and a real id-mapped mount."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

import pytest
from tests.support.id_mapped import id_mapped
from tests.support.published import data_of, published
from tests.support.staging_runs import tree
from tests.target.conftest import need_root

from penstock.core.layout import DatasetLayout
from penstock.core.node_answer import OwnerSeen
from penstock.fs.mount_checks import check_mount
from penstock.fs.owners import is_another, is_mapped, mapping, numbers_here, owner
from penstock.host.kernel_facts import Mount, mount_of
from penstock.keep import audit_plan, audit_tree
from penstock.keep.repair_array import mender_of

if TYPE_CHECKING:
    from pathlib import Path

FAR = 123456
"""A number that no account has."""


@pytest.mark.parametrize(
    ("number", "name", "mapped", "another"),
    [
        (1000, "anna", False, False),
        (1000, "bob", False, False),
        (1000, "", False, False),
        (1000, "anna", True, False),
        (1000, "", True, False),
        (1000, "bob", True, True),
        (5000, "anna", False, False),
        (5000, "anna", True, False),
        (5000, "bob", False, True),
        (5000, "", False, True),
        (5000, "bob", True, True),
        (5000, "", True, True),
    ],
)
def test_s19_an_owner_is_compared_by_number_and_by_name(
    number: int, name: str, mapped: bool, another: bool
) -> None:
    assert is_another(number, name, 1000, "anna", mapped=mapped) is another
    # Without a published name the number counts.
    assert is_another(number, name, 1000, "", mapped=mapped) is (number != 1000)


@pytest.mark.parametrize(
    ("options", "uid_map", "gid_map", "words"),
    [
        ("rw,relatime", "0 0 4294967295\n", "0 0 4294967295\n", ""),
        ("rw,idmapped,relatime", "0 0 4294967295\n", "0 0 4294967295\n", "`idmapped`"),
        ("rw", "0 100000 65536\n", "0 100000 65536\n", "uid_map"),
        ("rw", "0 0 4294967295\n", "0 1000 1\n1 100000 65536\n", "gid_map"),
        ("rw", None, None, ""),
    ],
)
def test_s19_what_says_that_numbers_are_mapped(
    options: str, uid_map: str | None, gid_map: str | None, words: str, tmp_path: Path
) -> None:
    (tmp_path / "self").mkdir()
    for name, text in (("uid_map", uid_map), ("gid_map", gid_map)):
        if text is not None:
            (tmp_path / "self" / name).write_text(text)
    found = mapping(Mount(point="/mnt", type="beegfs", options=options), tmp_path)
    assert words in found
    assert bool(found) is bool(words)


def test_s19_the_numbers_that_this_machine_has() -> None:
    me, mine = os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name
    other = next(one for one in pwd.getpwall() if one.pw_uid != me)
    assert numbers_here(FAR, other.pw_name, 7, "", mapped=False) == (FAR, 7)
    assert numbers_here(FAR, other.pw_name, 7, "no such group", mapped=True) == (other.pw_uid, 7)
    assert numbers_here(FAR, "no such account", None, "", mapped=True) == (FAR, None)
    assert numbers_here(FAR, mine, 7, "", mapped=False) == (me, 7), (
        "this account, by another number elsewhere"
    )
    assert numbers_here(None, "", None, "", mapped=True) == (None, None)
    assert owner(me, os.getegid()).user == mine
    assert owner(FAR, FAR) == OwnerSeen(FAR, FAR)


def test_s19_an_audit_through_an_id_mapped_mount_goes_by_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S19: root's number on the file system is shown as 123456; its name decides."""
    need_root()
    source = tree(tmp_path / "source", {"a": b"1" * 5000, "b/c": b"2"})
    with published(tmp_path, source) as context:
        layout = context.layout("data")
        release = data_of(context).parent.name
        seal, _ = audit_plan.read_seal(layout, release)
        assert (seal.permissions.uid, seal.permissions.user) == (0, "root")
        (tmp_path / "mapped").mkdir()
        with id_mapped(layout.root, tmp_path / "mapped", f"0 {FAR} 1\n") as point:
            there = DatasetLayout(point, "data")
            assert there.release(release).stat().st_uid == FAR
            assert "idmapped" in mount_of(str(point)).values
            assert is_mapped(there.release(release))
            assert not is_mapped(layout.release(release))
            notes = [one.found for one in check_mount(point) if one.verdict == "note"]
            assert [text for text in notes if "id-mapped mount" in text]

            def look() -> list[tuple[str, str]]:
                return [
                    (one.kind, one.why)
                    for one in audit_tree.tree_findings(there, release, seal, lambda: None)
                ]

            assert set(look()) == {("mode", f"owner {FAR}, published by 0 (root)")}
            monkeypatch.setattr(audit_tree, "user_name", {FAR: "root", 0: "bob"}.get)
            assert look() == []
            monkeypatch.setattr(audit_tree, "user_name", {FAR: "bob"}.get)
            assert set(look()) == {("mode", f"owner {FAR} (bob), published by 0 (root)")}


@pytest.mark.parametrize("known", [True, False])
def test_s19_a_repair_gives_files_to_the_account_of_the_published_name(known: bool, tmp_path: Path) -> None:
    """S19: this account published by another number, as on a machine that numbers its accounts otherwise."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    with published(tmp_path, tree(tmp_path / "source", {"a": b"1"})) as context:
        layout, path = context.layout("data"), data_of(context) / "a"
        release = path.parent.parent.name
        seal, _ = audit_plan.read_seal(layout, release)
        elsewhere = seal.permissions._replace(uid=FAR, user=seal.permissions.user if known else "")
        with mender_of(context, layout, seal._replace(permissions=elsewhere), release) as mender:
            mender.set_mode("a")
        assert path.stat().st_uid == (0 if known else FAR)
