"""`penstock du`: what a dataset takes and what its parts would free, against a count by `os.walk`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest
from tests.look.test_releases import names, snapshot
from tests.support.commands import penstock
from tests.support.forked import NOBODY, forked

from penstock.cli.commands import releases
from penstock.cli.main import main
from penstock.config import loader
from penstock.core.errors import InterruptedRunError
from penstock.core.layout import DatasetLayout
from penstock.dataset import disk_use
from penstock.dataset.disk_use import Use
from penstock.fs.tree import DEPTH
from penstock.look.dataset_use import used

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.catalogue_rows import AreaUse, DiskUse


def free(count: int) -> None:
    """There is no budget."""


def quiet(files: int, size: int) -> None:
    """Nobody looks."""


def use_of(layout: DatasetLayout) -> DiskUse:
    return used(layout, free, quiet)


def by_name(use: DiskUse) -> dict[str, AreaUse]:
    return {one["name"]: one for one in use["areas"]}


def text(use: DiskUse) -> str:
    return "".join(f"{line.text}\n" for line in releases.render_use([use]))


def blocks(path: Path) -> int:
    return path.lstat().st_blocks * 512


def everything(top: Path) -> int:
    """Bytes on disk of all below a folder, and of the folder, each inode once."""
    seen = {}
    for folder, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in (".", *files, *links):
            found = os.lstat(os.path.join(folder, name))
            seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def test_shared_files_count_once_and_a_release_frees_what_it_alone_has(root: Path, original: Path) -> None:
    """The fixture's copies have no links: the original, whose second release links two files, has."""
    layout = DatasetLayout(original / "target", "data")
    current, other = names(layout)
    use = use_of(layout)
    areas = by_name(use)
    data = {name: layout.release(name) / "data" for name in (current, other)}
    both = sum(blocks(data[current] / name) for name in ("same/a", "same/b"))
    assert (use["shared_files"], use["shared_bytes"]) == (2, both)
    for name in (current, other):
        assert areas[name]["bytes"] == everything(layout.release(name))
        assert areas[name]["unique_bytes"] == everything(layout.release(name)) - both
        assert areas[name]["files"] - areas[name]["unique_files"] == 2
    assert areas[current]["state"] == "current"
    assert use["bytes"] == everything(layout.folder)
    assert use["bytes"] == sum(one["unique_bytes"] for one in use["areas"]) + both
    assert "shared by several of them, once" in text(use)
    # A copy without links shares nothing.
    assert use_of(DatasetLayout(root, "data"))["shared_files"] == 0


def test_a_removal_frees_what_was_said(original: Path, tmp_path: Path) -> None:
    root = tmp_path / "target"
    subprocess.run(["cp", "-a", str(original / "target"), str(root)], check=True)
    layout = DatasetLayout(root, "data")
    _, other = names(layout)
    before = use_of(layout)
    subprocess.run(["chmod", "-R", "u+w", str(layout.release(other))], check=True)
    subprocess.run(["rm", "-r", str(layout.release(other))], check=True)
    after = use_of(layout)
    # What else changes is `releases` itself, whose blocks may stay.
    assert before["bytes"] - after["bytes"] == by_name(before)[other]["unique_bytes"]
    assert after["shared_files"] == 0


