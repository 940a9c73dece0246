"""The power is cut at many moments of a run, on ext4 and XFS.

What is found afterwards is judged by an oracle that uses nothing of penstock: nothing partial under
`current`, the bytes of every journalled row, and what was said to be published is there. The same command
then ends published.

The controls are the same with an fsync, or a syncfs alone, that does nothing: the oracle must find it out."""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest
import xxhash
from tests.support import fixed_settings
from tests.support.commands import PATIENCE, ROOT, kill_session, started
from tests.support.power import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator

CUTS = 24
ROUND = 6
"""Cuts of one test: the releases of a round follow one another on one disk."""
MOMENTS = [
    ("copy", 1.6), ("publish", 0.5), ("end", 0), ("list", 0.2), ("permissions", 0.2), ("verify", 0.8),
    *[("copy", 1.6), ("publish", 0.5), ("copy", 1.6), ("verify", 0.8), ("copy", 1.6), ("publish", 0.2)] * 3,
]  # fmt: skip
"""The step in which the power is cut, and the longest time in seconds after it began. The first round has
each step that makes something durable."""
EATMYDATA = "libeatmydata.so"

Tree = dict[str, bytes]


SMALL = {"plan.giant_bytes": "2MiB", "plan.part_bytes": "1MiB", "engine.workers": 1}


class Staging:
    """A dataset from a folder that no cut reaches to a target on the disk."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.disk, self.source, self.config = disk, folder / "source", folder / "config.yaml"
        self.dataset = disk.point / "target" / "data"
        common = (
            f"target: {{root: {disk.point}/target, keep_free: 0}}\n"
            f"datasets: {{data: {{source: {self.source}}}}}\n"
        )
        # Slow enough for several journal entries in a small copy; how a run copies may change meanwhile.
        self.config.write_text(common + "engine: {limit: 2MiB/s}\n")
        self.quick = folder / "quick.yaml"
        self.quick.write_text(common)
        self.states: list[Tree] = []
        self.durability = "auto"

    def change(self, number: int) -> None:
        """Another third of the source is new: what a release of it must hold."""
        self.number = number
        state = dict(self.states[-1]) if self.states else {}
        for index in range(60):
            if not self.states or index % 3 == number % 3:
                name = f"d{index % 4}/f{index:02d}" if index else "giant"
                size = 2_500_000 if not index else 1000 + 97 * index
                state[name] = random.Random(f"{number} {index}").randbytes(size)
                path = self.source / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(state[name])
        self.states.append(state)

    def run_until(self, step: str, longest: float, preload: str = "") -> bool:
        """Run, cut the power at a moment of this step; True when all of it had ended before."""
        settings = {**SMALL, "engine.durability": self.durability}
        given = fixed_settings.environment(settings) | ({"LD_PRELOAD": preload} if preload else {})
        with started(*_all_steps(self.config), cwd=ROOT, env=given) as process:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if line.strip() in (step, "end"):
                    break
            else:
                raise AssertionError(f"the run failed before its power was cut: {''.join(said)}")
            ended = line.strip() == "end"
            if not ended:
                moment = time.monotonic() + random.Random(f"{self.number} {step}").uniform(0, longest)
                ended = _ends_before(process, moment)
            if ended:
                process.wait(PATIENCE)
            self.disk.cut()
            kill_session(process.pid)
        return ended

    def rerun(self) -> None:
        done = subprocess.run(
            _all_steps(self.quick),
            env=os.environ | fixed_settings.environment(SMALL),
            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def _all_steps(config: Path) -> list[str]:
    return [sys.executable, "-m", "tests.support.all_steps", str(config), "data", "--progress", "off"]


def _ends_before(process: subprocess.Popen[str], moment: float) -> bool:
    """Follow its output until then; whether it said that it had ended."""
    assert process.stdout is not None
    while (left := moment - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            return False
        line = process.stdout.readline()
        if line.strip() in ("", "end"):
            return line.strip() == "end"
    return False


# The oracle ------------------------------------------------------------------------------------


def judge(staging: Staging, *, published: bool) -> None:
    """Raises AssertionError where a promise is broken. `published`: the command had said so."""
    allowed = staging.states[-1:] if published else staging.states[-2:]
    current = staging.dataset / "current"
    if os.path.lexists(current):
        release = staging.dataset / os.readlink(current)
        tree = _tree(release / "data")
        unlike = [
            sorted(name for name in {*tree, *state} if tree.get(name) != state.get(name)) for state in allowed
        ]
        assert [] in unlike, f"what `current` leads to is none of the sources' states: {unlike}"
        seal = json.loads((release / "release.json").read_bytes())
        manifest = hashlib.sha256((release / "manifest.parquet").read_bytes()).hexdigest()
        assert seal["manifests"]["manifest.parquet"]["sha256"] == f"sha256:{manifest}"
    else:
        assert len(staging.states) == 1, "`current` is gone"
        assert not published, "what was said to be published is gone"
    for run in sorted((staging.dataset / ".penstock/runs").glob("*/run.json")):
        _journalled(staging.dataset, run.parent)


def _tree(data: Path) -> Tree:
    return {
        os.path.relpath(os.path.join(folder, name), data): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(data)
        for name in names
    }


def _journalled(dataset: Path, run: Path) -> None:
    """Every row that a journal names is stored with the bytes of the digest that it has there."""
    release = json.loads((run / "run.json").read_bytes())["release"]
    places = (dataset / f"releases/.{release}.staging/data", dataset / f"releases/{release}/data")
    for folder in sorted((run / "journal").glob("*")):
        rows = pq.read_table(run / "shards" / f"{folder.name}.parquet").to_pylist()
        taken_back = {(line["bad"], line["attempt"]) for path, line in _lines(folder, "bad-") if path}
        for attempt, line in _lines(folder, ""):
            if isinstance(line, list) and isinstance(line[0], int) and (line[0], attempt) not in taken_back:
                row, digest = rows[line[0]], line[1].rpartition(":")[2]
                path = os.fsdecode(row["path"])
                stored = next((place / path for place in places if (place / path).is_file()), None)
                assert stored is not None, f"{path} is in a journal, and nowhere else"
                with stored.open("rb") as stream:
                    stream.seek(max(0, row["offset"]))
                    content = stream.read(row["length"] if row["part"] >= 0 else -1)
                assert xxhash.xxh3_128_hexdigest(content) == digest, f"{path}: not the journalled bytes"


def _lines(folder: Path, prefix: str) -> Iterator[tuple[str, Any]]:
    """(attempt, line) of journals of this prefix, up to each one's first bad line; without the headers."""
    for path in folder.glob(f"{prefix}*.journal"):
        attempt = ""
        for raw in path.read_bytes().splitlines(keepends=True):
            if raw[-1:] != b"\n" or raw[:8] != b"%08x" % crc32(raw[9:-1]):
                break
            value = json.loads(raw[9:-1])
            if isinstance(value, dict) and "journal" in value:
                attempt = value["attempt"]
            elif not prefix or isinstance(value, dict):
                yield attempt, value


