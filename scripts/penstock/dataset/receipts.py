"""Receipts and progress files. A receipt is a small durable proof of what a step or an element did. It
*holds* while that proof is still valid. An element is the process that does one shard, a part of the plan.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.core import typed_json
from penstock.core.element_documents import ELEMENT_RECEIPT, ElementReceipt
from penstock.core.errors import LOOK_AT_FILE, FailedError
from penstock.core.step_results import RECEIPTS
from penstock.core.typed_json import NOTHING
from penstock.dataset import documents
from penstock.dataset.submitted_arrays import ArrayBook
from penstock.fs import small_files
from penstock.host.waits import HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.core.layout import RunLayout
    from penstock.core.seal import SealedManifest
    from penstock.core.step_results import StepReceipt
    from penstock.dataset.documents import Run


# An element's progress file, and the sum over all elements of a step. Progress files only serve the display,
# so they are not made durable and their errors are ignored.

POINTS = 240  # most samples kept of one element; when there are more, every second sample is dropped


class Reporter:
    """Writes the progress file, at most every `every` seconds, and keeps samples over time. The engine calls
    it with totals: files, bytes, failed files. The reporter calls `beat`, which must not raise, about once
    per `HEARTBEAT`."""

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
        """The bytes in the last totals."""
        return self._totals[1]

    @property
    def grown(self) -> int:
        """Bytes done since this attempt began."""
        return max(0, self._totals[1] - self._first[1])

    @property
    def grew(self) -> bool:
        """Whether any file or byte was done since this attempt began."""
        return self._totals[:2] > self._first[:2]

    def alive(self) -> None:
        """Refresh the progress file before anything is done."""
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
        """Write that this attempt began. Its first totals are the previous attempt's."""
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
        """Keep the final totals as the last sample."""
        self.sample(time.monotonic(), files, size)

    def sample(self, now: float, files: int, size: int) -> None:
        """Keep a sample; `now` is monotonic, in seconds."""
        self.samples.append((round(now - self._began, 2), files, size))
        if len(self.samples) > POINTS:
            self.samples = [*self.samples[:-1:2], self.samples[-1]]


def replace_figures(path: Path, figures: Mapping[str, object]) -> None:
    """Replace a small file of figures, without making it durable."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    # A stale display is no reason to fail a copy.
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(figures))
        os.replace(temporary, path)


@dataclass
class Progress:
    """Totals over a step's elements, which never decrease. An element's figures come from its receipt, or
    else from its progress file."""

    _done: dict[int, tuple[int, int]] = field(default_factory=dict)
    _final: set[int] = field(default_factory=set)

    def total(
        self, run: RunLayout, step: str, indices: Iterable[int], waiting: Container[int] = ()
    ) -> tuple[int, int, int]:
        """Return files and bytes done, and files that failed. Each call reads an element's progress file
        until its receipt exists. While the element is `waiting` to begin, only the first call reads it."""
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
        """Return the bytes of `total` for a step that most shards have not begun. It lists two folders and
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


# Receipts: a step starts no element whose receipt holds. `copy/N` is the receipt for copying shard N.
#
# | receipt          | holds while                                                                       |
# |------------------|-----------------------------------------------------------------------------------|
# | copy/N           | it names this run and the plan's shard N                                          |
# | permissions      | it names the attempts of all copy receipts as they are now                        |
# | verify/N         | it names this run, shard N, the attempt of copy/N; the records are those it wrote |
# | publish          | the release exists, sealed by this run                                            |
# | audit/N, adopt/N | it names this job and the plan's shard N                                          |
# | repair/N         | it names this job and the plan's shard N; its file of repaired files is unchanged |

T = TypeVar("T")


def element(run: RunLayout, step: str, index: int) -> ElementReceipt | None:
    """Return an element's receipt, None if it is missing or damaged. Raises FailedError if the file cannot be
    read, NewerFormatError."""
    return documents.find_whole(ELEMENT_RECEIPT, run.receipt(step, index))


def step(run: RunLayout, name: str) -> StepReceipt | None:
    """Return the receipt of a whole step, with the results and errors of `element`."""
    receipt: StepReceipt | None = documents.find_whole(RECEIPTS[name], run.receipt(name))
    return receipt


def seconds(receipt: StepReceipt) -> float:
    """Return the seconds in which commands worked on the step; for old receipts, from start to end."""
    return receipt.get("seconds") or round(receipt["ended"] - receipt["started"], 3)


def write_step(run: RunLayout, receipt: StepReceipt) -> None:
    """Write a step's receipt, durably. Raises as `safe_open.storage_error`: NoSpaceError on a full target."""
    documents.write(RECEIPTS[receipt["step"]], run.receipt(receipt["step"]), receipt)


def drop(path: Path) -> None:
    """Remove a receipt durably, if it exists. Raises FailedError."""
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            small_files.fsync_dir(path.parent)
    except OSError as error:
        raise _stays(path, error) from error


