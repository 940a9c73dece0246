"""The whole way, by the commands that people type."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from tests.demo.example import serving_folder
from tests.support import terminal
from tests.support.commands import ROOT
from tests.support.published import writable
from tests.workflow.conftest import Place, digests

from penstock.core.run_steps import OF_RUN, typed

if TYPE_CHECKING:
    from pathlib import Path


def test_fresh_again_changed_and_deleted(place: Place) -> None:
    """One story, since each part stands on the one before."""
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert "STATUS        PASSED, " in done.stdout
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

    # A target that is gone is not made again, since it may be a mount. Receipts in results/ outlive a dataset
    # that was deleted: list sees it, and all is made anew.
    from penstock.target import tree_removal

    tree_removal.remove_tree(place.target)
    done = place.penstock("run")
    assert done.returncode == 3
    assert "what was published in the target is not there any more" in done.stderr
    assert not place.target.exists()
    (place.target / "another").mkdir(parents=True)
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
    place.stage("d", "e")
    release = place.published("e").parent
    release.chmod(0o700)
    (release / "release.json").unlink()
    done = place.penstock("run")
    assert done.returncode == 4, done.stderr
    assert "run --new-release e`" in done.stderr
    assert re.search(r"^! e +FAILED +", done.stdout, re.MULTILINE)
    assert re.search(r"^  d +unchanged +75.0 KiB .* of \d+ \w{3}$", done.stdout, re.MULTILINE)
    # No step looks at the manifest of what is published already.
    manifest = place.published("d").parent / "manifest.parquet"
    with writable(manifest.parent):
        manifest.rename(place.folder / "manifest.parquet")
    done = place.penstock("run", "d")
    assert done.returncode == 4, done.stderr
    assert "STATUS        FINDINGS (manifest.parquet is missing; " in done.stdout
    done = place.penstock("run")
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("d  DAMAGED: manifest.parquet is missing\n   ") == 1
    ended = " ".join(done.stdout.split())
    assert "0 of 2 are ready, 1 failed: e (" in ended
    assert ", 1 is damaged: d (manifest.parquet is missing). Exit status 4." in ended
    status = place.penstock("status")
    assert status.returncode == 4
    assert re.search(r"(?m)^! d +damaged .*\n +manifest.parquet is missing$", status.stdout)
    assert re.search(r"(?m)^! e +damaged .*\n +its seal \(release.json\) is missing$", status.stdout)
    assert "last run failed: " in status.stdout


def test_a_damaged_release_is_no_dead_end(place: Place) -> None:
    """Its hint is a command, and the command works (U14)."""
    place.stage("d")
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
    place.stage("d")
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
        assert "2 datasets would be staged. Nothing was changed." in done.stdout
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
    """And all is said once: on standard error line by line, at the end in a table."""
    place.config["datasets"]["bad"] = {"source": "nowhere"}
    place.write()
    log = place.folder / "run.log"
    done = place.penstock("run", "--receipt", "result.json", "--log", "run.log")
    assert done.returncode == 3, done.stderr
    told = json.loads((place.folder / "result.json").read_text())
    assert told["exit"] == 3
    assert {name: one["status"] for name, one in told["datasets"].items()} == {"d": "PASSED", "bad": "FAILED"}
    # What the steps said, and the summaries.
    assert " INFO d copy end: {" in log.read_text()
    assert " ERROR " in log.read_text()
    ended = "1 of 2 is ready, 1 failed: bad (No such file or directory). Exit status 3.\n"
    ended += "again:  penstock run bad\n"
    assert ended in log.read_text()
    [report] = place.folder.glob("results/d/*/report.html")
    head, bad, good, *more = done.stdout.split("\n")
    assert head.split() == ["DATASET", "RESULT", "COPIED", "TIME", "PROOF"]
    assert re.fullmatch(r"! bad      FAILED            -  [\w. ]+  -", bad)
    assert re.fullmatch(r"  d        published  75.0 KiB  [\w. ]+  (cold|reread)", good)
    assert "\n".join(more) == f"\n{ended}report: {report.relative_to(place.folder)}\n"
    lines = done.stderr.splitlines()
    assert len(lines) == len(set(lines))
    first = next(n for n, line in enumerate(lines) if line.startswith("bad  FAILED in preflight: "))
    assert f"[file://{place.folder}/nowhere]: No such file or directory" in lines[first]
    assert lines[first + 2].startswith("   datasets.bad in config.yaml, line ")
    assert lines[first + 2].endswith("; nothing was changed")
    others = lines[:first] + lines[first + 3 :]
    assert all(re.match(r"\d\d:\d\d:\d\d (d|bad) \w+: ", line) for line in others), done.stderr
    assert "nowhere" not in "\n".join(others)
    assert digests(place.published("d")) == digests(place.source)
    assert place.penstock("gate", "bad").returncode == 4
    # Its folder may hold the note of the failure: where the other dataset had made the root before.
    assert not list(place.target.glob("bad/releases/*"))
    assert not os.path.lexists(place.target / "bad/current")


def test_the_screen_of_four_datasets(place: Place) -> None:
    """One is staged from a store, one from a folder, one is unchanged, and of one there is no bucket."""
    place.stage("d")
    with serving_folder(place.source, "training", place.folder, 0) as port:
        place.config["datasets"]["b"] = {"source": "source"}
        for name, bucket in (("a", "s3://training/sub/"), ("c", "s3://nosuch/")):
            options = {"endpoint_url": f"http://127.0.0.1:{port}", "anon": True}
            place.config["datasets"][name] = {"source": bucket, "storage_options": options}
        place.write()
        words = [sys.executable, "-m", "penstock", "--config", "config.yaml", "run"]
        environment = {**os.environ, "TERM": "xterm-256color"}
        recorded = terminal.record(words, cwd=place.folder, env=environment)
    assert recorded.status == 3
    screens = [recorded.plain(n) for n in range(len(recorded.frames))]
    # A path is not broken.
    assert [line for screen in screens for line in screen if len(line) > 80 and " " in line.strip()] == []
    rows = {line.rstrip() for screen in screens for line in screen}
    assert any(re.match("  a +copy +", line) for line in rows)
    assert {"d unchanged", "! c FAILED"} <= {" ".join(line.split()) for line in rows}
    end = screens[-1]
    text = "\n".join(end)
    # The failure stands above, once, in red, and Snakemake does not say it again.
    assert text.count("c  FAILED in preflight: the source cannot be listed [s3://nosuch/") == 1
    assert text.count("the bucket's name and the credentials") == 1
    assert re.search(r"\n   datasets.c in config.yaml, line \d+; nothing was changed\n", text)
    assert any("\x1b[1;31m" in line and "FAILED in preflight" in line for line in recorded.frames[-1])
    assert "Exception" not in text
    assert "Error" not in text
    # Nothing of the live table is left between what stood above it and the closing one.
    [head] = [n for n, line in enumerate(end) if line.startswith("  DATASET")]
    assert [line.split()[:2] for line in end[head:]][:5] == [
        ["DATASET", "RESULT"], ["!", "c"], ["a", "published"], ["b", "published"], ["d", "unchanged"],
    ]  # fmt: skip
    assert end[head + 5 :] == [
        "3 of 4 are ready, 1 failed: c (there is no such bucket). Exit status 3.",
        "again:  penstock run c",
        "report: results/*/*/report.html",
    ]


def test_a_step_that_fails_is_named_once(place: Place) -> None:
    for step in ("list", "plan"):
        assert place.penstock("step", step, "d").returncode == 0
    [data] = (place.target / "d/releases").glob(".*.staging/data")
    (data / "a.txt").mkdir()
    done = place.penstock("run")
    assert done.returncode == 1, done.stderr
    assert "penstock: copy: 1 shard did not finish [d]" in done.stderr
    assert "FAILED (copy: 1 shard did not finish [d])" in done.stdout
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

    place.stage("d")
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
