"""gc and remove: what goes, what stays, what comes back to the quota."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.accounts import give
from tests.support.commands import started, until
from tests.support.in_process import InProcess
from tests.support.published import data_of
from tests.support.staging_runs import tree
from tests.target.conftest import need_root

from penstock.config.loader import TESTED
from penstock.config.settings import GcConfig, RetentionConfig
from penstock.core import dataset_documents, run_steps
from penstock.core.errors import ConfigError, FailedError, FindingsError, LockedError, PreflightError
from penstock.core.layout import SEAL, DatasetLayout
from penstock.dataset import gate, pins
from penstock.dataset import holder as holders
from penstock.dataset.dataset_lock import DatasetLock
from penstock.fs.owners import user_name
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.jobs import audits_and_adoptions, share_rule
from penstock.jobs.shares import holders_of, look, removing
from penstock.keep import (
    audit_step,
    collection,
    removals,
    repair_step,
    retention_decision,
    retention_steps,
)
from penstock.look.releases import dataset_row, nobody
from penstock.run import list_step, plan_step
from penstock.target import dataset_folders, notices, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.retention.conftest import Releases

    from penstock.core.run_steps import Event
    from penstock.dataset.context import Context

SOON = GcConfig(grace=0.000001)
"""No grace: a release that left `current` this second may go."""
MORE = "gc: {grace: 1ms}\n"


def ruled(releases: Releases, gc: GcConfig = SOON, **rules: object) -> None:
    """Give the dataset of the context, and of the built command, these rules."""
    config = releases.context.config
    rules = {"named": False, **rules}
    data = replace(config.datasets["data"], retention=RetentionConfig(**rules))  # type: ignore[arg-type]
    releases.context.config = replace(config, datasets={"data": data}, gc=gc)
    text = ", ".join(f"{name}: {str(value).lower()}" for name, value in rules.items())
    releases.configure(dataset=f", retention: {{{text}}}", more=MORE)


@pytest.fixture(autouse=True)
def _no_job() -> Iterator[None]:
    yield
    kernel_facts.enter_job(JobEnvironment())


def blocks(folder: Path) -> int:
    """Bytes of all inodes below, each once, by this test's own means."""
    seen = {}
    for above, folders, files in os.walk(folder):
        for name in [".", *folders, *files]:
            one = os.lstat(os.path.join(above, name))
            seen[one.st_ino] = one.st_blocks * 512
    return sum(seen.values())


def rewritten(releases: Releases, letter: str, change: Callable[[str], str]) -> Path:
    """The seal of a release, changed."""
    seal = releases.layout.release(releases.names[letter]) / SEAL
    seal.parent.chmod(0o755)
    seal.chmod(0o644)
    seal.write_text(change(seal.read_text()))
    return seal


def held(releases: Releases, found: object, letter: str) -> list[str]:
    rows = found["releases"]  # type: ignore[index]
    return next(row["held_by"] for row in rows if row["release"] == releases.names[letter])


def test_what_no_rule_holds_goes_and_the_rest_stays_whole(releases: Releases) -> None:
    releases.begin_with("ABCD")
    ruled(releases, last=2)
    seen = {letter: os.listdir(data_of(releases.context).parent) for letter in "D"}
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "CD"
    assert {row["release"] for row in found["releases"] if row["removed"]} == {
        releases.names[one] for one in "AB"
    }
    assert os.listdir(data_of(releases.context).parent) == seen["D"]
    assert releases.told()[4:] == ["remove A", "remove B"]
    releases.check()
    left = {one for one in os.listdir(releases.layout.releases) if one.startswith(".")}
    assert left == set()
    assert len(os.listdir(releases.layout.runs)) == 2
    # Nothing more is found, and what stays passes the gate and an audit.
    again = retention_steps.gc(releases.context, "data", dry_run=False)
    assert not any(row["removed"] for row in again["releases"])
    assert gate.passed(releases.layout).release == releases.names["D"]
    assert releases.command("audit", "data").returncode == 0
    assert releases.command("status", "data").returncode == 0


