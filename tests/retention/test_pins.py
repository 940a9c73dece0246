"""Readers' pins: who places them, how long they stand, what they say."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.test_gate import configured
from tests.support.accounts import give
from tests.support.commands import until
from tests.support.forked import forked
from tests.support.published import data_of, published
from tests.support.staging_runs import tree

from penstock.cli.main import main
from penstock.config.settings import PermissionsConfig
from penstock.core.dataset_documents import PinFile
from penstock.core.errors import FindingsError
from penstock.dataset import gate, pins, reserve
from penstock.dataset import holder as holders
from penstock.dataset.pins import ReleasePin
from penstock.host import kernel_facts
from penstock.host.kernel_facts import JobEnvironment
from penstock.keep import retention_steps
from penstock.look import status_report
from penstock.target import notices, tree_removal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.retention.conftest import Releases

DAY = 86400.0
NOW = 1_800_000_000.0
HERE = {"host": os.uname().nodename, "boot": holders.boot_id(), "namespace": holders.pid_namespace()}
ALIVE = {**HERE, "pid": os.getpid(), "start": holders.start_time(os.getpid())}
DEAD = {**HERE, "pid": 1 << 22, "start": "1"}
ELSEWHERE = {**DEAD, "host": "node7"}
JOB = {**ELSEWHERE, "job": "17", "cluster": "alpha"}


@pytest.mark.parametrize(
    ("said", "age", "answer", "why"),
    [
        (ALIVE, 15 * DAY, None, "it is older than 14 days"),
        (JOB, 15 * DAY, None, "it is older than 14 days"),
        (JOB, 0, True, "job 17 has ended"),
        (JOB, 0, False, ""),
        (JOB, 0, None, ""),
        (DEAD, 0, None, f"process {1 << 22} has ended"),
        (ALIVE, 0, None, ""),
        (ELSEWHERE, 0, None, ""),
    ],
)
def test_how_long_a_pin_stands(said: dict[str, Any], age: float, answer: bool | None, why: str) -> None:
    pin = ReleasePin("name", 1, NOW - age, PinFile("r", "", **said))
    assert pins.ended(pin, NOW, 14 * DAY, lambda job, cluster: answer) == why


def test_what_is_no_pin_and_a_day_old_is_left_to_gc(tmp_path: Path) -> None:
    layout = _layout(tmp_path / "data")
    assert list(pins.strays(layout, {}, NOW)) == []
    layout.pins.mkdir(parents=True)
    for name in ("a pin", "foreign", ".unfinished.tmp"):
        (layout.pins / name).touch()
    (layout.pins / "folder").mkdir()
    (layout.pins / "link").symlink_to("nowhere")
    os.utime(layout.pins / "foreign", (NOW * 2, NOW * 2))
    now = time.time()
    assert list(pins.strays(layout, {"a pin"}, now + DAY - 60)) == []
    assert list(pins.strays(layout, {"a pin"}, now + DAY + 60)) == [".unfinished.tmp", "foreign", "link"]


def look(releases: Releases) -> Any:
    return lambda: gate.passed(releases.layout)


def in_job(number: str, cluster: str = "alpha", restarts: int = 0) -> None:
    kernel_facts.enter_job(JobEnvironment(job=number, proven=True, cluster=cluster, restarts=restarts))


@pytest.fixture(autouse=True)
def _no_job() -> Iterator[None]:
    yield
    kernel_facts.enter_job(JobEnvironment())


def test_a_jobs_pin_stands_until_its_cluster_says_that_it_ended(releases: Releases) -> None:
    release = releases.begin_with("A")
    layout = releases.layout
    in_job("17", restarts=1)
    found, pin = pins.pinned(layout, look(releases))
    assert found.release == release
    assert pin.name.startswith(f"{os.geteuid()}-alpha-17-1-")
    assert os.listdir(layout.pins) == [pin.name]
    pin = pins.pinned(layout, look(releases))[1]
    assert os.listdir(layout.pins) == [pin.name], "the newer one takes the older one's place"
    for answer, stands in ((None, True), (False, True), (True, False)):
        held = pins.held(layout, 14 * DAY, lambda job, cluster, answer=answer: answer)
        assert bool(held.get(release)) is stands
    # Of a cluster that this configuration does not know: its context's own answer.
    assert "job 17 of cluster alpha" in status_report.run(releases.context, "data")["pins"][0]


def test_a_job_that_pins_again_after_a_publish_holds_both_releases(releases: Releases) -> None:
    releases.begin_with("A")
    in_job("17")
    pins.pinned(releases.layout, look(releases))
    releases.stage("B")
    pins.pinned(releases.layout, look(releases))
    held = pins.held(releases.layout, DAY, lambda *_: None)
    assert sorted(held) == sorted(releases.names.values())


def given(releases: Releases) -> str:
    """The letter of the release that `path --job` gives this process."""

    def look_at(release: str | None) -> Any:
        return gate.passed(releases.layout, release=release)

    found, pin = pins.of_reader(releases.layout, look_at)
    assert pin.release == found.release
    return releases.letter(found.release)


def test_s32_a_job_is_given_the_same_release_again_also_after_a_requeue(releases: Releases) -> None:
    """S32."""
    releases.begin_with("A")
    in_job("17")
    assert given(releases) == "A"
    releases.stage("B")
    assert given(releases) == "A"
    in_job("17", restarts=1)
    assert given(releases) == "A"
    # Each start has a pin of its own: the first one's may become too old.
    assert len(pins.read(releases.layout)) == 2
    for other in (("18", "alpha"), ("17", "beta")):
        in_job(*other)
        assert given(releases) == "B"
    in_job("17")
    assert given(releases) == "A"


def test_a_script_outside_of_a_job_is_given_the_same_release_again(releases: Releases) -> None:
    releases.begin_with("A")
    assert given(releases) == "A"
    releases.stage("B")
    assert given(releases) == "A"
    assert len(pins.read(releases.layout)) == 1
    in_job("17")
    assert given(releases) == "B"


def test_s32_processes_of_a_job_that_ask_at_once_are_given_one_release(releases: Releases) -> None:
    """S32: of two that met different releases, the pin that was there first says which."""
    releases.begin_with("A")
    in_job("17")
    layout = releases.layout

    def look_late() -> Any:
        """`current` is resolved, and then another process of the job is faster."""
        found = gate.passed(layout)
        if releases.current() == "A":
            releases.stage("B")
            pins.pinned(layout, look(releases))
        return found

    def look_at(release: str | None) -> Any:
        return look_late() if release is None else gate.passed(layout, release=release)

    found, pin = pins.of_reader(layout, look_at)
    assert releases.letter(found.release) == "B"
    assert pin.release == found.release
    assert [one.release for one in pins.read(layout)] == [releases.names["B"]]


def test_s32_a_job_whose_release_was_removed_is_told_so_and_given_no_other(releases: Releases) -> None:
    """S32."""
    releases.begin_with("A")
    in_job("17")
    assert given(releases) == "A"
    releases.stage("B")
    tree_removal.remove_tree(releases.layout.release(releases.names["A"]))
    with pytest.raises(FindingsError):
        given(releases)


def test_of_two_processes_of_a_job_none_takes_the_others_pin_away(releases: Releases) -> None:
    """One of them meets a mark, and takes its own pin back; the other one's, which was there before the mark,
    still holds the release."""
    releases.begin_with("A")
    layout = releases.layout
    in_job("17")
    first = pins.pinned(layout, look(releases))[1]
    layout.removing(releases.names["A"]).write_text("{}")
    with pytest.raises(FindingsError, match="is being removed"):
        pins.pinned(layout, look(releases))
    assert os.listdir(layout.pins) == [first.name]


def test_another_accounts_pin_of_the_same_name_is_left_alone(releases: Releases) -> None:
    releases.begin_with("A")
    in_job("17")
    pin = pins.pinned(releases.layout, look(releases))[1]
    give(releases.layout.pins / pin.name, 4242, 4242)
    pins.pinned(releases.layout, look(releases))
    assert {one.uid for one in pins.read(releases.layout)} == {0, 4242}


def test_what_is_no_pin_holds_nothing(releases: Releases) -> None:
    releases.begin_with("A")
    folder = releases.layout.pins
    (folder / "torn").write_text('{"format": 1, "rele')
    (folder / "nested").write_text("[" * 60_000)
    (folder / "newer").write_text('{"format": 99, "at": ""}')
    (folder / "list").write_text("[1]")
    (folder / "link").symlink_to("torn")
    os.mkfifo(folder / "fifo")
    (folder / "hostile").write_text(
        json.dumps({"format": 1, "release": "r", "at": "\x1b[31m\n", "host": "\x07"})
    )
    found = pins.read(releases.layout)
    assert [one.name for one in found] == ["hostile"]
    assert found[0].words().isprintable()


def test_a_pin_with_a_second_name_holds_its_release(releases: Releases, tmp_path: Path) -> None:
    """As a backup by hard links leaves it."""
    releases.begin_with("A")
    in_job("17")
    pin = pins.pinned(releases.layout, look(releases))[1]
    releases.stage("B")
    os.link(releases.layout.pins / pin.name, tmp_path / "backup")
    removed = releases.command("remove", "data", releases.names["A"], "--now")
    assert (removed.returncode, releases.there()) == (3, "AB")
    assert f"pin {pin.name}: " in removed.stderr


def test_s36_a_pin_of_a_newer_version_holds_its_release_until_it_is_too_old_or_taken_back(
    releases: Releases,
) -> None:
    releases.begin_with("AB")
    pin = releases.layout.pins / "newer"
    pin.write_text(json.dumps({"format": 2, "release": releases.names["A"], "at": "", "job": {"number": 1}}))
    removed = releases.command("remove", "data", releases.names["A"], "--now")
    assert (removed.returncode, releases.there()) == (3, "AB")
    assert (
        f"pin newer: {pwd.getpwuid(os.geteuid()).pw_name}, of a newer penstock (format 2)" in removed.stderr
    )
    os.utime(pin, (time.time() - 15 * DAY,) * 2)
    assert releases.command("gc", "--dry-run").returncode == 0
    found = pins.read(releases.layout)[0]
    assert pins.ended(found, time.time(), 14 * DAY, lambda *_: None) == "it is older than 14 days"
    os.utime(pin)
    assert releases.command("gc", "data", "--unpin", "newer").returncode == 0
    assert releases.command("remove", "data", releases.names["A"], "--now").returncode == 0
    assert releases.there() == "B"


def test_a_release_that_is_being_removed_is_not_pinned_and_another_one_is(releases: Releases) -> None:
    releases.begin_with("AB")
    layout = releases.layout
    names = iter([releases.names["A"], releases.names["A"], releases.names["B"]])
    layout.removing(releases.names["A"]).write_text("{}")
    found, pin = pins.pinned(layout, lambda: gate.passed(layout, release=next(names)))
    assert found.release == releases.names["B"]
    assert os.listdir(layout.pins) == [pin.name]
    notices.withdraw(layout.pins, pin.name)
    with pytest.raises(FindingsError, match="is being removed"):
        pins.pinned(layout, lambda: gate.passed(layout, release=releases.names["A"]))
    assert os.listdir(layout.pins) == []


def test_the_command_pins_for_the_script_that_calls_it(releases: Releases, tmp_path: Path) -> None:
    releases.begin_with("A")
    command = f"{sys.executable} -m penstock --config {releases.config}"
    (tmp_path / "job.sh").write_text(
        f"data=$({command} path data --job) || exit 1\n"
        f'echo "$data"; {command} path data --job > /dev/null; read -r _; echo end; read -r _\n'
    )
    script = subprocess.Popen(
        ["bash", tmp_path / "job.sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert script.stdin is not None
        assert script.stdout is not None
        data = script.stdout.readline()
        assert data == f"{data_of(releases.context)}\n"
        script.stdin.write("on\n")
        script.stdin.flush()
        assert script.stdout.readline() == "end\n"
        held = pins.held(releases.layout, DAY, lambda *_: None)
        (pin,) = held[releases.names["A"]]
        assert (pin.said.pid, pin.said.program) == (script.pid, "bash")
        shown = releases.command("releases", "--json").stdout
        assert f"process {script.pid} (bash)" in shown
    finally:
        os.killpg(script.pid, signal.SIGKILL)
        script.communicate()
    assert pins.held(releases.layout, DAY, lambda *_: None) == {}


def test_nothing_is_pinned_where_the_gate_is_closed(releases: Releases) -> None:
    releases.begin_with("A")
    release = releases.layout.release(releases.names["A"])
    release.chmod(0o700)
    (release / "release.json").unlink()
    done = releases.command("path", "data", "--job")
    assert (done.returncode, done.stdout) == (4, "")
    assert "its seal (release.json) is missing" in done.stderr
    assert os.listdir(releases.layout.pins) == []


def test_a_dataset_of_an_older_version_gets_its_folder_of_pins_by_a_rollback(releases: Releases) -> None:
    releases.begin_with("AB")
    shutil.rmtree(releases.layout.pins)
    retention_steps.rollback(releases.context, "data", None)
    assert stat.S_IMODE(releases.layout.pins.stat().st_mode) & 0o7777 == 0o1770


OWNER, MEMBER, STRANGER = 2001, 2002, 2003
"""Accounts; the member is in the owner's group."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other accounts reach, with a place for the state of each."""
    if os.geteuid() != 0:
        pytest.skip("only root can be other accounts")
    folder = Path(tempfile.mkdtemp(prefix="penstock-pins-"))
    folder.chmod(0o755)
    for uid in (OWNER, MEMBER, STRANGER):
        (folder / f"home-{uid}").mkdir(mode=0o700)
        os.chown(folder / f"home-{uid}", uid, uid)
    (folder / "own").mkdir()
    os.chown(folder / "own", OWNER, OWNER)
    yield folder
    tree_removal.remove_tree(folder)