def stands(path: Path, holds: Callable[[], bool]) -> bool:
    """Return whether an element's receipt holds; remove it durably if not. Raises as `drop` and `holds`. A
    receipt that changes while it is checked is kept. If another process replaces it later, its file is
    restored. Only a crash between rename and restore loses that file."""
    judged = _content(path)
    if judged is None:
        return False
    if _being_made(path):
        return holds()
    if holds():
        return True
    if _content(path) != judged:
        return holds()
    aside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        os.rename(path, aside)
        taken = _content(aside)
        if taken is not None and taken != judged:
            small_files.create_file(path, taken)
        os.unlink(aside)
        small_files.fsync_dir(path.parent)
    except FileNotFoundError:
        return False  # another process removed it
    except OSError as error:
        raise _stays(path, error) from error
    return False


def _being_made(path: Path) -> bool:
    """Check whether the path is, or just was, a link to the file that will get this name
    (`small_files.give_name`). The file behind such a link may exist at one moment and not at the next."""
    if not path.is_symlink():
        return False
    try:
        return small_files.UNFINISHED.fullmatch(os.path.basename(os.readlink(path))) is not None
    except OSError:
        return True


def _content(path: Path) -> bytes | None:
    """Read a receipt: None if there is no file, b"" if it is no plain file."""
    try:
        return small_files.read(path)
    except FileNotFoundError:
        return None
    except small_files.NotPlainError:
        return b""
    except OSError as error:
        raise FailedError(
            "a receipt cannot be read", where=str(path), why=str(error), hint=LOOK_AT_FILE
        ) from error


def _stays(path: Path, error: OSError) -> FailedError:
    return FailedError("a receipt cannot be removed", where=str(path), why=str(error), hint=LOOK_AT_FILE)


def held(run: Run, name: str) -> Callable[[int], bool]:
    """Return a function that takes an element's index and says whether its receipt holds, according to the
    table above. It raises as `element`, and KeyError for an index that the plan lacks."""
    further = _FURTHER.get(name)

    def holds(index: int) -> bool:
        receipt = element(run.folder, name, index)
        return (
            receipt is not None
            and receipt.run == run.plan.run
            and receipt.shard == run.shards[index].digest
            and (further is None or further(run, index, receipt))
        )

    return holds


def _read_back(run: Run, index: int, receipt: ElementReceipt) -> bool:
    """Check a verify receipt. Reading its records checks their digest."""
    return (
        receipt.copied_by == copied_by(run.folder, index)
        and run.folder.records(index).exists()
        # Meanwhile another shard may have found that a linked file's bytes changed.
        and not (receipt.carried[0] and run.folder.linked_damage.exists())
    )


def _fetched(run: Run, index: int, receipt: ElementReceipt) -> bool:
    path = run.folder.fetched(index)
    return path.exists() and file_digest(path) == receipt.seen


# further conditions of the table above
_FURTHER: Mapping[str, Callable[[Run, int, ElementReceipt], bool]] = {
    "verify": _read_back,
    "repair": _fetched,
}


def of_elements(run: Run, name: str) -> list[ElementReceipt]:
    """Return the receipts of all elements in the plan's order; a missing receipt is replaced by an empty
    one."""
    return [element(run.folder, name, index) or ElementReceipt() for index in run.indices]


def fsync_ends(elements: Iterable[ElementReceipt]) -> str:
    """Return where fsync stopped short of a disk on the nodes that wrote, for people. "" if their mounts show
    that it always reached a disk."""
    return "; ".join(sorted({receipt.fsync_ends for receipt in elements if receipt.fsync_ends}))


def copied_by(run: RunLayout, index: int) -> str:
    """Return the id of the attempt that finished a shard's copy, or ""."""
    receipt = element(run, "copy", index)
    return receipt.attempt if receipt else ""


def copied_elsewhere(run: RunLayout, index: int, host: str) -> bool:
    """Check whether a node other than `host`, or an unknown node, copied a shard. If so, a cold read on
    `host` proves more (`cold-other-node`)."""
    receipt = element(run, "copy", index)
    return receipt is None or receipt.host != host


def copies(run: Run) -> str:
    """Return a digest over the attempts that finished the shards. Any repeated copy changes it."""
    text = "\n".join(copied_by(run.folder, index) for index in run.indices)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def need(run: Run, step: str) -> None:
    """Raise FailedError unless every element of an earlier step has its receipt."""
    holds = held(run, step)
    missing = [index for index in run.indices if not holds(index)]
    if missing:
        raise FailedError(
            f"{step} is not complete",
            where=run.dataset,
            why=f"{len(missing)} of {len(run.indices)} shards have no receipt",
            hint=f"run `penstock {step} {run.dataset}` first",
        )


def head(run: Run, name: str, started: float) -> StepReceipt:
    """Return the keys common to all step receipts, for a step that began at `started` and ends now."""
    return {
        "step": name,
        "dataset": run.dataset,
        "run": run.id,
        "release": run.release,
        "published": False,
        "started": started,
        "ended": time.time(),
    }


