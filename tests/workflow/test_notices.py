"""`notify`: each event of a dataset is announced once, and nothing that the command does stops a run."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.commands import kill_session, started, until
from tests.support.images import file_system

from penstock.config import loader, site
from penstock.core.errors import ConfigError
from penstock.keep import notices

if TYPE_CHECKING:
    from tests.workflow.conftest import Place

SECRET = "AKIA5SECRET5SECRET"
SCRIPT = """#!/bin/sh
cat >>"$0.log"
echo $$ >"$0.pid"
if [ -e "$0.hang" ]; then exec sleep 300; fi
if [ -e "$0.fail" ]; then echo "token={secret}"; echo "token={secret}" >&2; exit 3; fi
"""


class Mailbox:
    """A command that keeps what it gets."""

    def __init__(self, place: Place) -> None:
        self.place, self.program = place, place.folder / "notice"
        place.monkeypatch.chdir(place.folder)
        self.program.write_text(SCRIPT.format(secret=SECRET))
        self.program.chmod(0o755)
        self.configure()

    def configure(self, **more: Any) -> None:
        events = ["failed", "findings", "stale", "published"]
        self.place.config["notify"] = {"command": [str(self.program)], "events": events, **more}
        self.place.write()

    @property
    def got(self) -> list[dict[str, Any]]:
        path = self.program.with_name("notice.log")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def events(self) -> list[str]:
        return [notice["event"] for notice in self.got]

    def switch(self, name: str, *, on: bool) -> None:
        path = self.program.with_name(f"notice.{name}")
        path.touch() if on else path.unlink()

    def send(self) -> list[str]:
        """As a command that ends."""
        file = self.place.folder / "config.yaml"
        return notices.send(loader.load(file), file)["d"]


@pytest.fixture
def mailbox(place: Place) -> Mailbox:
    return Mailbox(place)


def test_each_end_is_announced_once(place: Place, mailbox: Mailbox) -> None:
    """Also after kill -9 of a run that has published, and has not said so."""
    away = place.folder / "away"
    place.source.rename(away)
    for count in (1, 2):
        assert place.penstock("run").returncode == 3
        assert mailbox.events == ["failed"] * count, "each end that fails is one"
    failed = mailbox.got[0]
    assert "the source folder cannot be read" in failed["why"]
    assert {name: failed[name] for name in ("format", "dataset", "root", "go_on", "host")} == {
        "format": 1,
        "dataset": "d",
        "root": str(place.target),
        "go_on": f"penstock --config {place.folder / 'config.yaml'} run d",
        "host": os.uname().nodename,
    }
    away.rename(place.source)
    with started(sys.executable, "-m", "penstock", "run", cwd=place.folder) as process:
        until((place.target / "d" / "current").exists, "the release to appear")
        kill_session(process.pid)
    for _ in range(2):
        done = place.penstock("run")
        assert done.returncode == 0, done.stderr
        assert mailbox.events == ["failed", "failed", "published"]
    assert mailbox.got[2]["release"] == (place.target / "d" / "current").readlink().name


def test_snakemake_by_hand_announces_its_ends(place: Place, mailbox: Mailbox) -> None:
    away = place.folder / "away"
    place.target.mkdir()
    place.source.rename(away)
    assert place.snakemake().returncode == 1
    assert mailbox.events == ["failed"]
    away.rename(place.source)
    mailbox.switch("fail", on=True)
    done = place.snakemake()
    assert done.returncode == 0, done.stderr
    assert "d: the notice `published` did not arrive: exit status 3" in done.stderr
    assert place.snakemake().returncode == 0
    assert mailbox.events == ["failed", "published"]


def test_a_notice_that_is_cut_off_is_reported_and_not_sent_again(place: Place, mailbox: Mailbox) -> None:
    mailbox.switch("hang", on=True)
    with started(sys.executable, "-m", "penstock", "run", cwd=place.folder) as process:
        until(lambda: bool(mailbox.got), "the command to get its notice")
        kill_session(process.pid)
    os.kill(int((place.folder / "notice.pid").read_text()), signal.SIGKILL)
    mailbox.switch("hang", on=False)
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert "Warning       the notice `published` was cut off" in done.stdout
    assert "cut off" not in place.penstock("run").stdout
    assert mailbox.events == ["published"]


@pytest.mark.parametrize(
    ("does", "why"), [("hang", "no answer within 2 s"), ("fail", "exit status 3"), ("gone", "not there: ")]
)
def test_a_command_that_hangs_or_fails_stops_nothing(
    place: Place, mailbox: Mailbox, does: str, why: str
) -> None:
    """The run goes on, its summary says it, and what the command prints is shown nowhere."""
    mailbox.configure(timeout="2s")
    mailbox.switch(does, on=True)
    if does == "gone":
        mailbox.program.unlink()
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert f"Warning       the notice `published` did not arrive: {why}" in done.stdout
    assert "STATUS        PASSED" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    for path in place.folder.rglob("*"):
        if path.is_file() and path != mailbox.program:
            assert SECRET.encode() not in path.read_bytes(), path
    if does == "hang":
        pid = int((place.folder / "notice.pid").read_text())
        until(lambda: not Path(f"/proc/{pid}").exists(), "the command to be gone")


def test_all_notices_of_a_command_have_one_budget(place: Place, mailbox: Mailbox) -> None:
    place.stage("d")
    mailbox.configure(stale="1ms", timeout="1s")
    mailbox.switch("hang", on=True)
    done = place.penstock("run")
    assert done.returncode == 0, done.stderr
    assert "the notice `published` did not arrive: no answer within 1 s" in done.stdout
    assert (
        "the notice `stale` was not sent: notify.command took all of its 1 s; the next command" in done.stdout
    )
    assert mailbox.events == ["published"]
    mailbox.switch("hang", on=False)
    assert "the notice" not in place.penstock("run").stdout
    assert mailbox.events == ["published", "stale"]


def test_findings_are_announced_once_until_they_are_repaired(place: Place, mailbox: Mailbox) -> None:
    place.stage("d")
    file = next(path for path in (place.target / "d/current/data").rglob("*") if path.is_file())
    for count in (1, 2):
        file.chmod(0o644)
        file.write_bytes(file.read_bytes()[::-1] + b"1")
        for _ in range(2):
            assert place.penstock("audit", "d").returncode == 4
        assert mailbox.events.count("findings") == count
        assert place.penstock("repair", "d").returncode == 0
        assert mailbox.send() == []
    notice = next(notice for notice in mailbox.got if notice["event"] == "findings")
    assert notice["why"].startswith("findings stand against the release: ")
    assert f"penstock --config {place.folder / 'config.yaml'} repair d" in notice["go_on"]


def test_a_dataset_without_a_run_is_stale(place: Place, mailbox: Mailbox) -> None:
    place.stage("d")
    assert mailbox.send() == []
    mailbox.configure(stale="1ms")
    for _ in range(2):
        assert mailbox.send() == []
    assert mailbox.events == ["published", "stale"]
    assert re.fullmatch(r"no run for 0\.\d d", mailbox.got[1]["why"])
    # A run that finds nothing new is a success, too, by its claim, which is dated in whole seconds.
    published = place.target.joinpath("d/.penstock/history.jsonl").stat().st_mtime
    until(lambda: time.time() > published + 2, "the second after the publication to be over")
    assert place.penstock("step", "list", "d").returncode == 0
    assert mailbox.send() == []
    assert mailbox.events == ["published", "stale", "stale"]
    mailbox.configure(stale="1h")
    assert mailbox.send() == []
    assert not list(place.target.glob("d/.penstock/notices/stale-*")), "its mark is forgotten"


def test_of_commands_that_end_at_once_one_announces_it(place: Place, mailbox: Mailbox) -> None:
    place.stage("d")
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda _: mailbox.send(), range(6))) == [[]] * 6
    assert mailbox.events == ["published"]


def test_without_room_for_its_mark_a_notice_is_sent(place: Place, mailbox: Mailbox, tmp_path: Path) -> None:
    with file_system(tmp_path, "tmpfs", size=64 << 20) as small:
        place.config["target"]["root"] = str(small)
        mailbox.configure()
        place.stage("d")
        room = os.statvfs(small)
        (small / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize))
        assert mailbox.send() == []
        assert mailbox.events == ["published"]


MODES = [
    (0o644, 0o755, 0, ""),
    (0o640, 0o1777, 0, ""),
    (0o664, 0o755, 0, "file"),
    (0o646, 0o755, 0, "file"),
    (0o644, 0o775, 0, "folder"),
    (0o644, 0o757, 0, "folder"),
    (0o644, 0o755, 65534, "file"),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other accounts: only as root")
@pytest.mark.parametrize(("mode", "folder_mode", "owner", "wrong"), MODES)
def test_a_configuration_that_others_may_write_calls_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, folder_mode: int, owner: int, wrong: str
) -> None:
    """A file that its group may write would run commands as the account that stages."""
    (tmp_path / "etc").mkdir()
    monkeypatch.setattr(site, "FILE", tmp_path / "etc" / "site.yaml")
    folder = tmp_path / "shared"
    folder.mkdir()
    file = folder / "my.yaml"
    root = tmp_path / "root"
    file.write_text(
        f"target: {{root: {root}}}\ndatasets: {{d: {{source: /s}}}}\nnotify: {{command: [/bin/n]}}\n"
    )
    os.chown(file, owner, owner)
    file.chmod(mode)
    folder.chmod(folder_mode)
    config = loader.load(file)
    if not wrong:
        loader.refuse(config, file)
        return
    with pytest.raises(ConfigError) as refused:
        loader.refuse(config, file)
    assert refused.value.why.startswith(str(file if wrong == "file" else folder))
    assert "/bin/n" in refused.value.hint
    assert notices.send(config, file)["d"][0].startswith(
        "not all notices were sent: notify.command is refused"
    )
    site.FILE.write_text("notify: {programs: [/bin/other, /bin/n]}\n")
    loader.refuse(config, file)


def test_a_run_of_such_a_configuration_is_refused(place: Place, mailbox: Mailbox) -> None:
    (place.folder / "config.yaml").chmod(0o664)
    done = place.penstock("run")
    assert done.returncode == 2
    assert "others than this account may write the configuration" in done.stderr
    assert not (place.target / "d").exists()
    assert place.penstock("status").returncode == 0
    assert mailbox.got == []