def staged(place: Path, permissions: PermissionsConfig) -> tuple[str, Path]:
    """Published by OWNER; the configuration, and the dataset's folder."""
    source = tree(place / "source", {f"d/{i}": b"x" * 3000 for i in range(6)})

    def work() -> tuple[str, str]:
        with published(place / "own", source, permissions=permissions) as context:
            return configured(context, place / "own"), str(context.layout("data").folder)

    config, folder = forked(work, uid=OWNER)
    return config, Path(folder)


def said(uid: int, place: Path, *words: str) -> tuple[int, str]:
    """Exit status and what the command says, as that account."""

    def work() -> tuple[int, str]:
        os.environ["XDG_STATE_HOME"] = str(place / f"home-{uid}")
        os.chdir(place)
        text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = main([*words, "--progress", "lines"])
        text.seek(0)
        return code, text.read()

    answer: Any = forked(work, uid=uid, groups=(OWNER,) if uid == MEMBER else ())
    assert "Traceback" not in answer[1]
    return answer[0], answer[1]


def test_members_of_the_readers_group_pin_and_strangers_are_refused(place: Path) -> None:
    config, folder = staged(place, PermissionsConfig(file_mode=0o440, dir_mode=0o550))
    assert stat.S_IMODE((folder / "pins").stat().st_mode) == 0o1770
    code, text = said(MEMBER, place, "path", "--config", config, "--job")
    assert code == 0, text
    (name,) = os.listdir(folder / "pins")
    assert (folder / "pins" / name).stat().st_uid == MEMBER
    assert f"uid {MEMBER}" in text
    code, text = said(STRANGER, place, "path", "--config", config, "--job")
    assert code == 3, text
    assert "cannot be read by this account" in text
    assert os.listdir(folder / "pins") == [name]


