"""Parts of a selftest: they probe abilities, measure fsync, a cold read, space and quota, or stage a small
folder with every step. Also has the budget of operations, bytes, files and time for all parts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.loader import TESTED
from penstock.core import human, run_steps
from penstock.core.human import printable
from penstock.core.layout import DATA, DatasetLayout
from penstock.core.run_documents import ABILITIES, NOT_TRIED
from penstock.core.run_steps import CheckResult
from penstock.dataset import rights, seals
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.probe import TRIALS, probe
from penstock.fs.probe_judgement import differences
from penstock.host import interpreter
from penstock.host.kernel_facts import mount_of
from penstock.target import dataset_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.core.run_documents import ProbeReport
    from penstock.fs.capabilities import StorageFacts


# operations on files and folders a second, at most, since metadata servers have hundreds of users
PER_SECOND = 200
MOST_BYTES = 1 << 30  # bytes that a selftest may write, at most
MOST_FILES = 5000  # number of files that a selftest may make, at most
WITHIN = 600.0  # seconds that a selftest may take


class Budget:
    """Counts a selftest's operations, and slows the selftest down. `wait` sleeps for seconds, and raises if
    the command should stop."""

    def __init__(self, wait: Callable[[float], None], *, within: float = WITHIN) -> None:
        self._wait = wait
        self._began = time.monotonic()
        self._ends = self._began + within
        self._due = self._began
        self.operations = 0
        self.bytes = 0
        self.files = 0

    def spend(self, operations: int, *, size: int = 0, files: int = 0) -> None:
        """Wait before these operations, which write `size` bytes into `files` new files, so that at most
        PER_SECOND a second happen. Raises as `check` does, and ValueError beyond MOST_BYTES or MOST_FILES."""
        self.operations += operations
        self.bytes += size
        self.files += files
        if self.bytes > MOST_BYTES or self.files > MOST_FILES:
            raise ValueError(f"the selftest would write {self.bytes:,} bytes in {self.files:,} files")
        now = time.monotonic()
        ahead = self._due - now
        self._due = max(self._due, now) + operations / PER_SECOND
        if ahead > 0:
            self._wait(ahead)

    def check(self) -> None:
        """Raise the error of `wait` if the command should stop."""
        self._wait(0)

    @property
    def room(self) -> int:
        """Bytes that may still be written."""
        return max(0, MOST_BYTES - self.bytes)

    @property
    def left(self) -> float:
        """Seconds until `within` is over; never below 0."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def seconds(self) -> float:
        """Seconds since the budget was made."""
        return time.monotonic() - self._began


MIB = 1 << 20
SMALL, SMALL_FILES = 4096, 60
LARGE, LARGE_FILES = 16 * MIB, 4
COLD = 64 * MIB
OF_A_TRIAL = 12  # number of operations in each trial of the probe, approximately


def abilities(folder: Path, store: StorageFacts, budget: Budget) -> tuple[list[CheckResult], ProbeReport]:
    """Probe each ability, and compare it with the table of file systems."""
    report = probe(folder, between=lambda: budget.spend(OF_A_TRIAL))
    judged = {result.about: result for result in differences(store, report)}
    results = []
    for name in TRIALS:
        words, ability = ABILITIES[name], report[name]
        quiet = CheckResult(words, printable(str(ability)), "note" if ability.answer == NOT_TRIED else "ok")
        results.append(judged.pop(words, quiet))
    if report.link_cost:
        results.append(CheckResult("calls on a linked file", str(report.link_cost)))
    return [*judged.values(), *results], report


