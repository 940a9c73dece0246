"""Findings stand until they are repaired, overruled, or not found again where they were: at the gate, in
status, in the report; and when everything was last read."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.test_gate import configured, forged_seal
from tests.support.accounts import give
from tests.support.published import data_of, flip, writable
from tests.target.conftest import need_root

from penstock.core import findings as document
from penstock.core.errors import FindingsError
from penstock.core.findings import (
    NONE_FIRST,
    AuditSelection,
    Finding,
    LastAudit,
    LastRepair,
    Overruling,
    ReadBack,
    SoonFirst,
    StandingFindings,
    Verdict,
)
from penstock.dataset import (
    gate,
    release_records,
    run_store,
    seals,
)
from penstock.fs import small_files
from penstock.jobs import audits_and_adoptions
from penstock.keep import audit_step
from penstock.run import report_step

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.dataset.context import Context

WHOLE, SAMPLE = AuditSelection(), AuditSelection("sample", 0.01, "s")


def stood(**counts: int) -> list[StandingFindings]:
    return [StandingFindings("a1", "t", counts)] if counts else []


@pytest.mark.parametrize(
    ("before", "choice", "compared", "found", "stands"),
    [
        ({}, WHOLE, True, {}, {}),
        ({}, WHOLE, True, {"changed": 2}, {"changed": 2}),
        ({"changed": 3, "mode": 1, "manifest": 1}, WHOLE, True, {}, {}),
        ({"changed": 3, "mode": 1}, SAMPLE, True, {}, {"changed": 3}),
        ({"changed": 3, "unread": 1}, SAMPLE, True, {"changed": 1}, {"changed": 4, "unread": 1}),
        ({"missing": 3, "extra": 1}, SAMPLE, True, {"missing": 2}, {"missing": 2}),
        ({"changed": 3, "mode": 1}, WHOLE, False, {"manifest": 1}, {"changed": 3, "mode": 1, "manifest": 1}),
        ({"manifest": 2, "mode": 1}, WHOLE, False, {"manifest": 1}, {"mode": 1, "manifest": 1}),
    ],
)
def test_what_stands_after_an_audit(
    before: dict[str, int],
    choice: AuditSelection,
    compared: bool,
    found: dict[str, int],
    stands: dict[str, int],
) -> None:
    last = LastAudit(audit="a2", counts=found, began="t2", by="me")
    told = release_records.audited(Verdict(stands=stood(**before)), last, choice, compared=compared)
    assert release_records.standing_findings(told) == stands
    # Of an audit that was stopped before it could say that it had ended: the same again.
    again = release_records.audited(told, last, choice, compared=compared)
    assert release_records.standing_findings(again) == stands


@pytest.mark.parametrize(
    ("before", "now", "stand"),
    [(False, False, False), (False, True, False), (True, True, False), (True, False, True)],
)
def test_what_disks_showed_no_memory_refutes(*, before: bool, now: bool, stand: bool) -> None:
    """After a whole audit without findings. `before`, `now`: whether all was read from the servers' disks."""
    found = StandingFindings("a1", "t", {"changed": 1, "mode": 1}, from_disks=before)
    last = LastAudit(audit="a2", began="t2", from_disks=now)
    after = release_records.audited(Verdict(stands=[found]), last, WHOLE, compared=True)
    assert release_records.standing_findings(after) == ({"changed": 1} if stand else {})
    assert all(one.from_disks for one in after.stands)


@pytest.mark.parametrize(
    ("found", "stands", "repair", "overruled", "closed"),
    [
        ({}, {}, "", "", None),
        ({"changed": 1}, {"changed": 1}, "", "", None),
        ({"changed": 1}, {}, "t3", "", "repaired t3"),
        ({"changed": 1}, {"extra": 1}, "t3", "", None),
        ({"changed": 1}, {}, "", "t4", "overruled t4"),
        ({"changed": 1}, {}, "t3", "t4", "overruled t4"),
        ({"changed": 1}, {}, "t4", "t3", "repaired t4"),
        ({}, {}, "t3", "", None),
        # Two whole audits: the second finds the damage no more.
        ({}, {}, "t1", "t1", None),
    ],
)
def test_the_last_audit_says_what_closed_its_findings(
    found: dict[str, int], stands: dict[str, int], repair: str, overruled: str, closed: str | None
) -> None:
    verdict = Verdict(
        stands=stood(**stands) if stands else (),
        last=LastAudit(audit="a2", counts=found),
        repair=LastRepair(repair) if repair else None,
        overruled=Overruling(overruled) if overruled else None,
    )
    last = release_records.last_audit_of(verdict)
    assert last is not None
    assert last.closed == (closed or "")


