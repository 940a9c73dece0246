"""`<root>/HOLD`: whom its lines hold, for whom, and that gates open when they are gone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.audit.test_gate import configured
from tests.audit.test_readers import OWNER, STRANGER, said
from tests.dataset.test_pause import as_root
from tests.retention.conftest import Releases
from tests.retention.test_gc import held, ruled
from tests.support.accounts import give
from tests.support.forked import forked
from tests.support.published import data_of, published
from tests.support.staging_runs import tree
from tests.support.whole_way import staging

from penstock.config.settings import PermissionsConfig
from penstock.core.errors import FindingsError
from penstock.core.layout import DatasetLayout
from penstock.dataset import gate
from penstock.keep import retention_steps
from penstock.look import status_report
from penstock.look.releases import dataset_row
from penstock.target import notices, tree_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REASON = "target 17 lost bytes"


def stands(root: Path, *lines: str) -> Path:
    path = root / notices.HOLD_NAME
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


# Whom a line holds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "holds", "reason"),
    [
        (["", "  # nothing", "\t"], [], ""),
        (["data"], ["data", "data/a", "data/b"], "without a reason"),
        ([f"data   {REASON} "], ["data", "data/a", "data/b"], REASON),
        ([f"data/a\t{REASON}"], ["data/a"], REASON),
        (["other x", f"data/b {REASON}"], ["other", "data/b"], REASON),
        (["data \x1b[31mred"], ["data", "data/a", "data/b"], "\\x1b[31mred"),
    ],
)
def test_whom_a_line_holds(tmp_path: Path, lines: list[str], holds: list[str], reason: str) -> None:
    stands(tmp_path, *lines)
    for name in ("data", "data/a", "data/b", "other"):
        dataset, _, release = name.partition("/")
        found = notices.standing_holds(DatasetLayout(tmp_path, dataset), release)
        assert (found is not None) == (name in holds)
        if found is not None and dataset == "data":
            assert found.reason == reason


@pytest.mark.parametrize(
    "line", ["data: x", "data/ x", "data/a/b x", "/data x", "../data x", "d\xe4ta x", "a" * 65 + " x", "\0"]
)
def test_a_line_that_names_nothing_holds_everything_and_says_which_it_is(tmp_path: Path, line: str) -> None:
    stands(tmp_path, "# ticket 4711", line)
    found = notices.standing_holds(DatasetLayout(tmp_path, "innocent"), "r")
    assert found is not None
    assert "line 2 of HOLD names neither" in found.reason


def test_a_file_that_nobody_can_read_to_its_end_holds_everything(tmp_path: Path) -> None:
    with stands(tmp_path).open("r+b") as file:
        file.truncate(1 << 40)
    found = notices.standing_holds(DatasetLayout(tmp_path, "data"))
    assert found is not None
    assert "more than 65536 bytes" in found.reason


def folder(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    path.symlink_to("elsewhere")
    path.with_name("elsewhere").write_text("data x\n")


def two_names(path: Path) -> None:
    path.write_text("data x\n")
    os.link(path, path.with_name("second"))


@pytest.mark.parametrize("make", [folder, link, two_names, os.mkfifo])
def test_what_is_no_plain_file_with_one_name_holds_everything(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / notices.HOLD_NAME)
    held = notices.standing_holds(DatasetLayout(tmp_path, "innocent"))
    assert held is not None
    assert held.reason == "nobody can say what HOLD closes: it is no plain file with one name"
    assert notices.warning(tmp_path) == ""


@as_root
def test_a_strangers_link_in_a_root_for_all_holds_nobody(tmp_path: Path) -> None:
    link(tmp_path / notices.HOLD_NAME)
    os.chown(tmp_path / notices.HOLD_NAME, 1235, 1235, follow_symlinks=False)
    assert notices.standing_holds(DatasetLayout(tmp_path, "data")) is None
    assert "not obeyed: it belongs to uid 1235" in notices.warning(tmp_path)


@as_root
@pytest.mark.parametrize(
    ("root", "file", "counts"), [(0, 0, True), (1234, 0, True), (1234, 1234, True), (1234, 1235, False)]
)
def test_whose_file_holds(tmp_path: Path, root: int, file: int, counts: bool) -> None:
    give(tmp_path, root, root)
    give(stands(tmp_path, "data x"), file, file)
    assert (notices.standing_holds(DatasetLayout(tmp_path, "data")) is not None) == counts
    assert ("not obeyed: it belongs to uid 1235" in notices.warning(tmp_path)) != counts


def test_a_name_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "data/releases/a").mkdir(parents=True)
    stands(tmp_path, "data x", "dat x", "data/a x", "data/b x")
    assert notices.warning(tmp_path) == "it names what is not below this root: line 2: dat, line 4: data/b"
    assert notices.warning(tmp_path / "none") == ""


# What follows ------------------------------------------------------------------------------


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Releases]:
    source = tmp_path / "source"
    source.mkdir()
    with staging(tmp_path, source) as context:
        found = Releases(context, tmp_path)
        found.stage(*"AB")
        yield found


def refused(layout: DatasetLayout, release: str | None = None) -> str:
    with pytest.raises(gate.HeldError) as error:
        gate.passed(layout, release=release)
    assert error.value.exit_code == FindingsError.exit_code
    return str(error.value)


def test_a_held_release_is_closed_alone_until_current_leads_elsewhere(releases: Releases) -> None:
    layout, names = releases.layout, releases.names
    path = stands(layout.root, f"data/{names['B']} {REASON}")
    assert REASON in refused(layout)
    assert gate.passed(layout, release=names["A"]).release == names["A"]
    rows = {row["release"]: row for row in dataset_row(layout, lambda _: {})["releases"]}
    assert (rows[names["B"]]["state"], rows[names["A"]]["state"]) == ("held", "published")
    assert rows[names["B"]]["files"] == 3
    assert retention_steps.rollback(releases.context, "data", None)["release"] == names["A"]
    assert gate.passed(layout).release == names["A"]
    with pytest.raises(gate.HeldError):
        retention_steps.rollback(releases.context, "data", names["B"])
    # A new release takes the place of a held one; of a held dataset it is held as well.
    new = releases.stage("C")
    assert gate.passed(layout).release == new
    path.write_text("data x\n")
    assert "data is held" in refused(layout)
    assert "data is held" in refused(layout, names["A"])
    path.unlink()
    assert gate.passed(layout).release == new


def test_of_what_is_held_nothing_is_read_at_the_gate(releases: Releases) -> None:
    """Its servers may not answer: here a seal and a manifest that would be refused."""
    layout = releases.layout
    folder = layout.release(releases.names["B"])
    (folder / "release.json").chmod(0o600)
    (folder / "release.json").write_text("{")
    stands(layout.root, f"data/{releases.names['B']} {REASON}")
    assert REASON in refused(layout)


def test_gc_keeps_what_is_held_and_says_so(releases: Releases) -> None:
    releases.stage("C")
    path = stands(releases.layout.root, f"data/{releases.names['A']} {REASON}")
    ruled(releases, last=1)
    found = retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "AC"
    assert [one for one in held(releases, found, "A") if one.startswith("HOLD: ")] == [
        f"HOLD: {REASON} (by {notices.standing_holds(releases.layout, releases.names['A']).by})"  # type: ignore[union-attr]
    ]
    path.unlink()
    retention_steps.gc(releases.context, "data", dry_run=False)
    assert releases.there() == "C"


def test_status_names_it_and_ends_with_4(releases: Releases) -> None:
    stands(releases.layout.root, f"data {REASON}")
    answer = status_report.run(releases.context, "data")
    assert (answer["state"], answer["files"], answer["why"].partition(" (by ")[0]) == ("held", 3, REASON)
    done = releases.command("status", "data")
    assert (done.returncode, f"HELD: {REASON}" in done.stdout) == (4, True), done
    done = releases.command("releases", "data")
    assert (done.returncode, f"! HELD: {REASON}" in done.stdout) == (4, True), done
    done = releases.command("gate", "data", "--mend")
    assert (done.returncode, REASON in done.stderr) == (4, True), done


# As another account, by the built command --------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="penstock-hold-"))
    top.chmod(0o755)
    for name, uid in (("own", OWNER), (f"home-{STRANGER}", STRANGER)):
        (top / name).mkdir()
        give(top / name, uid, uid)
    yield top
    tree_removal.remove_tree(top)


def asked(place: Path, *words: str) -> tuple[int, str, str, float]:
    """Exit status, both outputs and CPU seconds of the built command, as an account that may only read."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "--config", str(place / "own/penstock.yaml"), *words],
        cwd=place / f"home-{STRANGER}", env={**os.environ, "HOME": str(place / f"home-{STRANGER}")},
        capture_output=True, text=True, check=False, timeout=240,
        user=STRANGER, group=STRANGER, extra_groups=[],
    )  # fmt: skip
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return done.returncode, done.stdout, done.stderr, used


