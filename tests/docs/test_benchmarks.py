"""What docs/speed.md rests on: the benchmark's own copy, and the table of large objects."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

from benchmarks import extras, ratios
from tests.support.commands import ROOT, run

from penstock.target import tree_removal

if TYPE_CHECKING:
    from pathlib import Path


def test_the_benchmarks_copy_lands_and_says_what_it_took(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.bin").write_bytes(bytes([number]) * 5000)
    words = (
        "--source",
        str(source),
        "--target",
        str(tmp_path / "target"),
        "--state",
        str(tmp_path / "state"),
    )
    done = run(sys.executable, str(ROOT / "benchmarks/penstock_copy.py"), *words)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["files"], printed["bytes"]) == (3, 15_000)
    assert extras.copy_alone(done.stdout) == [(printed["seconds"], printed["cpu_seconds"])]
    assert printed["seconds"] > 0
    landed = sorted(path.name for path in (tmp_path / "target").rglob("*.bin"))
    assert landed == ["0.bin", "1.bin", "2.bin"]
    tree_removal.remove_tree(tmp_path)


def test_a_ratio_of_large_objects_is_made_round_by_round_whole_and_of_the_copy_alone() -> None:
    def row(contender: str, walls: list[float], **more: Any) -> dict[str, Any]:
        load: dict[str, Any] = {"work": "L", "text": "8 x 512 MiB", "source": "https", "target": "tmpfs"}
        load |= {"cpu": 2.5}
        return load | {"contender": contender, "walls": walls, "wall": walls[0], "rounds": len(walls)} | more

    rows = [
        row("penstock", [4.0, 8.0, 4.0], engine=2.0, engines=[2.0, 4.0, 2.0], engine_cpu=1.5),
        row("s5cmd", [3.0, 4.0, 2.0]),
        row("awscli", [9.0]),
    ]
    assert ratios.large({"rows": rows})[-1] == (
        "| 8 x 512 MiB, https to tmpfs | 4.00 | 2.00 | 2.00 | s5cmd | 3.00 | 0.50 (0.50 to 0.75) "
        "| 1.00 (1.00 to 1.50) | 2.50 | 1.50 | 2.50 |"
    )
    assert ratios.large({"rows": rows[1:]}) == []


LOWER = """\
def decode(line: bytes) -> tuple[str, int]:
    name, size = line.decode().split()
    return name, int(size)

def visit(name, decide):
    return decide(name)
"""
UPPER = """\
import walk_tracer
from house import lower

def decide(name):
    return len(name)

def walk():
    name, _ = lower.decode(b"gamma 5")
    return lower.visit(name, decide)

walk()
"""


def test_a_walk_notes_where_a_value_passes_what_changes_its_form_and_calls_that_come_back(
    tmp_path: Path,
) -> None:
    house = tmp_path / "house"
    house.mkdir()
    (house / "lower.py").write_text(LOWER)
    (house / "upper.py").write_text(UPPER)
    shutil.copy(ROOT / "benchmarks/walk_tracer.py", tmp_path)
    notes = tmp_path / "notes"

    def traced(**order: object) -> list[str]:
        notes.unlink(missing_ok=True)
        (tmp_path / "walk.json").write_text(
            json.dumps({"package": f"{house}/", "notes": str(notes), **order})
        )
        done = run(sys.executable, "-m", "house.upper", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [line.replace("\t", " ") for line in notes.read_text().splitlines()]

    assert traced(values=["gamma"], within="") == [
        "HAS lower bytes",
        "HAS lower str",
        "TURNS lower.decode bytes str",
        "HAS upper str",
    ]
    assert traced(values=[], within="upper.walk") == [
        "CALL upper lower",
        "CALL upper lower",
        "BACK lower upper",
    ]
