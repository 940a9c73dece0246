"""An auditor, who does not stage the dataset: its findings count at the gates that list it, at no other."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.test_readers import MEMBER, OWNER, STRANGER, said
from tests.support.forked import forked
from tests.support.published import data_of, flip, published
from tests.support.staging_runs import tree

from penstock.config.settings import PermissionsConfig
from penstock.core.documents import verdict as document
from penstock.core.documents.verdict import LastAudit, Overruling, ReadBack, StandingFindings, Verdict
from penstock.core.grades import audit_grade
from penstock.core.layout import DatasetLayout
from penstock.errors import FailedError
from penstock.state import auditor_verdicts, verdicts
from penstock.storage import shared_files, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other accounts")
AUDITOR = MEMBER
SEAL = "sha256:0"


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-auditors-"))
    folder.chmod(0o755)
    for uid in (OWNER, AUDITOR, STRANGER):
        (folder / f"home-{uid}").mkdir(mode=0o700)
        os.chown(folder / f"home-{uid}", uid, uid)
    (folder / "own").mkdir()
    os.chown(folder / "own", OWNER, OWNER)
    yield folder
    tree_removal.remove_tree(folder)


def staged(place: Path, **target: Any) -> tuple[str, Path]:
    """Published by OWNER, whose root it is; a configuration with this `target`, and the data folder."""
    source = tree(place / "source", {f"d/{i}": b"x" * 3000 for i in range(6)})

    def work() -> str:
        permissions = PermissionsConfig(file_mode=0o444, dir_mode=0o555)
        with published(place / "own", source, permissions=permissions) as context:
            return str(data_of(context))

    data = Path(forked(work, uid=OWNER))
    file = place / "my.yaml"
    root = {"root": str(place / "own/target"), "keep_free": 0, **target}
    told = {"target": root, "datasets": {"data": {"source": str(source)}}}
    file.write_text(json.dumps(told))
    file.chmod(0o644)
    return str(file), data


def test_an_auditors_findings_close_the_gates_that_list_it(place: Path) -> None:
    config, data = staged(place, auditors=[AUDITOR])
    plain = place / "plain.yaml"
    told = json.loads(Path(config).read_text())
    del told["target"]["auditors"]
    plain.write_text(json.dumps(told))
    # The owner has made no place for auditors yet: that is said.
    code, text = said(AUDITOR, place, "audit", "--config", config)
    assert (code, "no gate hears of this audit" in text) == (0, True)
    assert said(STRANGER, place, "gate", "--config", config)[0] == 0
    assert said(OWNER, place, "audit", "--config", config)[0] == 0
    flip(data / "d/3")
    # Another account's word, and that of one that the configuration does not list.
    code, text = said(STRANGER, place, "audit", "--config", config)
    assert (code, "not at the gate" in text) == (4, True)
    assert said(AUDITOR, place, "audit", "--config", str(plain))[0] == 4
    assert said(STRANGER, place, "gate", "--config", config)[0] == 0
    # The auditor's.
    code, text = said(AUDITOR, place, "audit", "--config", config)
    assert (code, "at the gates that list this account" in text, "d/3" in text) == (4, True, True)
    assert "reread" in text
    code, text = said(STRANGER, place, "gate", "--config", config)
    assert code == 4
    assert f"1 changed; by auditor uid {AUDITOR}: 1 changed" in text
    assert "by its owner sees it, too; then `penstock " in " ".join(text.split())
    assert said(STRANGER, place, "gate", "--config", str(plain))[0] == 0
    assert "findings stand" in said(STRANGER, place, "status", "--config", config)[1]
    # What lists releases shows it, to whom the configuration says so, by name and with what it is worth.
    code, text = said(STRANGER, place, "releases", "--config", config)
    assert (code, "FINDINGS, " in text, ", auditor" in text) == (4, True, True)
    assert f"findings stand against the release: 1 changed; by auditor uid {AUDITOR}: 1 changed" in " ".join(
        text.split()
    )
    code, text = said(STRANGER, place, "show", "--config", config)
    told = " ".join(text.split())
    assert (code, f"FINDINGS (1 changed), reread, by auditor uid {AUDITOR}" in told) == (4, True), text
    assert f"Findings 1 changed; by auditor uid {AUDITOR}: 1 changed" in told
    for command in ("releases", "show"):
        text = said(STRANGER, place, command, "--config", str(plain))[1]
        assert "PASSED" in text
        assert "by auditor" not in text
        assert ", auditor" not in text
    # The owner sees for itself, and repairs it.
    assert said(OWNER, place, "audit", "--config", config)[0] == 4
    assert said(OWNER, place, "repair", "--config", config)[0] == 0
    assert said(STRANGER, place, "gate", "--config", config)[0] == 0


def test_the_owners_word_overrules_an_auditors_findings(place: Path) -> None:
    config, data = staged(place, auditors=[AUDITOR])
    assert said(OWNER, place, "audit", "--config", config)[0] == 0
    flip(data / "d/3")
    assert said(AUDITOR, place, "audit", "--config", config)[0] == 4
    assert said(STRANGER, place, "gate", "--config", config)[0] == 4
    code, _ = said(AUDITOR, place, "audit", "--config", config, "--overrule", "no")
    assert code == 3
    code, text = said(OWNER, place, "audit", "--config", config, "--overrule", "it is only one")
    assert (code, "1 changed" in text) == (0, True)
    assert said(STRANGER, place, "gate", "--config", config)[0] == 0


def test_what_an_auditor_read_counts_as_read_back(place: Path) -> None:
    config, data = staged(place, auditors=[AUDITOR])
    assert said(OWNER, place, "audit", "--config", config, "--sample", "1%")[0] == 0
    seal = data.parent / "release.json"
    old = json.loads(seal.read_text())
    assert old["sealed"]
    words = ("gate", "--config", config, "--audited-within", "1s")
    until_old = said(STRANGER, place, *words)
    while until_old[0] == 0:
        until_old = said(STRANGER, place, *words)
    assert said(AUDITOR, place, "audit", "--config", config)[0] == 0
    assert said(STRANGER, place, "gate", "--config", config, "--audited-within", "1h")[0] == 0


def test_an_audit_goes_into_the_folder_that_is_named(place: Path) -> None:
    config, _ = staged(place)
    into = place / f"home-{AUDITOR}/results"
    code, text = said(AUDITOR, place, "audit", "--config", config, "--into", str(into))
    assert (code, str(into) in text) == (0, True)
    assert list(into.rglob("result.json"))
    assert not (place / f"home-{AUDITOR}/penstock").exists()
    code, text = said(OWNER, place, "audit", "--config", config, "--into", str(into))
    assert (code, "--into is for an audit of another account's dataset" in text) == (2, True)
    code, text = said(STRANGER, place, "audit", "--config", config, "--into", str(into))
    assert (code, "name a folder of yours" in text) == (3, True)


def test_another_account_never_claims_more_than_reread() -> None:
    assert audit_grade(["direct"], whole=True) == "cold"
    assert audit_grade(["direct"], whole=True, owner=False) == "reread"
    assert audit_grade(["direct"], whole=False, owner=False).startswith("reread, of the files")


# Joined ------------------------------------------------------------------------------------

NIGHTS = [f"2026-01-0{night}T00:00:00Z" for night in range(1, 8)]


def found(night: int, **counts: int) -> StandingFindings:
    return StandingFindings(f"a{night}", NIGHTS[night], counts)


@pytest.fixture
def layout(tmp_path: Path) -> DatasetLayout:
    made = DatasetLayout(tmp_path, "data")
    shared_files.make_folder_of_all(made.auditors)
    return made


def posts(layout: DatasetLayout, uid: int, verdict: Verdict, name: str = "r.0") -> None:
    path = layout.auditors / name
    path.write_text(json.dumps(document.to_json(verdict)))
    os.chown(path, uid, uid)


@pytest.mark.parametrize(
    ("own", "stands"),
    [
        (None, {"changed": 1}),
        (Verdict("data", "r", SEAL), {"changed": 1}),
        (Verdict("data", "r", SEAL, read=ReadBack(whole=NIGHTS[2])), {"changed": 1}),
        (Verdict("data", "r", SEAL, read=ReadBack(whole=NIGHTS[4])), {}),
        # Within one second the audits' names say which began first; a version that kept none says nothing.
        (Verdict("data", "r", SEAL, read=ReadBack(whole=NIGHTS[3])), {"changed": 1}),
        (Verdict("data", "r", SEAL, read=ReadBack(whole=NIGHTS[3], audit="a2.9")), {"changed": 1}),
        (Verdict("data", "r", SEAL, read=ReadBack(whole=NIGHTS[3], audit="a3.1")), {}),
        (Verdict("data", "r", SEAL, overruled=Overruling(at=NIGHTS[4])), {}),
        (Verdict("data", "r", SEAL, overruled=Overruling(at=NIGHTS[2])), {"changed": 1}),
        (Verdict("data", "r", SEAL, stands=[found(5, missing=2)]), {"changed": 1, "missing": 2}),
    ],
)
def test_when_an_auditors_findings_fall(
    layout: DatasetLayout, own: Verdict | None, stands: dict[str, int]
) -> None:
    posts(layout, AUDITOR, Verdict("data", "r", SEAL, stands=[found(3, changed=1)]))
    joined = auditor_verdicts.joined(layout, "r", own, SEAL, [str(AUDITOR)])
    assert verdicts.standing(joined) == stands


def test_whose_words_count(layout: DatasetLayout) -> None:
    posts(layout, AUDITOR, Verdict("data", "r", SEAL, stands=[found(1, changed=1)]), "r.1")
    posts(layout, STRANGER, Verdict("data", "r", SEAL, stands=[found(1, changed=2)]), "r.2")
    posts(layout, AUDITOR, Verdict("data", "r", "sha256:other", stands=[found(1, changed=4)]), "r.3")
    posts(layout, AUDITOR, Verdict("data", "s", SEAL, stands=[found(1, changed=8)]), "s.4")
    (layout.auditors / "r.5").write_text("{")
    os.chown(layout.auditors / "r.5", AUDITOR, AUDITOR)
    assert [one.name for one in auditor_verdicts.read(layout, "r", SEAL, [str(AUDITOR)])] == ["r.1"]
    assert auditor_verdicts.read(layout, "r", SEAL, []) == []


def test_a_posting_claims_no_more_than_reread_and_no_other_account(layout: DatasetLayout) -> None:
    claims = LastAudit("a", ended=NIGHTS[3], by="root", grade="cold, of the files that were read")
    posts(layout, AUDITOR, Verdict("data", "r", SEAL, last=claims))
    joined = auditor_verdicts.joined(layout, "r", None, SEAL, [str(AUDITOR)])
    assert joined is not None
    assert joined.last is not None
    assert (joined.last.by, joined.last.grade) == (f"uid {AUDITOR}", "reread, of the files that were read")


def test_slices_of_one_rotation_add_up_whoever_reads_them(layout: DatasetLayout) -> None:
    mine = Verdict("data", "r", SEAL, read=ReadBack(slices={2: {0: NIGHTS[0]}}))
    last = LastAudit("a", ended=NIGHTS[3])
    posts(
        layout,
        AUDITOR,
        Verdict("data", "r", SEAL, read=ReadBack(slices={2: {0: NIGHTS[2], 1: NIGHTS[3]}}), last=last),
    )
    joined = auditor_verdicts.joined(layout, "r", mine, SEAL, [str(AUDITOR)])
    assert joined is not None
    assert joined.read.slices == {2: {0: NIGHTS[2], 1: NIGHTS[3]}}
    assert joined.last == last._replace(by=f"uid {AUDITOR}")


def test_a_folder_that_cannot_be_read_closes_the_gate(layout: DatasetLayout) -> None:
    shutil.rmtree(layout.auditors)
    layout.auditors.write_bytes(b"")
    with pytest.raises(FailedError, match="what auditors said cannot be read"):
        auditor_verdicts.joined(layout, "r", None, SEAL, [str(AUDITOR)])


def test_an_auditor_replaces_its_own_word(layout: DatasetLayout) -> None:
    layout.root.chmod(0o755)

    def work() -> int:
        auditor_verdicts.post(layout, Verdict("data", "r", SEAL, stands=[found(1, changed=1)]), None)
        before = auditor_verdicts.of_this_account(layout, "r", SEAL)
        auditor_verdicts.post(layout, Verdict("data", "r", SEAL), before)
        return len(os.listdir(layout.auditors))

    for above in layout.root.parents:
        if above.stat().st_mode & 0o011 != 0o011:
            above.chmod(above.stat().st_mode | 0o011)
    assert forked(work, uid=AUDITOR) == 1
    (one,) = auditor_verdicts.read(layout, "r", SEAL, [str(AUDITOR)])
    assert one.verdict.stands == ()
