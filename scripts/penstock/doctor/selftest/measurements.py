"""Parts of a selftest that measure: the probe, fsync, a cold read, space and quota."""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core import human
from penstock.core.events import CheckResult
from penstock.core.human import printable
from penstock.core.run_documents import ABILITIES, NOT_TRIED
from penstock.fs.capabilities import facts
from penstock.fs.cold_read import ColdReader
from penstock.fs.probe import TRIALS, probe
from penstock.fs.probe_judgement import differences
from penstock.host.proc import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.run_documents import ProbeReport
    from penstock.doctor.selftest.budget import Budget
    from penstock.fs.capabilities import StorageFacts

MIB = 1 << 20
SMALL, SMALL_FILES = 4096, 60
LARGE, LARGE_FILES = 16 * MIB, 4
COLD = 64 * MIB
OF_A_TRIAL = 12  # operations of one of the probe's trials, about


def abilities(folder: Path, store: StorageFacts, budget: Budget) -> tuple[list[CheckResult], ProbeReport]:
    """Probe each ability, and judge it by the table of file systems."""
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
    """Measure how long a small file takes to be durable, and how fast large ones are."""
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
    """Write random bytes in blocks of 1 MiB; return the seconds of the fsync."""
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
    """Read 64 MiB back as verify does: the same bytes, and past this machine's caches where the table
    promises that."""
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
    """Report statvfs, and a folder's own size: it shows project quotas, and those of WEKA and CephFS."""
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
    """Return the mount point within which this folder has its own size by statvfs, or ""."""
    point = mount_of(os.path.realpath(folder)).point or "/"
    with contextlib.suppress(OSError):
        return "" if facts(Path(point)).total_bytes == store.total_bytes else point
    return ""
