"""A release's permissions from the configuration to an audit: set whatever the umask, read by those who may,
and a finding where somebody changed them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.accounts import give
from tests.support.forked import forked
from tests.support.id_mapped import id_mapped
from tests.support.published import data_of, flip, publish, published
from tests.support.seals import PLAIN
from tests.support.staging_runs import tree
from tests.target.conftest import need, need_root

from penstock.config.settings import ModeRule, PermissionsConfig, PlanConfig
from penstock.core import seal as document
from penstock.core.errors import FailedError, PreflightError
from penstock.core.layout import DATA, SEAL, DatasetLayout
from penstock.core.posix_acl import in_words
from penstock.dataset import run_store, seals
from penstock.fs import owners
from penstock.fs.path_walk import walk
from penstock.keep import audit_step, repair_step
from penstock.keep.audit_tree import tree_findings
from penstock.keep.repair_array import mender_of
from penstock.target import tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.dataset.context import Context

GENOMICS, IMAGING, OTHERS = 4241, 4242, 4243
READER = 4311
FILES = {
    "top": b"top", "a/b/deep": b"deep", "a/more": b"more", "bin/tool": b"#!/bin/sh\n",
    "giant": b"g" * (3 << 20),
}  # fmt: skip
PLAN = PlanConfig(giant_bytes=2 << 20, part_bytes=1 << 20)
TWO_GROUPS = PermissionsConfig(acl=(f"group:{GENOMICS}:r-X", f"group:{IMAGING}:r-X"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """On the disk, where other users can enter; everything in it is made with umask 077."""
    need_root()
    made = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    made.chmod(0o755)
    old = os.umask(0o077)
    yield made
    os.umask(old)
    tree_removal.remove_tree(made)


@pytest.fixture
def source(folder: Path) -> Path:
    return tree(folder / "source", FILES)


def drift(context: Context) -> dict[str, str]:
    """What an audit says, by path; all of it of permissions."""
    result: Any = audit_step.run(context, "data")
    assert {one.kind for one in result["findings"]} <= {"mode"}
    return {one.path: one.why for one in result["findings"]}


def repaired(context: Context) -> list[str]:
    """What a repair mended, which fetched nothing."""
    result: Any = repair_step.run(context, "data")
    assert (result["status"], result["fetched_bytes"]) == ("REPAIRED", 0)
    assert drift(context) == {}
    return sorted(path for path, _ in result["repaired"])


def setfacl(path: Path, *options: str) -> None:
    subprocess.run([need("setfacl"), *options, path], check=True)


def may_read(data: Path, *groups: int) -> bool:
    """Whether a user of these groups lists the release, reads each file of it, and its seal."""

    def child() -> bool:
        try:
            names = [os.path.join(above, name) for above, _, files in os.walk(data) for name in files]
            whole = {os.path.relpath(name, data): Path(name).read_bytes() for name in names}
            return whole == FILES and bool((data.parent / SEAL).read_bytes())
        except PermissionError:
            return False

    seen: bool = forked(child, uid=READER, groups=groups)
    return seen


def test_n8_every_inode_is_as_the_policy_says_whatever_the_umask(folder: Path, source: Path) -> None:
    """N8: umask 077, files 0640 and folders 2750 of a group: each inode as stated; drift is reported, and a
    repair mends it."""
    policy = PermissionsConfig(group=str(GENOMICS), file_mode=0o640, dir_mode=0o2750)
    with published(folder, source, permissions=policy, plan=PLAN) as context:
        data = data_of(context)
        assert {(one.kind, one.mode, one.gid) for one in walk(data)} == {
            ("file", 0o640, GENOMICS),
            ("dir", 0o2750, GENOMICS),
        }
        assert stat.S_IMODE(data.stat().st_mode) == stat.S_IMODE(data.parent.stat().st_mode) == 0o2750
        assert drift(context) == {}
        (data / "a/more").chmod(0o660)
        (data / "a").chmod(0o2770)
        give(data / "top", 7, OTHERS)
        numbered = f"7 ({name})" if (name := owners.user_name(7)) else "7"
        assert drift(context) == {
            "a": "mode 2770, published with 2750",
            "a/more": "mode 0660, published with 0640",
            "top": f"owner {numbered}, published by 0 (root), group {OTHERS}, published with {GENOMICS}",
        }
        assert repaired(context) == ["a", "a/more", "top"]


def test_s14_a_dataset_is_readable_by_two_groups_and_no_third(folder: Path, source: Path) -> None:
    """By ACLs and default ACLs; drift of either is a finding of its own kind, which a repair mends."""
    with published(folder, source, permissions=TWO_GROUPS, plan=PLAN) as context:
        data = data_of(context)
        assert drift(context) == {}
        assert may_read(data, GENOMICS)
        assert may_read(data, IMAGING, OTHERS)
        assert not may_read(data, OTHERS)
        assert not may_read(data)
        with pytest.raises(PermissionError):
            forked(lambda: (data / "top").write_text("x"), uid=READER, groups=(GENOMICS,))

        setfacl(data / "a/b/deep", "-n", "-x", f"group:{IMAGING}")
        setfacl(data / "a/b", "-k")
        setfacl(data / "bin", "-m", f"group:{OTHERS}:r-x")
        (data / "giant").chmod(0o400)
        setfacl(data, "-b")
        assert not may_read(data, IMAGING)
        both = f"group:{GENOMICS}:r-x,group:{IMAGING}:r-x"
        assert drift(context) == {
            ".": f"ACL none, published with {both}, default ACL none, published with {both}",
            "a/b": f"default ACL none, published with {both}",
            "a/b/deep": f"ACL group:{GENOMICS}:r--, published with group:{GENOMICS}:r--,group:{IMAGING}:r--",
            "bin": f"ACL {both},group:{OTHERS}:r-x, published with {both}",
            "giant": "mode 0400, published with 0440, "
            f"ACL group:{GENOMICS}:---,group:{IMAGING}:---, published with "
            f"group:{GENOMICS}:r--,group:{IMAGING}:r--",
        }
        assert repaired(context) == [".", "a/b", "a/b/deep", "bin", "giant"]
        assert may_read(data, GENOMICS)
        assert may_read(data, IMAGING)
        assert not may_read(data, OTHERS)


def test_a_file_that_a_repair_fetches_has_the_acl(folder: Path, source: Path) -> None:
    with published(folder, source, permissions=TWO_GROUPS, plan=PLAN) as context:
        data = data_of(context)
        flip(data / "a/more")
        flip(data / "giant", 2 << 20)
        assert audit_step.run(context, "data")["counts"] == {"changed": 2}
        assert repair_step.run(context, "data")["status"] == "REPAIRED"
        assert drift(context) == {}
        assert may_read(data, IMAGING)


def test_modes_by_path_are_published_sealed_and_audited(folder: Path, source: Path) -> None:
    rules = (ModeRule("bin/**", file=0o550, dir=0o2750), ModeRule("deep", file=0o400))
    policy = replace(TWO_GROUPS, file_mode=0o640, dir_mode=0o2750, modes=rules)
    with published(folder, source, permissions=policy, plan=PLAN) as context:
        data = data_of(context)
        assert drift(context) == {}
        assert stat.S_IMODE((data / "bin/tool").stat().st_mode) == 0o550
        # The mask of the named groups is in it: the owning group itself may do nothing.
        assert stat.S_IMODE((data / "a/b/deep").stat().st_mode) == 0o440
        sealed = seals.load(context.layout("data"), data.parent.name).seal.permissions
        assert tuple(sealed.acl) == (f"group:{GENOMICS}:r-X", f"group:{IMAGING}:r-X")
        assert [tuple(one) for one in sealed.modes] == [("bin/**", 0o550, 0o2750), ("deep", 0o400, None)]
        (data / "bin/tool").chmod(0o640)
        assert list(drift(context)) == ["bin/tool"]
        assert repaired(context) == ["bin/tool"]


@pytest.mark.parametrize("entry", ["group:genomics:r-X", "group::r-X"])
def test_a_seal_whose_acl_names_no_number_is_damaged(entry: str) -> None:
    sealed = PLAIN._replace(permissions=PLAIN.permissions._replace(acl=[entry]))
    with pytest.raises(ValueError, match=r"names no number|is no entry"):
        document.RELEASE_SEAL.from_json(
            json.dumps(document.RELEASE_SEAL.to_json(sealed)).encode(), "release.json"
        )


def test_s12_files_of_a_release_with_another_acl_are_not_linked(folder: Path, source: Path) -> None:
    """One inode has one ACL: under another policy plan stops, and copies on the target when asked to."""
    with published(folder, source, permissions=TWO_GROUPS, plan=PLAN) as context:
        first = data_of(context)
        (source / "new").write_bytes(b"new")
        publish(context)
        second = data_of(context)
        assert os.path.samestat((first / "top").stat(), (second / "top").stat())
        dataset = context.config.datasets["data"]
        changed = replace(dataset, permissions=replace(TWO_GROUPS, acl=(f"group:{OTHERS}:r-X",)))
        context.config = replace(context.config, datasets={"data": changed})
        with pytest.raises(PreflightError, match=f"release {second.parent.name} has other permissions.acl"):
            publish(context)
        context.copy_unchanged = True
        publish(context)
        third = data_of(context)
        assert third.parent.name != second.parent.name
        why = run_store.open_run(context.layout("data")).plan.why
        assert any("are copied on the target" in said for said in why)
        assert (third / "top").stat().st_nlink == 1
        assert drift(context) == {}
        assert owners.read_acl(first / "top") != owners.read_acl(third / "top")


def test_s19_an_id_mapped_mount_shows_other_numbers_which_no_repair_sets(folder: Path, source: Path) -> None:
    """The groups of the ACL are 4241 and 4242 on the file system, 5241 and 5242 on this mount."""
    with published(folder, source, permissions=TWO_GROUPS, plan=PLAN) as context:
        release = data_of(context).parent.name
        seal = seals.load(context.layout("data"), release).seal
        point = folder / "mapped"
        point.mkdir()
        with id_mapped(context.config.target.root, point, "0 0 4001\n4001 5001 1000\n"):
            layout = DatasetLayout(point, "data")
            shown = owners.read_acl(layout.release(release) / DATA / "top")
            assert in_words(shown) == "group:5241:r--,group:5242:r--"
            assert list(tree_findings(layout, release, seal, lambda: None)) == []
            with pytest.raises(FailedError, match="cannot be set again here") as caught:
                mender_of(context, layout, seal, release)
            assert "without id mapping" in caught.value.hint


def test_a_mount_that_shows_no_acls_is_one_finding(
    folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that was restored to, or is mounted by, something that keeps none."""
    with published(folder, source, permissions=TWO_GROUPS, plan=PLAN) as context:
        real = os.getxattr

        def refused(place: Any, name: str, **options: Any) -> bytes:
            if name.startswith("system."):
                raise OSError(95, "Operation not supported")
            return real(place, name, **options)

        monkeypatch.setattr(os, "getxattr", refused)
        assert drift(context) == {
            ".": f"ACLs, published with group:{GENOMICS}:r-X, group:{IMAGING}:r-X: it keeps no POSIX ACLs, "
            "or is mounted without them"
        }