def test_findings_stick_until_they_are_repaired(staged: Context, capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.cli.main import main

    config = configured(staged, staged.config.target.root.parent)

    def said(*words: str) -> tuple[int, str]:
        code = main([*words, "--config", config, "--progress", "off"])
        out = capsys.readouterr()
        return code, out.out + out.err

    assert said("gate") == (0, said("gate")[1])
    flip(data_of(staged) / "d0/f00")
    code, text = said("audit")
    assert code == 4
    assert f"--config {config} repair data` restores what is damaged" in text
    for _ in range(2):
        code, text = said("gate")
        assert code == 4
        assert "findings stand against the release" in text
        assert "1 changed" in text
        # What a sample does not read stays as it was found.
        assert said("audit", "--sample", "0.0001%")[0] == 0
    code, text = said("status", "data")
    assert code == 4
    assert "damaged: findings stand against the release: 1 changed" in text
    assert "  findings      1 changed\n" in text
    assert "sample" in text
    told = report_step.gather(staged, run_store.open_run(staged.layout("data")))
    assert (told["status"], told["findings"]) == ("FINDINGS", {"changed": 1})
    assert said("path")[0] == 4
    assert said("repair")[0] == 0
    assert said("gate")[0] == 0
    code, text = said("repair")
    assert (code, "STATUS      REPAIRED (1 repaired, 0 left)" in text) == (0, True)
    assert said("audit")[0] == 0
    code, text = said("repair")
    assert (code, "NOTHING (the audits found nothing to repair)" in text) == (0, True)
    lines = staged.layout("data").audit_history.read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["FINDINGS", "PARTLY", "PARTLY", "PASSED"]


def test_the_gate_reads_what_another_account_wrote_of_the_last_audit(staged: Context) -> None:
    """The dataset changed hands, or root restored the file: a gate that was open stays open, and findings
    stand."""
    need_root()
    layout, release = staged.layout("data"), data_of(staged).parent.name
    assert audit_step.run(staged, "data")["status"] == "PASSED"
    give(layout.verdict(release), 12345, -1)
    assert gate.passed(layout, within=3600.0).release == release
    flip(data_of(staged) / "d0/f00")
    assert audit_step.run(staged, "data")["status"] == "FINDINGS"
    give(layout.verdict(release), 12345, -1)
    with pytest.raises(FindingsError, match="findings stand"):
        gate.passed(layout)


def test_what_is_extra_is_left_to_people_or_overruled(
    staged: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.main import main

    config = configured(staged, staged.config.target.root.parent)
    data = data_of(staged)
    with writable(data):
        (data / "notes.txt").write_text("mine")
    assert main(["audit", "--config", config]) == 4
    text = capsys.readouterr().err
    assert "remove it by hand" in text
    assert "penstock repair" not in text
    assert main(["repair", "--config", config]) == 4
    assert "1 finding could not be repaired" in capsys.readouterr().err
    assert main(["gate", "--config", config]) == 4
    assert main(["audit", "--config", config, "--overrule", "a note of ours"]) == 0
    assert "OVERRULED (1 extra)" in capsys.readouterr().out
    assert main(["gate", "--config", config]) == 0
    verdict = release_records.read_verdict(staged.layout("data"), data.parent.name)
    assert verdict is not None
    assert verdict.overruled is not None
    assert verdict.overruled.why == "a note of ours"
    line = json.loads(staged.layout("data").audit_history.read_text().splitlines()[-1])
    assert (line["event"], line["counts"], line["why"]) == ("overrule", {"extra": 1}, "a note of ours")


def test_a_forged_seal_is_a_finding_that_the_gate_sees(staged: Context) -> None:
    """Also a reader's, who sees neither history nor state: the audit's word lies where all may read it."""
    layout, release = staged.layout("data"), data_of(staged).parent
    audit_step.run(staged, "data")
    release.chmod(0o700)
    forged_seal(release)
    kept = layout.history.read_bytes()
    layout.history.unlink()
    with pytest.raises(gate.FindingsError, match="not whole"):
        gate.passed(layout)
    layout.history.write_bytes(kept)
    result = audit_step.run(staged, "data")
    assert result["counts"] == {"manifest": 1}
    verdict = release_records.read_verdict(layout, release.name)
    assert release_records.standing_findings(verdict) == {"manifest": 1}
    assert verdict is not None
    assert verdict.seal == release_records.published_seal(layout, release.name)


def test_when_everything_was_last_read(staged: Context) -> None:
    """Publication counts; a sample does not; all slices of a rotation do, by the oldest of them."""
    layout, release = staged.layout("data"), data_of(staged).parent
    stored = seals.load(layout, release.name)
    unread = stored.seal._replace(evidence=stored.seal.evidence._replace(oldest_read=""))

    def since() -> datetime | None:
        return release_records.read_since(release_records.read_verdict(layout, release.name), unread)

    assert release_records.read_since(None, stored.seal) is not None
    for request in (
        audit_step.AuditRequest(choice=AuditSelection("sample", 0.5)),
        audit_step.AuditRequest(rotate=2),
    ):
        audit_step.run(staged, "data", request)
        assert since() is None
    audit_step.run(staged, "data", audit_step.AuditRequest(rotate=2))
    assert since() is not None
    verdict = small_files.read_json(layout.verdict(release.name))
    verdict["read"]["slices"]["2"]["0"] = "2026-01-01T00:00:00Z"
    small_files.write_json(layout.verdict(release.name), verdict, mode=0o644)
    assert since() == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(gate.FindingsError, match="not audited lately"):
        gate.passed(layout, within=1e-6)
    audit_step.run(staged, "data")
    assert gate.passed(layout, within=30 * 86400.0).release == release.name


def test_slices_of_another_cut_do_not_join() -> None:
    cut, verdict = SoonFirst(0.5, 0.25), Verdict()
    for turn, soon_first in [(0, NONE_FIRST), (1, NONE_FIRST), (2, cut), (0, cut), (1, NONE_FIRST)]:
        choice = AuditSelection("slice", turn=turn, turns=3, soon_first=soon_first)
        verdict = release_records.audited(verdict, LastAudit(began=f"t{turn}"), choice, compared=True)
        if (turn, soon_first) == (0, cut):
            assert verdict.read.slices == {3: {2: "t2", 0: "t0"}}
            assert verdict.read.soon_first == {3: cut}
    assert verdict.read.slices == {3: {1: "t1"}}
    assert not verdict.read.soon_first
    kept = verdict._replace(read=ReadBack(slices={3: {0: ""}}, soon_first={3: cut}))
    written = json.dumps(document.VERDICT.to_json(kept)).encode()
    assert document.VERDICT.from_json(written, "").read == kept.read


def test_a_release_that_was_read_back_when_it_was_published_counts_from_then(staged: Context) -> None:
    assert gate.passed(staged.layout("data"), within=7 * 86400.0).release == data_of(staged).parent.name


def test_memory_does_not_grow_with_the_findings(tmp_path: Path) -> None:
    """A chmod -R of 10^7 files is as many findings: neither they nor their text are held."""
    count = 15_000

    def many(kind: str) -> Any:
        return (Finding(kind, f"folder/file-{i:08d}", "a reason of some length" * 4) for i in range(count))

    shape, end = tmp_path / "shape", tmp_path / "end"
    audits_and_adoptions.keep_findings(shape, many("missing"))
    tracemalloc.start()
    said = audit_step._unsaid(many("changed"), audits_and_adoptions.kept_findings(shape))
    audits_and_adoptions.keep_findings(end, said)
    audits_and_adoptions.keep_findings(end, audit_step._unsaid(many("unread"), iter(())))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(1 for _ in audits_and_adoptions.kept_findings(end)) == count
    assert peak < 2 << 20
