"""Four engines on one link: the sum of what they receive, as their own counters have it.

It measures seconds, so it needs a machine that has CPU to spare (`make test-patience`).
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from tests.filesystems.bed import Bed
from tests.support.commands import ROOT, until
from tests.support.s3server import S3Server
from tests.support.staging_runs import context_for
from tests.support.whole_way import go

from penstock.arrays.array_runner import element_command
from penstock.bandwidth.slots import LEASE, SLOTS, parse
from penstock.config.settings import BandwidthConfig, PlanConfig, SourceConfig
from penstock.engine.shared_memory import SLOTS as COUNTERS
from penstock.state import run_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CAP, HALF = 40_000_000, 20_000_000
OBJECT, OBJECTS = 250_000, 6400
HELD_UP = 0.15
"""Seconds."""
FIRST = ("nice", "-n", "-10")
"""Before other tests on this machine, where this account may: what is measured here is time."""


class Meter:
    """Samples the bytes that engines have received, from the memory that each shares with its workers."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []
        self._totals: dict[int, int] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for mapped in self._maps.values():
            mapped.close()

    def add(self, pid: int) -> None:
        self._totals[pid] = 0

    def all_move(self) -> bool:
        return all(self._totals.values())

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for pid in list(self._totals):
                if pid not in self._maps and (fd := _memory(pid)) is not None:
                    self._maps[pid] = mmap.mmap(fd, COUNTERS * 8, prot=mmap.PROT_READ)
                    os.close(fd)
                if pid in self._maps:
                    # Counters of an engine that is gone stay as they were.
                    self._totals[pid] = max(self._totals[pid], sum(array.array("q", self._maps[pid][:])))
            self.samples.append((time.monotonic(), sum(self._totals.values())))

    def rates(self, start: float, end: float, window: float) -> list[float]:
        """Bytes a second over every window that lies between these times. One in which this thread, which
        only sleeps, was held up for HELD_UP says something of the machine alone, and is left out."""
        samples, found, last = [one for one in self.samples if start <= one[0] <= end], [], 0
        held_up = [then for (then, _), (now, _) in pairwise(samples) if now - then > HELD_UP]
        for when, total in samples:
            while last < len(samples) and samples[last][0] < when + window:
                last += 1
            if last == len(samples):
                break
            if not any(when <= moment < when + window for moment in held_up):
                found.append((samples[last][1] - total) / (samples[last][0] - when))
        assert found, "the machine had too much else to do all the time"
        return found