@as_root
def test_hold_by_root_at_three_in_the_morning(place: Path) -> None:
    source = tree(place / "source", {f"d/{i}": b"x" * 3000 for i in range(6)})

    def work() -> str:
        permissions = PermissionsConfig(file_mode=0o444, dir_mode=0o555)
        with published(place / "own", source, permissions=permissions) as context:
            configured(context, place / "own")
            return str(data_of(context))

    data = forked(work, uid=OWNER)
    root = place / "own/target"
    assert asked(place, "path", "data")[:2] == (0, f"{data}\n")
    path = stands(root, f"data {REASON}")
    for words in (("gate", "data"), ("path", "data"), ("path", "data", "--job")):
        code, out, err, used = asked(place, *words)
        assert (code, out) == (4, "")
        assert f"data is held [{path}]: {REASON} (by root)" in err
        assert used < 1
    # The administrator's file that readers cannot read, or that names nothing, closes what it may mean.
    path.chmod(0o600)
    assert "Permission denied" in asked(place, "gate", "data")[2]
    path.chmod(0o644)
    second = path.with_name("second")
    os.link(path, second)
    code, _, err, _ = asked(place, "gate", "data")
    assert (code, f"[{path}]: nobody can say what HOLD closes: it is no plain file" in err) == (4, True)
    second.unlink()
    path.write_text("daat x\n")
    code, _, err, _ = asked(place, "gate", "data")
    assert (code, f"warning: {path}: it names what is not below this root: line 1: daat" in err) == (0, True)
    path.unlink()
    assert asked(place, "gate", "data")[0] == 0
    # Another account's file, in a root that is everybody's like /tmp.
    root.chmod(0o1777)
    give(stands(root, f"data {REASON}"), STRANGER, STRANGER)
    code, out, err, _ = asked(place, "path", "data")
    assert (code, out) == (0, f"{data}\n")
    assert "not obeyed: it belongs to" in err
    code, text = said(STRANGER, place, "status", "--config", str(place / "own/penstock.yaml"))
    assert (code, "HOLD: not obeyed: it belongs to" in text) == (0, True)
