from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.forked import nobody
from tests.support.standing import begin
from tests.support.whole_way import FILES, content, go, staging, texts
from tests.target.conftest import need

from penstock.config.settings import VerifyConfig
from penstock.core import typed_json
from penstock.core.errors import FailedError, FindingsError, PenstockError, PreflightError, SourceChangedError
from penstock.core.human import in_quotes
from penstock.core.seal import Tree, canonical, leaf
from penstock.dataset import gate, receipts, run_store
from penstock.fs import small_files
from penstock.keep import audit_step
from penstock.look import status_report
from penstock.look.views import html_report, keys
from penstock.run import publish_step, report_step, verify_step
from penstock.tables.manifest import read_manifest
from penstock.target import dataset_folders, tree_removal
from penstock.target import reveal as revealing

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.dataset.context import Context
    from penstock.dataset.documents import Run


STANDING = True


def run_of(context: Context) -> Run:
    return run_store.open_run(context.layout("data"))


def staged(context: Context) -> Path:
    return run_of(context).data


def history(context: Context) -> list[dict[str, Any]]:
    return [json.loads(line) for line in context.layout("data").history.read_text().splitlines()]


def test_the_whole_way_from_a_folder(tmp_path: Path, source: Path) -> None:
    with staging(tmp_path, source, local=True) as context:
        receipt = go(context)
    layout = context.layout("data")
    release = layout.release(receipt["release"])
    assert content(layout.current / "data") == content(source)
    assert os.readlink(layout.current) == f"releases/{receipt['release']}"
    assert sorted(os.listdir(release)) == ["data", "manifest.parquet", "manifest.xxh128", "release.json"]
    assert os.listdir(layout.releases) == [receipt["release"]]
    seal = small_files.read_json(release / "release.json")
    records = [r for batch in read_manifest(release / "manifest.parquet") for r in batch]
    assert [os.fsencode(r.path) for r in records] == sorted(map(os.fsencode, FILES))
    sums = Tree()
    sums.extend([leaf(canonical(record)) for record in records])
    assert seal["records"]["root"] == sums.root()
    assert (seal["files"], seal["bytes"]) == (len(FILES), sum(map(len, FILES.values())))
    assert seal["giants"] == 1
    assert seal["manifests"]["manifest.xxh128"]["left_out"] == 1
    assert seal["manifests"]["manifest.xxh128"]["escaped"] == 1
    giant = next(r for r in records if r.path == "giant")
    assert giant.digest.startswith("xxh3_128/30000:")
    assert len(giant.parts) == 16 * 5
    assert seal["manifests"]["manifest.parquet"]["sha256"] == receipts.file_digest(
        release / "manifest.parquet"
    )
    line = history(context)[-1]
    assert line["seal"] == receipts.file_digest(release / "release.json") == receipt["seal"]
    for found in [release, *release.rglob("*")]:
        assert not found.lstat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    done = subprocess.run(
        [need("xxhsum"), "-c", "manifest.xxh128"], cwd=release, capture_output=True, check=False
    )
    assert done.stdout.count(b": OK") >= len(FILES) - 2
    assert b"FAILED" not in done.stdout


def test_a_release_without_the_text_manifest_is_whole_for_gate_and_audit(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_step, "MOST_LINES", 1)
    with staging(tmp_path, source) as context:
        go(context, upto="verify")
        (run_of(context).staging / "manifest.xxh128").write_text("of an attempt with other words")
        receipt = go(context, after="verify")
        layout = context.layout("data")
        release = layout.release(receipt["release"])
        assert sorted(os.listdir(release)) == ["data", "manifest.parquet", "release.json"]
        assert sorted(small_files.read_json(release / "release.json")["manifests"]) == ["manifest.parquet"]
        assert gate.passed(layout) is not None
        assert audit_step.run(context, "data", audit_step.AuditRequest())["findings"] == []
        for folder, _, files in os.walk(release / "data"):
            os.chmod(folder, 0o700)
            for name in files:
                os.unlink(os.path.join(folder, name))
        with pytest.raises(FindingsError, match="is missing"):
            gate.passed(layout)


def test_all_again_copies_and_moves_nothing(context: Context) -> None:
    first = begin(context)
    before = content(context.layout("data").folder / "releases")
    folder = run_of(context).folder
    stamps = {p: p.stat().st_mtime_ns for p in folder.folder.rglob("*")}
    again = go(context)
    assert again["release"] == first["release"]
    assert again["published"]
    assert content(context.layout("data").folder / "releases") == before
    assert {p: p.stat().st_mtime_ns for p in folder.folder.rglob("*")} == stamps
    assert len(history(context)) == 1