class DoneBefore(NamedTuple):
    """The part of a shard that earlier commands did."""

    bytes: int  # a lower bound: the progress file of a killed attempt lags by seconds
    claims: int


def bytes_before(run: Run, step: str, claims: Mapping[int, int]) -> Mapping[int, DoneBefore]:
    """Return which part of each shard earlier commands did, for `moved`. `claims`: the number of each shard's
    claims. Shards with reused rows are left out, since a killed attempt does not record the bytes of those
    rows."""
    progress = Progress()
    progress.total(run.folder, step, run.indices)
    return {
        index: DoneBefore(progress.bytes_of(index), claims.get(index, 0))
        for index in run.indices
        if not run.shards[index].reused
    }


def moved(
    elements: Iterable[ElementReceipt],
    since: float = 0.0,
    before: Mapping[int, DoneBefore] = NOTHING,
    claims: Mapping[int, int] = NOTHING,
) -> int:
    """Return the bytes that these elements moved after `since` (seconds since the epoch). Bytes done before,
    linked or carried over are left out. For shards in `before`, which have `claims` claims now, all attempts
    count. For other shards only the attempt that finished counts. A rate computed from the sum is never too
    high."""
    return sum(
        receipt.bytes - _before(receipt, since, before.get(receipt.index), claims.get(receipt.index, 0))
        for receipt in elements
        if receipt.ended > since
    )


def read_beside_copy(run: Run, verified: Sequence[ElementReceipt]) -> int:
    """Return how many bytes in these verify receipts were read by copy's elements, before verify's first
    array."""
    return moved(verified) - moved(verified, ArrayBook(run.folder.arrays).began("verify"))


def _before(receipt: ElementReceipt, since: float, done: DoneBefore | None, claims: int) -> int:
    """Return how many of a receipt's bytes this command did not move. An element that outlives its controller
    moved some bytes before this command. The count is exact if there was a single attempt."""
    at_first = receipt.bytes - receipt.done_bytes + receipt.linked_bytes
    late = max([at_first, *(size for after, _, size in receipt.samples if receipt.started + after <= since)])
    return late if done is None or claims <= done.claims + 1 else min(late, done.bytes)


def keep(
    run: Run,
    receipt: StepReceipt,
    elements: Sequence[ElementReceipt] = (),
    done: Mapping[int, DoneBefore] = NOTHING,
    claims: Mapping[int, int] = NOTHING,
) -> None:
    """Write a step's receipt durably and complete `receipt` in place. Raises as `write_step`. `started` and
    `seconds` also cover earlier calls of the step, `moved_bytes` and `moved_seconds` only this call (`done`
    is `bytes_before` at its start). The file keeps the figures of the last call that moved anything."""
    before = step(run.folder, receipt["step"])
    seconds = receipt["ended"] - receipt["started"]
    if elements:
        receipt["moved_bytes"] = moved(elements, receipt["started"], done, claims)
        # Copy's workers may still read back files after the last byte was copied.
        last = max(element.ended for element in elements) - receipt["started"]
        receipt["moved_seconds"] = round(min(seconds, last) if last > 0 else seconds, 3)
    if before is not None:
        receipt["started"] = before.get("started", receipt["started"])
        seconds += before.get("seconds", 0.0)
    receipt["seconds"] = round(seconds, 3)
    kept = receipt
    if before is not None and "moved_bytes" in before and not receipt.get("moved_bytes"):
        kept = {**receipt, "moved_bytes": before["moved_bytes"], "moved_seconds": before["moved_seconds"]}
    write_step(run.folder, kept)


def published(run: Run, name: str) -> StepReceipt:
    """Return the receipt of a step that had nothing to do because the release is published."""
    info = run.info
    return {**head(run, name, time.time()), "published": True, "files": info.files, "bytes": info.bytes}


def file_digest(path: Path) -> str:
    """Return `sha256:<hex>` of a small file of the run. Raises OSError, NotPlainError."""
    with small_files.opened(path) as stream:
        status = os.fstat(stream.fileno())
        if status.st_size > _LARGE and status.st_blocks * 512 * _SPARSE < status.st_size:
            # Reading a hole of a terabyte takes half an hour.
            raise small_files.NotPlainError(f"nearly all of its {status.st_size} bytes are a hole", path)
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


# Files above `_LARGE` bytes are checked for holes: no file system compresses a run's file by the factor
# `_SPARSE`.
_LARGE, _SPARSE = 1 << 30, 64


def is_sealed(path: Path, sealed: SealedManifest | None) -> bool:
    """Compare a file beside `data/` with the seal; a file of another size is not read. Raises OSError,
    NotPlainError."""
    if sealed is None or sealed.bytes not in (None, os.lstat(path).st_size):
        return False
    return file_digest(path) == sealed.sha256