def test_where_everybody_reads_everybody_pins_and_takes_back_its_own_alone(place: Path) -> None:
    config, folder = staged(place, PermissionsConfig(file_mode=0o444, dir_mode=0o555))
    assert stat.S_IMODE((folder / "pins").stat().st_mode) == 0o1777
    for uid in (OWNER, MEMBER, STRANGER):
        assert said(uid, place, "path", "--config", config, "--job")[0] == 0
    assert len(os.listdir(folder / "pins")) == 3

    def meddle() -> list[str]:
        refused = []
        for name in os.listdir(folder / "pins"):
            try:
                os.unlink(folder / "pins" / name)
            except PermissionError as error:
                refused.append(str(error.strerror))
        return refused

    assert len(forked(meddle, uid=STRANGER)) == 2
    layout = _layout(folder)
    assert {pin.uid for pin in pins.read(layout)} == {OWNER, MEMBER}

    def enter() -> None:
        (layout.dataset_reserve / "00").unlink()

    with pytest.raises(PermissionError):
        forked(enter, uid=STRANGER)
    assert not forked(lambda: reserve.give(layout.dataset_reserve), uid=STRANGER)


def test_what_others_left_in_a_reserve_that_stood_open_is_swept_and_the_reserve_closed(place: Path) -> None:
    layout = _layout(place / "own/data")
    layout.pins.mkdir(parents=True)
    give(layout.folder, OWNER, OWNER)
    forked(lambda: reserve.fill(layout), uid=OWNER)
    folder = layout.dataset_reserve
    names = sorted(os.listdir(folder))
    layout.folder.chmod(0o755)
    folder.chmod(0o777)

    def meddle() -> None:
        (folder / "00").unlink()
        (folder / "00").write_bytes(b"x")
        (folder / "!").mkdir()
        (folder / "!full/below").mkdir(parents=True)
        os.rename(folder / "01", folder / "zz")
        (folder / "01").symlink_to("/etc/passwd")
        (folder / "foreign").write_bytes(b"x")

    forked(meddle, uid=STRANGER)
    forked(lambda: reserve.fill(layout), uid=OWNER)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(folder)) == ["!full", *names], "its owner alone can empty that folder"
    seen = [(folder / name).lstat() for name in names]
    assert {(one.st_uid, one.st_size) for one in seen} == {(OWNER, reserve.OF_DATASET[1])}
    assert forked(lambda: reserve.give(folder), uid=OWNER)
    assert os.listdir(folder) == ["!full"], "no folder is in the way of those that are given"