def test_a_changed_source_is_a_new_release_and_the_old_one_stays(context: Context, source: Path) -> None:
    first = begin(context)
    layout = context.layout("data")
    old = content(layout.release(first["release"]))
    (source / "a" / "one").write_bytes(b"changed")
    (source / "new").write_bytes(b"new")
    (source / "z").unlink()
    second = go(context)
    assert second["release"] != first["release"]
    assert content(layout.current / "data") == content(source)
    assert content(layout.release(first["release"])) == old
    seal = small_files.read_json(layout.release(second["release"]) / "release.json")
    assert seal["base"] == first["release"]
    # All but the changed file, the new one and the giant.
    assert seal["unchanged"] == len(FILES) - 3
    assert history(context)[-1]["previous"] == first["release"]


def test_after_a_rollback_an_unchanged_source_does_not_move_current(context: Context, source: Path) -> None:
    first = begin(context)
    (source / "new").write_bytes(b"new")
    second = go(context)
    revealing.point(context.layout("data"), first["release"], nobody)
    again = go(context)
    assert again["release"] == second["release"]
    assert again["current"] == first["release"]
    # Also when the receipt was lost: the history has it.
    folder = run_of(context).folder
    receipts.drop(folder.receipt("publish"))
    assert go(context)["current"] == first["release"]
    told = status_report.run(context, "data")
    assert told["why"] == f"{second['release']} is published, current is {first['release']}"


def test_what_was_not_listed_is_refused_and_named(context: Context) -> None:
    begin(context, upto="verify")
    tree_removal.open_folders(staged(context))
    names = ["extra", "a/extra", ".p.0123456789abcdef", "zz"]
    for name in names:
        (staged(context) / name).write_bytes(b"?")
    (staged(context) / "empty-folder").mkdir()
    with pytest.raises(FailedError, match="holds 4 things that were not listed") as refused:
        publish_step.run(context, "data")
    assert all(in_quotes(name) in str(refused.value) for name in [*names, "empty-folder"])
    assert dataset_folders.current(context.layout("data")) is None
    (staged(context) / "empty-folder").rmdir()
    for name in names:
        (staged(context) / name).unlink()
    assert go(context, after="verify")["published"]


def spoil_missing(data: Path) -> None:
    (data / "z").unlink()


def spoil_touched(data: Path) -> None:
    seen = (data / "z").stat()
    os.utime(data / "z", ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))


def spoil_bytes(data: Path) -> None:
    """Size and times as they were: only ctime tells."""
    seen = (data / "z").stat()
    (data / "z").chmod(0o600)
    with (data / "z").open("r+b") as stream:
        stream.write(b"Z")
    (data / "z").chmod(0o440)
    os.utime(data / "z", ns=(seen.st_atime_ns, seen.st_mtime_ns))


def spoil_link(data: Path) -> None:
    (data / "z").unlink()
    (data / "z").symlink_to("/etc/passwd")


def spoil_giant(data: Path) -> None:
    (data / "giant").chmod(0o600)
    with (data / "giant").open("r+b") as stream:
        stream.seek(60_001)
        stream.write(b"?")
    (data / "giant").chmod(0o440)


@pytest.mark.parametrize(
    "spoils", [(spoil_touched,), (spoil_bytes,), (spoil_missing, spoil_giant), (spoil_link,)]
)
def test_what_changed_since_verify_is_verified_and_mended_before_it_is_published(
    context: Context, source: Path, spoils: tuple[Callable[[Path], None], ...]
) -> None:
    begin(context, upto="verify")
    tree_removal.open_folders(staged(context))
    for spoil in spoils:
        spoil(staged(context))
    receipt = publish_step.run(context, "data")
    assert receipt["published"]
    assert any("verified again" in text for text in texts(context))
    assert content(context.layout("data").current / "data") == content(source)
    # The records are of what lies there now.
    release = context.layout("data").release(receipt["release"])
    for batch in read_manifest(release / "manifest.parquet"):
        for record in batch:
            assert (release / "data" / record.path).lstat().st_ctime_ns == record.ctime_ns


def test_what_reads_back_damaged_is_copied_again_within_verify(context: Context, source: Path) -> None:
    begin(context, upto="permissions")
    spoil_bytes(staged(context))
    receipt = go(context, upto="verify", after="permissions")
    assert receipt["copied_again"]
    assert content(staged(context)) == content(source)
    assert go(context, after="verify")["published"]