def test_it_adds_up_as_a_count_by_os_walk_does(tmp_path: Path) -> None:
    """Random areas of files with one name, several names in one area, in several, and outside."""
    chance = random.Random(20261123)
    for round_ in range(12):
        top = tmp_path / f"{round_}"
        areas = [top / f"area{number}" for number in range(4)]
        for folder in (*areas, top / "outside"):
            (folder / "deep/er").mkdir(parents=True)
        made: list[Path] = []
        for number in range(120):
            folder = chance.choice([*areas, top / "outside"]) / chance.choice(["", "deep", "deep/er"])
            path = folder / f"f{number}"
            if made and chance.random() < 0.6:
                os.link(chance.choice(made), path)
            else:
                path.write_bytes(b"x" * chance.choice([0, 1, 5000, 20_000]))
            made.append(path)
        names_of: dict[int, list[str]] = defaultdict(list)
        links: dict[int, int] = {}
        for area in areas:
            for folder, _, files in os.walk(area):
                for name in files:
                    seen = os.lstat(os.path.join(folder, name))
                    names_of[seen.st_ino].append(area.name)
                    links[seen.st_ino] = seen.st_nlink
        expected: Counter[str] = Counter()
        for inode, found in names_of.items():
            kind = "outside" if len(found) < links[inode] else found[0] if len(set(found)) == 1 else "shared"
            expected[kind] += 1
        with Use(in_memory=1, most=chance.choice([3, 1000])) as use:
            sums_of = {}
            for area in areas:
                sums_of[area.name] = use.area()
                use.add_tree(sums_of[area.name], os.open(area, os.O_RDONLY), free)
            sums = use.ended()
        assert {name: area.files.total() for name, area in sums_of.items()} == {
            area.name: expected[area.name] for area in areas
        }
        assert (sums.in_several[0], sums.outside[0]) == (expected["shared"], expected["outside"])
        for area in areas:
            within = {inode for inode, found in names_of.items() if area.name in found}
            assert sums_of[area.name].all_files == len(within)
            assert sums_of[area.name].all_bytes == everything(area)
            assert sums_of[area.name].folders.total() == 3
        assert sum(one["files"] for one in sums.owners()) == len(names_of) + 12


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_groups_and_users_are_counted_apart(layout: DatasetLayout) -> None:
    current, _ = names(layout)
    path = layout.release(current) / "data/came"
    os.chown(path, 4321, 8765)
    use = use_of(layout)
    told = {(one["uid"], one["gid"]): one for one in use["owners"]}
    assert told[4321, 8765]["bytes"] == blocks(path)
    assert told[4321, 8765]["files"] == 1
    frees = {(one["uid"], one["gid"]): one for one in by_name(use)[current]["frees"]}
    assert frees[4321, 8765]["bytes"] == blocks(path)
    assert sum(one["bytes"] for one in use["owners"]) == use["bytes"] == everything(layout.folder)
    assert "8765" in text(use)


def test_stagings_and_state_stand_apart(layout: DatasetLayout) -> None:
    (layout.releases / ".old.staging/data").mkdir(parents=True)
    (layout.releases / ".old.staging/data/x").write_bytes(b"x" * 9000)
    areas = {(one["kind"], one["name"]): one for one in use_of(layout)["areas"]}
    staging = areas["staging", ".old.staging"]
    assert (staging["state"], staging["files"], staging["folders"]) == ("left", 1, 2)
    assert areas["state", ".penstock"]["bytes"] == everything(layout.state)
    assert "staging .old.staging (left by a run" in text(use_of(layout))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another account")
def test_a_reader_is_told_what_could_not_be_looked_at(layout: DatasetLayout) -> None:
    before = snapshot(layout.root)
    use = forked(lambda: use_of(layout), uid=NOBODY)
    assert snapshot(layout.root) == before
    areas = by_name(use)
    current, other = names(layout)
    assert areas[".penstock"]["unreadable"] == 1
    assert areas[current]["files"] == by_name(use_of(layout))[current]["files"]
    assert "not counted: 2 names that this account cannot look into" in text(use)
    layout.release(other).chmod(0o700)
    assert by_name(forked(lambda: use_of(layout), uid=NOBODY))[other]["unreadable"] == 1
    layout.folder.chmod(0o700)
    assert forked(lambda: use_of(layout), uid=NOBODY)["problem"] == "Permission denied"


