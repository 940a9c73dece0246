"""S16: an audit of a release some of whose data lies elsewhere: nothing of it is read, all is counted."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.published import data_of, flip, published
from tests.support.staging_runs import tree
from tests.vendors.beegfs_cluster import Cluster
from tests.vendors.tiers import RELEASED, Tiers

from penstock.cli.commands.audits import render_audit
from penstock.config.settings import AuditConfig
from penstock.core.errors import PreflightError
from penstock.core.findings import (
    AuditSelection,
    AuditShown,
    LastAudit,
    StandingFindings,
    Verdict,
)
from penstock.core.grades import audit_grade
from penstock.dataset import release_records
from penstock.jobs import audits_and_adoptions
from penstock.keep import audit_step, repair_step
from penstock.look.views import text_layout

if TYPE_CHECKING:
    from penstock.core.step_results import AuditResult
    from penstock.dataset.context import Context

GIANT, FILE = "big/giant", "d0/f00"


def on(context: Context, filesystem: str, recall: int = 0) -> None:
    """The rules of this kind hold for the target."""
    target = replace(context.config.target, filesystem=filesystem)
    context.config = replace(context.config, target=target, audit=AuditConfig(recall))


def audit(context: Context, **request: object) -> AuditResult:
    result = audit_step.run(context, "data", audit_step.AuditRequest(**request))  # type: ignore[arg-type]
    audit_step.judge(result)
    return result


def last_whole(context: Context) -> str | None:
    told = release_records.read_verdict(context.layout("data"), os.path.basename(data_of(context).parent))
    return told.read.whole if told else None


@pytest.mark.parametrize(
    ("methods", "whole", "servers", "grade"),
    [
        ([], True, False, "none: nothing was read"),
        ([], False, True, "none: nothing was read"),
        (["direct", "dropped"], True, False, "cold"),
        (["direct"], False, False, "cold, of the files that were read"),
        (["disk"], True, True, "cold"),
        (["disk", "direct"], True, True, "cold, perhaps from the servers' memory"),
        (["dropped"], False, True, "cold, perhaps from the servers' memory, of the files that were read"),
        (["direct", "cached"], True, False, "reread"),
        (["disk", "cached"], True, True, "reread"),
        (["cached"], False, False, "reread, of the files that were read"),
    ],
)
def test_the_grade_of_an_audit(methods: list[str], grade: str, *, whole: bool, servers: bool) -> None:
    assert audit_grade(methods, whole=whole, servers=servers) == grade


def test_s16_a_stub_of_another_size_is_offline_and_no_finding(
    staged: Context, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BeeGFS keeps an address in the stub: its size is not that of the file."""
    cluster = Cluster(tmp_path / "beegfs", 8)
    monkeypatch.setenv("PATH", f"{cluster.bin}:{os.environ['PATH']}")
    data = data_of(staged)
    for name in (GIANT, FILE):
        mode = stat.S_IMODE((data / name).stat().st_mode)
        (data / name).chmod(0o600)
        (data / name).write_bytes(b"rst://1:/bucket/key")
        (data / name).chmod(mode)
    cluster.write(
        states={os.path.realpath(data / name): ("unlocked", "manual-restore") for name in (GIANT, FILE)}
    )
    on(staged, "beegfs")
    result = audit(staged)
    assert result["status"] == "PARTLY"
    assert result["counts"] == {}
    assert result["skipped"]["offline"]["files"] == 2
    assert result["skipped"]["offline"]["bytes"] == len(files[GIANT]) + len(files[FILE])
    assert result["files"] == result["of_files"] - 2
    assert result["bytes"] == sum(map(len, files.values())) - len(files[GIANT]) - len(files[FILE])
    assert result["grade"].endswith("of the files that were read")
    assert result["promise"].startswith("nothing is known of the 2 files that were not read; of the others: ")
    lines = [json.loads(line) for line in Path(result["all_skipped"]).read_text().splitlines()]
    why = "a stub (BeeGFS restores it: manual)"
    assert lines == [
        {"bytes": len(files[name]), "kind": "offline", "path": name, "why": why} for name in (GIANT, FILE)
    ]
    said = render_audit(result)
    assert f"  ? {FILE}  (offline: {why})\n" in said
    assert "STATUS      PARTLY (not read: 2 offline)\n" in said
    assert last_whole(staged) is None, "not all of it was read"
    told = release_records.read_verdict(staged.layout("data"), result["release"])
    assert told is not None
    assert told.last is not None
    assert told.last.skipped == {"offline": 2}
    assert "PARTLY (not read: 2 offline)" in text_layout.last(AuditShown(told.last))
    # As local again, what lies there is damage.
    cluster.write(states={})
    assert audit_step.run(staged, "data")["counts"] == {"changed": 2}


