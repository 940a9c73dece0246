"""`current` led back and forth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.accounts import give
from tests.support.kill_points import killed_at
from tests.support.published import damage
from tests.support.staging_runs import events_of

from penstock.core import dataset_documents
from penstock.core.dataset_documents import Author, RollbackIntent
from penstock.core.errors import ConfigError, FindingsError
from penstock.core.layout import DatasetLayout
from penstock.dataset import release_records, run_store
from penstock.dataset.dataset_lock import DatasetLock
from penstock.keep import audit_step, retention_steps

if TYPE_CHECKING:
    from pathlib import Path

    from tests.retention.conftest import Releases

READER = """
import json, os, select, sys
folder = sys.argv[1]
wrong, loops, seen = [], 0, set()
print("reading", flush=True)
while not select.select([sys.stdin], [], [], 0.0005)[0]:
    loops += 1
    try:
        release = os.readlink(f"{folder}/current")
        data = f"{folder}/{release}/data"
        letter = open(f"{data}/letter").read()
        if letter != letter[0] * 4096 or sorted(os.listdir(data)) != ["letter", f"only-{letter[0]}", "same"]:
            wrong.append(f"{release} holds another's")
        for name in ("release.json", "manifest.parquet"):
            os.stat(f"{folder}/{release}/{name}")
        seen.add(letter[0])
    except OSError as error:
        wrong.append(repr(error))