# The tests -------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.thorough) for first in range(ROUND, CUTS, ROUND))]
)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_no_cut_leaves_anything_partial(tmp_path: Path, kind: str, first: int) -> None:
    with Disk(kind, tmp_path) as disk:
        staging = Staging(tmp_path, disk)
        inside = 0
        for number in range(first, first + ROUND):
            staging.change(number)
            published = staging.run_until(*MOMENTS[number])
            inside += not published
            disk.again()
            judge(staging, published=published)
            staging.rerun()
            judge(staging, published=True)
        # The moments are spread: most cuts must have met a run.
        assert inside >= ROUND // 2


def shim(folder: Path) -> str:
    """A library in which syncfs alone does nothing."""
    code, library = folder / "shim.c", folder / "shim.so"
    code.write_text("int syncfs(int fd) { (void)fd; return 0; }\n")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, code], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler here")
    return str(library)


def eatmydata() -> str:
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
    found = [line.split()[-1] for line in done.stdout.splitlines() if line.split()[0:1] == [EATMYDATA]]
    for folder in ("/usr/lib", "/usr/local/lib"):
        found += [str(path) for path in Path(folder).glob(f"**/{EATMYDATA}")]
    if not found:
        pytest.skip("libeatmydata is not installed")
    return found[0]


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.thorough)])
def test_the_oracle_sees_a_disk_that_lies(tmp_path: Path, kind: str) -> None:
    """fsync, fdatasync and syncfs that do nothing: what was said to be published is not there."""
    with Disk(kind, tmp_path) as disk:
        staging = Staging(tmp_path, disk)
        staging.change(0)
        assert staging.run_until("end", 0, eatmydata())
        disk.again()
        with pytest.raises((AssertionError, OSError)):
            judge(staging, published=True)


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.thorough)])
def test_the_oracle_sees_a_journal_that_lies(tmp_path: Path, kind: str) -> None:
    """A barrier that does nothing: journals are durable, the bytes that they speak of are not. Nothing is
    read back before the cut: a direct read makes bytes durable."""
    with Disk(kind, tmp_path) as disk:
        staging = Staging(tmp_path, disk)
        with staging.config.open("a") as config:
            config.write("cluster: {steps: {verify: {time: 1h}}}\n")
        staging.change(0)
        assert not staging.run_until("permissions", 0, shim(tmp_path))
        disk.again()
        with pytest.raises(AssertionError, match=r"is in a journal|not the journalled bytes"):
            judge(staging, published=False)