def durable_writes(folder: Path, budget: Budget) -> Iterator[CheckResult]:
    """Measure how long it takes until a small file is durable, and how fast large files are written."""
    took = []
    for number in range(SMALL_FILES):
        budget.spend(5, size=SMALL, files=1)
        took.append(_written(folder / f"small-{number}", SMALL))
    yield CheckResult("fsync of a new file of 4 KiB", _spread(took))
    took = []
    for number in range(10):
        budget.spend(3)
        (folder / f"small-{number}").rename(folder / f"renamed-{number}")
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            began = time.perf_counter()
            os.fsync(fd)
            took.append(time.perf_counter() - began)
        finally:
            os.close(fd)
    yield CheckResult("fsync of a folder after a rename", _spread(took))
    began = time.perf_counter()
    for number in range(LARGE_FILES):
        budget.spend(20, size=LARGE, files=1)
        _written(folder / f"large-{number}", LARGE)
    rate = human.speed(LARGE * LARGE_FILES, time.perf_counter() - began)
    yield CheckResult("one writer, files of 16 MiB with fsync", rate)


def _written(path: Path, size: int) -> float:
    """Write random bytes in blocks of 1 MiB, and return the seconds that fsync took."""
    block = os.urandom(min(size, MIB))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = size
        while left:
            left -= os.write(fd, block[:left])
        began = time.perf_counter()
        os.fsync(fd)
        return time.perf_counter() - began
    finally:
        os.close(fd)


def _spread(took: list[float]) -> str:
    return f"median {_short(statistics.median(took))}, longest {_short(max(took))} of {len(took)}"


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else human.duration(seconds)


