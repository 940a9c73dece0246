"""An element's progress file, and the sum over all elements of a step.

Files only serve the display: they are never made durable, and errors are ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core import typed_json
from penstock.fs import small_files
from penstock.host.heartbeat import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping
    from pathlib import Path

    from penstock.core.layout import RunLayout

POINTS = 240  # most samples kept of one element; beyond, every second sample is dropped


class Reporter:
    """Writes the progress file, at most every `every` seconds, and keeps samples over time. The engine calls
    it with totals: files, bytes, failed files. `beat` is called about once in a `HEARTBEAT`, and must not
    raise."""

    def __init__(self, path: Path, *, every: float = 0.5, beat: Callable[[], None] | None = None) -> None:
        self._path, self._every, self._beat = path, every, beat
        self._totals = self._first = (0, 0, 0)
        self._beaten = time.monotonic()
        self._began = self._written = time.monotonic()
        self.started = time.time()
        self.samples: list[tuple[float, int, int]] = [(0.0, 0, 0)]  # seconds since the start, files, bytes

    def __call__(self, files: int, size: int, failed: int) -> None:
        self._totals = files, size, failed
        if self._due(now := time.monotonic()):
            self.sample(now, files, size)
            self._write()

    @property
    def bytes(self) -> int:
        """Bytes of the last totals."""
        return self._totals[1]

    @property
    def grown(self) -> int:
        """Bytes done since this attempt began."""
        return max(0, self._totals[1] - self._first[1])

    @property
    def grew(self) -> bool:
        """Whether more files or bytes are done than when this attempt began."""
        return self._totals[:2] > self._first[:2]

    def alive(self) -> None:
        """Refresh the file while nothing is done yet."""
        if self._due(time.monotonic()):
            self._write()

    def _due(self, now: float) -> bool:
        if now - self._written < self._every:
            return False
        self._written = now
        if self._beat is not None and now - self._beaten >= HEARTBEAT:
            self._beaten = now
            self._beat()
        return True

    def begin(self) -> None:
        """Write that this attempt began; its first totals are those of the attempt before."""
        self._totals = self._first = _totals(self._path) or (0, 0, 0)
        self._write()

    def settle(self) -> None:
        """Write the last totals again."""
        self._write()

    def _write(self) -> None:
        progress: dict[str, object] = dict(zip(("files", "bytes", "failed"), self._totals, strict=True))
        progress["at"] = time.time()
        replace_figures(self._path, progress)

    def end(self, files: int, size: int) -> None:
        """Keep the final totals as last sample."""
        self.sample(time.monotonic(), files, size)

    def sample(self, now: float, files: int, size: int) -> None:
        """Keep a sample; `now` is monotonic, in seconds."""
        self.samples.append((round(now - self._began, 2), files, size))
        if len(self.samples) > POINTS:
            self.samples = [*self.samples[:-1:2], self.samples[-1]]


def replace_figures(path: Path, figures: Mapping[str, object]) -> None:
    """Replace a small file of figures, not durably."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    # A stale display is no reason to fail a copy.
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(figures))
        os.replace(temporary, path)


@dataclass
class Progress:
    """Totals over a step's elements, which never fall. An element counts by its receipt, or else by its
    progress file."""

    _done: dict[int, tuple[int, int]] = field(default_factory=dict)
    _final: set[int] = field(default_factory=set)

    def total(
        self, run: RunLayout, step: str, indices: Iterable[int], waiting: Container[int] = ()
    ) -> tuple[int, int, int]:
        """Return files and bytes done, and files that failed. An element's file is read until its receipt
        exists; only once while the element is `waiting` to begin."""
        failed = 0
        for index in indices:
            if index in self._final or (index in self._done and index in waiting):
                continue
            counts = _totals(run.receipt(step, index))
            if counts is not None:
                self._final.add(index)
            else:
                counts = _totals(run.progress(step, index)) or (0, 0, 0)
                failed += counts[2]
            old = self._done.get(index, (0, 0))
            self._done[index] = max(old[0], counts[0]), max(old[1], counts[1])
        return sum(f for f, _ in self._done.values()), sum(b for _, b in self._done.values()), failed

    def bytes_begun(self, run: RunLayout, step: str, indices: Iterable[int]) -> int:
        """Return the bytes of `total` for a step that most shards still wait for. It lists two folders and
        reads only the files that exist."""
        names: set[str] = set()
        for folder in (run.receipt(step, 0).parent, run.progress(step, 0).parent):
            with contextlib.suppress(OSError):
                names.update(os.listdir(folder))
        begun = [i for i in indices if i not in self._final and f"{i:05d}.json" in names]
        return self.total(run, step, begun)[1]

    def bytes_of(self, index: int) -> int:
        """Return the bytes that an element had done at the last call of `total`."""
        return self._done.get(index, (0, 0))[1]


def _totals(path: Path) -> tuple[int, int, int] | None:
    """Return files, bytes and failed files of a receipt or progress file; 0 for an invalid count."""
    value = _read(path)
    if value is None:
        return None
    files, size, failed = (
        count if isinstance(count, int) and 0 <= count < typed_json.LARGEST else 0
        for count in (value.get("files"), value.get("bytes"), value.get("failed"))
    )
    return files, size, failed


def _read(path: Path) -> dict[str, object] | None:
    try:
        value = small_files.read_json(path)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
