"""How unchanged files come into a release: linked, by shared blocks, copied on the target; and that the
release before stays as it was, byte for byte and mode for mode."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.images import file_system
from tests.support.staging_runs import tree
from tests.support.whole_way import content, go, records, staging

from penstock.config.settings import PermissionsConfig, PlanConfig
from penstock.core import run_documents
from penstock.core.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.dataset.context import Context

FILES = {"a/one": b"1" * 3000, "a/two": b"2" * 70_000, "b": b"", "z": os.urandom(200_000)}
PLAN = PlanConfig()
OTHER = PermissionsConfig(file_mode=0o640)


def reuse(context: Context, way: str | bool) -> None:
    context.config = replace(context.config, plan=replace(context.config.plan, reuse=way))


def permissions(context: Context, policy: PermissionsConfig) -> None:
    data = replace(context.config.datasets["data"], permissions=policy)
    context.config = replace(context.config, datasets={"data": data})


def looks(root: Path) -> Mapping[str, tuple[Any, ...]]:
    """All that a reader sees of a tree but its bytes, which `content` has."""
    found = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder), *(Path(folder) / name for name in names)):
            seen = path.lstat()
            found[str(path)] = (
                stat.S_IMODE(seen.st_mode),
                seen.st_uid,
                seen.st_gid,
                seen.st_ino,
                seen.st_mtime_ns,
            )
    return found


def second(context: Context, source: Path) -> dict[str, Any]:
    """One file is changed; the copy of the second release, then its publication. The receipt of copy."""
    tree(source, {"a/one": b"changed"})
    receipt = go(context, upto="copy")
    go(context, after="copy")
    return receipt


def inodes(context: Context, release: str) -> dict[str, int]:
    data = context.layout("data").release(release) / "data"
    return {name: (data / name).stat().st_ino for name in FILES}


@pytest.mark.parametrize("way", ["auto", True])
def test_s12_unchanged_files_are_linked_where_there_are_no_reflinks(tmp_path: Path, way: str | bool) -> None:
    with file_system(tmp_path, "ext4") as point:
        source = tree(tmp_path / "source", FILES)
        with staging(point, source, plan=PLAN) as context:
            reuse(context, way)
            first = go(context)["release"]
            assert second(context, source)["linked"] == 3
            before, now = inodes(context, first), inodes(context, go(context)["release"])
            assert {name for name in FILES if before[name] == now[name]} == set(FILES) - {"a/one"}


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("xfs", "auto"),
        ("btrfs", "reflink"),
        pytest.param("xfs", "reflink", marks=pytest.mark.thorough),
        pytest.param("btrfs", "auto", marks=pytest.mark.thorough),
    ],
)
def test_s12_where_there_are_reflinks_each_file_has_an_inode_and_permissions_of_its_own(
    tmp_path: Path, kind: str, way: str
) -> None:
    with file_system(tmp_path, kind) as point:
        source = tree(tmp_path / "source", FILES)
        with staging(point, source, plan=PLAN) as context:
            reuse(context, way)
            first = context.layout("data").release(go(context)["release"]) / "data"
            was, bytes_then = looks(first), content(first)
            permissions(context, OTHER)
            receipt = second(context, source)
            assert (receipt["linked"], receipt["copied_rows"]) == (3, 1)
            now = context.layout("data").current.resolve() / "data"
            assert content(now) == content(source)
            assert {stat.S_IMODE((now / name).stat().st_mode) for name in FILES} == {0o640}
            assert (looks(first), content(first)) == (was, bytes_then)
            assert not set(inodes(context, first.parent.name).values()) & set(
                inodes(context, now.parent.name).values()
            )
            assert {one.storage_grade for one in records(context).values()} == {"cold"}


def test_copy_copies_on_the_target_and_asks_the_source_for_nothing(context: Context, source: Path) -> None:
    reuse(context, "copy")
    first = go(context)["release"]
    before = records(context)
    receipt = second(context, source)
    assert (receipt["linked"], receipt["copied_rows"]) == (3, 1)
    plan = run_documents.PLAN.from_json(*_plan(context))
    assert plan.way == "copy"
    assert "are copied on the target: 264 KiB are stored once more" in plan.why[1]
    now = context.layout("data").current.resolve()
    assert content(now / "data") == content(source)
    assert not set(inodes(context, first).values()) & set(inodes(context, now.name).values())
    after = records(context)
    assert after["z"].digest == before["z"].digest
    assert after["z"].mtime_ns == before["z"].mtime_ns


def _plan(context: Context) -> tuple[bytes, object]:
    layout = context.layout("data")
    newest = max(
        (folder / "plan.json" for folder in layout.runs.iterdir()), key=lambda path: path.stat().st_mtime_ns
    )
    return newest.read_bytes(), newest


def test_s12_other_permissions_are_refused_with_what_they_double_and_copied_when_asked(
    tmp_path: Path,
) -> None:
    with file_system(tmp_path, "ext4") as point:
        source = tree(tmp_path / "source", FILES)
        with staging(point, source, plan=PLAN) as context:
            first = context.layout("data").release(go(context)["release"])
            was, bytes_then = looks(first), content(first)
            permissions(context, OTHER)
            tree(source, {"a/one": b"changed"})
            with pytest.raises(PreflightError) as refused:
                go(context)
            told = str(refused.value)
            assert f"release {first.name} has other permissions.file_mode" in told
            assert "3 files, 264 KiB, are unchanged" in told
            assert "run --copy-unchanged data" in told
            assert "(270,000 bytes) more" in told
            assert not context.layout("data").staging(first.name).exists()
            context.copy_unchanged = True
            receipt = go(context, upto="copy")
            assert (receipt["linked"], receipt["copied_rows"]) == (3, 1)
            go(context, after="copy")
            now = context.layout("data").current.resolve() / "data"
            assert content(now) == content(source)
            assert {stat.S_IMODE((now / name).stat().st_mode) for name in FILES} == {0o640}
            assert (looks(first), content(first)) == (was, bytes_then)


def test_other_permissions_stop_nothing_where_nothing_is_unchanged(context: Context, source: Path) -> None:
    go(context)
    permissions(context, OTHER)
    tree(source, dict.fromkeys(FILES, b"new"))
    assert go(context)["files"] == len(FILES)


def test_reflinks_that_are_asked_for_where_there_are_none_are_refused(tmp_path: Path) -> None:
    with file_system(tmp_path, "ext4") as point:
        source = tree(tmp_path / "source", FILES)
        with staging(point, source, plan=PLAN) as context:
            go(context)
            reuse(context, "reflink")
            tree(source, {"new": b"new"})
            with pytest.raises(PreflightError, match="has no reflinks"):
                go(context)


def test_a_rotten_file_that_was_copied_is_named_and_fetched(context: Context, source: Path) -> None:
    reuse(context, "copy")
    first = go(context)["release"]
    rotten = context.layout("data").release(first) / "data/z"
    seen = rotten.stat()
    rotten.chmod(0o600)
    rotten.write_bytes(b"!" * seen.st_size)
    os.utime(rotten, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    rotten.chmod(seen.st_mode & 0o7777)
    second(context, source)
    assert content(context.layout("data").current / "data") == content(source)


def test_how_files_are_reused_is_no_part_of_a_runs_identity(context: Context) -> None:
    runs = set()
    for way in ("auto", "none", "copy"):
        reuse(context, way)
        runs.add(go(context, upto="list")["run"])
    assert len(runs) == 1