def cold_read(folder: Path, store: StorageFacts, budget: Budget) -> Iterator[CheckResult]:
    """Read 64 MiB back as verify does. The bytes must be the same, and the read must bypass this machine's
    caches if the table of file systems promises that."""
    budget.spend(COLD // MIB * 2, size=COLD, files=1)
    path = folder / "cold"
    block = bytearray(os.urandom(MIB))
    written, read = hashlib.sha256(), hashlib.sha256()
    with path.open("xb", buffering=0) as stream:
        for number in range(COLD // MIB):
            block[:8] = number.to_bytes(8, "big")
            stream.write(block)
            written.update(block)
        os.fsync(stream.fileno())
    with ColdReader(folder, store) as reader:
        began = time.perf_counter()
        method = reader.read("cold", 0, COLD, read.update).method
        rate = human.speed(COLD, time.perf_counter() - began)
    if written.digest() != read.digest():
        yield CheckResult(
            "reading back", "other bytes than were written", "stop", "the same bytes", "do not stage here"
        )
        return
    state = f"{method}, {rate}, the same bytes"
    if method != "cached":
        yield CheckResult("reading back past the caches", state)
    elif store.passable:
        yield CheckResult(
            "reading back past the caches",
            state,
            "warning",
            "direct or dropped, by the table of file systems",
            "what verify reads here counts as `reread`",
        )
    else:
        yield CheckResult(
            "reading back past the caches",
            f"{state}: as the table of file systems says, a read counts as `reread` here",
        )


def space(folder: Path, store: StorageFacts) -> Iterator[CheckResult]:
    """Report the results of statvfs, and the folder's own size if it has any. Project quotas, and quotas of
    WEKA and CephFS, show as such a size."""
    free = f"{human.size(store.free_bytes)} of {human.size(store.total_bytes)} free"
    yield CheckResult("space", free)
    if store.free_inodes is None:
        yield CheckResult("inodes", "not known: statvfs says 0 of 0", "note")
    else:
        yield CheckResult("inodes", f"{store.free_inodes:,} free")
    if point := own_size(folder, store):
        state = f"{human.size(store.total_bytes)}: this folder has a size of its own within {point}"
        yield CheckResult("quota", state)
        return
    yield CheckResult("quota", "none shows in statvfs, which user and group quotas never do", "note")


def own_size(folder: Path, store: StorageFacts) -> str:
    """Return the mount point if statvfs shows another size there than for this folder; "" if not."""
    point = mount_of(os.path.realpath(folder)).point or "/"
    with contextlib.suppress(OSError):
        return "" if facts(Path(point)).total_bytes == store.total_bytes else point
    return ""


DATASET = "selftest"
# sizes of the files, in bytes; the last file is copied in parts
SIZES = (*[0] * 2, *[100] * 8, *[4096] * 16, *[70_000] * 12, *[1 << 20] * 8, *[5 << 20] * 2, 24 << 20)
SETTINGS = {"plan.giant_bytes": "16MiB", "plan.part_bytes": "8MiB", "engine.workers": 1}
COMMANDS = ("preflight", "audit", "gate")  # steps that are commands; other steps need `penstock step`
STEPS = (*(name for name in run_steps.OF_RUN if name != "report"), "audit", "gate")
# Number of operations on the target for each file, in all steps together. The test bed counted 57, without
# lookups, reads and writes.
OPERATIONS = 60


def staged(folder: Path, place: Path, budget: Budget) -> Iterator[CheckResult]:
    """Stage a source below `folder`, and compare the published files with it. The source is made in `place`,
    which must not exist before; the caller removes it. Root stages nothing without `--as-root`."""
    if os.geteuid() == 0 and not rights.as_root():
        yield CheckResult(
            "a small staging",
            "not tried: root (uid 0) stages nothing",
            "note",
            mend="give the folder to the account that will stage, and run the selftest as that account; or "
            "`penstock --as-root selftest`",
        )
        return
    place.mkdir(0o700)
    source = place / "source"
    _make(source)
    configuration = place / "selftest.yaml"
    configuration.write_text(
        json.dumps(
            {
                "target": {"root": str(folder), "keep_free": "1MiB"},
                "datasets": {DATASET: {"source": str(source)}},
            }
        )
    )
    spent = budget.seconds
    for step in STEPS:
        budget.spend(len(SIZES) * OPERATIONS // len(STEPS), size=sum(SIZES) // len(STEPS), files=10)
        problem = _step(step, configuration, budget)
        if problem:
            yield CheckResult("a small staging", f"{step}: {problem}", "stop", "a release", "see the message")
            return
    took = human.duration(budget.seconds - spent)
    budget.spend(0)
    layout = DatasetLayout(folder, DATASET)
    published = layout.current / DATA
    wrong = [path.name for path in sorted(source.iterdir()) if not _same(path, published / path.name)]
    if wrong:
        yield CheckResult("a small staging", f"other bytes in {', '.join(wrong[:3])}", "stop", "the same")
        return
    amount = f"{human.counted(len(SIZES), 'file')}, {human.size(sum(SIZES))}"
    yield CheckResult("a small staging", f"{amount} staged, audited and the same, in {took}")
    yield CheckResult("what verify proved", _grades(layout))


def _make(source: Path) -> None:
    source.mkdir()
    made = random.Random(0)  # noqa: S311 (any bytes will do)
    for number, size in enumerate(SIZES):
        (source / f"{number:03d}.bin").write_bytes(made.randbytes(size))


def _step(step: str, configuration: Path, budget: Budget) -> str:
    """Run the command for a step. Return "", or the command's message if the command failed."""
    words = [*interpreter.command("penstock"), "--config", str(configuration), "--backend", "local"]
    command = [step] if step in COMMANDS else ["step", step]
    try:
        done = subprocess.run(
            [*words, "--progress", "off", *command],
            env=os.environ | {TESTED: json.dumps(SETTINGS)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd=configuration.parent,
            timeout=max(1.0, budget.left),
        )
    except subprocess.TimeoutExpired:
        return "the time of the selftest was over"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"exit status {done.returncode}: {' '.join(lines[-3:])}"


def _same(original: Path, published: Path) -> bool:
    try:
        return (
            os.path.getsize(original) == os.path.getsize(published)
            and original.read_bytes() == published.read_bytes()
        )
    except OSError:
        return False


def _grades(layout: DatasetLayout) -> str:
    """Return the grades of the files that were read back, as recorded in the seal."""
    release = dataset_folders.current(layout)
    grades = seals.load(layout, release or "").seal.evidence.storage
    return ", ".join(
        f"{name}: {human.counted(grade.files, 'file')}" for name, grade in sorted(grades.items())
    )
