"""Every kind of damage at rest: what an audit names, what a repair makes of it, what it leaves."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.published import damage, data_of, flip, writable

from penstock.cli.commands.audits import render_audit
from penstock.core import typed_json
from penstock.core.errors import FindingsError
from penstock.core.findings import finding_from_json
from penstock.fs import small_files
from penstock.keep import audit_step, repair_step
from penstock.tables.manifest import Files, ManifestWriter, read_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context


def found(result: dict[str, Any]) -> set[tuple[str, str, tuple[int, ...]]]:
    return {(f.kind, f.path, tuple(f.parts)) for f in result["findings"]}


def replace_by_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/hostname")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"z")


def shorten(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, 10)


def test_every_kind_of_damage_is_named_repaired_or_left(staged: Context, files: dict[str, bytes]) -> None:
    odd = next(path for path in files if path.startswith("odd/"))
    whole = audit_step.run(staged, "data")
    assert (whole["status"], whole["findings"]) == ("PASSED", [])
    assert whole["files"] == whole["of_files"] == len(files)
    assert whole["bytes"] == sum(map(len, files.values()))
    data = data_of(staged)
    flip(data / "d0/f00", 17)
    flip(data / "big/giant", (2 << 20) + 5)
    flip(data / "big/giant", (5 << 20) + 1)
    flip(data / odd)
    damage(data / "d1/f01", os.unlink)
    damage(data / "d1/f04", replace_by_link)
    damage(data / "d2/f02", replace_by_folder)
    damage(data / "d2/f08", shorten)
    with writable(data / "deep"):
        (data / "deep/er").chmod(0o700)
        shutil.rmtree(data / "deep/er")
    (data / "d2/f05").chmod(0o444)
    (data / "a").chmod(0o750)
    with writable(data / "d0"):
        (data / "d0/extra").write_bytes(b"x")
    with writable(data.parent):
        (data.parent / "beside").write_bytes(b"x")
    result = audit_step.run(staged, "data")
    assert found(result) == {
        ("changed", "d0/f00", ()),
        ("changed", "big/giant", (2, 5)),
        ("changed", odd, ()),
        ("missing", "d1/f01", ()),
        ("replaced", "d1/f04", ()),
        ("replaced", "d2/f02", ()),
        ("extra", "d2/f02/inside", ()),
        ("changed", "d2/f08", ()),
        ("missing", "deep/er/file", ()),
        ("mode", "d2/f05", ()),
        ("mode", "a", ()),
        ("extra", "d0/extra", ()),
        ("extra", "../beside", ()),
    }
    with pytest.raises(FindingsError) as caught:
        audit_step.judge(result)
    assert caught.value.exit_code == 4
    assert result["all_findings"] in str(caught.value)
    assert set(audit_step.findings_of(staged.layout("data"), _last(staged))) == {
        finding_from_json(json.dumps(typed_json.plain(f)).encode()) for f in result["findings"]
    }

    done = repair_step.run(staged, "data")
    assert done["status"] == "PARTLY"
    assert [path for path, _ in done["unrepairable"]] == ["d2/f02"]
    assert set(done["left"]) == {"d2/f02/inside", "d0/extra", "../beside"}
    # Two of the giant's parts, and no byte of its others.
    sizes = [len(files[p]) for p in ("d0/f00", odd, "d1/f01", "d1/f04", "d2/f08", "deep/er/file")]
    assert done["fetched_bytes"] == (1 << 20) + 7 + sum(sizes)
    with pytest.raises(FindingsError):
        repair_step.judge(done)
    for path, bytes_ in files.items():
        if path != "d2/f02":
            assert (data / path).read_bytes() == bytes_
    assert not (data / "d1/f04").is_symlink()
    again = audit_step.run(staged, "data")
    assert {(kind, path) for kind, path, _ in found(again)} == {
        ("replaced", "d2/f02"),
        ("extra", "d2/f02/inside"),
        ("extra", "d0/extra"),
        ("extra", "../beside"),
    }
    # Modes, times and owner are as published: only what was left was named.
    lines = staged.layout("data").history.read_text().splitlines()
    assert '"event": "repair"' in lines[-1]
    assert "deep/er/file" in lines[-1]


def _last(context: Context) -> Any:
    from penstock.jobs import audits_and_adoptions

    layout = context.layout("data")
    return next(a for a, end in audits_and_adoptions.audits_of(layout) if end is not None)


def test_what_a_killed_repair_left_is_found_and_set_right(staged: Context) -> None:
    data = data_of(staged)
    (data / "d0").chmod(0o2750)
    (data / "d0/.p.0123456789abcdef").write_bytes(b"half")
    kinds = found(audit_step.run(staged, "data"))
    assert kinds == {("mode", "d0", ()), ("extra", "d0/.p.0123456789abcdef", ())}
    assert repair_step.run(staged, "data")["status"] == "REPAIRED"
    assert audit_step.run(staged, "data")["status"] == "PASSED"


def test_findings_of_samples_since_the_last_whole_audit_are_repaired_together(
    staged: Context, files: dict[str, bytes]
) -> None:
    from penstock.core.findings import AuditSelection

    data = data_of(staged)
    flip(data / "d0/f00", 3)
    flip(data / "big/giant", 5)
    assert audit_step.run(staged, "data")["counts"] == {"changed": 2}
    # A sample that reads next to nothing finds nothing; what the whole one found is still known.
    tiny = audit_step.AuditRequest(choice=AuditSelection("sample", 1e-9, "seed"))
    result = audit_step.run(staged, "data", tiny)
    assert (result["status"], result["files"]) == ("PARTLY", 0)
    assert result["promise"].startswith("this sample holds no file: nothing is proven of their bytes")
    assert render_audit(result).endswith("  STATUS      PARTLY (no file was read)\n")
    done = repair_step.run(staged, "data")
    assert [path for path, _ in done["repaired"]] == ["big/giant", "d0/f00"]
    assert done["fetched_bytes"] == len(files["d0/f00"]) + (1 << 20)
    # The second time there is nothing to do, and nothing to tell.
    lines = staged.layout("data").history.read_text()
    done = repair_step.run(staged, "data")
    assert (done["status"], done["fetched_bytes"]) == ("REPAIRED", 0)
    assert staged.layout("data").history.read_text() == lines


def test_a_damaged_manifest_is_noticed_and_nothing_is_repaired_by_it(staged: Context) -> None:
    release = data_of(staged).parent
    flip(release / "manifest.parquet", 100)
    result = audit_step.run(staged, "data")
    assert [(f.kind, f.path) for f in result["findings"]] == [("manifest", "manifest.parquet")]
    with pytest.raises(FindingsError, match="manifest"):
        repair_step.run(staged, "data")
    flip(release / "manifest.parquet", 100)
    flip(release / "manifest.xxh128", 3)
    result = audit_step.run(staged, "data")
    assert [(f.kind, f.path) for f in result["findings"]] == [("manifest", "manifest.xxh128")]


def test_a_forged_record_is_noticed(staged: Context) -> None:
    layout = staged.layout("data")
    release = data_of(staged).parent
    records = [r for batch in read_manifest(release / "manifest.parquet") for r in batch]
    records[1] = records[1]._replace(digest="xxh3_128:" + "0" * 32)
    with writable(release), ManifestWriter(release / "manifest.parquet") as writer:
        writer.add(Files.of(records))
        digest = writer.finish()
    # Its digest alone says it.
    assert audit_step.run(staged, "data")["counts"] == {"manifest": 1}
    seal = small_files.read_json(release / "release.json")
    seal["manifests"]["manifest.parquet"]["sha256"] = digest
    with writable(release):
        small_files.write_json(release / "release.json", seal)
    # A forger who mends the seal meets the history.
    named = [(f.kind, f.path) for f in audit_step.run(staged, "data")["findings"]]
    assert ("manifest", "release.json") in named
    # Without a history the tree over the records tells.
    layout.history.unlink()
    named = [(f.kind, f.path) for f in audit_step.run(staged, "data")["findings"]]
    assert named == [("manifest", "manifest.parquet")]
    with writable(release), writable(release / "release.json"):
        (release / "release.json").write_text("{")
    with pytest.raises(FindingsError, match="seal"):
        audit_step.run(staged, "data")


def test_without_its_data_folder_all_that_a_release_held_is_missing(
    staged: Context, files: dict[str, bytes]
) -> None:
    data = data_of(staged)
    with writable(data.parent):
        data.rename(data.with_name("elsewhere"))
    found = [(f.kind, f.path) for f in audit_step.run(staged, "data")["findings"]]
    assert found[0] == ("missing", ".")
    assert {kind for kind, _ in found} == {"missing"}
    assert len(found) == 1 + len(files)