def test_the_acl_of_a_release_says_who_may_pin(place: Path) -> None:
    permissions = PermissionsConfig(file_mode=0o440, dir_mode=0o550, acl=(f"user:{STRANGER}:r-X",))
    config, folder = staged(place, permissions)
    code, text = said(STRANGER, place, "path", "--config", config, "--job")
    assert code == 0, text
    assert len(os.listdir(folder / "pins")) == 1


def test_nothing_is_removed_where_the_owner_cannot_read_the_pins(place: Path) -> None:
    config, dataset = staged(place, PermissionsConfig(file_mode=0o444, dir_mode=0o555))
    (dataset / "pins").chmod(0o300)
    status, words = said(OWNER, place, "gc", "--config", config, "--dry-run")
    assert (status, "/pins]: Permission denied: nobody knows which releases are read" in words) == (3, True)


def test_without_a_folder_of_pins_a_reader_is_told_who_makes_it(place: Path) -> None:
    config, folder = staged(place, PermissionsConfig(file_mode=0o444, dir_mode=0o555))
    (folder / "pins").rmdir()
    code, text = said(MEMBER, place, "path", "--config", config, "--job")
    assert code == 3
    assert "takes no pins yet" in text
    code, text = said(OWNER, place, "path", "--config", config, "--job")
    assert code == 0, text


