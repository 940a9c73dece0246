"""The whole way, by the commands that people type."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import ROOT
from tests.support.published import writable
from tests.workflow.conftest import Place, digests

from penstock.core.step_table import OF_RUN, typed

if TYPE_CHECKING:
    from pathlib import Path


def test_fresh_again_changed_and_deleted(place: Place) -> None:
    """One story, since each part stands on the one before."""
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert "STATUS        PASSED\n" in done.stdout
    first = place.published()
    assert digests(first) == digests(place.source)
    assert place.penstock("gate", "d").returncode == 0
    [report] = place.folder.glob("results/d/*/report.html")
    assert report.stat().st_size > 1000

    copied = place.receipts("copy")
    before = [path.stat().st_mtime_ns for path in copied]
    done = place.penstock("--progress", "json", "run")
    assert done.returncode == 0, done.stderr
    [told] = map(json.loads, done.stdout.splitlines())
    assert (told["dataset"], told["status"]) == ("d", "PASSED")
    assert "nothing was copied" in told["why"]
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert {event["step"] for event in events} == {"preflight", "list"}
    assert place.receipts("copy") == copied
    assert [path.stat().st_mtime_ns for path in copied] == before

    (place.source / "a.txt").write_bytes(b"changed")
    (place.source / "sub/new").write_bytes(b"new")
    done = place.penstock("run", "d")
    assert done.returncode == 0, done.stderr
    second = place.published()
    assert second != first
    assert digests(second) == digests(place.source)
    assert (first / "a.txt").read_bytes() == b"alpha"
    assert len(place.releases()) == 2

    _a_current_that_was_set_by_hand_stays_and_is_reported(place, first)

    # Receipts in results/ outlive a target that was deleted: list sees it, and all is made anew.
    from penstock.storage import tree_removal

    tree_removal.remove_tree(place.target)
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert digests(place.published()) == digests(place.source)


def _a_current_that_was_set_by_hand_stays_and_is_reported(place: Place, first: Path) -> None:
    """The source still holds what the second release does."""
    current = place.target / "d" / "current"
    current.unlink()
    current.symlink_to(f"releases/{first.parent.name}")
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert place.published() == first
    for text in (done.stdout, done.stderr):
        assert f"`current` was set to {first.parent.name} since" in text
    # The path that a job gets, and not that of the release which holds what the source holds.
    assert f"  Path          {first}\n" in done.stdout
    assert f"  Current       {first.parent.name}\n" in done.stdout


def test_exit_0_is_true(place: Place) -> None:
    """Each dataset is PASSED by its seal, as the gate has it when the run ends, or the run does not end
    with 0."""
    place.config["datasets"]["e"] = {**place.config["datasets"]["d"]}
    place.write()
    assert place.penstock("run").returncode == 0
    release = place.published("e").parent
    release.chmod(0o700)
    (release / "release.json").unlink()
    done = place.penstock("run")
    assert done.returncode == 4, done.stderr
    assert "run --new-release e`" in done.stderr
    assert done.stdout.count("STATUS        PASSED") == 1
    # No step looks at the manifest of what is published already.
    manifest = place.published("d").parent / "manifest.parquet"
    with writable(manifest.parent):
        manifest.rename(place.folder / "manifest.parquet")
    done = place.penstock("run", "d")
    assert done.returncode == 4, done.stderr
    assert "STATUS        FINDINGS (manifest.parquet is missing; " in done.stdout
    status = place.penstock("status")
    assert status.returncode == 4
    assert "damaged: manifest.parquet is missing" in status.stdout
    assert "damaged: its seal (release.json) is missing" in status.stdout
    assert "last run      failed at " in status.stdout


def test_a_damaged_release_is_no_dead_end(place: Place) -> None:
    """Its hint is a command, and the command works (U14)."""
    assert place.penstock("run").returncode == 0
    first = place.published()
    seal = first.parent / "release.json"
    seal.parent.chmod(0o700)
    with writable(seal):
        seal.write_text("{}")
    done = place.penstock("run")
    assert done.returncode == 4
    assert "run --new-release d`" in done.stderr
    done = place.penstock("run", "--new-release", "d")
    assert done.returncode == 0, done.stderr
    second = place.published()
    assert second != first
    assert digests(second) == digests(place.source)
    assert digests(first) == digests(place.source)
    assert seal.read_text() == "{}"
    assert place.penstock("gate", "d").returncode == 0


def test_other_permissions_stop_plan_and_are_staged_when_copies_are_asked_for(place: Place) -> None:
    place.config["plan"] = {"reuse": "link"}
    place.write()
    assert place.penstock("run").returncode == 0
    first = place.published()
    mode = (first / "a.txt").stat().st_mode
    place.config["datasets"]["d"]["permissions"] = {"file_mode": "0400"}
    place.write()
    done = place.penstock("run")
    assert done.returncode == 3
    assert "has other permissions.file_mode than this run asks for" in done.stderr
    assert "run --copy-unchanged d`" in done.stderr
    assert place.published() == first
    done = place.penstock("run", "--copy-unchanged", "d")
    assert done.returncode == 0, done.stderr
    second = place.published()
    assert digests(second) == digests(place.source) == digests(first)
    assert (second / "a.txt").stat().st_mode & 0o777 == 0o400
    assert (first / "a.txt").stat().st_mode == mode
    assert not (second / "a.txt").samefile(first / "a.txt")


def test_plain_snakemake_stages_all_and_one(place: Place) -> None:
    place.config["datasets"]["2024"] = {"source": "source", "include": ["/a.txt"]}
    place.write()
    for profile in ((), ("--profile", str(ROOT / "profiles/slurm"))):
        done = place.snakemake("--dry-run", *profile)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
        assert "2 datasets would be staged. No source was listed" in done.stdout
        told = " ".join(done.stdout.split())
        assert f"/d ({'slurm' if profile else 'local'} elements) Current" in told, "SL5"
    before = sorted(path.name for path in place.folder.iterdir())
    done = place.penstock("--backend", "local", "run", "--dry-run", "--receipt", "preview/r.json")
    assert done.returncode == 0, done.stderr
    assert f"Source        {place.folder}/source\n" in done.stdout
    assert "Would         list the source, and copy, verify and publish all of it\n" in done.stdout
    assert json.loads((place.folder / "preview/r.json").read_text())["datasets"]["d"]["backend"] == "local"
    assert sorted(path.name for path in place.folder.iterdir()) == sorted([*before, "preview"])
    assert not (place.folder / "results").exists()
    assert not place.target.exists()
    done = place.snakemake("--config", 'dataset=["2024"]')
    assert done.returncode == 0, done.stderr
    assert digests(place.published("2024")) == {"a.txt": digests(place.source)["a.txt"]}
    assert not (place.target / "d").exists()
    done = place.snakemake()
    assert done.returncode == 0, done.stderr
    assert digests(place.published("d")) == digests(place.source)
    for name in ("d", "2024"):
        data = place.published(name)
        assert f"{name}: {data.parent.name} is published, in {data}\n" in done.stderr, "SL6: as penstock run"
    done = place.snakemake("--config", "dataset=other")
    assert done.returncode == 1
    assert 'no dataset is named "other"' in done.stderr


def test_a_dataset_that_fails_does_not_keep_the_others(place: Place) -> None:
    place.config["datasets"]["bad"] = {"source": "nowhere"}
    place.write()
    log = place.folder / "run.log"
    done = place.penstock("run", "--receipt", "result.json", "--log", "run.log")
    assert done.returncode == 3, done.stderr
    assert "nowhere" in done.stderr
    told = json.loads((place.folder / "result.json").read_text())
    assert told["exit"] == 3
    assert {name: one["status"] for name, one in told["datasets"].items()} == {"d": "PASSED", "bad": "FAILED"}
    # What the steps said, and the summaries.
    assert " INFO d copy end: {" in log.read_text()
    assert " ERROR " in log.read_text()
    assert "STATUS        PASSED" in log.read_text()
    assert "bad\n  STATUS        FAILED (preflight: " in done.stdout
    assert done.stdout.count("STATUS        PASSED") == 1
    assert "Traceback" not in done.stderr
    assert digests(place.published("d")) == digests(place.source)
    assert place.penstock("gate", "bad").returncode == 4
    assert not (place.target / "bad").exists()


def test_a_step_that_fails_is_named_once(place: Place) -> None:
    for step in ("list", "plan"):
        assert place.penstock("step", step, "d").returncode == 0
    [data] = (place.target / "d/releases").glob(".*.staging/data")
    (data / "a.txt").mkdir()
    done = place.penstock("run")
    assert done.returncode == 1, done.stderr
    assert "penstock: copy: 1 element did not finish [d]" in done.stderr
    assert "FAILED (copy: 1 element did not finish [d])" in done.stdout
    # Snakemake does not say it again in its own words.
    assert "Exception" not in done.stderr
    assert "Exiting because" not in done.stderr
    assert "WorkflowError" not in done.stderr


def test_each_step_alone(place: Place, tmp_path: Path) -> None:
    for step in OF_RUN:
        receipt = tmp_path / "receipts" / f"{step}.json"
        words = (*typed(step).split(), "d")
        done = place.penstock(*words, "--receipt", str(receipt), "--log", str(tmp_path / "log"))
        assert done.returncode == 0, (step, done.stderr)
        assert json.loads(receipt.read_text())["dataset"] == "d"
        assert done.stdout == "", "the receipt has it"
        if step in ("preflight", "list", "plan"):  # once more, as people ask
            shown = place.penstock(*words).stdout
            assert shown.startswith("d\n")
            for word in {
                "preflight": ("durable by", "free"),
                "list": ("Scanned       5 objects",),
                "plan": ("To copy       5 files", "1 shard: ", "copy takes about", "free on"),
            }[step]:
                assert word in shown  # fmt: skip
    assert digests(place.published()) == digests(place.source)
    for command, key in (("path", "path"), ("gate", "release"), ("cancel", "datasets"), ("status", "state")):
        done = place.penstock(command, "d", "--receipt", str(tmp_path / "r.json"))
        assert done.returncode == 0, (command, done.stderr)
        assert json.loads((tmp_path / "r.json").read_text())[key]
    done = place.snakemake("--dry-run", "audit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 dataset would be read back" in done.stdout
    done = place.penstock("status", "--progress", "json")
    assert json.loads(done.stdout)["state"] == "published"


def test_a_home_that_cannot_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service account has it; root may write anywhere, but not below a file."""
    (place.folder / "home").write_text("")
    monkeypatch.setenv("HOME", str(place.folder / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert digests(place.published()) == digests(place.source)


@pytest.mark.parametrize("command", ["penstock", "snakemake"])
def test_a_bad_configuration(place: Place, command: str) -> None:
    place.config["plan"] = {"reuse": 7}
    place.write()
    done = place.penstock("run") if command == "penstock" else place.snakemake()
    assert done.returncode == (2 if command == "penstock" else 1)
    assert "plan.reuse" in done.stderr
    assert "Traceback" not in done.stderr
    assert not place.target.exists()


def test_findings_of_an_audit_are_reported_by_every_run_until_they_are_repaired(place: Place) -> None:
    """Also where the report was written while they stood: by the first run in another checkout."""
    from tests.support.published import flip

    assert place.penstock("run").returncode == 0
    flip(place.published() / "a.txt")
    done = place.snakemake("--", "audit")
    assert (done.returncode, "FINDINGS (1 changed)" in done.stdout + done.stderr) == (1, True), done.stderr
    done = place.penstock("run")
    assert done.returncode == 4, done.stderr
    assert (
        "STATUS        FINDINGS (findings stand against the release: 1 changed; `penstock repair d`"
        in done.stdout
    )
    shutil.rmtree(place.folder / "results")
    assert place.penstock("run").returncode == 4
    assert place.penstock("repair").returncode == 0
    done = place.penstock("run")
    assert done.returncode == 0, done.stdout
    assert "STATUS        PASSED (everything is published already" in done.stdout
    done = place.penstock("report")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "  STATUS        PASSED")