print(json.dumps({"wrong": wrong[:5], "loops": loops, "seen": sorted(seen)}))
"""


def test_back_to_the_one_before_and_forth_by_name(releases: Releases) -> None:
    releases.begin_with("ABC")
    assert releases.command("rollback", "data").returncode == 0
    assert releases.current() == "B"
    done = releases.command("rollback", "data")
    assert releases.current() == "A"
    assert done.stdout == f"data: current is {releases.names['A']}; it was {releases.names['B']}\n"
    done = releases.command("rollback", "data")
    assert done.returncode == 4
    assert "the history names no release before the current one" in done.stderr
    assert f"other releases: {', '.join(sorted(releases.names[one] for one in 'BC'))}" in done.stderr
    assert releases.command("rollback", "data", releases.names["C"]).returncode == 0
    again = releases.command("rollback", "data", releases.names["C"])
    assert again.stdout == f"data: current is {releases.names['C']} already\n"
    assert releases.told() == [
        *("publish A", "publish B", "publish C", "rollback B", "rollback A", "rollback C")
    ]
    line = releases.history()[3]
    assert line["from"] == releases.names["C"]
    assert line["uid"] == os.geteuid()
    assert not releases.layout.rollback.exists()
    releases.check()


def test_from_what_came_after_a_rollback_it_leads_to_what_was_current_then(releases: Releases) -> None:
    releases.begin_with("ABC")
    retention_steps.rollback(releases.context, "data", releases.names["A"])
    releases.stage("D")
    assert retention_steps.rollback(releases.context, "data", None)["release"] == releases.names["A"]


@pytest.mark.parametrize(
    ("history", "gone", "current", "expected"),
    [
        ("pA pB pC", "", "C", "B"),
        ("pA pB pC", "B", "C", "A"),
        ("pA pB pC", "AB", "C", None),
        ("pA pB pC", "", "A", None),
        ("pA pB pC rB", "", "B", "A"),
        ("pA pB pC rA pD", "", "D", "A"),
        ("pA pB pC rA pD", "A", "D", None),
        ("pA pB pA", "", "A", "B"),
        ("pA pB pA", "B", "A", None),
        ("rA", "", "A", None),
        ("", "", "A", None),
    ],
)
def test_which_one_was_before(
    tmp_path: Path, history: str, gone: str, current: str, expected: str | None
) -> None:
    layout = DatasetLayout(tmp_path, "data")
    layout.state.mkdir(parents=True)
    events = {"p": "publish", "r": "rollback"}
    lines = [json.dumps({"format": 1, "event": events[one[0]], "release": one[1]}) for one in history.split()]
    layout.history.write_text("\n".join(lines))
    assert run_store.before(layout, current, set("ABCD") - set(gone)) == expected


def test_a_rerun_of_an_unchanged_source_does_not_undo_it_and_a_changed_source_is_published(
    releases: Releases,
) -> None:
    releases.stage(*"ABC")
    for back in "BA":
        retention_steps.rollback(releases.context, "data", None)
        receipt = releases.again()
        assert receipt["release"] == releases.names["C"]
        assert releases.current() == back
    said = "\n".join(str(e.data["text"]) for e in events_of(releases.context) if e.kind == "note")
    assert f"`current` was rolled back to {releases.names['A']} at " in said
    assert f"`penstock rollback data {releases.names['C']}` leads it forward" in said
    releases.stage("D")
    assert releases.current() == "D"
    # The source goes back to what an earlier release holds: that is a change, too.
    retention_steps.rollback(releases.context, "data", releases.names["A"])
    releases.stage("B")
    assert releases.current() == "B"
    releases.check()


def test_a_release_that_is_not_whole_is_refused(releases: Releases) -> None:
    releases.begin_with("AB")
    data = releases.layout.release(releases.names["A"]) / "data"
    damage(data / "letter", lambda file: file.unlink())
    before = releases.layout.history.read_bytes()
    done = releases.command("rollback", "data")
    assert done.returncode == 4
    assert "the release is not whole" in done.stderr
    assert releases.current() == "B"
    assert releases.layout.history.read_bytes() == before
    assert not releases.layout.rollback.exists()


def test_the_current_release_is_looked_at_too(releases: Releases) -> None:
    releases.begin_with("A")
    release = releases.names["A"]
    damage(releases.layout.release(release) / "data" / "letter", lambda file: file.unlink())
    done = releases.command("rollback", "data", release)
    assert done.returncode == 4
    assert "the release is not whole" in done.stderr


def test_findings_refuse_it_until_they_are_overruled(releases: Releases) -> None:
    releases.begin_with("AB")
    release = releases.names["A"]
    folder = releases.layout.release(release)
    damage(folder / "data" / "same", lambda file: (file.chmod(0o600), file.write_bytes(b"SAME" * 3000))[0])
    found = audit_step.run(releases.context, "data", audit_step.AuditRequest(release=release))
    assert found["counts"]
    done = releases.command("rollback", "data")
    assert done.returncode == 4
    assert "findings stand against the release" in done.stderr
    assert f"--release {release} --overrule" in done.stderr
    assert releases.current() == "B"
    releases.command("audit", "data", "--release", release, "--overrule", "known")
    assert release_records.standing_findings(release_records.read_verdict(releases.layout, release)) == {}
    assert releases.command("rollback", "data").returncode == 0
    assert releases.current() == "A"


def test_a_release_of_an_account_that_is_not_trusted_is_refused(releases: Releases) -> None:
    releases.begin_with("AB")
    give(releases.layout.release(releases.names["A"]), 4242, 4242)
    with pytest.raises(FindingsError):
        retention_steps.rollback(releases.context, "data", None)
    assert releases.current() == "B"


def test_names_that_are_none_and_datasets_without_releases_are_refused(releases: Releases) -> None:
    assert "nothing is published" in releases.command("rollback", "data").stderr
    releases.begin_with("A")
    for name in ("nonsense", "../x", "."):
        done = releases.command("rollback", "data", name)
        assert done.returncode == 2
        assert f"there is no release {name}" in done.stderr
        assert f"there are {releases.names['A']}" in done.stderr


def test_while_a_run_holds_the_dataset_it_is_refused(releases: Releases) -> None:
    releases.begin_with("AB")
    with DatasetLock(releases.layout.lock, "data", run="", command="copy", holder_ended=lambda *_: None):
        done = releases.command("rollback", "data")
    assert done.returncode == 7
    assert "cancel data` ends a run" in done.stderr
    assert releases.current() == "B"


def test_a_link_that_a_frozen_run_was_about_to_rename_is_removed_first(releases: Releases) -> None:
    releases.begin_with("AB")
    frozen = releases.layout.folder / ".current.0123456789abcdef"
    frozen.symlink_to(f"releases/{releases.names['B']}")
    retention_steps.rollback(releases.context, "data", None)
    assert not frozen.is_symlink()
    assert releases.current() == "A"


def test_an_intent_is_finished_by_the_next_publish(releases: Releases) -> None:
    releases.begin_with("AB")
    intent = RollbackIntent(
        releases.names["A"], releases.names["B"], "0123", "2026-01-01T00:00:00Z", Author("me", 1, "h"), 1
    )
    releases.layout.rollback.write_text(json.dumps(dataset_documents.ROLLBACK_INTENT.to_json(intent)))
    releases.layout.current.unlink()
    releases.layout.current.symlink_to(f"releases/{releases.names['A']}")
    releases.stage("C")
    assert releases.told() == ["publish A", "publish B", "rollback A", "publish C"]
    assert releases.history()[2]["by"] == "me"
    assert not releases.layout.rollback.exists()


def test_an_intent_whose_rename_never_came_is_dropped(releases: Releases) -> None:
    releases.begin_with("AB")
    for content in (b"{}", b"torn", b'{"format": 1, "release": "x", "from": "y", "nonce": "", "at": ""}'):
        releases.layout.rollback.write_bytes(content)
        with pytest.raises(ConfigError, match="there is no release z"):
            retention_steps.rollback(releases.context, "data", "z")
        assert not releases.layout.rollback.exists()
    assert releases.told() == ["publish A", "publish B"]


def test_killed_before_each_of_its_changes_the_same_command_ends_it_with_one_line(releases: Releases) -> None:
    releases.stage(*"ABC")
    words = ("--config", str(releases.config), "rollback", "data")
    kills, at, wanted = 0, 0, "B"
    for at in range(1, 200):
        retention_steps.rollback(releases.context, "data", releases.names["C"])
        before = len(releases.history())
        done = killed_at(at, releases.layout.root, *words)
        releases.check(ended=False)
        assert releases.current() in ("C", wanted), at
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            break
        kills += 1
        # A run in between does not undo what was done, nor do what was not.
        if at % 4 == 0:
            stands = releases.current()
            releases.again()
            assert releases.current() == stands, at
        again = releases.command("rollback", "data")
        assert again.returncode == 0, again.stderr
        if releases.current() != wanted:
            # The kill came after all was done: then this was another rollback.
            assert releases.current() == "A"
            assert len(releases.history()) == before + 2
        else:
            assert releases.told()[before:] == ["rollback B"], at
        releases.check()
        assert not releases.layout.rollback.exists()
    assert kills >= 8, "the kills came too early"


def test_a_hundred_times_back_and_forth_no_reader_meets_anything_but_a_whole_release(
    releases: Releases,
) -> None:
    releases.begin_with("AB")
    reader = [sys.executable, "-c", READER, str(releases.layout.folder)]
    readers = [
        subprocess.Popen(reader, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        for one in readers:
            assert one.stdout is not None
            assert one.stdout.readline() == "reading\n"
        for number in range(200):
            retention_steps.rollback(releases.context, "data", releases.names["AB"[number % 2]])
            assert releases.current() == "AB"[number % 2]
        told = [json.loads(one.communicate("stop\n", timeout=60)[0]) for one in readers]
    finally:
        for one in readers:
            one.kill()
            one.wait()
    for found in told:
        assert found["wrong"] == []
        assert found["seen"] == ["A", "B"]
        assert found["loops"] > 50
    assert releases.told()[2:] == [f"rollback {'AB'[number % 2]}" for number in range(200)]
