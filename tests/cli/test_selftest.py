"""`penstock selftest`: the table expected on each file system, row by row; limits; what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.filesystems.bed import Bed
from tests.fs.test_probe import EVERYWHERE, EXPECTED
from tests.support.commands import penstock as command
from tests.support.forked import NOBODY
from tests.support.images import file_system

from penstock.cli import main
from penstock.core.run_documents import ABILITIES
from penstock.core.run_steps import CheckResult
from penstock.doctor import selftest, selftest_measurements
from penstock.doctor.selftest_measurements import Budget
from penstock.fs import kinds
from penstock.fs.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ALONE = "not tried: no folder beside was given"
MEASURED = {
    "calls on a linked file": r"stat .+ µs, open .+ µs; of a file with one name .+ and .+ µs",
    "space": r".+ of .+ free",
    "inodes": r"[\d,]+ free",
    "quota": "none shows in statvfs, which user and group quotas never do",
    "fsync of a new file of 4 KiB": r"median .+, longest .+ of 60",
    "fsync of a folder after a rename": r"median .+, longest .+ of 10",
    "one writer, files of 16 MiB with fsync": r".+iB/s",
    "reading back past the caches": r"direct, .+/s, the same bytes",
    "a writer that is killed 3 times": r"\d+ files whole, none partial \(\d left under temporary names\)",
    "a small staging": r"49 files, 42.9 MiB staged, audited and the same, in .+",
    "what verify proved": r"cold: 49 files",
    "caches between two nodes": "not tried: everything ran on this node",
}
OTHERWISE: dict[str, dict[str, str]] = {
    "ext4": {},
    "xfs": {},
    "btrfs": {
        "inodes": "not known: statvfs says 0 of 0",
        "reading back past the caches": r"(direct|dropped), .+/s, the same bytes",
    },
    "tmpfs": {
        "reading back past the caches": r"cached, .+: as the table of file systems says, .+",
        "what verify proved": r"reread: 49 files",
    },
}
NOTES = {"quota", "caches between two nodes"}


def result_of(folder: Path, *words: str) -> dict[str, Any]:
    done = command("selftest", str(folder), "--json", *words, cwd=folder.parent)
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def found_in(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    return {row["about"]: row["found"] for row in rows}


@pytest.mark.parametrize(
    "kind",
    [
        # What the probe answers on each is compared with the same rows in tests/fs/test_probe.
        pytest.param(kind, marks=pytest.mark.thorough if kind in ("ext4", "btrfs") else ())
        for kind in OTHERWISE
        if kind == "tmpfs" or shutil.which(f"mkfs.{kind}")
    ],
)
def test_each_row_is_as_expected(tmp_path: Path, kind: str) -> None:
    with file_system(tmp_path, kind, size=640 << 20) as point:
        result = result_of(point)
        left = [name for name in os.listdir(point) if name != "lost+found"]
    assert not left
    rows = found_in(result["results"])
    wanted = {ABILITIES[name]: re.escape(answer) for name, answer in (EVERYWHERE | EXPECTED[kind]).items()}
    wanted |= {ABILITIES[name]: ALONE for name in ABILITIES if name.endswith("_between_trees")}
    # Others write to this machine's disks, which syncfs may wait for.
    wanted[ABILITIES["syncfs"]] = r"yes|not tried: it had not returned after .+"
    wanted |= MEASURED | OTHERWISE[kind]
    assert list(rows) == list(wanted)
    assert {about: rows[about] for about in rows if not re.fullmatch(wanted[about], rows[about])} == {}
    loud = {row["about"] for row in result["results"] if row["verdict"] != "ok"}
    beside = {about for about, found in rows.items() if found.startswith(("not tried", "not known"))}
    assert loud == NOTES | beside
    assert (result["kind"], result["verdict"], result["contradicts"]) == (kind, "note", 0)
    assert result["seconds"] < selftest_measurements.WITHIN
    assert result["operations"] / result["seconds"] <= selftest_measurements.PER_SECOND


def test_what_contradicts_the_row_ends_with_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PENSTOCK_AS_ROOT")
    row = Kind("labfs", types=("tmpfs",), folder_over="nothing")
    monkeypatch.setattr(kinds, "TABLE", (row, *kinds.TABLE))
    with file_system(tmp_path, "tmpfs") as point:
        assert main.main(["selftest", str(point), "--json"]) == 4
    result = json.loads(capsys.readouterr().out)
    (wrong,) = [row for row in result["results"] if row["wanted"]]
    assert (wrong["about"], wrong["wanted"]) == (
        ABILITIES["rename_over_empty_folder"],
        "no, by the table of file systems",
    )
    assert (result["kind"], result["contradicts"]) == ("labfs", 1)


def test_the_table_says_what_follows_from_what_is_refused(tmp_path: Path) -> None:
    """A BeeGFS that makes symbolic links in place of hard ones, as the test bed plays it."""
    with Bed(named="beegfs8", links="symlink") as bed:
        done = command("selftest", str(bed.nodes[0]), cwd=tmp_path)
        assert done.returncode == 0, done.stderr + done.stdout
        table = " ".join(done.stdout.split())
        assert re.search(r"warning hard link between folders no \(a symbolic link was", table)
        assert "to do: files that did not change are copied again" in table
        assert "a small staging 49 files, 42.9 MiB staged" in table
        assert not os.listdir(bed.nodes[0])


def test_a_folder_that_cannot_be_written_ends_with_3(tmp_path: Path) -> None:
    with file_system(tmp_path, "tmpfs", "ro") as point:
        done = command("selftest", str(point), cwd=tmp_path)
    assert done.returncode == 3
    assert "the selftest cannot make a folder there" in done.stderr
    assert "Read-only file system" in done.stderr
    done = command("selftest", str(tmp_path / "none"), cwd=tmp_path)
    assert (done.returncode, "there is no such folder" in done.stderr) == (3, True)


def test_what_a_killed_selftest_left_is_removed_by_the_next(tmp_path: Path) -> None:
    dead = tmp_path / f"{selftest.PREFIX}.{os.uname().nodename}.{os.getpid()}.1.abcdef"
    (dead / "killed-0").mkdir(parents=True)
    own = tmp_path / selftest._name()
    own.mkdir()
    away = tmp_path / f"{selftest.PREFIX}.n.17.example.org.4711.5.abcdef"
    away.mkdir()
    (tmp_path / f"{selftest.PREFIX}-mine").mkdir()
    (named,) = selftest._clear(tmp_path)
    assert (named.found, named.verdict) == (away.name, "note")
    assert "none runs on n.17.example.org" in named.mend
    assert not dead.exists()
    assert own.exists()
    assert away.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_a_killed_selftest_of_another_account_left_is_named(tmp_path: Path) -> None:
    dead = tmp_path / f"{selftest.PREFIX}.{os.uname().nodename}.{os.getpid()}.1.abcdef"
    dead.mkdir()
    os.chown(dead, NOBODY, NOBODY)
    (named,) = selftest._clear(tmp_path)
    assert (named.found, dead.exists()) == (dead.name, True)


def test_no_second_sees_more_operations_than_the_budget() -> None:
    waited: list[float] = []
    one = Budget(waited.append)
    for _ in range(10):
        one.spend(100)
    assert sum(waited) >= 10 * 100 / selftest_measurements.PER_SECOND
    assert one.operations == 1000


def test_more_bytes_or_files_than_the_budget_are_never_written() -> None:
    with pytest.raises(ValueError, match="would write"):
        Budget(lambda _: None).spend(1, size=selftest_measurements.MOST_BYTES + 1)
    with pytest.raises(ValueError, match="would write"):
        Budget(lambda _: None).spend(1, files=selftest_measurements.MOST_FILES + 1)


def test_after_its_time_nothing_is_begun() -> None:
    (result,) = selftest._stage("fsync", list, Budget(lambda _: None, within=0))
    assert (result.about, result.verdict) == ("fsync", "note")


def test_an_error_ends_its_part_alone() -> None:
    def dies() -> list[CheckResult]:
        raise OSError(5, "Input/output error")

    (result,) = selftest._stage("fsync", dies, Budget(lambda _: None))
    assert (result.verdict, result.found) == ("stop", "it failed: Input/output error")


@pytest.mark.parametrize(
    ("result", "does"),
    [
        (CheckResult("x", "yes"), False),
        (CheckResult("x", "not tried: no room", "note"), False),
        (CheckResult("x", "no", "note", "yes, by the table of file systems"), True),
        (CheckResult("x", "no", "warning", "yes"), True),
        (CheckResult("x", "partial", "stop"), True),
    ],
)
def test_what_contradicts(result: CheckResult, does: bool) -> None:
    assert selftest.contradicts(result) is does


def test_a_partial_file_under_a_final_name_is_seen(tmp_path: Path) -> None:
    (tmp_path / "00001").write_bytes(selftest.content(1))
    (tmp_path / ".p.0123456789abcdef").write_bytes(b"x")
    assert selftest._compared(tmp_path) == (1, 1, [])
    whole = selftest.content(2)
    (tmp_path / "00002").write_bytes(whole[:-1])
    (tmp_path / "stranger").touch()
    assert selftest._compared(tmp_path) == (3, 1, ["00002", "stranger"])


def test_the_staging_fits_the_budget() -> None:
    assert sum(selftest_measurements.SIZES) + 300 * 2**20 < selftest_measurements.MOST_BYTES