def test_a_verify_that_died_amid_its_repair_is_taken_up_by_the_next_step(
    context: Context, source: Path
) -> None:
    begin(context, upto="permissions")
    spoil_bytes(staged(context))
    kept = (source / "z").read_bytes()
    (source / "z").unlink()
    with pytest.raises(PenstockError):
        go(context, upto="verify", after="permissions")
    seen = (source / "b").stat()
    (source / "z").write_bytes(kept)
    os.utime(source / "z", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    # A file of the same content is another version all the same: the listing's token tells.
    with pytest.raises(SourceChangedError):
        verify_step.run(context, "data")
    assert go(context)["published"]
    assert content(context.layout("data").current / "data") == content(source)


def test_damage_whose_source_is_gone_is_never_published(context: Context, source: Path) -> None:
    begin(context, upto="permissions")
    spoil_bytes(staged(context))
    (source / "z").unlink()
    with pytest.raises(SourceChangedError) as failed:
        go(context, upto="verify", after="permissions")
    assert '"z"' in str(failed.value)
    for step in (verify_step, publish_step):
        with pytest.raises(PenstockError):
            step.run(context, "data")
    assert dataset_folders.current(context.layout("data")) is None


def test_steps_refuse_to_run_before_their_turn(context: Context) -> None:
    with pytest.raises(PreflightError, match="listed"):
        publish_step.run(context, "data")
    go(context, upto="list")
    with pytest.raises(PreflightError, match="planned"):
        publish_step.run(context, "data")
    go(context, upto="plan", after="list")
    for after in ("copy", "permissions", "verify"):
        with pytest.raises(FailedError) as refused:
            go(context, after=after)
        assert "first" in str(refused.value)
    assert report_step.run(context, "data")["why"] == "copy has not ended"
    assert status_report.run(context, "data")["work"]["step"] == "copy"


def test_too_little_evidence_is_a_finding(tmp_path: Path, source: Path) -> None:
    with staging(tmp_path, source) as context:
        verify = VerifyConfig(minimum_grade="cold-other-node")
        context.config = replace(context.config, verify=verify)
        with pytest.raises(FindingsError) as refused:
            go(context)
    assert refused.value.exit_code == 4
    assert '"a/one"' in str(refused.value)
    assert "cold-other-node" in str(refused.value)
    assert '"b"' not in str(refused.value), "an empty file proves itself"
    assert dataset_folders.current(context.layout("data")) is None


def test_further_digests_have_a_manifest_of_their_own(tmp_path: Path, source: Path) -> None:
    with staging(tmp_path, source) as context:
        context.config = replace(context.config, verify=VerifyConfig(digests=("xxh3_128", "sha256")))
        receipt = go(context)
    release = Path(receipt["path"]).parent
    done = subprocess.run(
        ["sha256sum", "-c", "manifest.sha256"], cwd=release, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b": OK") == len(FILES)


def test_staging_of_other_runs_is_told_and_kept(context: Context) -> None:
    layout = context.layout("data")
    other = layout.staging("an-older-one") / "data"
    other.mkdir(parents=True)
    go(context)
    assert any(".an-older-one.staging" in text for text in texts(context))
    assert other.is_dir()
    assert status_report.run(context, "data")["abandoned"] == [".an-older-one.staging, of no known run"]


def test_records_that_are_not_those_of_verify_are_made_anew(context: Context) -> None:
    begin(context, upto="verify")
    folder = run_of(context).folder
    path = folder.records(0)
    path.write_bytes(path.read_bytes() + b" ")
    assert publish_step.run(context, "data")["published"]
    assert any("not those that verify wrote" in text and str(path) in text for text in texts(context))


def test_the_report_tells_what_the_receipts_hold(context: Context, source: Path, tmp_path: Path) -> None:
    begin(context)
    page = tmp_path / "report.html"
    result = report_step.run(context, "data", html=page)
    assert result["status"] == "PASSED"
    total = sum(map(len, FILES.values()))
    assert (result["copied"]["files"], result["copied"]["bytes"]) == (len(FILES), total)
    assert (result["verified"]["files"], result["verified"]["bytes"]) == (len(FILES), total)
    assert (result["giants"], result["parts"], result["failed"]) == (1, 5, 0)
    assert result["throughput"][-1][1] == total
    assert [step["step"] for step in result["steps"]] == ["copy", "permissions", "verify", "publish"]
    assert all(e["node"] and e["ended"] >= e["started"] for e in result["elements"])
    assert sum(row[1] for row in result["histogram"]) == len(FILES)
    assert "PASSED" in page.read_text(encoding="utf-8")
    html_report.write(page, keys.from_json(json.loads(json.dumps(typed_json.plain(result)))))