def test_a_pin_outlives_a_reader_that_was_killed_only_until_its_process_is_gone(releases: Releases) -> None:
    releases.begin_with("A")
    child = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -m penstock --config {releases.config} path data --job; sleep 1000"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    until(lambda: pins.read(releases.layout), "the pin")
    assert pins.held(releases.layout, DAY, lambda *_: None)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    assert pins.held(releases.layout, DAY, lambda *_: None) == {}


def _layout(folder: Path) -> Any:
    from penstock.core.layout import DatasetLayout

    return DatasetLayout(folder.parent, folder.name)


def test_pins_of_others_forge_no_line_of_status_and_are_counted_beyond_twenty(releases: Releases) -> None:
    """K3."""
    releases.begin_with("a")
    layout = releases.layout
    forged = {
        "format": 1,
        "at": "2026-01-01T00:00:00Z",
        "host": "h\nPUBLISHED",
        "release": "r\n  state  damaged",
    }
    for number in range(300):
        (layout.pins / f"4000-x-{number}").write_text(json.dumps(forged))
    answer = releases.command("status", "data")
    assert answer.returncode == 0, answer.stderr
    assert "and up to 280 more pins" in answer.stdout.replace("\n", " ")
    assert not [
        line
        for line in answer.stdout.splitlines()
        if line.strip().startswith(("state  damaged", "PUBLISHED"))
    ]
    assert len(answer.stdout) < 20_000


def test_a_reader_looks_for_its_own_pins_alone(releases: Releases) -> None:
    """K3: those of other accounts are not opened."""
    releases.begin_with("a")
    for number in range(2000):
        (releases.layout.pins / f"4000-x-{number}").write_text("{}")
    assert pins.names(releases.layout, f"{os.geteuid()}-") == []
    assert len(notices.postings(releases.layout.pins).posted) == 2000
