"""Inode numbers at or above 2^63, as BeeGFS states for half of its files: its client hashes names to 64 bits.
Each command that stages, compares or removes works in processes that see every number so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import commands, fixed_settings, warm
from tests.support.staging_runs import tree
from tests.support.whole_way import content

from penstock.core.layout import DatasetLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIBRARY = Path(__file__).parents[1] / "support/high_inodes.c"
HIGHEST = 1 << 63
FILES = {f"d{i % 3}/f {i:02d}": bytes([i]) * (300 * i) for i in range(30)} | {
    "giant": bytes(range(250)) * 10_000
}
SMALL = {"plan.giant_bytes": "2MiB", "plan.part_bytes": "1MiB", "engine.workers": 1}


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables of a process that sees such numbers, as do those that it starts."""
    library = tmp_path_factory.mktemp("library") / "high_inodes.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, LIBRARY], check=True)
    with warm.entered_with({"LD_PRELOAD": str(library)}):
        yield {"LD_PRELOAD": str(library), **fixed_settings.environment(SMALL)}


class Place:
    """A dataset `data` from a folder to a target, and commands that see such numbers."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder, self._variables = folder, variables
        self.source = tree(folder / "source", FILES)
        self.layout = DatasetLayout(folder / "target", "data")
        (folder / "config.yaml").write_text(
            f"target: {{root: {self.layout.root}, keep_free: 0}}\n"
            f"datasets: {{data: {{source: {self.source}, retention: {{last: 1, named: false}}}}}}\n"
            "plan: {reuse: link}\n"
            "gc: {grace: 1ms}\n"
        )

    def __call__(self, *words: str, status: int = 0) -> str:
        """What a command says that ends with this status."""
        done = commands.run(
            sys.executable, "-m", "penstock", "--config", "config.yaml", *words,
            cwd=self.folder, env=self._variables,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def damage(self, path: str) -> None:
        file = self.layout.current / "data" / path
        seen = file.stat()
        with file.open("r+b") as stream:
            stream.write(b"rot")
        os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    def manifest(self) -> list[dict[str, Any]]:
        """Its rows, whose inode numbers are those of the files."""
        table = pq.read_table(self.layout.current / "manifest.parquet")
        assert table.schema.field("inode").type == pa.uint64()
        rows: list[dict[str, Any]] = table.to_pylist()
        for row in rows:
            path = self.layout.current / "data" / os.fsdecode(row["path"])
            assert row["inode"] == path.stat().st_ino | HIGHEST
        assert content(self.layout.current / "data") == content(self.source)
        return rows


@pytest.fixture
def place(tmp_path: Path, preloaded: dict[str, str]) -> Place:
    return Place(tmp_path, preloaded)


def test_releases_live_their_whole_life(place: Place) -> None:
    place("run")
    assert not [row for row in place.manifest() if row["carried"]]
    tree(place.source, {"d1/f 01": b"new", "more": b"more"})
    place("run")
    # Giants are always read back.
    assert {row["path"] for row in place.manifest() if not row["carried"]} == {b"d1/f 01", b"giant", b"more"}
    place.damage("d0/f 03")
    assert "f 03" in place("audit", "data", status=4)
    place("gate", "data", status=4)
    place("repair", "data")
    place("gate", "data")
    place.damage("giant")
    place("audit", "data", status=4)
    place("gate", "data", "--mend")
    assert content(place.layout.current / "data") == content(place.source)
    place("du")
    place("gc")
    assert len(os.listdir(place.layout.releases)) == 1
    tree(place.source, {"d2/f 02": b"again"})
    place("run")
    # What gc unlinked is known again, too.
    assert sum(row["carried"] for row in place.manifest()) > len(FILES) / 2
    place("rollback", "data")
    place("remove", "data", "--all", "--now")
    assert not place.layout.releases.exists()


def test_a_staging_of_another_run_is_taken_over(place: Place) -> None:
    for step in ("list", "plan", "copy"):
        place("step", step, "data")
    tree(place.source, {"more": b"more"})
    place("run")
    place.manifest()
    plans = [json.loads(path.read_text()) for path in place.layout.runs.glob("*/plan.json")]
    (inode,) = [inode for plan in plans for inode in plan["staging_inodes"].values()]
    assert inode >= HIGHEST
    assert max(plan["taken"] for plan in plans) > len(FILES) / 2


def test_a_tree_is_compared_and_adopted(place: Place) -> None:
    copied = place.layout.root / "copied"
    copied.parent.mkdir()
    subprocess.run(["cp", "-a", place.source, copied], check=True)
    place("adopt", "data", str(copied), "--read-source")
    (copied / "d0/f 06").write_bytes(b"rot")
    assert "f 06" in place("adopt", "data", str(copied), "--read-source", status=4)
    kept = {path.name: path.stat().st_ino for path in copied.glob("d1/*")}
    place("adopt", "data", str(copied), "--read-source", "--seal")
    place.manifest()
    assert {path.name: path.stat().st_ino for path in place.layout.current.glob("data/d1/*")} == kept
    place("audit", "data")


def test_the_selftest_contradicts_nothing(place: Place) -> None:
    place.layout.root.mkdir()
    place("selftest", str(place.layout.root))