def _memory(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if "penstock-engine" in os.readlink(path):
                return os.open(path, os.O_RDONLY)
    return None


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: the cap is not to be the disk's."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-link-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.real_patience
@pytest.mark.timeout(290)
@pytest.mark.parametrize("late", [0, 2])
def test_z1_four_engines_keep_one_cap_on_a_link(memory: Path, late: int) -> None:
    """Show 4: two datasets with target roots of their own, two elements each. `late`: seconds for which a
    node believes a listing, an entry and a size that it saw; each element on its own node."""
    with contextlib.ExitStack() as stack:
        place: Callable[..., list[str]] = lambda _, *command: [*command]  # noqa: E731
        link = memory / "link"
        if late:
            tempers = dict.fromkeys(("entry_seconds", "absent_seconds", "attr_seconds", "list_seconds"), late)
            bed = stack.enter_context(Bed(nodes=4, cache="close-to-open", **tempers))
            place, link = bed.on, bed.nodes[0] / "link"
        objects = memory / "objects"
        objects.mkdir()
        for number in range(OBJECTS):
            with (objects / f"{number:04d}").open("wb") as file:
                file.truncate(OBJECT)
        server = stack.enter_context(S3Server(memory / "objects", processes=2))
        (memory / "config.yaml").write_text(
            f"target: {{root: {memory}}}\ndatasets: {{data: {{source: {memory}}}}}\n"
            f"bandwidth: {{folder: {link}}}\n"
        )
        limit(memory, "40MB/s")
        meter = stack.enter_context(Meter())
        elements = []
        for name in ("one", "other"):
            (memory / name / "target").mkdir(parents=True)
            for index, command in enumerate(_planned(memory / name, server, link)):
                node = len(elements)
                log = stack.enter_context((memory / f"{name}{index}.log").open("wb"))
                started = subprocess.Popen(
                    place(node, *FIRST, *command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                stack.callback(_end, started)
                elements.append(started)
                meter.add(started.pid)
        slots = link / "slots"
        until(lambda: _held(slots) == [15] * 4, "four equal shares")
        until(meter.all_move, "bytes of each engine")
        settled = time.monotonic() + 1.0
        _wait(settled + 8.0)
        halved = time.monotonic()
        limit(memory, "20MB/s")
        _wait(halved + 11.0)
        raised = time.monotonic()
        limit(memory, "40MB/s")
        _wait(raised + 8.0)
        killed = time.monotonic()
        elements[0].send_signal(signal.SIGKILL)
        until(lambda: _held(slots) == [0, 20, 20, 20], "the share of the one that was killed")
        taken = time.monotonic()
        _wait(taken + 8.0)
        end = time.monotonic()
    print(f"late {late}: taken over after {taken - killed:.1f} s")
    wrong = []
    for what, start, until_then, cap in (
        ("four", settled, halved, CAP),
        ("halved", halved + 5.0, raised, HALF),
        ("raised", raised + 5.0, killed, CAP),
        ("three", taken + 1.0, end, CAP),
        ("after the kill", killed, end, CAP),
    ):
        one = [rate / cap for rate in meter.rates(start, until_then, 1.0)]
        print(f"  {what}: over 1 s {min(one):.3f} to {max(one):.3f}", end="")
        wrong += [f"{what}: {max(one):.3f} in a second"] if max(one) > 1.1 else []
        if until_then - start > 5.0 and start != killed:
            five = [rate / cap for rate in meter.rates(start, until_then, 5.0)]
            print(f", over 5 s {min(five):.3f} to {max(five):.3f}", end="")
            wrong += [f"{what}: {rate:.3f} in 5 s" for rate in (min(five), max(five)) if abs(rate - 1) > 0.05]
        print()
    assert not wrong
    assert taken - killed < LEASE


def _planned(folder: Path, server: S3Server, link: Path) -> list[list[str]]:
    """The commands of a dataset's two elements."""
    context = context_for(folder, "s3://bucket/", plan=PlanConfig(shard_files=OBJECTS // 2))
    options = {"endpoint_url": server.endpoint, "anon": True}
    dataset = replace(context.config.datasets["data"], sources=(SourceConfig("s3://bucket/", "", options),))
    context.config = replace(
        context.config, datasets={"data": dataset}, bandwidth=BandwidthConfig(folder=link)
    )
    go(context, upto="plan")
    run = run_store.open_run(context.layout("data"))
    assert len(run.indices) == 2
    command = element_command(context, run.folder, "copy")
    return [[*command, str(index)] for index in run.indices]


def limit(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "--config", str(folder / "config.yaml"), "limit", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _held(slots: Path) -> list[int]:
    """How many slots each holder says that it uses. Of one that was killed the beat stays: its slots are
    those that nobody has in a later generation."""
    names = os.listdir(slots)
    seen = parse(names)
    generations = {name: Path(slots, name).read_bytes() for name in names if re.fullmatch(r"\d\d\.\d+", name)}
    owners = {
        slot: generations[f"{slot:02d}.{last}"].decode()
        for slot, last in seen.generations.items()
        if slot not in seen.free and f"{slot:02d}.{last}" in generations
    }
    assert len(owners) <= SLOTS
    return sorted(sum(owners.get(slot) == beat.holder for slot in beat.slots) for beat in seen.beats.values())


def _wait(moment: float) -> None:
    """The test measures time: that is what passes here."""
    time.sleep(max(0.0, moment - time.monotonic()))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
