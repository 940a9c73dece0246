"""A mount that hangs is waited for no longer than the deadline (S20): on a real one whose daemon never
answers."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.commands import penstock
from tests.support.hanging import hanging_mount
from tests.support.staging_runs import context_for, events_of, tree

from penstock.config.settings import TargetConfig
from penstock.core.errors import PreflightError
from penstock.doctor import preflight_step
from penstock.fs import watched_facts as module
from penstock.fs.capabilities import facts
from penstock.fs.watched_facts import SilentFolder, network_mount, watched_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.host.kernel_facts import Mount


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    with hanging_mount(tmp_path / "hanging") as point:
        yield point


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_WITHIN", 1.5)


def test_s20_a_mount_that_hangs_is_silent_and_the_others_answer(hanging: Path, tmp_path: Path) -> None:
    """S20."""
    link = tmp_path / "link"
    link.symlink_to(hanging / "data")
    started = time.monotonic()
    found = watched_facts([tmp_path, hanging / "root", link, hanging])
    assert time.monotonic() - started < 6, "all are waited for at once"
    here = found[tmp_path]
    assert not isinstance(here, (SilentFolder, OSError))
    assert here.kind == facts(tmp_path).kind
    for path in (hanging / "root", link, hanging):
        silent = found[path]
        assert isinstance(silent, SilentFolder)
        assert (silent.mount.type, silent.mount.point) == ("fuse.silent", str(hanging))


def test_a_folder_that_answers_is_read_although_one_before_it_hangs(hanging: Path, tmp_path: Path) -> None:
    """The one that hangs takes all of the time."""
    proc, fine = tmp_path / "proc", tmp_path / "fine"
    (proc / "self").mkdir(parents=True)
    fine.mkdir()
    lines = [
        "22 1 254:0 / / rw - ext4 /dev/vda rw",
        f"40 22 0:40 / {hanging} rw - nfs4 a:/ rw",
        f"41 22 0:41 / {fine} rw - nfs4 b:/ rw",
    ]
    (proc / "self/mountinfo").write_text("\n".join(lines) + "\n")
    found = watched_facts([hanging, fine], within=3.0, proc=proc)
    assert isinstance(found[hanging], SilentFolder)
    assert not isinstance(found[fine], (SilentFolder, OSError))


def test_s20_preflight_names_the_target_that_hangs_and_ends(hanging: Path, tmp_path: Path) -> None:
    """S20: a row that stops, with the words of the error; the other checks are made."""
    context = context_for(tmp_path, tree(tmp_path / "source", {"a": b"1"}))
    context.config = replace(context.config, target=TargetConfig(hanging / "datasets", keep_free=0))
    started = time.monotonic()
    result, error = preflight_step.look(context, "data")
    assert time.monotonic() - started < 6
    assert isinstance(error, PreflightError)
    assert "the file system of the target does not answer" in str(error)
    assert f"fuse.silent silent {hanging}" in str(error)
    rows = {row.about: row.verdict for row in result["results"] if row.verdict != "warning"}
    assert rows == {"interpreter": "ok", "target": "stop", "source": "ok", "cluster": "note"}
    assert [event.kind for event in events_of(context)] == ["start"]


def test_s20_a_source_that_hangs_stops_and_hides_nothing(hanging: Path, tmp_path: Path) -> None:
    """S20."""
    started = time.monotonic()
    result, error = preflight_step.look(context_for(tmp_path, hanging / "data"), "data")
    assert time.monotonic() - started < 6
    assert "the file system of the source does not answer" in str(error)
    rows = {row.about: row.verdict for row in result["results"] if row.verdict != "warning"}
    assert rows == {"interpreter": "ok", "target": "note", "source": "stop", "cluster": "ok"}


def test_s20_the_command_ends_with_3(hanging: Path, tmp_path: Path) -> None:
    """S20: from the configuration to the message nothing else touches the mount; at the real deadline."""
    source = tree(tmp_path / "source", {"a": b"1"})
    config = tmp_path / "my.yaml"
    config.write_text(f"target: {{root: {hanging}/datasets}}\ndatasets:\n  d: {{source: {source}}}\n")
    started = time.monotonic()
    done = penstock("--config", str(config), "preflight", cwd=tmp_path)
    assert time.monotonic() - started < 60
    assert done.returncode == 3
    assert "does not answer" in done.stderr
    assert "  stop     target" in done.stdout


def test_what_a_process_saw_is_what_this_one_sees() -> None:
    somewhere = network_mount("/proc/self")
    assert somewhere is not None, "no kind of a disk of this machine: it is asked by a process"
    found = watched_facts([Path("/proc/self"), Path("/proc/none/at/all")], 30.0)
    for path, seen in found.items():
        assert seen == facts(path)


def test_a_process_that_dies_is_an_error_and_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "_started", lambda _: subprocess.Popen(["/bin/false"], stdout=subprocess.PIPE)
    )
    (found,) = watched_facts([Path("/proc/self")]).values()
    assert isinstance(found, OSError)


MOUNTS = """22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:25 / {0}/net rw - nfs4 server:/x rw
31 22 0:26 / {0}/auto rw - autofs map rw
32 22 0:27 / {0}/memory rw - tmpfs none rw
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("here", ""),
        ("none/at/all", ""),
        ("memory/x", ""),
        ("net", "net"),
        ("net/a/b", "net"),
        ("auto/home", "auto"),
        ("link", "net"),
        ("round/a", ""),
        ("net/../here", "net"),
        ("memory/../link/a", "net"),
        ("deep/../net", "net"),
    ],
)
def test_the_network_mount_on_the_way(path: str, mount: str, tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS.format(tmp_path))
    for name in ("here", "net", "auto", "memory", "deep"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("deep/../net/x")
    (tmp_path / "round").symlink_to("round")
    found: Mount | None = network_mount(f"{tmp_path}/{path}", tmp_path)
    assert (found.point if found else "") == (f"{tmp_path}/{mount}" if mount else "")