def test_s16_tiered_files_are_read_within_recall_alone(
    staged: Context, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`audit.recall` of 0B, of too little for one of them, and of enough."""
    weka = Tiers(tmp_path / "weka", "weka", monkeypatch)
    data = data_of(staged)
    sizes = {name: len(files[name]) for name in ("d1/f01", "d1/f04")}
    weka.write({data / name: [0, 0, size] for name, size in sizes.items()})
    for recall, skipped in ((0, 2), (sizes["d1/f01"] + 10, 1), (sum(sizes.values()), 0)):
        on(staged, "wekafs", recall)
        result = audit(staged)
        assert result["skipped"].get("tiered", {"files": 0})["files"] == skipped, recall
        assert result["status"] == ("PARTLY" if skipped else "PASSED")
        assert (last_whole(staged) is None) == bool(skipped)
        assert bool(result["all_skipped"]) == bool(skipped)


def test_s16_released_files_are_offline_whatever_may_be_recalled(
    staged: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lfs = Tiers(tmp_path / "lustre", "lfs", monkeypatch)
    data = data_of(staged)
    lfs.write({data / FILE: RELEASED, data / "d0/f03": 0x9})
    flip(data / "d0/f03", 10)
    flip(data / FILE, 10)
    on(staged, "lustre", 1 << 40)
    result = audit_step.run(staged, "data")
    assert result["status"] == "FINDINGS"
    assert [one.path for one in result["findings"]] == ["d0/f03"]
    assert result["skipped"]["offline"]["files"] == 1
    assert "FINDINGS (1 changed, not read: 1 offline)" in render_audit(result)
    # What may be bad among the skipped is not known: an earlier finding stands, and a repair goes by it.
    newest, older = (
        audits_and_adoptions.since_whole(staged.layout("data"), result["release"]),
        result["audit"],
    )
    assert [one.id for one in newest] == [older]
    audit_step.run(staged, "data")
    assert len(audits_and_adoptions.since_whole(staged.layout("data"), result["release"])) == 2


def test_s16_holes_without_a_block_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of zeros alone may have no blocks, and is none the less here."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    source = tree(tmp_path / "source", {"zeros": bytes(3 << 20), "text": b"t" * 9000})
    os.truncate(source / "zeros", 0)
    os.truncate(source / "zeros", 3 << 20)
    with published(tmp_path, source) as context:
        zeros = data_of(context) / "zeros"
        zeros.chmod(0o600)
        os.truncate(zeros, 0)
        os.truncate(zeros, 3 << 20)
        zeros.chmod(0o440)
        assert zeros.stat().st_blocks == 0
        on(context, "gpfs")
        assert audit(context)["status"] == "PASSED"
        # Other bytes than zeros cannot lie in a file without blocks.
        text = data_of(context) / "text"
        text.chmod(0o600)
        os.truncate(text, 0)
        os.truncate(text, 9000)
        text.chmod(0o440)
        result = audit(context)
        assert result["skipped"]["offline"]["paths"] == [("text", "it has a size and no blocks")]


def test_s16_a_manifest_that_is_offline_stops_the_audit(
    staged: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lfs = Tiers(tmp_path / "lustre", "lfs", monkeypatch)
    manifest = data_of(staged).parent / "manifest.parquet"
    lfs.write({manifest: RELEASED})
    on(staged, "lustre")
    with pytest.raises(PreflightError, match=r"manifest\.parquet.*released to the archive(?s:.*)audit again"):
        audit_step.run(staged, "data")


def test_s16_a_command_that_fails_is_said_and_blocks_count(
    staged: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path / "beegfs", 8)
    cluster.write(management=False)
    monkeypatch.setenv("PATH", f"{cluster.bin}:{os.environ['PATH']}")
    on(staged, "beegfs")
    assert audit(staged)["status"] == "PASSED"


def test_s16_a_repair_copies_no_part_from_a_file_that_is_not_here(
    staged: Context, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a damaged giant only the damaged part is fetched from the source, where its other parts are here."""
    lfs = Tiers(tmp_path / "lustre", "lfs", monkeypatch)
    on(staged, "lustre")
    for released, fetched in ((False, 1 << 20), (True, len(files[GIANT]))):
        lfs.write({})
        flip(data_of(staged) / GIANT, 2 << 20)
        assert audit_step.run(staged, "data")["counts"] == {"changed": 1}
        lfs.write({data_of(staged) / GIANT: RELEASED} if released else {})
        result = repair_step.run(staged, "data")
        assert result["status"] == "REPAIRED"
        assert result["fetched_bytes"] == fetched
        assert (data_of(staged) / GIANT).read_bytes() == files[GIANT]


@pytest.mark.parametrize("choice", [AuditSelection(), AuditSelection("slice", turn=0, turns=1)])
def test_s16_an_audit_that_skipped_lets_no_finding_of_bytes_fall(choice: AuditSelection) -> None:
    before = Verdict(stands=[StandingFindings("a1", "t", {"changed": 3, "missing": 1})])
    last = LastAudit(audit="a2", began="2026-01-01T00:00:00Z", skipped={"tiered": 1})
    told = release_records.audited(before, last, choice, compared=True)
    assert release_records.standing_findings(told) == {"changed": 3}
    assert told.read.whole is None
    assert not told.read.slices