def test_what_it_will_free_is_said_while_all_of_it_is_there(releases: Releases) -> None:
    """S10: by user and group, before the first name is taken."""
    releases.begin_with("ABC")
    ruled(releases, last=1)
    seen = []

    def told(event: Event) -> None:
        if event.kind == "note" and "will free" in str(event.data["text"]):
            seen.append((str(event.data["text"]), releases.there()))

    releases.context.sink = told
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    ((text, there),) = seen
    assert there == "ABC"
    assert text.startswith("to be removed: 2 folders; will free: ")
    assert f"({found['frees'].bytes:,} bytes)" in text
    assert "by user: " in text


def test_a_dry_run_changes_nothing_and_says_what_would_go_and_why(releases: Releases) -> None:
    releases.begin_with("ABC")
    ruled(releases, last=1)
    before = sorted(os.walk(releases.layout.folder))
    done = releases.command("gc", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert sorted(os.walk(releases.layout.folder)) == before
    assert "data: would remove 2 of 3 releases\n" in done.stdout
    assert f"  = {releases.names['C']}  20.6 KiB in 3 files: current; last: 1 of 1\n" in done.stdout
    assert f"  - {releases.names['A']}  20.6 KiB in 3 files: nothing holds it\n" in done.stdout
    told = json.loads(releases.command("gc", "--dry-run", "--json").stdout)
    assert told["dry_run"] is True
    assert [row["removed"] for row in told["releases"]].count(True) == 2


def test_without_rules_gc_removes_no_release(releases: Releases) -> None:
    releases.begin_with("AB")
    releases.context.config = replace(releases.context.config, gc=SOON)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "AB"
    assert held(releases, found, "A") == ["no rule: the dataset has no `retention`"]


def test_the_grace_is_waited_for_pinned_or_not(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, GcConfig(), last=1)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert held(releases, found, "A")[0].startswith("grace: it left `current` ")
    assert releases.there() == "AB"
    with pytest.raises(PreflightError, match="a release is held"):
        retention_steps.remove(releases.context, "data", [releases.names["A"]], dry_run=False)
    retention_steps.remove(releases.context, "data", [releases.names["A"]], dry_run=False, now=True)
    assert releases.there() == "B"


class Long(InProcess):
    """A cluster whose jobs may take a month."""

    def longest_anywhere(self) -> float:
        return 30 * 86400.0


def test_a_longer_job_of_the_cluster_makes_the_grace_longer(releases: Releases) -> None:
    assert retention_decision.grace(releases.context) == 14 * 86400.0
    releases.context.cluster = Long()
    assert retention_decision.grace(releases.context) == 30 * 86400.0


def test_what_is_freed_is_what_was_foretold(releases: Releases) -> None:
    """Of releases that share a file by hard links: its blocks come back with its last name."""
    releases.stage(*"ABCD")
    layout = releases.layout
    same = [os.stat(layout.release(releases.names[one]) / "data" / "same") for one in "ABCD"]
    assert len({one.st_ino for one in same}) == 1
    assert same[0].st_nlink == 4
    ruled(releases, last=2)
    tops = (layout.releases, layout.runs)

    def below() -> int:
        return sum(blocks(one) - os.lstat(one).st_blocks * 512 for one in tops)

    before, states = below(), blocks(layout.runs)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert found["frees"].bytes == before - below()
    # The state of the runs that made them goes, too.
    assert blocks(layout.runs) < states
    assert found["frees"].shared_bytes == same[0].st_blocks * 512
    assert sum(found["frees"].users.values()) == found["frees"].bytes
    assert sum(found["frees"].groups.values()) == found["frees"].bytes
    # The last two share it alone: together they free it, one does not.
    folders = [layout.release(releases.names[one]) for one in "CD"]
    assert collection.forecast(folders, lambda: None).shared_bytes == 0
    assert collection.forecast(folders[:1], lambda: None).shared_bytes == same[0].st_blocks * 512


def test_freed_bytes_are_said_by_user_and_group(tmp_path: Path) -> None:
    place = tree(tmp_path / "x", {"d/a": b"1" * 10000, "d/b": b"2" * 5000, "c": b"3"})
    give(place / "d" / "a", 4242, 4343)
    os.link(place / "d" / "b", place / "again")
    os.link(place / "c", tmp_path / "kept")
    found = collection.forecast([place], lambda: None)
    assert found.users["4242"] == found.groups["4343"] == os.stat(place / "d" / "a").st_blocks * 512
    assert found.bytes == sum(found.users.values())
    assert found.shared_bytes == os.stat(place / "c").st_blocks * 512
    assert found.inodes == 4  # two folders, a, and b by both of its names


def test_a_pin_holds_until_the_owner_takes_it_back_by_name(releases: Releases) -> None:
    releases.begin_with("A")
    pin = pins.pinned(releases.layout, lambda: gate.passed(releases.layout))[1]
    releases.stage("B")
    ruled(releases, last=1)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert held(releases, found, "A") == [pin.words()]
    refused = releases.command("remove", "data", releases.names["A"])
    assert refused.returncode == 3
    assert pin.name in refused.stderr
    assert releases.there() == "AB"
    unknown = releases.command("gc", "--unpin", pin.name, "--unpin", "nonsense")
    assert (unknown.returncode, "there is no pin nonsense" in unknown.stderr) == (3, True)
    shown = releases.command("gc", "--unpin", pin.name, "--dry-run")
    assert f"pin {pin.name} would be taken back" in shown.stdout
    assert "would remove 1 of 2 releases" in shown.stdout
    assert (releases.there(), os.listdir(releases.layout.pins)) == ("AB", [pin.name])
    done = releases.command("gc", "--unpin", pin.name)
    assert done.returncode == 0, done.stderr
    assert (releases.there(), os.listdir(releases.layout.pins)) == ("B", [])
    line = next(one for one in releases.history() if one["event"] == "unpin")
    assert (line["pin"], line["of"], line["release"]) == (pin.name, os.geteuid(), releases.names["A"])
    assert releases.command("history", "data").returncode == 0


def test_a_strangers_pin_holds_and_so_does_one_of_an_unknown_cluster(releases: Releases) -> None:
    releases.begin_with("A")
    look = lambda: gate.passed(releases.layout)  # noqa: E731
    kernel_facts.enter_job(JobEnvironment(job="17", proven=True, cluster="elsewhere"))
    job = pins.pinned(releases.layout, look)[1]
    releases.stage("B")
    stranger = pins.pinned(releases.layout, look)[1]
    give(releases.layout.pins / stranger.name, 4242, 4242)
    releases.stage("C")
    ruled(releases, last=1)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "ABC"
    assert job.name in held(releases, found, "A")[0]
    assert held(releases, found, "B")[0].startswith(
        f"pin {stranger.name}: uid 4242, job 17 of cluster elsewhere"
    )


def test_pins_that_stand_no_more_are_removed(releases: Releases) -> None:
    releases.begin_with("A")
    command = [sys.executable, "-m", "penstock", "--config", str(releases.config), "path", "data", "--job"]
    subprocess.run(
        ["sh", "-c", '"$@"; :', "sh", *command], check=True, capture_output=True, start_new_session=True
    )
    assert len(os.listdir(releases.layout.pins)) == 1
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert "has ended" in found["ended_pins"][0]
    assert os.listdir(releases.layout.pins) == []
    (row,) = dataset_row(releases.layout, nobody)["releases"]
    assert row["last_pin"] is not None, "who used it last is known after that"
    assert (row["last_pin"]["by"], row["last_pin"]["age"] < 300) == (user_name(os.geteuid()), True)


def test_the_last_pin_is_the_latest_of_those_that_gc_noted_and_those_that_stand(releases: Releases) -> None:
    releases.begin_with("A")
    layout, release, now = releases.layout, releases.names["A"], time.time()
    for job, age in (("17", 300), ("18", 100), ("19", 200)):
        kernel_facts.enter_job(JobEnvironment(job=job, proven=True, cluster="elsewhere"))
        pin = pins.pinned(layout, lambda: gate.passed(layout))[1]
        os.utime(layout.pins / pin.name, (now - age, now - age))
        pins.note_last(layout)
        latest = now - (300 if job == "17" else 100)
        assert pins.last(layout)[release].at == pytest.approx(latest, abs=1)
    for name in os.listdir(layout.pins):
        (layout.pins / name).unlink()
    assert pins.last(layout)[release].at == pytest.approx(now - 100, abs=1)


def test_a_pin_that_comes_between_the_mark_and_the_rename_keeps_the_release(releases: Releases) -> None:
    """The removal waits after its mark; a reader that looked before it has its pin there by then."""
    releases.begin_with("AB")
    ruled(releases, GcConfig(grace=0.000001, settle=0.5), last=1)
    context, layout = releases.context, releases.layout
    waited = []
    plain = context.stop.wait

    def wait(seconds: float) -> None:
        waited.append(seconds)
        assert layout.removing(releases.names["A"]).exists()
        # What a reader does whose look for a mark came before it was there.
        pins._place(layout, releases.names["A"])
        plain(seconds)

    context.stop.wait = wait  # type: ignore[method-assign]
    found = retention_steps.gc(context, "data", dry_run=False)
    assert waited[0] == 0.5
    assert held(releases, found, "A")[0].startswith("pin ")
    assert releases.there() == "AB"
    assert not layout.removing(releases.names["A"]).exists()


def test_a_removal_by_name_that_is_held_after_it_began_does_not_end_with_0(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases.begin_with("AB")
    releases.configure(more="gc: {grace: 1ms}\n")
    monkeypatch.setenv(TESTED, '{"gc.settle": "2s"}')
    layout, name = releases.layout, releases.names["A"]
    words = ("--config", str(releases.config), "remove", "data", name)
    with started(sys.executable, "-m", "penstock", *words, cwd=releases.folder) as removal:
        until(lambda: layout.removing(name).exists(), "the mark")
        # What a reader does whose look for a mark came before it was there.
        pins._place(layout, name)
        told, _ = removal.communicate(timeout=60)
        assert removal.returncode == 3
    assert "removed 0 of 1 release" in told
    assert f"= {name}" in told
    assert releases.there() == "AB"


def test_the_base_of_a_run_that_has_not_ended_stays_and_a_later_plan_needs_no_base(
    releases: Releases,
) -> None:
    releases.begin_with("AB")
    releases.holds("C")
    list_step.run(releases.context, "data")
    plan_step.run(releases.context, "data")
    retention_steps.rollback(releases.context, "data", releases.names["A"])
    ruled(releases, last=1)
    # `last` holds B; let it hold neither.
    ruled(releases, within=0.001)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert held(releases, found, "B")[0].startswith("base: run ")
    releases.stage("C")
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "C"
    releases.stage("D")
    releases.check()
    # What the removed release held is staged anew.
    releases.stage("A")
    releases.check()


def test_a_source_that_goes_back_to_a_removed_release_is_staged_again(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "B"
    releases.stage("A")
    assert releases.current() == "A"
    releases.check()
    # And an unchanged source is found published after that.
    assert releases.again()["release"] == releases.names["A"]


def test_an_audit_that_is_at_work_holds_its_release(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    (releases.layout.state / "audit.lock").write_bytes(
        holders.this_process(releases.names["A"], "audit").to_json()
    )
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert held(releases, found, "A")[0].startswith("audit: ")
    (releases.layout.state / "audit.lock").unlink()
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "B"


@pytest.mark.parametrize("lock", ["audit.lock", "gate.lock"])
def test_an_audit_that_begins_after_the_mark_keeps_the_release(releases: Releases, lock: str) -> None:
    """Its look for a mark came before the mark was there; the last look asks for it (K8)."""
    releases.begin_with("AB")
    ruled(releases, GcConfig(grace=0.000001, settle=0.5), last=1)
    context = releases.context

    def wait(seconds: float) -> None:
        holder = holders.this_process(releases.names["A"], "audit")
        (releases.layout.state / lock).write_bytes(holder.to_json())

    context.stop.wait = wait  # type: ignore[method-assign]
    found = retention_steps.gc(context, "data", dry_run=False)
    assert held(releases, found, "A")[0].startswith("audit: ")
    assert releases.there() == "AB"


def audited(context: Context, release: str) -> object:
    return audit_step.run(context, "data", audit_step.AuditRequest(release))


def repaired(context: Context, release: str) -> object:
    return repair_step.run(context, "data", release)


@pytest.mark.parametrize("work", [audited, repaired])
def test_what_reads_a_release_that_is_marked_ends_before_it_reads(
    releases: Releases, work: Callable[[Context, str], object]
) -> None:
    releases.begin_with("AB")
    audited(releases.context, releases.names["A"])
    ruled(releases, GcConfig(grace=0.000001, settle=0.5), last=1)
    context = releases.context
    said = []

    def wait(seconds: float) -> None:
        with pytest.raises(PreflightError, match="the release is being removed") as error:
            work(context, releases.names["A"])
        said.append(str(error.value))

    context.stop.wait = wait  # type: ignore[method-assign]
    retention_steps.gc(context, "data", dry_run=False)
    assert said
    assert releases.there() == "B"


@pytest.mark.parametrize("when", ["locked", "started", "read"])
def test_an_audit_whose_release_is_gone_says_so_and_finds_nothing(
    releases: Releases, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `rm -r`, or under a reader's audit, which no removal sees: it ended with [Errno 2]."""
    releases.begin_with("AB")
    context, layout, release = releases.context, releases.layout, releases.names["A"]
    plain, sink = dataset_folders.releases, context.sink

    def gone() -> None:
        if layout.release(release).exists():
            layout.release(release).chmod(0o700)
            os.rename(layout.release(release), releases.folder / "away")

    def locked(of: DatasetLayout) -> Sequence[str]:
        names = plain(of)
        gone()
        return names

    def heard(event: Event) -> None:
        if isinstance(event, run_steps.Started if when == "started" else run_steps.Progressed):
            gone()
        sink(event)

    if when == "locked":
        monkeypatch.setattr(dataset_folders, "releases", locked)
    else:
        context.sink = heard
    with pytest.raises((PreflightError, FailedError), match=r"the release (was|is being) removed"):
        audited(context, release)
    assert not layout.verdict(release).exists()


def test_where_current_leads_nowhere_nothing_is_removed(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    releases.layout.current.unlink()
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "AB"


def test_a_release_that_a_newer_version_sealed_is_left_to_that_version(releases: Releases) -> None:
    """It may be held in ways that this version knows nothing of."""
    releases.begin_with("ABC")
    ruled(releases, last=1)
    seal = rewritten(releases, "A", lambda text: json.dumps({**json.loads(text), "format": 99}))
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert held(releases, found, "A")[0].startswith("newer: a newer penstock sealed it")
    assert releases.there() == "AC"
    with pytest.raises(PreflightError, match=r"a release is held(.|\n)*: newer: .*it has format 99"):
        retention_steps.remove(releases.context, "data", [releases.names["A"]], dry_run=False, now=True)
    assert seal.exists()


def test_a_history_that_cannot_be_read_is_an_error_that_names_it(releases: Releases) -> None:
    releases.begin_with("AB")
    releases.layout.history.unlink()
    releases.layout.history.mkdir()
    for words in ("gc --dry-run", "gc", "rollback data"):
        done = releases.command(*words.split())
        assert done.returncode == 1
        assert f"the history cannot be read [{releases.layout.history}]" in done.stderr
        assert "bug" not in done.stderr
    done = releases.command("status", "data")
    assert (done.returncode, f"damaged: {releases.layout.history}" in done.stdout) == (4, True)
    assert releases.there() == "AB"


def test_where_pins_cannot_be_read_nothing_is_removed(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    shutil.rmtree(releases.layout.pins)
    releases.layout.pins.write_text("")  # root reads every folder, but no file is one
    for dry_run in (True, False):
        with pytest.raises(FindingsError, match="data/pins is a file"):
            retention_steps.gc(releases.context, "data", dry_run=dry_run)
    assert releases.there() == "AB"


def test_of_a_release_whose_seal_is_damaged_the_history_says_what_it_held(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    told = next(line for line in releases.history() if line["release"] == releases.names["A"])
    rewritten(releases, "A", lambda text: text[:10])
    (row, _) = retention_steps.gc(releases.context, "data", dry_run=False)["releases"]
    assert (row["removed"], row["files"], row["bytes"]) == (True, told["files"], told["bytes"])
    assert releases.there() == "B"
    # The state of its run is found, too.
    assert len(list(releases.layout.runs.iterdir())) == 1


def test_where_the_state_is_missing_nothing_is_removed_and_that_is_said(releases: Releases) -> None:
    """As where `target.state_root` is not mounted: nobody knows whether a run is at work."""
    releases.begin_with("AB")
    ruled(releases)  # without its history nobody knows which of two of one second is the newer one
    away = releases.folder / "away"
    releases.layout.state.rename(away)
    name = releases.names["A"]
    for words in ("gc", "gc --dry-run", f"remove data {name}", f"rollback data {name}", "gc --unpin some"):
        done = releases.command(*words.split())
        assert done.returncode == 3, words
        assert "the dataset's state is missing" in done.stderr
        assert done.stdout == ""
    assert releases.there() == "AB"
    assert releases.current() == "B"
    # As its message says: it is made anew.
    list_step.run(releases.context, "data")
    assert releases.command("gc").returncode == 0
    assert releases.there() == "B"


def test_the_current_release_is_never_removed_by_name(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    with pytest.raises(PreflightError, match=r"a release is held(.|\n)*: current"):
        retention_steps.remove(
            releases.context, "data", list(releases.names.values()), dry_run=False, now=True
        )
    assert releases.there() == "AB"
    with pytest.raises(ConfigError, match="there is no release nonsense"):
        retention_steps.remove(releases.context, "data", ["nonsense"], dry_run=False)


def test_the_verdict_and_the_state_of_a_removed_release_go_too(releases: Releases) -> None:
    releases.begin_with("AB")
    releases.command("audit", "data", "--release", releases.names["A"])
    assert releases.layout.verdict(releases.names["A"]).exists()
    # As a kill leaves it that comes while an audit is removed.
    half = releases.layout.audits / f"20260101T000000.000000Z-{releases.names['A']}-abcdef"
    tree(half, {"findings.jsonl": b""})
    done = releases.command("remove", "data", releases.names["A"], "--now")
    assert done.returncode == 0, done.stderr
    assert not releases.layout.verdict(releases.names["A"]).exists()
    assert os.listdir(releases.layout.audits) == []
    assert len(os.listdir(releases.layout.runs)) == 1
    assert releases.told()[-1] == "remove A"
    again = releases.command("remove", "data", releases.names["A"], "--now")
    assert again.returncode == 0, again.stderr


def test_the_rotation_of_audits_goes_on_after_its_release_was_removed(releases: Releases) -> None:
    first, _ = releases.begin_with("A"), releases.stage("B")
    for _ in range(2):
        done = releases.command("audit", "data", "--release", first, "--fraction", "1/3")
        assert done.returncode == 0, done.stderr
    assert audits_and_adoptions.next_slice(releases.layout, "", "", 3, 0.0).turn == 2
    assert releases.command("remove", "data", first, "--now").returncode == 0
    assert audits_and_adoptions.next_slice(releases.layout, "", "", 3, 0.0).turn == 2
    assert len(os.listdir(releases.layout.audits)) == 1


def test_while_pause_stands_gc_rests_and_goes_on_after(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: within 30 s no name is removed any more."""
    releases.holds("A", **{f"many/{index:04d}": b"x" for index in range(300)})
    releases.names["A"] = releases.again()["release"]
    releases.stage("B")
    releases.configure(dataset=", retention: {last: 1}", more="gc: {grace: 1ms}\n")
    monkeypatch.setenv(TESTED, '{"target.ops": 100}')
    layout = releases.layout

    def names() -> int:
        return sum(len(files) for one in removals.left(layout) for _, _, files in os.walk(one))

    words = ("--config", str(releases.config), "gc", "data")
    with started(sys.executable, "-m", "penstock", *words, cwd=releases.folder) as gc:
        until(lambda: 0 < names() < 290, "names to go")
        began = time.monotonic()
        path = layout.root / notices.PAUSE_NAME
        path.write_text("servers are updated\n")

        def rests() -> bool:
            seen, at = names(), time.monotonic()
            until(lambda: names() != seen or time.monotonic() > at + 3, "three seconds without a change")
            return names() == seen

        until(rests, "gc to rest")
        assert time.monotonic() - began < 30 + 3
        assert names() > 0
        assert gc.poll() is None
        path.unlink()
        assert gc.wait(120) == 0
    assert removals.left(layout) == []
    assert releases.there() == "B"


def test_other_datasets_are_collected_where_a_run_holds_one(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    text = releases.config.read_text()
    releases.config.write_text(text.rstrip()[:-1] + f", other: {{source: '{releases.source}'}}}}\n")
    with DatasetLock(releases.layout.lock, "data", run="", command="copy", holder_ended=lambda *_: None):
        done = releases.command("gc")
        assert done.returncode == 7
        assert "other: removed 0 of 0 releases" in done.stdout
        assert "penstock: data: " in done.stderr
        with pytest.raises(LockedError):
            retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "AB"
    assert releases.command("gc").returncode == 0
    assert releases.there() == "B"


def test_a_run_of_the_dataset_need_not_wait_for_the_files_to_be_removed(releases: Releases) -> None:
    releases.begin_with("AB")
    ruled(releases, last=1)
    lock = releases.layout.state / "gc.lock"
    with DatasetLock(lock, "data", run="", command="gc", holder_ended=lambda *_: None):
        found = retention_steps.gc(releases.context, "data", dry_run=False)
        assert "being removed already" in found["waits"]
        assert releases.there() == "B"
        assert len(removals.left(releases.layout)) == 2
        releases.stage("C")
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert removals.left(releases.layout) == []
    assert len(found["interrupted"]) == 2
    assert found["frees"].bytes > 0


def test_stagings_of_abandoned_runs_go_and_the_staging_of_one_that_can_go_on_stays(
    releases: Releases,
) -> None:
    releases.begin_with("A")
    releases.holds("B")
    list_step.run(releases.context, "data")
    plan_step.run(releases.context, "data")
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert found["stagings"] == []
    (staging,) = releases.layout.releases.glob(".*.staging")
    # Another run is published meanwhile, and leaves it (as where the cluster did not answer).
    copy = releases.folder / "copy"
    shutil.copytree(staging, copy)
    state = next(
        one for one in releases.layout.runs.iterdir() if not (one / "receipts" / "publish.json").exists()
    )
    shutil.copytree(state, releases.folder / "state")
    releases.stage("C")
    if not staging.exists():
        shutil.copytree(copy, staging)
        shutil.copytree(releases.folder / "state", state)
    shown = retention_steps.gc(releases.context, "data", dry_run=True)
    assert shown["stagings"][0]["removed"] is True
    assert shown["frees"].bytes == blocks(staging) + blocks(state)
    assert staging.exists()
    # Its files are removed without the dataset's lock: here another process removes some already.
    lock = releases.layout.state / "gc.lock"
    with DatasetLock(lock, "data", run="", command="gc", holder_ended=lambda *_: None):
        found = retention_steps.gc(releases.context, "data", dry_run=False)
        assert "being removed already" in found["waits"]
        assert not staging.exists()
        assert not state.exists()
        assert len(removals.left(releases.layout)) == 2
    assert retention_steps.gc(releases.context, "data", dry_run=False)["interrupted"]
    assert removals.left(releases.layout) == []
    assert releases.there() == "AC"


def test_who_wakes_after_its_lock_was_taken_over_removes_nothing(releases: Releases) -> None:
    """A removal that froze between its last look and its rename: who came after took its mark back."""
    releases.begin_with("AB")
    context, layout = releases.context, releases.layout
    known = next(
        one for one in retention_decision.take(context, layout).releases if one.release == releases.names["A"]
    )
    mark = removals.mark(layout, known, "why")
    retention_steps.rollback(context, "data", releases.names["A"])
    assert not layout.removing(releases.names["A"]).exists()
    with pytest.raises(Exception, match="cannot be renamed"):
        removals.take_name(context, layout, mark)
    releases.check()
    assert releases.current() == "A"
    assert releases.told()[-1] == "rollback A"
    # The file that barred it is no release, no staging and no rest of a removal.
    assert removals.left(layout) == []
    assert retention_steps.gc(context, "data", dry_run=False)["interrupted"] == []


def test_a_mark_that_says_nothing_is_taken_away(releases: Releases) -> None:
    releases.begin_with("AB")
    releases.layout.removing("x").write_bytes(b"torn")
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert not releases.layout.removing("x").exists()
    assert dataset_documents.REMOVAL_MARK.newest == 1


def test_a_stranger_is_refused(releases: Releases) -> None:
    from tests.support.forked import forked

    need_root()
    releases.begin_with("AB")
    ruled(releases, last=1)
    for folder in (releases.folder, *releases.folder.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | 0o011)

    def work() -> list[str]:
        said = []
        for call in (
            lambda: retention_steps.gc(releases.context, "data", dry_run=False),
            lambda: retention_steps.gc(releases.context, "data", dry_run=True),
            lambda: retention_steps.remove(
                releases.context, "data", [releases.names["A"]], dry_run=False, now=True
            ),
            lambda: retention_steps.rollback(releases.context, "data", None),
        ):
            try:
                call()
            except PreflightError as error:
                said.append(error.why)
        return said

    assert forked(work, uid=4242) == ["it belongs to root, and this is uid 4242"] * 4
    assert releases.there() == "AB"


def test_a_publish_leaves_the_part_of_a_removal_that_is_at_work(releases: Releases) -> None:
    releases.begin_with("A")
    with removing(releases.context, releases.layout):
        until(lambda: holders_of(releases.layout), "the removal's holder")
        releases.stage("B")
        (words,) = holders_of(releases.layout)
        assert words.startswith("100.0%: ")
    assert holders_of(releases.layout) == []


def test_what_another_removal_has_taken_away_frees_nothing(tmp_path: Path) -> None:
    assert collection.forecast([tmp_path / "gone"], lambda: None).bytes == 0


def test_removals_keep_to_the_budget_together(releases: Releases) -> None:
    """A fifth of the site's budget: 200 files at 100 a second take 2 s at least."""
    import time

    releases.begin_with("A")
    tree(releases.source, {f"d{i % 7}/f{i}": b"x" for i in range(200)})
    releases.names["M"] = releases.again()["release"]
    releases.stage("B")
    ruled(releases, last=1)
    releases.context.ops = 500
    began = time.monotonic()
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert time.monotonic() - began > 1.8
    assert releases.there() == "B"
    assert list(releases.layout.operations.iterdir()) == []


def test_a_removal_that_begins_beside_another_waits_until_that_one_counts_it(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else both together would remove more than the budget until then."""
    monkeypatch.setattr(share_rule, "VALID", 2.0)
    releases.begin_with("A")
    ruled(releases)
    context, layout = releases.context, releases.layout
    first, second = (tree(releases.folder / name, {"f": b"x"}) for name in ("first", "second"))
    other = DatasetLayout(layout.root, "other")
    other.folder.mkdir()
    with removing(context, layout):
        began = time.monotonic()
        tree_removal.remove_tree(first, context.spend)
        assert time.monotonic() - began < 2.0
        with removing(context, layout):
            began = time.monotonic()
            tree_removal.remove_tree(second, context.spend)
            assert time.monotonic() - began >= 2.0
            assert [share.part for share in look(layout.operations)] == [0.5, 0.5]


def test_k9_removals_of_another_account_take_its_share_and_no_more(releases: Releases) -> None:
    """Fifty promises of a stranger took all but a fiftieth."""
    releases.begin_with("A")
    with removing(releases.context, releases.layout):
        until(lambda: holders_of(releases.layout), "the removal's holder")
        folder = releases.layout.operations
        for number in range(50):
            for name in (f"holder.{number:016x}.00000000.1000.1", f"beat.{number:016x}.00000000.1"):
                (folder / name).write_text("x")
                give(folder / name, 4242, 4242)
        held = [share.part for share in look(folder)]
        assert max(held) == pytest.approx(1 / 9)
