"""A dataset is staged, killed amid it, staged to its end, audited on another node and repaired, by the
commands that people type, on file systems with the tempers of BeeGFS, WEKA, Lustre and NFS."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.filesystems.bed import Bed
from tests.filesystems.sets import SETS
from tests.support import fixed_settings
from tests.support.commands import PATIENCE, kill_session, run, started
from tests.support.staging_runs import tree
from tests.support.whole_way import content

from penstock.core.layout import DatasetLayout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = {f"d{i % 5}/f {i:03d}": bytes([i]) * (300 * i) for i in range(40)} | {
    "giant": bytes(range(250)) * 10_000,
    "odd\n\\ %41": b"odd",
}


SMALL = {
    "plan.shard_files": 11, "plan.giant_bytes": "2MiB", "plan.part_bytes": "1MiB", "engine.workers": 1,
}  # fmt: skip


class Place:
    """A dataset `data` from a folder of this machine to a bed; commands on any of its nodes."""

    def __init__(self, folder: Path, bed: Bed) -> None:
        self.bed, self.folder = bed, folder
        self.settings: dict[str, object] = {}
        """Further settings without a key."""
        self.source = tree(folder / "source", FILES)
        self.layout = DatasetLayout(bed.nodes[0] / "target", "data")
        self.config = folder / "config.yaml"
        self.written(limit="limit: 1MiB/s")

    def written(self, *, limit: str = "") -> None:
        """The configuration; with a limit, so that a run can be met amid its copy."""
        self.config.write_text(
            f"target: {{root: {self.layout.root}, keep_free: 0}}\n"
            f"datasets: {{data: {{source: {self.source}}}}}\n"
            f"engine: {{{limit}}}\n"
        )

    def command(self, node: int, *words: str) -> list[str]:
        return self.bed.on(node, sys.executable, "-m", "penstock", "--config", str(self.config), *words)

    @property
    def variables(self) -> dict[str, str]:
        return fixed_settings.environment(SMALL | self.settings)

    def penstock(self, node: int, *words: str) -> subprocess.CompletedProcess[str]:
        return run(*self.command(node, *words), cwd=self.folder, env=self.variables)

    @contextlib.contextmanager
    def amid_its_copy(self) -> Iterator[subprocess.Popen[str]]:
        """A run that has begun to copy."""
        with started(*self.command(0, "run"), cwd=self.folder, env=self.variables) as process:
            deadline = time.monotonic() + PATIENCE
            stored = self.bed.store / self.layout.runs.relative_to(self.bed.nodes[0])
            while not [*stored.glob("[0-9a-f]*/journal/*/*.journal")]:
                assert process.poll() is None, process.stdout and process.stdout.read()
                assert time.monotonic() < deadline, "nothing was copied"
                time.sleep(0.01)
            yield process

    def killed_amid_its_copy(self) -> None:
        with self.amid_its_copy() as process:
            kill_session(process.pid)
        assert not self.layout.current.exists()

    def release(self, node: int) -> Path:
        return self.bed.nodes[node] / self.layout.current.relative_to(self.bed.nodes[0])


def whole_life(folder: Path, **bed: object) -> None:
    with Bed(nodes=4, **bed) as made:  # type: ignore[arg-type]
        place = Place(folder, made)
        place.killed_amid_its_copy()
        place.written()
        done = place.penstock(0, "run")
        assert done.returncode == 0, done.stdout + done.stderr
        for node in range(4):
            assert content(place.release(node) / "data") == content(place.source)
        assert len(os.listdir(place.layout.releases)) == 1
        assert not place.layout.lock.exists()
        stored = made.store / os.path.realpath(place.release(0) / "data").removeprefix(f"{made.nodes[0]}/")
        for name in ("d1/f 021", "giant"):
            seen = (stored / name).stat()
            with (stored / name).open("r+b") as stream:
                stream.seek(100)
                stream.write(b"rot")
            os.utime(stored / name, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        done = place.penstock(2, "audit", "data")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "f 021" in done.stdout + done.stderr
        done = place.penstock(3, "repair", "data")
        assert done.returncode == 0, done.stdout + done.stderr
        done = place.penstock(1, "audit", "data")
        assert done.returncode == 0, done.stdout + done.stderr
        assert content(place.release(2) / "data") == content(place.source)
        change(place)


def change(place: Place) -> None:
    """A second release, run on another node: what is unchanged is shared where links are."""
    tree(place.source, {"d1/f 021": b"new", "more": b"more"})
    done = place.penstock(2, "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(place.layout.current / "data") == content(place.source)
    assert len(os.listdir(place.layout.releases)) == 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("named", ["beegfs8", pytest.param("weka-writecache", marks=pytest.mark.thorough)])
def test_a_dataset_lives_its_whole_life(tmp_path: Path, named: str) -> None:
    whole_life(tmp_path, named=named)


def test_servers_that_are_away_amid_a_copy_are_waited_for(tmp_path: Path) -> None:
    with Bed(nodes=2, named="beegfs8") as bed:
        place = Place(tmp_path, bed)
        with place.amid_its_copy() as process:
            bed.order("away")
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)  # what was under way is answered
            asked = len(bed.operations())
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            assert len(bed.operations()) == asked, "nothing was answered"
            bed.order("back")
            said = process.communicate(timeout=PATIENCE)[0]
            assert process.returncode == 0, said
        assert content(place.release(1) / "data") == content(place.source)


@pytest.mark.every_set
@pytest.mark.timeout(900)
@pytest.mark.parametrize("named", [name for name in SETS if name not in ("beegfs8", "weka-writecache")])
def test_and_on_the_other_sets(tmp_path: Path, named: str) -> None:
    whole_life(tmp_path, named=named)


@pytest.mark.every_set
@pytest.mark.timeout(900)
def test_and_where_links_become_symbolic_ones(tmp_path: Path) -> None:
    whole_life(tmp_path, named="beegfs8", links="symlink")