def test_links_are_followed_nowhere(layout: DatasetLayout, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large/file").write_bytes(b"x" * 100_000)
    before = use_of(layout)["files"]
    (layout.releases / ".x.staging").symlink_to(tmp_path / "large")
    (layout.folder / "audits").symlink_to(tmp_path / "large")
    use = use_of(layout)
    assert use["files"] == before + 2
    assert use["bytes"] == everything(layout.folder)


def test_it_asks_for_each_call_and_ends_where_that_raises(layout: DatasetLayout) -> None:
    asked: list[int] = []
    use = used(layout, asked.append, quiet)
    assert sum(asked) >= use["files"]

    def stop(count: int) -> None:
        raise InterruptedRunError(2)

    with pytest.raises(InterruptedRunError):
        used(layout, stop, quiet)


def test_it_keeps_within_the_budget_of_operations(
    layout: DatasetLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"target: {{root: {layout.root}}}\ndatasets: {{data: {{source: x}}}}\n")
    monkeypatch.setenv(loader.TESTED, '{"target.ops": 20}')
    asked: list[int] = []
    used(layout, asked.append, quiet)
    began = time.monotonic()
    assert main(["--config", str(config), "--progress", "off", "du"]) == 0
    # A second's worth may be taken at once.
    assert time.monotonic() - began > (sum(asked) - 20 - max(asked)) / 20 * 0.8 > 1


def test_it_rests_while_pause_stands(layout: DatasetLayout) -> None:
    pause = layout.root / "PAUSE"
    pause.write_text("until noon\n")
    codes: list[int] = []
    words = ["du", "--root", str(layout.root)]
    walker = threading.Thread(target=lambda: codes.append(penstock(*words, cwd=layout.root).returncode))
    walker.start()
    walker.join(4)
    assert walker.is_alive()
    pause.unlink()
    walker.join(120)
    assert codes == [0]


def test_the_command_prints_a_line_of_json_a_dataset(layout: DatasetLayout) -> None:
    done = penstock("du", "--json", "--root", str(layout.root), cwd=layout.root)
    assert done.returncode == 0, done
    (told,) = map(json.loads, done.stdout.splitlines())
    assert told["bytes"] == everything(layout.folder)
    done = penstock("du", "data", "--root", str(layout.root), cwd=layout.root)
    assert done.stdout.startswith("data: ")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert penstock("du", "other", "--root", str(layout.root), cwd=layout.root).returncode == 2


def test_a_folder_that_vanishes_while_it_is_walked_is_left_out(tmp_path: Path) -> None:
    """A link beside a longer chain of folders than descriptors are held of: its folder is opened again."""
    top = tmp_path / "top"
    (top / "a" / "/".join("b" * (DEPTH + 10))).mkdir(parents=True)
    (top / "a" / "link").symlink_to("nowhere")
    (top / "c").write_bytes(b"1")
    calls = 0

    def remove(count: int) -> None:
        nonlocal calls
        calls += 1
        if calls == DEPTH + 5:
            (top / "a").rename(tmp_path / "gone")

    with Use() as use:
        area = use.area()
        use.add_tree(area, os.open(top, os.O_RDONLY), remove)
        use.ended()
    assert area.files.total() == 1
    assert not (top / "a").exists()


def test_memory_holds_rows_of_one_pass_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each inode's rows come in one pass, whatever its number."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for number in range(300):
        (tmp_path / f"a/{number}").touch()
        os.link(tmp_path / f"a/{number}", tmp_path / f"b/{number}")
    sizes: list[int] = []
    add = disk_use.AreaSums.add

    def noted(self: disk_use.AreaSums, rows: object) -> None:
        sizes.append(len(rows))  # type: ignore[arg-type]
        add(self, rows)

    monkeypatch.setattr(disk_use.AreaSums, "add", noted)
    with Use(in_memory=1, most=100) as use:
        for name in ("a", "b"):
            use.add_tree(use.area(), os.open(tmp_path / name, os.O_RDONLY), free)
        sums = use.ended()
    assert sums.in_several[0] == 300
    assert len(sizes) == 8
    assert max(sizes) <= 200
