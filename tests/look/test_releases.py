"""`penstock releases` and `show`: what lies below a root, in rows; what is broken is a row that says so."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.look.conftest import AFTER, BEFORE
from tests.support.commands import penstock
from tests.support.forked import NOBODY, forked
from tests.support.published import published, writable
from tests.support.staging_runs import tree

from penstock.cli.commands import releases
from penstock.core import findings
from penstock.core.errors import ConfigError, PreflightError
from penstock.core.findings import (
    LastAudit,
    LastRepair,
    StandingFindings,
    Verdict,
)
from penstock.core.layout import DatasetLayout
from penstock.dataset import seals
from penstock.dataset.pins import ShownPins
from penstock.look import details
from penstock.look import releases as places
from penstock.look.releases import dataset_row, nobody
from penstock.look.views import text_layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.catalogue_rows import DatasetRow, ReleaseRow


def text(row: DatasetRow) -> str:
    return "".join(f"{line.text}\n" for line in releases.render_releases([row]))


def by_name(row: DatasetRow) -> dict[str, ReleaseRow]:
    return {one["release"]: one for one in row["releases"]}


def names(layout: DatasetLayout) -> tuple[str, str]:
    """The release that `current` names, and the other one."""
    current = os.readlink(layout.current).rpartition("/")[2]
    (other,) = {one.name for one in layout.releases.iterdir()} - {current}
    return current, other


def rewrite(path: Path, change: Callable[[dict[str, object]], dict[str, object]]) -> None:
    raw = change(json.loads(path.read_bytes()))
    path.parent.chmod(0o755)
    path.chmod(0o644)
    path.write_text(json.dumps(raw))


def test_each_release_is_a_row_with_its_size_files_grade_and_age(layout: DatasetLayout) -> None:
    current, other = names(layout)
    later = datetime.now(UTC) + timedelta(days=3)
    row = dataset_row(layout, nobody, later)
    assert (row["current"], row["problem"], row["stagings"]) == (current, "", [])
    assert row["owner"] == {
        "uid": os.geteuid(),
        "user": "root" if os.geteuid() == 0 else row["owner"]["user"],
    }
    assert f" files (shared ones each time), owner {row['owner']['user']}" in text(row).splitlines()[0]
    found = by_name(row)
    assert [found[name]["current"] for name in (current, other)] == [True, False]
    for name, files in ((current, AFTER), (other, BEFORE)):
        one = found[name]
        assert (one["files"], one["bytes"]) == (len(files), sum(map(len, files.values())))
        assert (one["state"], one["source_grade"]) == ("published", "size")
        assert one["storage_grade"] == seals.load(layout, name).seal.evidence.weakest_storage != ""
        assert one["age"] == pytest.approx(3 * 86400, abs=600)
        assert one["path"] == str(layout.release(name) / "data")
        assert one["last_audit"] is None
    assert (found[current]["base"], found[current]["unchanged"]) == (other, 2)
    assert row["files"] == len(AFTER) + len(BEFORE)
    assert "never" in text(row)


def test_the_last_audit_and_the_findings_that_stand_are_shown(layout: DatasetLayout) -> None:
    current, _ = names(layout)
    ended = (datetime.now(UTC) - timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    last = LastAudit(audit="x", choice="whole", status="FINDINGS", counts={"changed": 2}, ended=ended)
    stands = [StandingFindings("x", ended, {"changed": 2})]
    told = Verdict("data", current, seals.load(layout, current).digest, stands, last=last)
    layout.verdict(current).parent.mkdir()
    layout.verdict(current).write_text(json.dumps(findings.VERDICT.to_json(told)))
    row = dataset_row(layout, nobody)
    one = by_name(row)[current]
    assert (one["findings"], one["state"]) == ({"changed": 2}, "damaged")
    assert (row["state"], row["problem"]) == ("damaged", "")
    assert one["audit_age"] == pytest.approx(5 * 3600, abs=600)
    assert "FINDINGS, 5 h" in " ".join(text(row).split())
    assert "! damaged: findings stand against the release: 2 changed" in text(row)
    shown = details.shown(layout, None, nobody)
    assert "penstock repair data" in shown["advice"]
    assert shown["verdict"] is not None
    # A repair that left nothing closes them in all views.
    mended = told._replace(stands=(), repair=LastRepair("2026-03-14T12:03:11Z", "x", 2, 0))
    layout.verdict(current).write_text(json.dumps(findings.VERDICT.to_json(mended)))
    row = dataset_row(layout, nobody)
    assert (row["state"], by_name(row)[current]["findings"]) == ("published", {})
    assert "repaired 2026-03-14\n" in text(row)
    assert "FINDINGS" not in text(row)
    last = by_name(row)[current]["last_audit"]
    assert last is not None
    assert text_layout.last(last).endswith(": FINDINGS (2 changed), repaired 2026-03-14T12:03:11Z")


def test_a_holder_of_a_release_stands_in_its_row(layout: DatasetLayout) -> None:
    _, other = names(layout)
    who = [f"job {number} of cluster c" for number in range(5)]
    row = dataset_row(layout, lambda _: {other: ShownPins(who)})
    assert by_name(row)[other]["held_by"] == who
    assert text(row).splitlines()[-4:] == [
        *(f"    held by {one}" for one in who[:3]),
        "    and by 2 more (--json)",
    ]
    assert "held by" not in text(dataset_row(layout, nobody))


def broken_seal(folder: Path) -> None:
    with writable(folder / "release.json"):
        (folder / "release.json").write_bytes(b'{"format": 1, "dataset"')


def no_seal(folder: Path) -> None:
    (folder / "release.json").unlink()


def fifo(folder: Path) -> None:
    (folder / "release.json").unlink()
    os.mkfifo(folder / "release.json")


def linked_seal(folder: Path) -> None:
    (folder / "release.json").rename(folder / "elsewhere")
    (folder / "release.json").symlink_to("elsewhere")


def other_seal(folder: Path) -> None:
    rewrite(folder / "release.json", lambda raw: {**raw, "release": "other"})


def newer_seal(folder: Path) -> None:
    rewrite(folder / "release.json", lambda raw: {**raw, "format": 999})


def a_link(folder: Path) -> None:
    folder.rename(folder.with_name(".aside"))
    folder.symlink_to(".aside")


@pytest.mark.parametrize(
    ("breaks", "state", "says", "status"),
    [
        (broken_seal, "damaged", "its seal (release.json) is damaged: it is no JSON", 4),
        (no_seal, "damaged", "its seal (release.json) is missing", 4),
        (fifo, "damaged", "it is no plain file", 4),
        (linked_seal, "damaged", "it is no plain file", 4),
        (other_seal, "damaged", "its seal (release.json) is that of another release, other", 4),
        (newer_seal, "newer", "it has format 999", 0),
        (a_link, "damaged", "it is no folder", 4),
    ],
)
def test_a_release_that_is_broken_is_one_row_that_says_so(
    breaks: Callable[[Path], None], state: str, says: str, status: int, layout: DatasetLayout
) -> None:
    current, other = names(layout)
    layout.release(other).chmod(0o755)
    breaks(layout.release(other))
    row = dataset_row(layout, nobody)
    found = by_name(row)
    assert found[other]["state"] == state
    assert says in found[other]["problem"]
    assert found[current]["state"] == "published"
    assert says in " ".join(text(row).split())
    done = penstock("show", "data", other, "--root", str(layout.root), cwd=layout.root)
    assert done.returncode == status, done
    assert says in " ".join(done.stdout.split())
    done = penstock("releases", "--root", str(layout.root), cwd=layout.root)
    assert done.returncode == 0
    assert current in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_release_folder_of_another_account_is_said_to_be_foreign(layout: DatasetLayout) -> None:
    _, other = names(layout)
    os.chown(layout.release(other), NOBODY, NOBODY)
    one = by_name(dataset_row(layout, nobody))[other]
    assert one["state"] == "foreign"
    assert "it belongs to nobody (uid 65534); target.owners are root (uid 0)" in one["problem"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
def test_a_reader_sees_what_the_owner_sees_but_for_the_history(root: Path) -> None:
    layout = DatasetLayout(root, "data")
    before = snapshot(root)
    row = forked(lambda: dataset_row(layout, nobody), uid=NOBODY)
    mine = dataset_row(layout, nobody)
    for one in (*row["releases"], *mine["releases"]):
        one["age"] = None
    assert row == mine
    shown = forked(lambda: details.shown(layout, None, nobody), uid=NOBODY)
    assert (shown["seal_in_history"], shown["history"]) == ("unreadable", [])
    assert "its owner alone can read" in " ".join(
        line.text.strip() for line in releases.render_release(shown)
    )
    assert details.shown(layout, None, nobody)["seal_in_history"] == "same"
    assert snapshot(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
def test_a_dataset_that_cannot_be_read_is_one_line_beside_the_others(root: Path) -> None:
    shutil.copytree(root / "data", root / "closed", symlinks=True)
    (root / "closed").chmod(0o700)
    found = forked(
        lambda: [dataset_row(DatasetLayout(root, n), nobody) for n in places.datasets(root)], uid=NOBODY
    )
    assert [(one["dataset"], one["problem"], len(one["releases"])) for one in found] == [
        ("closed", "the dataset cannot be read by this account: Permission denied, for nobody", 0),
        ("data", "", 2),
    ]
    with pytest.raises(PreflightError, match="cannot be read by this account"):
        forked(lambda: details.shown(DatasetLayout(root, "closed"), None, nobody), uid=NOBODY)


def test_a_folder_that_is_no_dataset_is_not_listed(root: Path) -> None:
    (root / "home").mkdir()
    (root / ".promises").mkdir(exist_ok=True)
    (root / "a-file").touch()
    (root / "link").symlink_to("data")
    assert places.datasets(root) == ["data", "link"]
    assert (
        "link is a link, and must be a folder" in dataset_row(DatasetLayout(root, "link"), nobody)["problem"]
    )


def test_staging_and_what_is_being_removed_stand_apart(layout: DatasetLayout) -> None:
    trials = (".penstock-rehearsal", ".penstock-probe", ".penstock-adopt-1f")
    for name in (".later.staging", ".x.repair", ".removed-20260101-abc-1", *trials):
        (layout.releases / name).mkdir()
    for name in (".removing-x", ".removed-y-2"):
        (layout.releases / name).touch()
    row = dataset_row(layout, nobody)
    assert len(row["releases"]) == 2
    kinds = {one["name"]: (one["kind"], one["state"]) for one in row["stagings"]}
    assert kinds == {
        ".later.staging": ("staging", "left"),
        ".x.repair": ("repair", "unknown"),
        ".removed-20260101-abc-1": ("removed", "unknown"),
        ".removed-y-2": ("removed", "taken back"),
        ".removing-x": ("removing", "unknown"),
        ".penstock-rehearsal": ("rehearsal", "unknown"),
        ".penstock-probe": ("trial", "unknown"),
        ".penstock-adopt-1f": ("trial", "unknown"),
    }
    assert not [line for line in releases.render_releases([row]) if "not of penstock" in line.text]
    assert "beside them: .later.staging (left by a run that did not end, changed 0 s ago)" in " ".join(
        text(row).split()
    )


def test_a_staging_under_way_is_told_from_one_that_was_left(tmp_path: Path) -> None:
    from penstock.run import copy_step, list_step, plan_step

    source = tree(tmp_path / "source", BEFORE)
    with published(tmp_path, source) as context:
        (source / "gone").unlink()
        for step in (list_step.run, plan_step.run, copy_step.run):
            step(context, "data")
        (staging,) = dataset_row(context.layout("data"), nobody)["stagings"]
    assert (staging["kind"], staging["state"]) == ("staging", "under way")


def test_a_pointer_to_nowhere_is_said(layout: DatasetLayout) -> None:
    layout.current.unlink()
    layout.current.symlink_to("releases/never")
    row = dataset_row(layout, nobody)
    assert row["problem"] == "`current` names never, which is not there"
    layout.current.unlink()
    layout.current.symlink_to("/etc")
    assert dataset_row(layout, nobody)["problem"] == "`current` does not lead to a release: it names /etc"
    assert len(dataset_row(layout, nobody)["releases"]) == 2


def test_a_seal_that_was_changed_since_is_not_the_one_in_the_history(layout: DatasetLayout) -> None:
    current, _ = names(layout)
    rewrite(layout.release(current) / "release.json", lambda raw: {**raw, "files": 4})
    assert details.shown(layout, current, nobody)["seal_in_history"] == "differs"


@pytest.mark.parametrize("name", ["never", "../data", ".hidden"])
def test_a_release_that_is_not_there_is_a_usage_error(name: str, layout: DatasetLayout) -> None:
    with pytest.raises(ConfigError):
        details.shown(layout, name, nobody)


def test_a_release_name_that_steers_a_terminal_is_escaped(layout: DatasetLayout) -> None:
    evil = layout.releases / os.fsdecode(b"evil\x1b]0;X\x07\n\xff")
    evil.mkdir()
    row = dataset_row(layout, nobody)
    shown = text(row)
    assert not {"\x1b", "\x07"} & set(shown)
    assert "evil\\x1b]0;X\\x07\\n\\xff" in "".join(shown.split())
    done = penstock("releases", "--json", "--root", str(layout.root), cwd=layout.root)
    (line,) = done.stdout.splitlines()
    assert os.fsencode(evil.name) in [os.fsencode(one["release"]) for one in json.loads(line)["releases"]]


def test_no_line_is_longer_than_80_columns(layout: DatasetLayout) -> None:
    _, other = names(layout)
    layout.release(other).rename(layout.releases / ("a-release-with-a-name-" * 5))
    row = dataset_row(
        layout, lambda _: {one: ShownPins(["job 1234567 of cluster hpc, uid 10042"]) for one in names(layout)}
    )
    assert max(map(len, text(row).splitlines())) <= 80


def test_a_root_that_is_not_there_stops(tmp_path: Path) -> None:
    done = penstock("releases", "--root", str(tmp_path / "nowhere"), cwd=tmp_path)
    assert done.returncode == 3
    assert "there is no such target" in done.stderr


def test_the_configuration_names_datasets_that_are_not_staged_yet(root: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        f"target: {{root: {root}}}\ndatasets: {{later: {{source: x}}, data: {{source: x}}}}\n"
    )
    done = penstock("releases", "--progress", "json", cwd=tmp_path)
    assert done.returncode == 0, done
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["dataset"], one["problem"]) for one in found] == [
        ("later", "nothing is published or staged here yet"),
        ("data", ""),
    ]
    assert penstock("releases", "other", cwd=tmp_path).returncode == 2
    done = penstock("show", cwd=tmp_path)
    assert done.returncode == 2
    assert "which dataset?" in done.stderr
    assert "there are: later, data" in done.stderr
    assert penstock("show", "--root", str(root), cwd=tmp_path).stdout.startswith("data/")
    receipt = tmp_path / "receipt.json"
    assert penstock("show", "data", "--receipt", str(receipt), cwd=tmp_path).returncode == 0
    assert json.loads(receipt.read_bytes())["seal"]["files"] == len(AFTER)


def snapshot(root: Path) -> dict[str, tuple[int, ...]]:
    """lstat of everything below a root."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            seen = os.lstat(os.path.join(folder, name))
            found[os.path.join(folder, name)] = (
                seen.st_ino,
                seen.st_mode,
                seen.st_size,
                seen.st_mtime_ns,
                seen.st_ctime_ns,
            )
    return found
