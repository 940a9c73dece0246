"""`penstock diff`: two published releases, and a release beside its source as it is now."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.look.conftest import AFTER, BEFORE
from tests.look.manifests import record, release
from tests.look.test_releases import names, rewrite, snapshot
from tests.support.commands import penstock
from tests.support.forked import NOBODY, forked
from tests.support.published import published
from tests.support.s3server import S3Server
from tests.support.staging_runs import tree

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import ConfigError, FindingsError, NewerFormatError, PreflightError
from penstock.core.layout import DatasetLayout
from penstock.look import release_comparison

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.look.release_comparison import Compared


def counts(got: Compared) -> dict[str, int]:
    with got.difference as found:
        return {kind: count.files for kind, count in found.counts.items() if count.files}


def test_two_releases_are_compared_by_what_they_hold(layout: DatasetLayout) -> None:
    current, other = names(layout)
    got = release_comparison.releases(layout, other, None)
    assert (got.result["before"], got.result["after"], got.result["equal"]) == (other, current, False)
    with got.difference as found:
        rows = {kind: list(found.rows(kind)) for kind in ("changed", "renamed", "removed", "added")}
    assert [(one.path, one.bytes_before, one.bytes) for one in rows["changed"]] == [(b"changed", 900, 901)]
    assert [(one.was, one.path) for one in rows["renamed"]] == [(b"moved/from", b"moved/to")]
    assert [(one.path, one.bytes_before) for one in rows["removed"]] == [(b"gone", 77)]
    assert [(one.path, one.bytes) for one in rows["added"]] == [(b"came", 78)]
    assert got.result["counts"]["unchanged"] == (2, 5300, 5300)
    assert got.result["permissions"] == ""
    same = release_comparison.releases(layout, current, current)
    assert same.result["equal"]
    assert counts(same) == {"unchanged": len(AFTER)}


def test_the_command_prints_rows_and_counts(layout: DatasetLayout) -> None:
    current, other = names(layout)
    words = ("diff", "data", other, current, "--root", str(layout.root))
    done = penstock(*words, cwd=layout.root)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0] == f"data: {other} -> {current}"
    assert lines[-4:] == [
        "* changed  (900 B -> 901 B)",
        "> moved/from -> moved/to  (4.22 KiB)",
        "- gone  (77 B)",
        "+ came  (78 B)",
    ]
    assert penstock(*words, "--exit-code", cwd=layout.root).returncode == 4
    equal = penstock(
        "diff", "data", current, current, "--exit-code", "--root", str(layout.root), cwd=layout.root
    )
    assert equal.returncode == 0
    *rows, last = map(json.loads, penstock(*words, "--json", cwd=layout.root).stdout.splitlines())
    assert [one["kind"] for one in rows] == ["changed", "renamed", "removed", "added"]
    assert rows[1] == {
        "kind": "renamed", "path": "moved/to", "was": "moved/from", "bytes": 4321, "bytes_before": 4321,
    }  # fmt: skip
    assert (last["kind"], last["equal"], last["counts"]["added"]["files"]) == ("summary", False, 1)


def test_what_is_not_shown_is_counted(tmp_path: Path) -> None:
    layout = DatasetLayout(tmp_path, "data")
    digest = "xxh3_128:" + 32 * "0"
    release(layout, "a", [record("x", 1, digest)])
    release(
        layout,
        "b",
        [record("x", 1, digest), *(record(f"y{i:02d}", 2, f"{digest[:-2]}{i:02d}") for i in range(30))],
    )
    for words, shown in (((), 20), (("--all",), 30)):
        done = penstock("diff", "data", "a", "b", "--root", str(tmp_path), *words, cwd=tmp_path)
        lines = done.stdout.splitlines()
        assert sum(line.startswith("+ ") for line in lines) == shown
        more = f"  and {30 - shown} more added (--all)"
        assert (more in lines) is (shown < 30)


def test_names_of_any_bytes_are_printed_safely(tmp_path: Path) -> None:
    layout = DatasetLayout(tmp_path, "data")
    digest = "xxh3_128:" + 32 * "0"
    evil = os.fsdecode(b"evil\x1b[2J\n\xff `penstock gc`")
    release(layout, "a", [record("x", 1, digest)])
    release(layout, "b", [record("x", 1, digest), record(evil, 2, digest[:-1] + "1")])
    words = ("diff", "data", "a", "b", "--root", str(tmp_path))
    done = penstock(*words, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "+ evil\\x1b[2J\\n\\xff `penstock gc`  (2 B)"
    told = json.loads(penstock(*words, "--json", cwd=tmp_path).stdout.splitlines()[0])
    assert os.fsencode(told["path"]) == os.fsencode(evil)


def test_other_permissions_are_one_line_and_no_difference(layout: DatasetLayout) -> None:
    current, other = names(layout)
    changes = {"file_mode": 0o440, "gid": 4242, "group": "ml", "acl": ["group:7:r-x"]}

    def change(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "permissions": {**raw["permissions"], **changes}}

    rewrite(layout.release(current) / "release.json", change)
    told = release_comparison.releases(layout, other, current).result["permissions"]
    assert told == f"files 0444 -> 0440, group {os.getegid()} -> ml, ACL" or told.endswith("-> ml, ACL")
    done = penstock("diff", "data", other, current, "--root", str(layout.root), cwd=layout.root)
    assert "  permissions differ: files 0444 -> 0440" in done.stdout


def cut(folder: Path) -> None:
    path = folder / "manifest.parquet"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-9])


def away(folder: Path) -> None:
    (folder / "manifest.parquet").unlink()


def fifo(folder: Path) -> None:
    away(folder)
    os.mkfifo(folder / "manifest.parquet")


def unsealed(folder: Path) -> None:
    (folder / "release.json").unlink()


@pytest.mark.parametrize("breaks", [cut, away, fifo, unsealed])
def test_a_release_that_is_damaged_is_not_compared(
    layout: DatasetLayout, breaks: Callable[[Path], None]
) -> None:
    current, other = names(layout)
    layout.release(other).chmod(0o755)
    breaks(layout.release(other))
    with pytest.raises(FindingsError, match="cannot be compared"):
        release_comparison.releases(layout, other, current)


def test_a_newer_release_is_refused_by_name(layout: DatasetLayout) -> None:
    current, other = names(layout)
    rewrite(layout.release(other) / "release.json", lambda raw: {**raw, "format": 999})
    with pytest.raises(NewerFormatError):
        release_comparison.releases(layout, other, current)


def test_what_is_not_there_is_a_usage_error(layout: DatasetLayout) -> None:
    with pytest.raises(ConfigError):
        release_comparison.releases(layout, "never", None)
    with pytest.raises(ConfigError):
        release_comparison.releases(DatasetLayout(layout.root, "never"), "a", "b")
    for words in (("data", "a", "--source"), ("data",), (), ("data", "a", "b", "--source")):
        done = penstock("diff", *words, "--root", str(layout.root), cwd=layout.root)
        assert done.returncode == 2, done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
def test_a_reader_compares_and_writes_nothing(layout: DatasetLayout) -> None:
    current, other = names(layout)
    before = snapshot(layout.root)
    assert (
        forked(lambda: counts(release_comparison.releases(layout, other, current)), uid=NOBODY)["changed"]
        == 1
    )
    assert snapshot(layout.root) == before
    layout.release(other).chmod(0o700)
    with pytest.raises(PreflightError):
        forked(lambda: release_comparison.releases(layout, other, current), uid=NOBODY)


def test_a_release_is_compared_with_its_source_now_and_nothing_is_written(
    original: Path, tmp_path: Path
) -> None:
    """Of a folder a rename is not proven: its token names an inode and its times."""
    shutil.copytree(original / "source", tmp_path / "source", copy_function=shutil.copy2)
    with published(tmp_path, tmp_path / "source") as context:
        before = snapshot(tmp_path / "target")
        same = release_comparison.with_source(context, "data", None)
        assert same.result["equal"]
        assert counts(same) == {"unchanged": len(AFTER)}
        (tmp_path / "source/same/a").rename(tmp_path / "source/same/c")
        (tmp_path / "source/changed").write_bytes(b"again")
        tree(tmp_path / "source", {"more": b"more"})
        got = release_comparison.with_source(context, "data", None)
        assert got.result["source"] == [f"file://{tmp_path}/source"]
        assert counts(got) == {"unchanged": 3, "changed": 1, "removed": 1, "added": 2}
        assert snapshot(tmp_path / "target") == before


def test_a_rename_in_a_bucket_is_proven_by_its_etag(tmp_path: Path) -> None:
    with S3Server(tree(tmp_path / "bucket", BEFORE), options=["--md5-etags"]) as server:
        options = {"endpoint_url": server.endpoint, "anon": True}
        with published(tmp_path, server.url(), options=options) as context:
            (server.root / "moved/from").unlink()
            (server.root / "gone").unlink()
            tree(server.root, {name: AFTER[name] for name in ("changed", "came", "moved/to")})
            before = len(server.requests())
            got = release_comparison.with_source(context, "data", None)
            assert counts(got) == {"unchanged": 2, "changed": 1, "renamed": 1, "removed": 1, "added": 1}
            assert {one.method for one in server.requests()[before:] if "list" not in one.query} <= {
                "HEAD",
                "GET",
            }
            assert not [one for one in server.requests()[before:] if one.key in AFTER]


def test_the_command_lists_the_source_of_the_configuration(tmp_path: Path) -> None:
    source = tree(tmp_path / "source", BEFORE)
    with published(tmp_path, source, permissions=PermissionsConfig(file_mode=0o440)) as context:
        current = os.readlink(context.layout("data").current).rpartition("/")[2]
    document = {
        "target": {"root": str(tmp_path / "target"), "keep_free": "1MiB"},
        "datasets": {"data": {"source": str(source), "permissions": {"file_mode": "0444"}}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    done = penstock("diff", "data", "--exit-code", cwd=tmp_path)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[0] == f"data: {current} -> file://{source} now"
    assert "permissions differ: files 0440 -> 0444" in done.stdout
    (source / "gone").unlink()
    done = penstock("diff", "data", current, "--source", "--exit-code", cwd=tmp_path)
    assert done.returncode == 4, done
    assert done.stdout.splitlines()[-1] == "- gone  (77 B)"
